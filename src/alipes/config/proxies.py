"""The proxy variables, read as curl reads them: lower case wins over upper case."""

from collections.abc import Callable
from typing import TypeVar

from alipes.config.loader import Reading
from alipes.config.urls import Wrong, check_no_proxy, check_proxy, check_usable
from alipes.kernel.models import Proxies

PROXY_VARIABLES = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY")
T = TypeVar("T")


def proxies(reading: Reading) -> Proxies:
    """What the variables say; what is wrong with them becomes a problem of `reading`."""
    http, https = (_checked(reading, name, _proxy) for name in ("HTTP_PROXY", "HTTPS_PROXY"))
    # Desktops set ALL_PROXY to a SOCKS address beside the other two, which leave it nothing to do.
    every = _checked(reading, "ALL_PROXY", check_proxy if http and https else _proxy)
    no = _checked(reading, "NO_PROXY", check_no_proxy)
    return Proxies(http or "", https or "", "" if http and https else every or "", no or ())


def _proxy(text: str) -> str:
    return check_usable(check_proxy(text))


def _checked(reading: Reading, variable: str, check: Callable[[str], T]) -> T | None:
    name = _which(reading, variable)
    text = reading.variables.get(name)
    try:
        return check(text) if text else None
    except Wrong as wrong:
        reading.complain(name, text, str(wrong))
        return None


def _which(reading: Reading, variable: str) -> str:
    if reading.variables.get(variable.lower()):
        return variable.lower()
    # A CGI server makes HTTP_PROXY of a caller's `Proxy:` header; there only the lower case is ours.
    if variable == "HTTP_PROXY" and reading.variables.environ.get("REQUEST_METHOD"):
        return variable.lower()
    return variable
