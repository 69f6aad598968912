"""Slack's Socket Mode: one websocket at a time; the next one is open before the last one closes.

Envelopes are passed on at once and acknowledged on the socket they came by.
"""

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any, Literal, TypeAlias

import aiohttp
import msgspec
from aiohttp import WSMsgType
from slack_sdk.socket_mode.request import SocketModeRequest
from slack_sdk.socket_mode.response import SocketModeResponse

from alipes.kernel.errors import ConfigError, DeliveryError
from alipes.kernel.platform import OnStatus
from alipes.platforms.slack.web_api import FAILURES, UNKNOWN_TOKEN, SlackApi, describe_without_urls, error_code
from alipes.runtime.tasks import backoff

log = logging.getLogger(__name__)

CONNECT_TIMEOUT = 30.0
"""Seconds until Slack must have said hello."""
OVERLAP = 20.0
"""Seconds that a socket is still read after Slack announced to close it."""
CLOSE_TIMEOUT = 2.0
HEALTHY_AFTER = 5.0
"""Seconds after which a socket counts as healthy: the next one is tried at once."""
OnRequest: TypeAlias = Callable[["SlackSocket", SocketModeRequest], None]


class SlackSocket:
    """One websocket. `changed` is set when it is up, when Slack is about to close it, and when it is closed."""

    def __init__(
        self, api: SlackApi, on_request: OnRequest, *, on_alive: Callable[[], None], on_hello: Callable[[], None]
    ) -> None:
        """`on_hello` is called at the hello, before any request; `on_alive` at each sign of life."""
        self._api, self._on_request = api, on_request
        self._on_alive, self._on_hello = on_alive, on_hello
        self._wire: aiohttp.ClientWebSocketResponse | None = None
        self.changed = asyncio.Event()
        self.up = self.closing = self.gone = False
        self.why = "Slack closed the socket"
        self.pause: float | None = None
        """Pause before the next socket that Slack asked for, in seconds."""

    async def run(self) -> None:
        """Open the socket, read it to its end and close it. Raises ConfigError if the configuration is wrong."""
        try:
            address = await self._api.socket_address()
            async with self._api.session.ws_connect(
                address,
                autoping=False,
                proxy=self._api.proxy,
                max_msg_size=0,
                timeout=aiohttp.ClientWSTimeout(ws_close=CLOSE_TIMEOUT),
            ) as self._wire:
                async with asyncio.timeout(CONNECT_TIMEOUT) as limit:
                    await self._read(self._wire, limit)
        except TimeoutError:
            self.why = "Slack did not close the socket it announced to close" if self.up else "Slack did not say hello"
        except DeliveryError as error:
            if error_code(error) in UNKNOWN_TOKEN | {"missing_scope"}:
                raise ConfigError(
                    "Slack does not accept the app-level token: it starts with xapp- and needs the scope "
                    f"connections:write ({error_code(error)})."
                ) from error
            self.why, self.pause = str(error), error.retry_after
        except FAILURES as failure:
            self.why = f"the Slack socket broke ({describe_without_urls(failure)})"
        finally:
            self.up, self.gone = False, True
            self.changed.set()

    async def wait_for(self, state: Literal["up", "closing"]) -> None:
        """Return when it is up, or when Slack is about to close it; in any case when it is closed."""
        while not (getattr(self, state) or self.gone):
            self.changed.clear()
            await self.changed.wait()

    async def acknowledge(self, envelope: str, payload: dict[str, Any] | None = None) -> None:
        """Acknowledge an envelope. If the socket is closed, Slack sends it again on another."""
        if self._wire is not None and not self._wire.closed:
            text = msgspec.json.encode(SocketModeResponse(envelope, payload).to_dict()).decode()
            with suppress(ConnectionError):
                await self._wire.send_str(text)

    async def _read(self, wire: aiohttp.ClientWebSocketResponse, limit: asyncio.Timeout) -> None:
        asked = False
        while True:
            try:
                message = await wire.receive(self._api.settings.beat)
            except TimeoutError:
                if asked:
                    self.why = "the Slack socket timed out"
                    return
                asked = True
                with suppress(ConnectionError):
                    await wire.ping()
                continue
            asked = False
            match message.type:
                case WSMsgType.TEXT:
                    self._handle(msgspec.json.decode(message.data), limit)
                case WSMsgType.PING:
                    with suppress(ConnectionError):
                        await wire.pong(message.data)
                case WSMsgType.PONG:
                    pass
                case _:
                    return
            if self.up:
                self._on_alive()

    def _handle(self, message: dict[str, Any], limit: asyncio.Timeout) -> None:
        match message:
            case {"type": "hello"}:
                limit.reschedule(None)
                self.up = True
                self._on_hello()
                self.changed.set()
            case {"type": "disconnect", "reason": "link_disabled"}:
                raise ConfigError("Socket Mode is off: turn it on on the app's page.")
            case {"type": "disconnect"}:
                limit.reschedule(asyncio.get_running_loop().time() + OVERLAP)
                self.closing = True
                self.changed.set()
            case _ if request := SocketModeRequest.from_dict(message):
                self._on_request(self, request)


class SlackConnection:
    def __init__(
        self, api: SlackApi, on_request: OnRequest, on_gap: Callable[[], None], tasks: asyncio.TaskGroup
    ) -> None:
        """`on_gap` is called when a socket is up after a time without one, before any of its requests."""
        self._api, self._on_request, self._on_gap, self._tasks = api, on_request, on_gap, tasks

    async def serve(self, on_status: OnStatus) -> None:
        """Serve until cancelled. Failures are reported and retried after a pause."""
        loop, failures, gap = asyncio.get_running_loop(), 0, True
        while True:
            on_hello = self._on_gap if gap else lambda: None
            on_alive = partial(on_status, "ready", "")
            socket = SlackSocket(self._api, self._on_request, on_alive=on_alive, on_hello=on_hello)
            self._tasks.create_task(socket.run())
            await socket.wait_for("up")
            began, good = loop.time(), socket.up
            if good:
                await socket.wait_for("closing")
            gap = socket.gone
            if not socket.gone:
                log.info("Slack asks for a new socket")
                continue
            log.warning("%s", socket.why)
            on_status("broken", socket.why)
            failures = 0 if good and loop.time() - began > HEALTHY_AFTER else failures + 1
            if failures:
                await asyncio.sleep(socket.pause if socket.pause is not None else backoff(failures))
