"""What an adapter is told of the turns in its chats: when one begins, and how it ended. It says nothing."""

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from contextvars import Context
from typing import Any
from weakref import WeakValueDictionary

from alipes.compat.hermes.platform.adapter import call
from alipes.compat.hermes.platform.values import HEARD, MessageEvent, MessageType, ProcessingOutcome, event_of
from alipes.compat.hermes.session_keys import address_of
from alipes.compat.hermes.state import PlatformEntry
from alipes.kernel.errors import PluginError
from alipes.kernel.messages import Image
from alipes.kernel.outbox import MediaKind
from alipes.kernel.platform import Arrival, Filed
from alipes.kernel.turns import Address, Turn
from alipes.plugins.attribution import on_behalf_of
from alipes.plugins.dispatch import guard
from alipes.plugins.owner import Owner

LARGEST = 20_000_000
"""Bytes of a picture that the model is shown."""
INTERNAL = "internal:"
_KINDS: dict[MessageType, MediaKind] = {MessageType.VOICE: "voice", MessageType.AUDIO: "audio"}
_KINDS |= {MessageType.VIDEO: "video", MessageType.PHOTO: "image"}
_PICTURES = {".png": "image/png", ".jpg": "image/jpeg", ".jpeg": "image/jpeg"}
_PICTURES |= {".gif": "image/gif", ".webp": "image/webp"}


def place_of(event: MessageEvent, adapter: Any) -> Address:
    """Where it was said; its key is the one that `build_session_key` gives."""
    if event.source is None:
        raise ValueError("a message without its source cannot be heard: set event.source")
    extra = getattr(getattr(adapter, "config", None), "extra", None) or {}
    flags = (extra.get("group_sessions_per_user", True), extra.get("thread_sessions_per_user", False))
    return address_of(event.source, *map(bool, flags))


async def arrival_of(event: MessageEvent, address: Address) -> Arrival:
    """The message, as the gateway takes it. Its files are read off the loop."""
    assert event.source is not None
    pictures, saved, others = await asyncio.to_thread(_sorted, event)
    words = [_command(event) or event.text or "", *(f"[attached: {each}]" for each in others)]
    quoted = (event.channel_context, event.reply_to_text)
    return Arrival(
        id=f"{address.key}#{event.message_id or os.urandom(8).hex()}",
        address=address,
        sender=sender_of(event, address),
        name=event.source.user_name or "",
        text="\n".join(word for word in words if word),
        images=tuple(pictures),
        files=tuple(saved),
        message=str(event.message_id or ""),
        quoted="\n".join(each for each in quoted if each) if not event.is_command() else "",
        group=address.chat_type != "dm",
    )


def sender_of(event: MessageEvent, address: Address) -> str:
    """Who says it; what the house says itself has a name that no person can have."""
    assert event.source is not None
    person = str(event.source.user_id or event.source.user_name or address.chat)
    if event.internal:
        return f"{INTERNAL}{person}"
    return f"person:{person}" if person.startswith(INTERNAL) else person


def _sorted(event: MessageEvent) -> tuple[list[Image], list[Filed], list[str]]:
    """What the model can be shown, what lies where tools find it, and what lies elsewhere."""
    pictures, others = _files(event)
    saved = [each for each in others if os.path.isfile(each)]
    return pictures, [_filed(each, event) for each in saved], [each for each in others if each not in saved]


def _filed(path: str, event: MessageEvent) -> Filed:
    place = event.media_urls.index(path)
    mime = event.media_types[place] if place < len(event.media_types or ()) else ""
    kind = _KINDS.get(event.message_type, "file")
    return Filed(path, kind, os.path.basename(path), mime if "/" in mime else "", os.path.getsize(path))


def _command(event: MessageEvent) -> str:
    """`/stop` of `/stop@mybot`; empty where it is no command."""
    name = event.get_command()
    return f"/{name} {event.get_command_args()}".rstrip() if name else ""


def _files(event: MessageEvent) -> tuple[list[Image], list[str]]:
    """What the model can be shown, and the paths of what it can only be told of."""
    pictures, others = [], []
    kinds = [*(event.media_types or ()), *[""] * len(event.media_urls or ())]
    for path, kind in zip(event.media_urls or (), kinds, strict=False):
        name = _PICTURES.get(os.path.splitext(path)[1].lower(), "")
        kind = kind if kind in _PICTURES.values() else name
        data = _read(path) if kind else b""
        if data:
            pictures.append(Image(kind, data))
        else:
            others.append(path)
    return pictures, others


def _read(path: str) -> bytes:
    try:
        if os.path.getsize(path) > LARGEST:
            return b""
        with open(path, "rb") as file:
            return file.read()
    except (OSError, ValueError):
        return b""


PATIENCE = 5.0
"""Seconds that an adapter has for each word it is told."""
GRACE = 2.0
"""Seconds to wait for what was ended."""
_OUTCOMES = {"answered": ProcessingOutcome.SUCCESS, "out_of_steps": ProcessingOutcome.SUCCESS}
_OUTCOMES |= {"stopped": ProcessingOutcome.CANCELLED}


class _Attended:
    def __init__(self, turn: Turn) -> None:
        self.turn = turn
        self.mark = asyncio.Event()
        """For the adapter: set once the turn is interrupted."""
        self.ending: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self.task: asyncio.Task[None] | None = None


class Attendance:
    """A task for each turn that lives, so that a slow adapter holds up nobody. What goes wrong is logged, and
    ends nothing: a network that fails three times is no reason to switch a plugin off."""

    def __init__(self, entry: PlatformEntry, adapter: Any) -> None:
        self._entry, self._adapter = entry, adapter
        self._blamed = Owner(f"{entry.owner.name} ({entry.name})", lasting=True)
        self._group: asyncio.TaskGroup | None = None
        self._living: dict[str, _Attended] = {}
        self._chats: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._active: dict[str, asyncio.Event] = getattr(adapter, "_active_sessions", None) or {}
        adapter._active_sessions = self._active

    @asynccontextmanager
    async def open(self, group: asyncio.TaskGroup) -> AsyncIterator[None]:
        """Turns are attended in this group, until it is left."""
        self._group = group
        try:
            yield
        finally:
            self._group = None

    def begin(self, turn: Turn) -> None:
        """A turn is at work from now on."""
        if self._group is None or turn.id in self._living:
            return
        attended = self._living[turn.id] = _Attended(turn)
        self._active[turn.key] = attended.mark
        # whoever begins it, it is not done in the course of their turn
        attended.task = self._group.create_task(
            self._attend(attended), name=f"{self._entry.name} {turn.id}", context=Context()
        )

    def end(self, turn: Turn, ending: str) -> None:
        attended = self._living.get(turn.id)
        if attended is None or attended.ending.done():
            return
        if self._active.get(turn.key) is attended.mark:
            del self._active[turn.key]
        if ending == "stopped":
            attended.mark.set()
        attended.ending.set_result(ending)

    async def over(self, turns: Iterable[str]) -> None:
        """Return when the adapter was told of their end, or soon after."""
        known = (self._living[turn].task for turn in turns if turn in self._living)
        tasks = {task for task in known if task is not None}
        if tasks:
            await asyncio.wait(tasks, timeout=GRACE)

    async def tried(self, verb: str, *given: Any, patience: float = PATIENCE, **offered: Any) -> Any:
        """What the adapter's `verb` gives, which it may lack; None where it breaks."""
        function = getattr(self._adapter, verb, None)
        if not callable(function):
            return None
        try:
            return await guard(self._blamed, verb, self._done(function, *given, **offered), deadline=patience)
        except PluginError:
            return None

    async def _done(self, function: Callable[..., Any], *given: Any, **offered: Any) -> Any:
        with on_behalf_of(self._entry.owner):
            return await call(function, *given, **offered)

    async def _attend(self, attended: _Attended) -> None:
        turn = attended.turn
        address, event = turn.inbound.address, event_of(turn.inbound)
        HEARD.set(event)
        try:
            async with self._chats.setdefault(turn.key, asyncio.Lock()):  # one after the other is told
                await self.tried("on_processing_start", event)
                ending = await attended.ending
                if ending == "stopped":
                    await self.tried("interrupt_session_activity", turn.key, address.chat)
                metadata = {"thread_id": address.thread} if address.thread else None
                await self.tried("stop_typing", address.chat, metadata=metadata)
                if ending != "suspended":  # it goes on at the next start
                    await self._complete(event, _OUTCOMES.get(ending, ProcessingOutcome.FAILURE))
        finally:
            del self._living[turn.id]
            if self._active.get(turn.key) is attended.mark:
                del self._active[turn.key]

    async def _complete(self, event: Any, outcome: ProcessingOutcome) -> None:
        """The oldest plugins are told whether it went well, the others how."""
        hook = getattr(self._adapter, "on_processing_complete", None)
        told = outcome is ProcessingOutcome.SUCCESS if "success" in _parameters(hook) else outcome
        await self.tried("on_processing_complete", event, told)


def _parameters(function: Any) -> tuple[str, ...]:
    code = getattr(getattr(function, "__func__", function), "__code__", None)
    return code.co_varnames[: code.co_argcount] if code is not None else ()
