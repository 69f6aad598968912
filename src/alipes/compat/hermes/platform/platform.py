"""An adapter as the gateway's platform: what it can do, what is sent through it. It hears nothing."""

import json
import re
from collections.abc import Callable, Iterator
from typing import Any

from alipes.compat.hermes.call import Fit
from alipes.compat.hermes.platform.adapter import BasePlatformAdapter, call
from alipes.compat.hermes.platform.questions import ASKING
from alipes.compat.hermes.platform.values import SendResult
from alipes.compat.hermes.state import PlatformEntry
from alipes.kernel.errors import DeliveryError, Gone
from alipes.kernel.outbox import Media, MediaKind
from alipes.kernel.platform import Piece, Talents
from alipes.kernel.turns import Address, ApprovalAsked
from alipes.plugins.attribution import done_by

TYPING = 2.5
"""Seconds that a sign of typing is taken to last."""
LENGTH = 4096
NAMELESS = "nameless:"
"""Before the ids that we give to messages of platforms that give none."""
_FILES: dict[MediaKind, str] = {
    "image": "send_image_file",
    "audio": "send_voice",
    "voice": "send_voice",
    "video": "send_video",
    "file": "send_document",
}
_GONE = ("forbidden", "not_found", "not_supported", "blocked", "unauthorized", "unauthorised")
_LATE = ("timeout", "timed out")
_ESCAPED = re.compile(r"\\([\\`*_\[\]<>#|~])|(```.*?```|`[^`\n]*`)", re.DOTALL)
_UNCHANGED = "not modified"
_MISSING = ("not found", "message to edit", "unknown message")


class Sending:
    """Each call is made in the plugin's name, with the words that the method takes. What it raises is raised:
    the gateway has a bulkhead around every platform."""

    def __init__(self, entry: PlatformEntry, adapter: Any) -> None:
        self.name = entry.name
        self.adapter = adapter
        self._entry = entry
        self._limit: int = entry.max_message_length or getattr(adapter, "MAX_MESSAGE_LENGTH", 0) or LENGTH
        self._count = 0
        asks = callable(getattr(adapter, "send_exec_approval", None))
        self.talents = Talents(
            longest=self._limit,
            edits=overrides(adapter, "edit_message"),
            typing=TYPING if overrides(adapter, "send_typing") else 0.0,
            buttons=asks,
            media=tuple(kind for kind, verb in _FILES.items() if overrides(adapter, verb)),
            deletes=overrides(adapter, "delete_message"),
        )
        self._formats = overrides(adapter, "format_message") and not _formats_itself(adapter)

    def pieces(self, text: str) -> tuple[Piece, ...]:
        words = _unescaped(text)
        words = str(self.adapter.format_message(words)) if self._formats else words
        cut = Fit(self.adapter.truncate_message)(words, max_length=self._limit)
        return tuple(Piece(text=each, plain=each) for each in cut if each)

    async def send(self, address: Address, piece: Piece) -> str:
        told = {"reply_to": piece.reply_to or None, "metadata": _where(address)}
        if piece.media is not None:
            return await self._send_file(address, piece.media, told)
        if piece.buttons and (id := await self._asked(address, piece.buttons[0].data)):
            return id
        return self._arrived(await self.do("send", address.chat, piece.text, **told))

    async def edit(self, address: Address, message: str, piece: Piece) -> None:
        if message.startswith(NAMELESS):
            raise Gone(f"{self.name} did not say which message that was")
        try:
            self._arrived(
                await self.do(
                    "edit_message", address.chat, message, piece.text, metadata=_where(address), finalize=True
                )
            )
        except DeliveryError as error:
            why = str(error).lower()
            if _UNCHANGED in why:
                return
            if any(each in why for each in _MISSING):
                raise Gone(str(error)) from error
            raise

    async def delete(self, address: Address, message: str) -> None:
        if not message.startswith(NAMELESS):
            await self.do("delete_message", address.chat, message)

    async def typing(self, address: Address) -> None:
        await self.do("send_typing", address.chat, metadata=_where(address))

    async def menu(self, commands: tuple[tuple[str, str], ...]) -> None:
        """Adapters have no word for it."""

    async def do(self, verb: str, *given: Any, **offered: Any) -> Any:
        """What the adapter's `verb` gives. Where nothing left for the network, that is told."""
        work = call(getattr(self.adapter, verb), *given, **offered)
        try:
            return await done_by(self._entry.owner, f"{self.name}.{verb}", work)
        except OSError as error:
            if isinstance(
                error, ConnectionResetError | ConnectionAbortedError | BrokenPipeError | TimeoutError
            ):
                raise  # it may have arrived
            raise DeliveryError(f"{self.name} cannot be reached: {error}") from error

    async def _send_file(self, address: Address, media: Media, told: dict[str, Any]) -> str:
        more = {"caption": media.caption or None, "file_name": media.name or None, **told}
        return self._arrived(await self.do(_FILES[media.kind], address.chat, media.path, **more))

    async def _asked(self, address: Address, data: str) -> str:
        """The id of a question that the adapter shows with its own buttons; empty where it does not."""
        _, ask, *_ = (*data.split(":"), "")
        asked = ASKING.asked(ask)
        if asked is None or not self.talents.buttons:
            return ""
        shown = await self.do(
            "send_exec_approval",
            address.chat,
            command=_what(asked),
            session_key=address.key,
            description=asked.reason,
            metadata=_where(address),
        )
        return self._arrived(shown) if getattr(shown, "success", bool(shown)) else ""

    def _arrived(self, result: Any) -> str:
        """The id of what arrived; the oldest say nothing, or yes or no. Raises why it did not arrive."""
        if result is False:
            raise DeliveryError(f"{self.name} did not take it")
        if not isinstance(result, SendResult):
            result = SendResult(True)
        if result.success:
            self._count += 1
            return str(result.message_id) if result.message_id else f"{NAMELESS}{self._count}"
        raise _refusal(self.name, result)


def _unescaped(text: str) -> str:
    """Most adapters send text as it is: what Markdown escapes outside of code would be seen."""
    return _ESCAPED.sub(lambda found: found[1] or found[2], text).replace("  \n", "\n")


def overrides(adapter: Any, verb: str) -> bool:
    """Does the adapter do it itself, or only inherit that it cannot?"""
    mine = getattr(adapter, verb, None)
    inherited = getattr(BasePlatformAdapter, verb, None)
    return callable(mine) and getattr(mine, "__func__", mine) is not inherited


def _refusal(name: str, result: SendResult) -> DeliveryError:
    """As it said; an adapter that does not say is tried again, for to lose an answer is worse."""
    why = f"{name} did not take it: {result.error or 'it does not say why'}"
    if result.error_kind in _GONE:
        return Gone(why)
    late = any(each in (result.error or "").lower() for each in _LATE) and not result.retryable
    return DeliveryError(why, retry_after=result.retry_after, uncertain=late)


def _formats_itself(adapter: Any) -> bool:
    """Does a method of its own call `format_message`? Then what it is given must not be formatted before."""
    return any("format_message" in names for names in _names(type(adapter)))


def _names(kind: type) -> Iterator[tuple[str, ...]]:
    for each in kind.__mro__:
        if each is not BasePlatformAdapter and not issubclass(BasePlatformAdapter, each):
            for member in vars(each).values():
                code = getattr(_plain(member), "__code__", None)
                if code is not None:
                    yield code.co_names


def _plain(member: Any) -> Callable[..., Any] | None:
    found: Any = getattr(member, "__func__", member)
    return getattr(found, "__wrapped__", found) if callable(found) else None


def _where(address: Address) -> dict[str, Any] | None:
    """What a sending is told of the place beside the chat."""
    return {"thread_id": address.thread} if address.thread else None


def _what(asked: ApprovalAsked) -> str:
    command = asked.call.args.get("command")
    return command if isinstance(command, str) else f"{asked.call.name} {json.dumps(asked.call.args)}"
