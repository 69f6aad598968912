"""`tools.url_safety`: checks URLs with the rules of our own fetcher, and downloads through it."""

import asyncio
import socket
from typing import Any
from urllib.parse import urljoin, urlsplit

from alipes.compat.hermes.modules.current_app import bridge
from alipes.runtime.http.public_fetch import FetchedResource, FetchError, PublicFetcher, is_public

MAX_LOGGED_CHARS = 80


def is_safe_url(url: str) -> bool:
    """True for an http or https URL whose host has only public addresses, or is in `fetch.allow`.

    Looks the name up, so call `async_is_safe_url` on the loop.
    """
    try:
        parts = urlsplit(str(url).strip())
        host, port = parts.hostname or "", parts.port or (443 if parts.scheme == "https" else 80)
    except ValueError:
        return False
    if parts.scheme not in ("http", "https") or not host:
        return False
    allowed = {each.lower() for each in bridge().settings.fetch.allow}
    if host in allowed or f"{host}:{port}" in allowed:
        return True
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        return False
    return bool(found) and all(is_public(str(each[4][0])) for each in found)


async def async_is_safe_url(url: str) -> bool:
    return await asyncio.to_thread(is_safe_url, url)


def is_always_blocked_url(url: str) -> bool:
    """True for addresses that no setting may allow; here the same as an unsafe URL."""
    return not is_safe_url(url)


def redirect_target_from_response(response: Any) -> str | None:
    """The absolute URL of a redirect; None if the response is not one."""
    headers = getattr(response, "headers", None) or {}
    target = headers.get("location") or headers.get("Location")
    status = int(getattr(response, "status_code", getattr(response, "status", 0)) or 0)
    if not target or status not in (301, 302, 303, 307, 308):
        return None
    return urljoin(str(getattr(response, "url", "") or ""), str(target))


async def ssrf_redirect_guard(response: Any) -> None:
    """A response hook for httpx: raises ValueError for a redirect to an address that is not public."""
    target = redirect_target_from_response(response)
    if target is not None and not await async_is_safe_url(target):
        raise ValueError(f"redirect to {safe_url_for_log(target)} is refused: the address is not public")


def safe_url_for_log(url: str, max_len: int = MAX_LOGGED_CHARS) -> str:
    """The URL without user name, password, query and fragment."""
    try:
        parts = urlsplit(str(url or ""))
        port = f":{parts.port}" if parts.port else ""
    except ValueError:
        return "(invalid URL)"
    text = f"{parts.scheme}://{parts.hostname or ''}{port}{parts.path}" if parts.scheme else parts.path
    return text if len(text) <= max_len else f"{text[: max(max_len - 1, 0)]}…"


async def fetch_public(url: str, largest: int) -> FetchedResource:
    """Download from a public address. Raises ValueError with the reason."""
    current = bridge()
    fetcher = PublicFetcher(current.clients(), current.settings.fetch.allow, name="hermes-media")
    try:
        return await fetcher.fetch(url, largest=largest)
    except FetchError as error:
        raise ValueError(str(error)) from error
