"""Errors of requests that httpx2 does not have, and tuples of its errors. Import it through `lazy_httpx`."""

import httpx2


class ForbiddenAddress(httpx2.ConnectError):
    """All addresses of the host are forbidden."""


NOT_SENT = (
    httpx2.ConnectError,
    httpx2.ConnectTimeout,
    httpx2.PoolTimeout,
    httpx2.ProxyError,
    httpx2.UnsupportedProtocol,
)
"""Raised before anything of a request was sent, so it had no effect."""
