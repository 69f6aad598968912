"""Shows setting values to people: short, printable, secrets masked."""

import re
from collections.abc import Iterable

MAX_CHARS = 100
MAX_DEPTH = 8
HIDDEN = "***"

_SECRET_NAMES = ("key", "apikey", "token", "secret", "password", "passwd", "credential", "authorization", "cookie")
_KEY_STARTS = (
    *("sk-ant-", "sk-or-", "sk-", "sk_", "pk-", "gsk_", "xai-", "AIza", "ghp_", "github_pat_", "xoxb-", "xoxp-"),
    *("xapp-", "Bearer ", "bearer ", "Basic ", "basic ", "eyJ"),
)


def is_secret_name(name: str) -> bool:
    """True if `name` is that of a secret: `api_key`, `A_TOKEN`, `PGPASSWORD`; not `key_env`."""
    name = name.lower().replace("-", "_")
    last = name.rpartition("_")[2]
    if last.removesuffix("s") in _SECRET_NAMES or last == "pass":
        return True
    return last.endswith(("password", "passphrase")) or name.endswith("_pwd") or "private_key" in name


def looks_secret(text: str) -> bool:
    """True if `text` has the shape of a key or a token."""
    text = text.strip().strip("\"'")
    if text.startswith(_KEY_STARTS):
        return len(text) > 12 and "${" not in text
    number, colon, rest = text.partition(":")
    if colon and number.isdecimal() and len(number) > 5 and len(rest) > 20:
        return True  # a bot's token
    if len(text) < 24 or not text.translate(_JOINTS).isalnum():
        return False
    mixed = any(c.islower() for c in text) and any(c.isupper() for c in text) and any(c.isdecimal() for c in text)
    return mixed or (len(text) >= 32 and all(c in "0123456789abcdefABCDEF" for c in text))


def mask(text: str) -> str:
    """`text` with passwords, user info and query values of URLs, keys and tokens masked."""
    starts = "|".join(re.escape(start) for start in _KEY_STARTS)
    text = re.sub(rf"(?<![A-Za-z0-9])({starts})[\w.+/=-]{{6,}}", rf"\1{HIDDEN}", text)
    if looks_secret(text):
        return HIDDEN
    before, at, after = text.rpartition("@")
    if at and ":" in before:
        # A raw password may hold any character, so everything before the last @ goes.
        scheme, mark, _ = before.partition("://")
        text = (f"{scheme}://" if mark and scheme.isalnum() else "") + HIDDEN + "@" + after
    return re.sub(r"([?&][^=&#\s]*=)[^&#\s]+", rf"\1{HIDDEN}", text)


def format_value(value: object, name: str = "") -> str:
    """`value` as the configuration file would write it, masked and shortened; `name` is its key."""
    text = to_toml(value, name)
    return text if len(text) <= MAX_CHARS else text[: MAX_CHARS - 1] + "…"


def to_toml(value: object, name: str = "", depth: int = 0) -> str:
    """`value` as the configuration file would write it, masked, in full."""
    if name and is_secret_name(name) and value not in ("", None):
        return f'"{HIDDEN}"'
    match value:
        case bool():
            return "true" if value else "false"
        case str():
            return toml_string(mask(value))
        case list() | tuple() if depth < MAX_DEPTH:
            return f"[{', '.join(to_toml(item, '', depth + 1) for item in value)}]"
        case dict() if depth < MAX_DEPTH:
            inner = (f"{toml_key(each)} = {to_toml(item, each, depth + 1)}" for each, item in value.items())
            return f"{{{', '.join(inner)}}}"
        case list() | tuple() | dict():
            return "…"
        case _:
            return _digits(value)


def mask_value(value: object, name: str = "", depth: int = 0) -> object:
    """`value` with everything masked that may be a secret, but not the name of a variable; `name` is its key."""
    if name and is_secret_name(name) and value not in ("", None) and not str(value).startswith("${"):
        return HIDDEN
    match value:
        case str():
            return mask(value)
        case list() | tuple() if depth < MAX_DEPTH:
            return [mask_value(item, "", depth + 1) for item in value]
        case dict() if depth < MAX_DEPTH:
            return {key: mask_value(item, key, depth + 1) for key, item in value.items()}
        case list() | tuple() | dict():
            return "…"
    return value


def _digits(value: object) -> str:
    try:
        return str(value)
    except ValueError:  # Python converts at most 4,300 digits
        return "a very long number"


def toml_string(text: str) -> str:
    """`text` as a basic TOML string."""
    return '"' + "".join(_ESCAPES.get(c) or (c if c.isprintable() else _escaped(c)) for c in text) + '"'


def toml_key(name: str) -> str:
    """`name` as a TOML key, quoted if necessary."""
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else toml_string(name)


def toml_path(path: Iterable[str | int]) -> str:
    """A path of names as people write it: `models."openai/gpt-5".window`."""
    return ".".join(toml_key(mask(str(name))) for name in path)


def with_full_stop(text: str) -> str:
    """`text` with a full stop."""
    return text if text.endswith((".", "?")) else f"{text}."


def _escaped(character: str) -> str:
    code = ord(character)
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


_JOINTS = str.maketrans("", "", "-_+=")
_ESCAPES = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t"}
