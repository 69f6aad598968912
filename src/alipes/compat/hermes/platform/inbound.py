"""Messages from adapters to the gateway, and notifications about turns to adapters."""

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from contextvars import Context
from typing import Any
from weakref import WeakValueDictionary

from alipes.compat.hermes.platform.adapter import call_plugin
from alipes.compat.hermes.platform.values import CURRENT_EVENT, MessageEvent, MessageType, ProcessingOutcome, event_of
from alipes.compat.hermes.session_keys import address_of
from alipes.compat.hermes.state import PlatformEntry
from alipes.kernel.errors import PluginError
from alipes.kernel.messages import Image
from alipes.kernel.outbox import MediaKind
from alipes.kernel.platform import IncomingMessage, ReceivedFile
from alipes.kernel.turns import Address, Turn
from alipes.plugins.dispatch import guard
from alipes.plugins.interruption.attribution import on_behalf_of
from alipes.plugins.owner import PluginOwner

MAX_IMAGE_BYTES = 20_000_000
"""Larger images are not shown to the model."""
INTERNAL = "internal:"
_MEDIA_KINDS: dict[MessageType, MediaKind] = {MessageType.VOICE: "voice", MessageType.AUDIO: "audio"}
_MEDIA_KINDS |= {MessageType.VIDEO: "video", MessageType.PHOTO: "image"}
_IMAGE_TYPES = {".png": "image/png", ".jpg": "image/jpeg", ".jpeg": "image/jpeg"}
_IMAGE_TYPES |= {".gif": "image/gif", ".webp": "image/webp"}


def address_from_event(event: MessageEvent, adapter: Any) -> Address:
    """The address of a message; its key equals that of `build_session_key`."""
    if event.source is None:
        raise ValueError("the message has no source: set event.source")
    extra = getattr(getattr(adapter, "config", None), "extra", None) or {}
    flags = (extra.get("group_sessions_per_user", True), extra.get("thread_sessions_per_user", False))
    return address_of(event.source, *map(bool, flags))


async def message_from_event(event: MessageEvent, address: Address) -> IncomingMessage:
    """The message for the gateway. Files are read in a thread."""
    assert event.source is not None
    pictures, saved, others = await asyncio.to_thread(_sort_files, event)
    lines = [_command(event) or event.text or "", *(f"[attached: {each}]" for each in others)]
    quoted = (event.channel_context, event.reply_to_text)
    return IncomingMessage(
        id=f"{address.key}#{event.message_id or os.urandom(8).hex()}",
        address=address,
        sender=sender_of(event, address),
        name=event.source.user_name or "",
        text="\n".join(word for word in lines if word),
        images=tuple(pictures),
        files=tuple(saved),
        message=str(event.message_id or ""),
        quoted="\n".join(each for each in quoted if each) if not event.is_command() else "",
        group=address.chat_type != "dm",
    )


def sender_of(event: MessageEvent, address: Address) -> str:
    """The sender's id; internal messages use a name that no person can have."""
    assert event.source is not None
    person = str(event.source.user_id or event.source.user_name or address.chat)
    if event.internal:
        return f"{INTERNAL}{person}"
    return f"person:{person}" if person.startswith(INTERNAL) else person


def _sort_files(event: MessageEvent) -> tuple[list[Image], list[ReceivedFile], list[str]]:
    """Images for the model, files on disk, and other references."""
    pictures, others = _read_images(event)
    saved = [each for each in others if os.path.isfile(each)]
    return (pictures, [_received_file(each, event) for each in saved], [each for each in others if each not in saved])


def _received_file(path: str, event: MessageEvent) -> ReceivedFile:
    place = event.media_urls.index(path)
    mime = event.media_types[place] if place < len(event.media_types or ()) else ""
    kind = _MEDIA_KINDS.get(event.message_type, "file")
    return ReceivedFile(path, kind, os.path.basename(path), mime if "/" in mime else "", os.path.getsize(path))


def _command(event: MessageEvent) -> str:
    """`/stop` for `/stop@mybot`; empty if it is not a command."""
    name = event.get_command()
    return f"/{name} {event.get_command_args()}".rstrip() if name else ""


def _read_images(event: MessageEvent) -> tuple[list[Image], list[str]]:
    """Images for the model, and the paths of everything else."""
    pictures, others = [], []
    kinds = [*(event.media_types or ()), *[""] * len(event.media_urls or ())]
    for path, kind in zip(event.media_urls or (), kinds, strict=False):
        name = _IMAGE_TYPES.get(os.path.splitext(path)[1].lower(), "")
        kind = kind if kind in _IMAGE_TYPES.values() else name
        data = _read(path) if kind else b""
        if data:
            pictures.append(Image(kind, data))
        else:
            others.append(path)
    return pictures, others


def _read(path: str) -> bytes:
    try:
        if os.path.getsize(path) > MAX_IMAGE_BYTES:
            return b""
        with open(path, "rb") as file:
            return file.read()
    except (OSError, ValueError):
        return b""


CALL_TIMEOUT_S = 5.0
"""Timeout of each call to an adapter."""
END_GRACE_S = 2.0
"""Seconds to wait for stopped turns."""
_OUTCOMES = {"answered": ProcessingOutcome.SUCCESS, "out_of_steps": ProcessingOutcome.SUCCESS}
_OUTCOMES |= {"stopped": ProcessingOutcome.CANCELLED}


class _NotifiedTurn:
    def __init__(self, turn: Turn) -> None:
        self.turn = turn
        self.mark = asyncio.Event()
        """Set when the turn is interrupted; seen by the adapter."""
        self.ending: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self.task: asyncio.Task[None] | None = None


class TurnNotifier:
    """Notifies an adapter about turns, in one task per turn so that a slow adapter delays nothing.

    Errors are logged only: network failures do not disable the plugin.
    """

    def __init__(self, entry: PlatformEntry, adapter: Any) -> None:
        self._entry, self._adapter = entry, adapter
        self._owner = PluginOwner(f"{entry.owner.name} ({entry.name})", permanent=True)
        self._group: asyncio.TaskGroup | None = None
        self._turns: dict[str, _NotifiedTurn] = {}
        self._chats: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._active: dict[str, asyncio.Event] = getattr(adapter, "_active_sessions", None) or {}
        adapter._active_sessions = self._active

    @asynccontextmanager
    async def open(self, group: asyncio.TaskGroup) -> AsyncIterator[None]:
        """Run notifications in `group` while entered."""
        self._group = group
        try:
            yield
        finally:
            self._group = None

    def begin(self, turn: Turn) -> None:
        """A turn has started."""
        if self._group is None or turn.id in self._turns:
            return
        notified = self._turns[turn.id] = _NotifiedTurn(turn)
        self._active[turn.key] = notified.mark
        # not in the context of its caller
        notified.task = self._group.create_task(
            self._notify(notified), name=f"{self._entry.name} {turn.id}", context=Context()
        )

    def end(self, turn: Turn, ending: str) -> None:
        notified = self._turns.get(turn.id)
        if notified is None or notified.ending.done():
            return
        if self._active.get(turn.key) is notified.mark:
            del self._active[turn.key]
        if ending == "stopped":
            notified.mark.set()
        notified.ending.set_result(ending)

    async def wait_for_end(self, turns: Iterable[str]) -> None:
        """Wait until the adapter was notified of the end of these turns, or for a short time."""
        tasks_known = (self._turns[turn].task for turn in turns if turn in self._turns)
        tasks = {task for task in tasks_known if task is not None}
        if tasks:
            await asyncio.wait(tasks, timeout=END_GRACE_S)

    async def try_call(self, verb: str, *given: Any, patience: float = CALL_TIMEOUT_S, **offered: Any) -> Any:
        """Call the adapter's method `verb` if it exists; None if it fails."""
        function = getattr(self._adapter, verb, None)
        if not callable(function):
            return None
        try:
            return await guard(self._owner, verb, self._call_as_plugin(function, *given, **offered), deadline=patience)
        except PluginError:
            return None

    async def _call_as_plugin(self, function: Callable[..., Any], *given: Any, **offered: Any) -> Any:
        with on_behalf_of(self._entry.owner):
            return await call_plugin(function, *given, **offered)

    async def _notify(self, notified: _NotifiedTurn) -> None:
        turn = notified.turn
        address, event = turn.inbound.address, event_of(turn.inbound)
        CURRENT_EVENT.set(event)
        try:
            async with self._chats.setdefault(turn.key, asyncio.Lock()):  # one turn at a time
                await self.try_call("on_processing_start", event)
                ending = await notified.ending
                if ending == "stopped":
                    await self.try_call("interrupt_session_activity", turn.key, address.chat)
                metadata = {"thread_id": address.thread} if address.thread else None
                await self.try_call("stop_typing", address.chat, metadata=metadata)
                if ending != "suspended":  # it resumes at the next start
                    await self._complete(event, _OUTCOMES.get(ending, ProcessingOutcome.FAILURE))
                    await self._handle_kept(turn.key)
        finally:
            del self._turns[turn.id]
            if self._active.get(turn.key) is notified.mark:
                del self._active[turn.key]

    async def _handle_kept(self, key: str) -> None:
        """Handle the message that the adapter kept while the turn ran."""
        kept = (getattr(self._adapter, "_pending_messages", None) or {}).pop(key, None)
        if kept is not None:
            await self.try_call("handle_message", kept)

    async def _complete(self, event: Any, outcome: ProcessingOutcome) -> None:
        """Old plugins expect a bool, newer ones the outcome."""
        hook = getattr(self._adapter, "on_processing_complete", None)
        argument = outcome is ProcessingOutcome.SUCCESS if "success" in _parameters(hook) else outcome
        await self.try_call("on_processing_complete", event, argument)


def _parameters(function: Any) -> tuple[str, ...]:
    code = getattr(getattr(function, "__func__", function), "__code__", None)
    return code.co_varnames[: code.co_argcount] if code is not None else ()
