"""Links whose text names another host than the one they lead to."""

import re
from urllib.parse import urlsplit

_HOST = r"(?:[^\s/@]{0,80}@)?((?:[\w-]{1,63}\.){1,10}[\w-]{2,63}|\[[\da-fA-F:.]{2,45}\])"
_ADDRESS = re.compile(rf"\b[a-zA-Z][\w+.-]{{1,20}}://{_HOST}|\bwww\.{_HOST}")
_BARE_HOST = re.compile(rf"\s*{_HOST}")
_FILE_NAMES = re.compile(
    r"\.(?:c|cc|cfg|cpp|css|csv|go|h|html?|ini|java|jpe?g|js|json|jsx|lock|log|md|pdf|png|py|rb|rs|rst|sh|sql|svg"
    r"|toml|tsx?|txt|xml|ya?ml|zip)$",
    re.IGNORECASE,
)
"""Names of files are common texts of links; some of their endings are domains too."""


def link_host(address: str) -> str:
    """The host that an address leads to, without user name and port; empty if it has none."""
    try:
        return (urlsplit(address).hostname or "").lower()
    except ValueError:
        return ""


def is_misleading(text: str, address: str) -> bool:
    """True if the text of a link contains the address of another host, or begins with the name of one."""
    if address.lower() in (text.strip().lower(), f"mailto:{text.strip().lower()}"):
        return False
    leads = link_host(address).removeprefix("www.")
    named = [found[1] or found[2] for found in _ADDRESS.finditer(text)]
    if not named and (found := _BARE_HOST.match(text)) and not _FILE_NAMES.search(found[1]):
        named = [found[1]]
    return any(host.lower().removeprefix("www.").strip("[]") != leads for host in named)
