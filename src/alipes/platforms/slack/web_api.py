"""Slack's Web API through slack_sdk: one try per call, on a session that its owner closes, errors as ours.

The library's own client reads proxies from the environment and tries again; here whoever calls decides.
"""

import asyncio
import logging
import time
from collections.abc import Callable
from typing import Any, TypeAlias

import aiohttp
from slack_sdk.errors import SlackApiError, SlackClientError
from slack_sdk.web.async_client import AsyncWebClient
from yarl import URL

from alipes.kernel.errors import DeliveryError, Gone
from alipes.platforms.connection import brief, unanswered
from alipes.platforms.slack.settings import SlackSettings
from alipes.runtime.http.proxies import is_loopback

UPLOAD = 120.0
PAGE, PAGES = 200, 5
Enough: TypeAlias = Callable[[dict[str, Any]], bool]
TROUBLE = (OSError, TimeoutError, aiohttp.ClientError, SlackClientError)
UNKNOWN_TOKEN = frozenset(
    (
        "invalid_auth",
        "not_authed",
        "account_inactive",
        "token_revoked",
        "token_expired",
        "not_allowed_token_type",
    )
)
_LIMITED = frozenset(("ratelimited", "rate_limited"))
_PERHAPS = frozenset(("fatal_error", "internal_error", "service_unavailable"))
"""Slack failed, and says itself that some of it may have been done."""
_LATER = frozenset(("request_timeout", "team_added_to_org", "access_denied", "missing_scope", *UNKNOWN_TOKEN))
"""Nothing was done, and it can be once Slack or the operator has mended something."""
_log = logging.getLogger(f"{__name__}.sdk")
_log.setLevel(logging.WARNING)  # else the library writes out every call for a log that nobody reads


class Calls:
    """Opened and closed by the task that listens."""

    def __init__(self, settings: SlackSettings) -> None:
        self._settings = settings
        self._near = is_loopback(URL(settings.base_url).host or "")
        self.proxy = settings.proxy if settings.proxy and not self._near else None
        self.session: aiohttp.ClientSession
        self.web: AsyncWebClient
        self._closed: dict[str, float] = {}
        """By what is limited: until when Slack takes no more of it."""

    async def open(self) -> None:
        self.session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0), cookie_jar=aiohttp.DummyCookieJar()
        )
        self.web = AsyncWebClient(
            self._settings.token.reveal(),
            self._settings.base_url,
            session=self.session,
            retry_handlers=[],
            logger=_log,
        )
        self.web.proxy = self.proxy

    async def close(self) -> None:
        await self.session.close()

    async def __call__(self, doing: str, method: str, /, **arguments: Any) -> dict[str, Any]:
        """Ask once for `method`, as slack_sdk names it. Raises `DeliveryError`; `code` is Slack's word."""
        kind = f"{method} {arguments.get('channel', '')}" if method == "chat_postMessage" else method
        wait = self._closed.get(kind, 0.0) - time.monotonic()
        if wait > 0:
            raise DeliveryError(f"Slack asks to wait {wait:.1f} s more before {doing}.", retry_after=wait)
        self._closed.pop(kind, None)
        try:
            async with asyncio.timeout(self._settings.deadline):
                told = await getattr(self.web, method)(**arguments)
        except TROUBLE as theirs:
            error = ours(theirs, doing)
            if error.retry_after is not None:
                self._closed[kind] = time.monotonic() + error.retry_after
            raise error from theirs
        data: dict[str, Any] = told.data
        return data

    async def pages(
        self, doing: str, method: str, what: str, *, enough: Enough | None = None, **arguments: Any
    ) -> list[dict[str, Any]]:
        """All that `method` has of `what`, as far as that is reasonable; or until one is `enough`."""
        found: list[dict[str, Any]] = []
        for _ in range(PAGES):
            told = await self(doing, method, limit=PAGE, **arguments)
            found += told[what]
            arguments["cursor"] = (told.get("response_metadata") or {}).get("next_cursor")
            if not arguments["cursor"] or (enough and found and enough(found[-1])):
                break
        return found

    async def socket_address(self) -> str:
        """Where a new line to Slack can be opened, once."""
        token = self._settings.app_token.reveal()
        told = await self("opening a line", "apps_connections_open", app_token=token)
        return str(told["url"])

    async def upload(self, address: str, data: bytes) -> None:
        """Bring a file's content to the address that Slack gave for it."""
        try:
            async with (
                asyncio.timeout(UPLOAD),
                self.session.post(address, data=data, proxy=self.proxy) as response,
            ):
                status = response.status
        except TROUBLE as theirs:
            raise DeliveryError(f"A file could not be brought to Slack ({discreet(theirs)}).") from theirs
        if status != 200:
            raise DeliveryError(f"A file could not be brought to Slack (status {status}).")

    def trusts(self, address: str) -> bool:
        """Is it Slack's own, so that it may be shown our token?"""
        url, base = URL(address), URL(self._settings.base_url)
        if self._near:
            return url.origin() == base.origin()
        return url.scheme == "https" and (url.host == "slack.com" or str(url.host).endswith(".slack.com"))


def code(error: BaseException | None) -> str:
    """Slack's own word for why it refused, of an error of ours or of the library's; else empty."""
    theirs = error.__cause__ if isinstance(error, DeliveryError) else error
    return str(_told(theirs).get("error", "")) if isinstance(theirs, SlackApiError) else ""


def ours(theirs: BaseException, doing: str) -> DeliveryError:
    """A failed call of theirs, by who acts next."""
    if isinstance(theirs, SlackApiError):
        return _refused(theirs, doing)
    sent = not isinstance(theirs, aiohttp.ClientConnectorError | aiohttp.ConnectionTimeoutError)
    return unanswered("Slack", doing, discreet(theirs), sent=sent, late=isinstance(theirs, TimeoutError))


def _refused(theirs: SlackApiError, doing: str) -> DeliveryError:
    told, response = _told(theirs), theirs.response
    why = str(told.get("error", ""))
    status = getattr(response, "status_code", getattr(response, "status", 0))
    if status == 429 or why in _LIMITED:
        wait = float(response.headers.get("Retry-After") or 30)
        return DeliveryError(f"Slack asks to wait {wait:.0f} s before {doing}.", retry_after=wait)
    if why in UNKNOWN_TOKEN:
        return DeliveryError(f"Slack does not accept our token ({doing}: {why}).")
    if why == "missing_scope":
        return DeliveryError(
            f"The app lacks the scope {told.get('needed')} for {doing}: add it, install anew."
        )
    if why in _PERHAPS or not why:
        return DeliveryError(f"Slack failed with {why or status} while {doing}.", uncertain=True)
    if why in _LATER:
        return DeliveryError(f"Slack does not take it now ({doing}: {why}).")
    return Gone(f"Slack refuses it ({doing}: {why}).")


def _told(theirs: SlackApiError) -> dict[str, Any]:
    data = getattr(theirs.response, "data", None)
    return data if isinstance(data, dict) else {}


def discreet(trouble: BaseException) -> str:
    """Without addresses: those of lines and of uploads are secrets while they last."""
    if isinstance(trouble, aiohttp.ClientResponseError):
        return f"{type(trouble).__name__}: {trouble.status} {trouble.message}"
    return brief(trouble)
