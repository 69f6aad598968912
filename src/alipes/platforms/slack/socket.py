"""The way in from Slack: one line (a websocket) at a time, and the next is there before the last one goes.

Envelopes are handed on as they come; who deals with one acknowledges it on the line it came by.
"""

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any, TypeAlias

import aiohttp
import msgspec
from aiohttp import WSMsgType
from slack_sdk.socket_mode.request import SocketModeRequest
from slack_sdk.socket_mode.response import SocketModeResponse

from alipes.kernel.errors import ConfigError, DeliveryError
from alipes.kernel.platform import Tell
from alipes.platforms.slack.web_api import TROUBLE, UNKNOWN_TOKEN, Calls, code, discreet
from alipes.runtime.tasks import backoff

log = logging.getLogger(__name__)

CONNECT = 30.0
"""Seconds in which Slack must have said hello."""
LINGER = 20.0
"""Seconds that a line is still read after Slack said that it will close it."""
GOODBYE = 2.0
STEADY = 5.0
"""Seconds after which a line that ends was a good one: the next is tried at once."""
Hear: TypeAlias = Callable[["Line", SocketModeRequest], None]


class Line:
    """One websocket. `changed` is set when it is up, when it is about to go, and when it has gone."""

    def __init__(
        self, calls: Calls, hear: Hear, beat: float, *, alive: Callable[[], None], greeted: Callable[[], None]
    ) -> None:
        """`greeted`: called at the hello, before anything else is heard; `alive`: at each sign of life."""
        self._calls, self._hear, self._beat = calls, hear, beat
        self._alive, self._greeted = alive, greeted
        self._wire: aiohttp.ClientWebSocketResponse | None = None
        self.changed = asyncio.Event()
        self.up = self.leaving = self.gone = False
        self.why = "Slack closed the line"
        self.pause: float | None = None
        """Seconds that Slack asked us to wait before the next."""

    async def run(self) -> None:
        """Open it, read it to its end and close it. Raises ConfigError where only the operator can help."""
        try:
            address = await self._calls.socket_address()
            async with self._calls.session.ws_connect(
                address,
                autoping=False,
                proxy=self._calls.proxy,
                max_msg_size=0,
                timeout=aiohttp.ClientWSTimeout(ws_close=GOODBYE),
            ) as self._wire:
                async with asyncio.timeout(CONNECT) as limit:
                    await self._read(self._wire, limit)
        except TimeoutError:
            self.why = "Slack did not close the line it wanted to" if self.up else "Slack did not say hello"
        except DeliveryError as error:
            if code(error) in UNKNOWN_TOKEN | {"missing_scope"}:
                raise ConfigError(
                    "Slack does not accept the app's own token: it begins with xapp- and has the scope "
                    f"connections:write ({code(error)})."
                ) from error
            self.why, self.pause = str(error), error.retry_after
        except TROUBLE as trouble:
            self.why = f"the line to Slack broke ({discreet(trouble)})"
        finally:
            self.up, self.gone = False, True
            self.changed.set()

    async def until_up(self) -> None:
        """Or it has gone."""
        while not (self.up or self.gone):
            self.changed.clear()
            await self.changed.wait()

    async def until_leaving(self) -> None:
        """Or it has gone."""
        while not (self.leaving or self.gone):
            self.changed.clear()
            await self.changed.wait()

    async def acknowledge(self, envelope: str, payload: dict[str, Any] | None = None) -> None:
        """Where the line is gone, Slack will bring it again by another."""
        if self._wire is not None and not self._wire.closed:
            told = msgspec.json.encode(SocketModeResponse(envelope, payload).to_dict()).decode()
            with suppress(ConnectionError):
                await self._wire.send_str(told)

    async def _read(self, wire: aiohttp.ClientWebSocketResponse, limit: asyncio.Timeout) -> None:
        asked = False
        while True:
            try:
                message = await wire.receive(self._beat)
            except TimeoutError:
                if asked:
                    self.why = "the line to Slack went silent"
                    return
                asked = True
                with suppress(ConnectionError):
                    await wire.ping()
                continue
            asked = False
            match message.type:
                case WSMsgType.TEXT:
                    self._told(msgspec.json.decode(message.data), limit)
                case WSMsgType.PING:
                    with suppress(ConnectionError):
                        await wire.pong(message.data)
                case WSMsgType.PONG:
                    pass
                case _:
                    return
            if self.up:
                self._alive()

    def _told(self, message: dict[str, Any], limit: asyncio.Timeout) -> None:
        match message:
            case {"type": "hello"}:
                limit.reschedule(None)
                self.up = True
                self._greeted()
                self.changed.set()
            case {"type": "disconnect", "reason": "link_disabled"}:
                raise ConfigError("Socket Mode is switched off on the app's page: switch it on.")
            case {"type": "disconnect"}:
                limit.reschedule(asyncio.get_running_loop().time() + LINGER)
                self.leaving = True
                self.changed.set()
            case _ if request := SocketModeRequest.from_dict(message):
                self._hear(self, request)


class Connection:
    """Keeps a line open for as long as it is served."""

    def __init__(self, calls: Calls, hear: Hear, *, beat: float, tasks: asyncio.TaskGroup) -> None:
        self._calls, self._hear, self._beat, self._tasks = calls, hear, beat, tasks
        self.on_gap: Callable[[], None] = _nothing
        """Called when a line is up and there was a time without one, before anything is heard by it."""

    async def serve(self, tell: Tell) -> None:
        """Until cancelled. Whatever breaks is told, and mended with a pause."""
        loop, failures, gap = asyncio.get_running_loop(), 0, True
        while True:
            greeted = self.on_gap if gap else _nothing
            line = Line(
                self._calls, self._hear, self._beat, alive=partial(tell, "ready", ""), greeted=greeted
            )
            self._tasks.create_task(line.run())
            await line.until_up()
            began, good = loop.time(), line.up
            if good:
                await line.until_leaving()
            gap = line.gone
            if not line.gone:
                log.info("Slack asks us to take another line")
                continue
            log.warning("%s", line.why)
            tell("broken", line.why)
            failures = 0 if good and loop.time() - began > STEADY else failures + 1
            if failures:
                await asyncio.sleep(line.pause if line.pause is not None else backoff(failures))


def _nothing() -> None:
    pass
