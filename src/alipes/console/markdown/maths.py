"""TeX formulas in Markdown: finds them and writes them as readable text."""

import re

MAX_FORMULA = 300
"""A longer formula in a line of text is shown as text."""
FORMULA = re.compile(
    rf"\$\$(?P<display>(?:[^$\\\n]|\\.){{1,{MAX_FORMULA}}}?)\$\$"
    rf"|\$(?![\s$])(?P<dollar>(?:[^$\\\n]|\\.){{1,{MAX_FORMULA}}}?)(?<!\s)\$(?![\d$])"
    rf"|\\\((?P<round>[^\n]{{1,{MAX_FORMULA}}}?)\\\)"
    rf"|\\\[(?P<square>[^\n]{{1,{MAX_FORMULA}}}?)\\\]"
)
"""A formula within a line. `$` is also money, so that a formula starts and ends without a blank."""
FORMULA_BLOCK = re.compile(r" {0,3}(?:\$\$(?!.*\$\$ *\S)|\\\[(?!.*\\\] *\S)(?!.*(?<!\\)\]))")
r"""The first line of a formula on lines of its own. `\[text]` is an escaped bracket."""
_LOOKS_LIKE_MATHS = re.compile(r"[\\^_={}<>+*/|]|^[A-Za-z]$|^[A-Za-z]\(|^[A-Za-z]'|^-?\w+[-,]\w")

_NAMES = """
alpha=α beta=β gamma=γ delta=δ epsilon=ε varepsilon=ε zeta=ζ eta=η theta=θ iota=ι kappa=κ lambda=λ mu=μ nu=ν xi=ξ pi=π
rho=ρ sigma=σ tau=τ upsilon=υ phi=φ varphi=φ chi=χ psi=ψ omega=ω Gamma=Γ Delta=Δ Theta=Θ Lambda=Λ Xi=Ξ Pi=Π Sigma=Σ
Phi=Φ Psi=Ψ Omega=Ω times=× cdot=· div=÷ pm=± mp=∓ le=≤ leq=≤ ge=≥ geq=≥ ne=≠ neq=≠ approx=≈ equiv=≡ sim=∼ propto=∝
infty=∞ sum=∑ prod=∏ int=∫ partial=∂ nabla=∇ sqrt=√ in=∈ notin=∉ subset=⊂ subseteq=⊆ cup=∪ cap=∩ emptyset=∅ forall=∀
exists=∃ neg=¬ land=∧ wedge=∧ lor=∨ vee=∨ to=→ rightarrow=→ leftarrow=← Rightarrow=⇒ Leftarrow=⇐ implies=⇒ iff=⇔
Leftrightarrow=⇔ mapsto=↦ ldots=… dots=… cdots=⋯ langle=⟨ rangle=⟩ lfloor=⌊ rfloor=⌋ lceil=⌈ rceil=⌉ circ=∘ oplus=⊕
otimes=⊗ perp=⊥ parallel=∥ angle=∠ degree=° prime=′ ell=ℓ hbar=ℏ Re=ℜ Im=ℑ aleph=ℵ mid=| vert=| sin=sin cos=cos tan=tan
log=log ln=ln exp=exp min=min max=max lim=lim det=det
"""
_SYMBOLS = {"quad": "  ", "qquad": "    ", **dict(pair.split("=") for pair in _NAMES.split())}
_DROPPED = r"\\(?:left|right|big|Big|bigg|Bigg|displaystyle|limits|nolimits|middle)(?![A-Za-z])\.?"
_WRAPPERS = (
    r"\\(?:text|textbf|textit|mathrm|mathbf|mathit|mathsf|mathtt|mathcal|mathbb|operatorname|boldsymbol)"
    r"\*?\{([^{}]*)\}"
)
_UP = str.maketrans("0123456789+-=()ni", "⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻⁼⁽⁾ⁿⁱ")
_DOWN = str.maketrans("0123456789+-=()ijkn", "₀₁₂₃₄₅₆₇₈₉₊₋₌₍₎ᵢⱼₖₙ")


def find_formula(text: str, start: int) -> tuple[int, str] | None:
    """The end and the inner text of the formula that starts at `start`."""
    found = FORMULA.match(text, start)
    if found is None or (found["dollar"] is not None and not _LOOKS_LIKE_MATHS.search(found["dollar"])):
        return None
    if found["square"] is not None and not any(map(str.isalnum, found["square"])):
        return None  # escaped brackets
    return found.end(), found[found.lastgroup or 0]


def to_readable(formula: str) -> str:
    """The formula with Unicode symbols for common TeX commands; unknown commands stay as they are."""
    text = re.sub(r"\\(?:begin|end)\{[^{}]*\}(?:\{[lcr|]*\})?", "", formula)
    text = re.sub(_DROPPED, "", text)
    text = re.sub(r"(?<!\\)&", " ", text)
    text = re.sub(r"\\\\\s*(?:\[[^\]]*\])?", "  ", text)
    for _ in range(4):  # the innermost braces first
        before = text
        text = re.sub(_WRAPPERS, r"\1", text)
        text = re.sub(r"\\[dt]?frac\s*\{([^{}]*)\}\s*\{([^{}]*)\}", lambda m: f"{_group(m[1])}/{_group(m[2])}", text)
        text = re.sub(r"\\sqrt\s*\{([^{}]*)\}", lambda m: f"√{_group(m[1])}", text)
        text = re.sub(r"([\^_])\{([^{}]*)\}", lambda m: _raise(m[1], m[2]), text)
        if text == before:
            break
    text = re.sub(r"\\([A-Za-z]+)", lambda m: _SYMBOLS.get(m[1], m[0]), text)
    text = re.sub(r"([\^_])([0-9nijk])", lambda m: _raise(m[1], m[2]), text)
    text = re.sub(r" *\\[,;:! ] *", " ", text)
    text = re.sub(r"\\([{}%$#&_|])", r"\1", text)
    return re.sub(r" {3,}", "  ", text).strip()


def _group(text: str) -> str:
    """The text in parentheses unless it is one symbol or number."""
    return text if re.fullmatch(r"\s*(?:\w+|\\[A-Za-z]+)\s*", text) else f"({text})"


def _raise(sign: str, text: str) -> str:
    """A superscript or subscript, in small characters if all of it can be."""
    table = _UP if sign == "^" else _DOWN
    if text and all(ord(char) in table for char in text):
        return text.translate(table)
    return f"{sign}{text}" if len(text) == 1 else f"{sign}({text})"
