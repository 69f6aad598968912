"""Slack's Web API through slack_sdk: one attempt per call, a session that we close, and our own errors.

The library's own client reads proxies from the environment and retries; here the caller decides.
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

from alipes.kernel.errors import DeliveryError, Undeliverable
from alipes.platforms.connection import describe_error, no_answer_error
from alipes.platforms.slack.settings import SlackConfig
from alipes.runtime.http.proxies import is_loopback

UPLOAD_TIMEOUT = 120.0
PAGE, PAGES = 200, 5
Enough: TypeAlias = Callable[[dict[str, Any]], bool]
FAILURES = (OSError, TimeoutError, aiohttp.ClientError, SlackClientError)
UNKNOWN_TOKEN = frozenset(
    ("invalid_auth", "not_authed", "account_inactive", "token_revoked", "token_expired", "not_allowed_token_type")
)
_LIMITED = frozenset(("ratelimited", "rate_limited"))
_PERHAPS = frozenset(("fatal_error", "internal_error", "service_unavailable"))
"""Slack failed and part of the call may have been done."""
_LATER = frozenset(("request_timeout", "team_added_to_org", "access_denied", "missing_scope", *UNKNOWN_TOKEN))
"""Nothing was done; it may work later, or after a change of the configuration."""
_log = logging.getLogger(f"{__name__}.sdk")
_log.setLevel(logging.WARNING)  # the library logs every call at lower levels


class SlackApi:
    """Opened and closed by the task that listens."""

    def __init__(self, settings: SlackConfig) -> None:
        self.settings = settings
        self._is_local = is_loopback(URL(settings.base_url).host or "")
        self.proxy = settings.proxy if settings.proxy and not self._is_local else None
        self.session: aiohttp.ClientSession
        self.web: AsyncWebClient
        self._limited_until: dict[str, float] = {}
        """Until when Slack limits a method, by method and channel."""

    async def open(self) -> None:
        self.session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0), cookie_jar=aiohttp.DummyCookieJar()
        )
        self.web = AsyncWebClient(
            self.settings.token.reveal(), self.settings.base_url, session=self.session, retry_handlers=[], logger=_log
        )
        self.web.proxy = self.proxy

    async def close(self) -> None:
        await self.session.close()

    async def __call__(self, doing: str, method: str, /, **arguments: Any) -> dict[str, Any]:
        """Call `method`, named as in slack_sdk, once. Raises `DeliveryError`; see `error_code`."""
        kind = f"{method} {arguments.get('channel', '')}" if method == "chat_postMessage" else method
        wait = self._limited_until.get(kind, 0.0) - time.monotonic()
        if wait > 0:
            raise DeliveryError(f"Slack asks to wait {wait:.1f} s more before {doing}.", retry_after=wait)
        self._limited_until.pop(kind, None)
        try:
            async with asyncio.timeout(self.settings.deadline):
                answer = await getattr(self.web, method)(**arguments)
        except FAILURES as failure:
            error = translate_error(failure, doing)
            if error.retry_after is not None:
                self._limited_until[kind] = time.monotonic() + error.retry_after
            raise error from failure
        data: dict[str, Any] = answer.data
        return data

    async def pages(
        self, doing: str, method: str, what: str, *, enough: Enough | None = None, **arguments: Any
    ) -> list[dict[str, Any]]:
        """All `what` that `method` returns, up to `PAGES` pages or until one is `enough`."""
        found: list[dict[str, Any]] = []
        for _ in range(PAGES):
            answer = await self(doing, method, limit=PAGE, **arguments)
            found += answer[what]
            arguments["cursor"] = (answer.get("response_metadata") or {}).get("next_cursor")
            if not arguments["cursor"] or (enough and found and enough(found[-1])):
                break
        return found

    async def socket_address(self) -> str:
        token = self.settings.app_token.reveal()
        answer = await self("opening a socket", "apps_connections_open", app_token=token)
        return str(answer["url"])

    async def upload(self, address: str, data: bytes) -> None:
        """Upload a file's content to the address that Slack gave for it."""
        try:
            async with (
                asyncio.timeout(UPLOAD_TIMEOUT),
                self.session.post(address, data=data, proxy=self.proxy) as response,
            ):
                status = response.status
        except FAILURES as failure:
            raise DeliveryError(f"Uploading a file to Slack failed ({describe_without_urls(failure)}).") from failure
        if status != 200:
            raise DeliveryError(f"Uploading a file to Slack failed (status {status}).")

    def is_slack_url(self, address: str) -> bool:
        """True if our token may be sent to this address."""
        url, base = URL(address), URL(self.settings.base_url)
        if self._is_local:
            return url.origin() == base.origin()
        return url.scheme == "https" and (url.host == "slack.com" or str(url.host).endswith(".slack.com"))


def error_code(error: BaseException | None) -> str:
    """Slack's error code in an error of ours or of the library; otherwise empty."""
    failure = error.__cause__ if isinstance(error, DeliveryError) else error
    return str(_error_data(failure).get("error", "")) if isinstance(failure, SlackApiError) else ""


def translate_error(failure: BaseException, doing: str) -> DeliveryError:
    if not isinstance(failure, SlackApiError):
        sent = not isinstance(failure, aiohttp.ClientConnectorError | aiohttp.ConnectionTimeoutError)
        why, late = describe_without_urls(failure), isinstance(failure, TimeoutError)
        return no_answer_error("Slack", doing, why, sent=sent, late=late)
    data, response = _error_data(failure), failure.response
    why = str(data.get("error", ""))
    status = getattr(response, "status_code", getattr(response, "status", 0))
    if status == 429 or why in _LIMITED:
        wait = float(response.headers.get("Retry-After") or 30)
        return DeliveryError(f"Slack asks to wait {wait:.0f} s before {doing}.", retry_after=wait)
    if why in UNKNOWN_TOKEN:
        return DeliveryError(f"Slack does not accept our token ({doing}: {why}).")
    if why == "missing_scope":
        return DeliveryError(f"The app needs the scope {data.get('needed')} for {doing}: add it and reinstall the app.")
    if why in _PERHAPS or not why:
        return DeliveryError(f"Slack failed with {why or status} while {doing}.", uncertain=True)
    if why in _LATER:
        return DeliveryError(f"Slack cannot do it now ({doing}: {why}).")
    return Undeliverable(f"Slack rejected it ({doing}: {why}).")


def _error_data(failure: SlackApiError) -> dict[str, Any]:
    data = getattr(failure.response, "data", None)
    return data if isinstance(data, dict) else {}


def describe_without_urls(trouble: BaseException) -> str:
    """Without addresses: those of sockets and uploads are temporary secrets."""
    if isinstance(trouble, aiohttp.ClientResponseError):
        return f"{type(trouble).__name__}: {trouble.status} {trouble.message}"
    return describe_error(trouble)
