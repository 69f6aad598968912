"""`agent.redact`: masks secrets in texts: those of this home, and texts that look like keys."""

import re
from functools import lru_cache

from alipes.compat.hermes.modules.current_app import bridge, is_bound
from alipes.runtime.redaction import HIDDEN, make_mask

_NAME = r"[\w-]*(?:api[_-]?key|token|secret|password|passwd|authorization|credential)[\w-]*"
_PATTERNS = (
    (re.compile(rf"({_NAME}[\"']?\s*[:=]\s*[\"']?)(?:Bearer\s+)?[^\s\"',;&]{{6,}}", re.IGNORECASE), rf"\1{HIDDEN}"),
    (re.compile(r"\b(Bearer\s+)[\w.~+/-]{8,}=*", re.IGNORECASE), rf"\1{HIDDEN}"),
    (re.compile(r"\b(?:sk|pk|rk|xox[abprs]|xapp|gh[pousr]|glpat|hf|AKIA|AIza)[-_]?[\w-]{16,}"), HIDDEN),
    (re.compile(r"\b\d{8,10}:[\w-]{30,}"), HIDDEN),
    (re.compile(r"(\w+://[^\s:/@]+:)[^\s@/]+@"), rf"\1{HIDDEN}@"),
)


_mask = lru_cache(maxsize=1)(make_mask)


def redact_sensitive_text(text: str, **_options: object) -> str:
    """The text with secrets replaced by `***`."""
    if not text:
        return text
    text = _mask(bridge().settings.secrets())(str(text)) if is_bound() else str(text)
    for pattern, replacement in _PATTERNS:
        text = pattern.sub(replacement, text)
    return text
