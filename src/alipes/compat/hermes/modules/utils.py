"""`utils`: values of variables, atomic file writes and small parsers that plugins import."""

import json
import os
import stat
import tempfile
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from alipes.compat.hermes.modules.current_app import bridge

TRUTHY_STRINGS = frozenset({"1", "true", "yes", "on"})
_SCHEMES = {"socks://": "socks5://"}


def is_truthy_value(value: Any, default: bool = False) -> bool:
    """True for 1, true, yes and on; `default` for None."""
    if value is None:
        return default
    return value.strip().lower() in TRUTHY_STRINGS if isinstance(value, str) else bool(value)


def env_var_enabled(name: str, default: str = "") -> bool:
    return is_truthy_value(bridge().variable(name) or default)


def env_int(key: str, default: int = 0) -> int:
    try:
        return int(bridge().variable(key).strip())
    except ValueError:
        return default


def env_float(key: str, default: float = 0.0) -> float:
    try:
        return float(bridge().variable(key).strip())
    except ValueError:
        return default


def env_bool(key: str, default: bool = False) -> bool:
    return is_truthy_value(bridge().variable(key) or None, default)


def atomic_replace(tmp_path: str | Path, target: str | Path) -> str:
    """Move a file onto `target`, or onto the file that the link `target` names. Keeps its permissions."""
    final = os.path.realpath(target)
    if os.path.exists(final):
        os.chmod(tmp_path, stat.S_IMODE(os.stat(final).st_mode))
    os.replace(tmp_path, final)
    return final


def atomic_json_write(
    path: str | Path, data: Any, *, indent: int = 2, mode: int | None = None, **dump_kwargs: Any
) -> None:
    """Write JSON so that readers find the old or the new file, never a part."""
    text = json.dumps(data, indent=indent, **{"ensure_ascii": False, **dump_kwargs})
    atomic_text_write(Path(path), text, mode)


def atomic_text_write(path: Path, text: str, mode: int | None = None) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    file, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with open(file, "w", encoding="utf-8") as opened:
            opened.write(text)
            opened.flush()
            os.fsync(file)
        final = atomic_replace(temporary, path)
        if mode is not None:
            os.chmod(final, mode)
    finally:
        Path(temporary).unlink(missing_ok=True)


def safe_json_loads(text: str, default: Any = None) -> Any:
    try:
        return json.loads(text)
    except (TypeError, ValueError):
        return default


def normalize_proxy_url(proxy_url: str | None) -> str | None:
    """A proxy URL in the form that HTTP libraries accept; None if there is none."""
    url = (proxy_url or "").strip()
    for short, full in _SCHEMES.items():
        if url.lower().startswith(short):
            return full + url[len(short) :]
    return url or None


def base_url_hostname(base_url: str) -> str:
    url = base_url if "://" in (base_url or "") else f"//{base_url or ''}"
    try:
        return (urlsplit(url).hostname or "").rstrip(".")
    except ValueError:
        return ""


def base_url_host_matches(base_url: str, domain: str) -> bool:
    """True for the domain and its subdomains."""
    host, domain = base_url_hostname(base_url), (domain or "").strip().lower().rstrip(".")
    return bool(domain) and (host == domain or host.endswith(f".{domain}"))
