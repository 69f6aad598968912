"""Serves the adapter of a platform plugin: what people say becomes turns, what turns say is sent.

It is the part of the gateway that this door needs: one adapter, in one process, without an outbox.
"""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Protocol

from msgspec import Struct, structs

from alipes.compat.hermes.adapters_asking import ASKING
from alipes.compat.hermes.adapters_following import GRACE, Follower
from alipes.compat.hermes.adapters_media import cache_document_from_bytes
from alipes.compat.hermes.adapters_opening import MaySpeak, access, adapter_of, config_of, registered
from alipes.compat.hermes.adapters_speaking import PATIENCE, Speaker
from alipes.compat.hermes.adapters_taking import Bursts, inbound_of, place_of
from alipes.compat.hermes.adapters_values import (
    HEARD,
    REMEMBERED,
    MessageEvent,
    MessageType,
    Platform,
    PlatformConfig,
)
from alipes.compat.hermes.bridge import Bridge
from alipes.compat.hermes.session_keys import source_of
from alipes.hooks import specs
from alipes.hooks.offers import Offers
from alipes.hooks.relay import Hooks
from alipes.hooks.specs import Admission
from alipes.kernel.errors import AlipesError, PluginError
from alipes.kernel.turns import Busy, Inbound, Stop
from alipes.sessions.commands.context import Context, Copy, Document, Quit, Reply
from alipes.sessions.commands.table import BY_NAME, Parsed, parse, run
from alipes.sessions.lobby import Lobby
from alipes.store.opening import Store

log = logging.getLogger(__name__)
_WORDS = {"approve": "once", "deny": "deny"}
"""Commands that answer a question; what may follow is how far the word reaches, or `all`."""


class House(Protocol):
    """What of an app is needed to serve a platform."""

    @property
    def lobby(self) -> Lobby: ...

    @property
    def store(self) -> Store: ...

    @property
    def hooks(self) -> Hooks: ...

    @property
    def offers(self) -> Offers: ...

    def context(self, inbound: Inbound, *, files: bool = True) -> Context: ...


class Manners(Struct, frozen=True):
    """How a platform is served, where nobody said otherwise."""

    busy: Busy = "interrupt"
    """What a message does that finds a turn at work; what was chosen for the conversation goes over it."""
    may_speak: MaySpeak | None = None
    """None: whom the plugin's variables name."""
    burst: float = 0.6
    """Seconds within which pictures that follow one another are one message."""


class Hosting:
    """An adapter that is connected. All of it runs on the loop."""

    def __init__(self, house: House, speaker: Speaker, adapter: Any, manners: Manners) -> None:
        self.adapter, self.speaker = adapter, speaker
        self._house, self._manners = house, manners
        self._may_speak: MaySpeak = manners.may_speak or (lambda _event: False)
        self._strangers: set[str] = set()
        self._bursts = Bursts(self._submit)
        self.follower: Follower

    async def hear(self, event: MessageEvent) -> None:
        """Take a message in; it is safe once we return, but for a picture that may have company."""
        address = place_of(event, self.adapter)
        event.metadata = {**(event.metadata or {}), "session_key": address.key}
        token = HEARD.set(event)
        try:
            async with self.follower.lane(address.key):
                inbound = await inbound_of(event, address)
                REMEMBERED[inbound.id] = event
                await self._take(event, inbound)
        finally:
            HEARD.reset(token)

    async def cancel(self, key: str, *, waiting: bool) -> None:
        """End what lives under the key, as with a button; return when it has ended, or soon after."""
        unfinished = await self._house.store.sessions.unfinished(key)
        ended = [each.id for each in (unfinished if waiting else unfinished[:1])]
        for turn in ended:
            await self._house.lobby.post(key, Stop("user_stop", "session_interrupt", turn))
        await self.follower.over(ended)

    def stands(self) -> None:
        """It is not asked how it stands here."""

    async def resume(self, platform: str) -> None:
        """Tell the chats of turns that were taken up at the start of the process."""
        left = await self._house.store.turns.orphans()  # and what the lobby has taken up before we looked
        for key in dict.fromkeys((*left, *self._house.lobby.recovered)):
            standing = await self._house.store.sessions.standing(key)
            if standing is None or standing.address.platform != platform:
                continue
            source = source_of(standing.address)
            source.platform = Platform(platform)
            self.follower.watch(key, source)
            for waiting in await self._house.store.sessions.unfinished(key):
                self.follower.join(key, waiting.id, begun=waiting.begun is not None)

    async def _take(self, event: MessageEvent, inbound: Inbound) -> None:
        stranger = not self._may_speak(event)
        if stranger or self._is_command(inbound.text):  # about all else the lobby asks
            admitted = await self._screened(inbound)
            if admitted is None or stranger:
                self._turned_away(inbound, stranger)
                return
            inbound = admitted
        assert event.source is not None
        self.follower.watch(inbound.address.key, event.source)
        if event.message_type is MessageType.PHOTO and inbound.attachments:
            if self._bursts.add(event, inbound):
                self.follower.begin(self._flush_later(inbound.address.key), f"burst {inbound.id}")
            return
        await self._bursts.flush(inbound.address.key)
        if not await self._obeyed(event, inbound):
            await self._submit(event, inbound)

    def _is_command(self, text: str) -> bool:
        known = parse(text, self._house.offers) is not None
        return known or (text.startswith("/") and text.partition(" ")[0][1:] in _WORDS)

    async def _screened(self, inbound: Inbound) -> Inbound | None:
        """As plugins let it pass; None: they will not have it."""
        ruling = await self._house.hooks.relay.decide(specs.before_message, _dropped, inbound=inbound)
        if ruling is None or ruling.action == "take":
            return inbound
        return structs.replace(inbound, text=ruling.text) if ruling.action == "rewrite" else None

    def _turned_away(self, inbound: Inbound, stranger: bool) -> None:
        if stranger and inbound.sender not in self._strangers:
            self._strangers.add(inbound.sender)
            where = inbound.address.platform
            log.warning("%s may not speak on %s, and is not answered", inbound.sender, where)

    async def _submit(self, event: MessageEvent, inbound: Inbound) -> None:
        standing = await self._house.store.sessions.standing(inbound.address.key)
        busy = (standing.busy if standing is not None else "") or self._manners.busy
        await self.follower.submit(event, inbound, busy)

    async def _flush_later(self, key: str) -> None:
        await asyncio.sleep(self._manners.burst)
        async with self.follower.lane(key):
            await self._bursts.flush(key)

    async def _obeyed(self, event: MessageEvent, inbound: Inbound) -> bool:
        """Was it a command? Then it is done, also while a turn runs; what it gives is sent later."""
        name, _, args = inbound.text.partition(" ")
        if name.removeprefix("/") in _WORDS and name.startswith("/"):
            self._reply(event, inbound, Reply(_answered(inbound, _WORDS[name[1:]], args.strip().lower())))
            return True
        parsed = parse(inbound.text, self._house.offers)
        if parsed is None:
            return False
        if parsed.command.name in BY_NAME:
            await self._run(event, inbound, parsed)
        else:  # a plugin's may take its time, and nobody's /stop waits for it
            self.follower.begin(self._run(event, inbound, parsed), f"command {inbound.id}")
        return True

    async def _run(self, event: MessageEvent, inbound: Inbound, parsed: Parsed) -> None:
        reply = await run(self._house.context(inbound, files=False), parsed)
        for turn in reply.turns:
            self.follower.join(inbound.address.key, turn, begun=False, event=event)
        self._reply(event, inbound, reply)

    def _reply(self, event: MessageEvent, inbound: Inbound, reply: Reply) -> None:
        """Not waited for: who reads the network must not wait for what is written to it."""
        self.follower.begin(self._send(event, reply), f"reply {inbound.id}")

    async def _send(self, event: MessageEvent, reply: Reply) -> None:
        assert event.source is not None
        text = reply.text
        match reply.action:
            case Copy(words):
                text = "\n".join(each for each in (text, words) if each)
            case Quit():
                text = "Here is nothing to leave: just write no more."
            case Document(name, words):
                path = await asyncio.to_thread(cache_document_from_bytes, words.encode(), name)
                sent = await self.speaker.tried(
                    "send_document", event.source.chat_id, path, patience=PATIENCE, file_name=name
                )
                text = text if getattr(sent, "success", False) else words
        if text:
            await self.speaker.say(event.source, text, event.message_id)


def _answered(inbound: Inbound, choice: str, args: str) -> str:
    everything = "all" in args.split()
    wider = next((word for word in ("session", "always") if word in args.split()), "")
    choice = wider if wider and choice == "once" else choice
    count = ASKING.resolve(inbound.address.key, choice, everything=everything, by=inbound.sender)
    if not count:
        return "Nothing waits for your word."
    return "Denied." if choice == "deny" else "Approved."


def _dropped(why: str) -> Admission:
    log.warning("a message was not taken: %s", why)
    return Admission("drop", why)


@asynccontextmanager
async def open_platform(
    house: House,
    bridge: Bridge,
    name: str,
    config: PlatformConfig | None = None,
    *,
    manners: Manners | None = None,
) -> AsyncIterator[Hosting]:
    """Connect the platform that a plugin registered as `name`, serve it, and let go of it at the end.

    Raises PluginError when it cannot be connected.
    """
    entry = registered(bridge, name)
    adapter = await adapter_of(entry, await config_of(bridge, entry, config))
    manners = manners or Manners()
    if manners.may_speak is None:
        manners = structs.replace(manners, may_speak=access(bridge, entry, adapter))
    speaker = Speaker(adapter, entry)
    hosting = Hosting(house, speaker, adapter, manners)
    try:
        async with asyncio.TaskGroup() as group:
            active: dict[str, asyncio.Event] = getattr(adapter, "_active_sessions", None) or {}
            hosting.follower = Follower(house.lobby, speaker, active, group=group, soon=bridge.soon)
            adapter._active_sessions, adapter._hearing = active, hosting
            try:
                await _connect(speaker, adapter, name)
                bridge.gateway.adapters[Platform(name)] = adapter
                await hosting.resume(name)
                await house.hooks.relay.tell(specs.gateway_started, platforms=(name,))
                yield hosting
            finally:
                bridge.gateway.adapters.pop(Platform(name), None)
                adapter._hearing = None
                await speaker.tried("disconnect", patience=GRACE)
                await hosting.follower.close()
    except* AlipesError as errors:
        raise _first(errors) from errors


async def _connect(speaker: Speaker, adapter: Any, name: str) -> None:
    connected = await speaker.do("connect", patience=PATIENCE, is_reconnect=False)
    if connected is False:
        why = getattr(adapter, "fatal_error_message", None) or "it did not say why"
        raise PluginError(name, "connect", f"could not be connected: {why}")


def _first(errors: BaseExceptionGroup[BaseException]) -> BaseException:
    inner = errors.exceptions[0]
    return _first(inner) if isinstance(inner, BaseExceptionGroup) else inner
