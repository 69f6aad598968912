"""Sends messages through an adapter as the gateway's platform."""

import re
from collections.abc import Callable, Iterator
from threading import RLock
from typing import Any, Literal, get_args

from msgspec import Struct

from alipes.compat.hermes.call import PluginCallback
from alipes.compat.hermes.platform.adapter import BasePlatformAdapter, call_plugin
from alipes.compat.hermes.platform.values import SendResult
from alipes.compat.hermes.session_keys import own_key
from alipes.compat.hermes.state import PlatformEntry
from alipes.config.paths import current_scope
from alipes.kernel.approvals import describe_call
from alipes.kernel.errors import DeliveryError, Undeliverable
from alipes.kernel.outbox import Media, MediaKind
from alipes.kernel.platform import Capabilities, MessagePart
from alipes.kernel.turns import Address, AnswerApproval, ApprovalAsked, ApprovalChoice, BusyMode
from alipes.plugins.interruption.attribution import run_as

HermesChoice = Literal["once", "session", "always", "deny"]
CONSENTS: dict[str, ApprovalChoice] = {"once": "once", "session": "session", "always": "always", "deny": "no"}
CONSENTS |= {"approve": "once", "yes": "once", "permanent": "always", "no": "no"}
assert {*CONSENTS.values()} == {*get_args(ApprovalChoice)}


class OpenApproval(Struct, frozen=True):
    request: ApprovalAsked
    answer: Callable[[AnswerApproval], None]
    """Callable from any thread."""


class OpenApprovals:
    """Open approval requests by session key, oldest first. Callable from any thread. Each profile of the process has
    its own; a thread that belongs to none sees none."""

    def __init__(self) -> None:
        self._waiting: dict[tuple[str, str], list[OpenApproval]] = {}
        self._lock = RLock()

    def put(self, key: str, request: ApprovalAsked, answer: Callable[[AnswerApproval], None]) -> None:
        with self._lock:
            self._waiting.setdefault((current_scope(), key), []).append(OpenApproval(request, answer))

    def drop(self, key: str, ask: str = "") -> None:
        """Remove an answered request; without `ask`, all of the key."""
        with self._lock:
            self._drop((current_scope(), key), ask)

    def _drop(self, key: tuple[str, str], ask: str) -> None:
        left = [each for each in self._waiting.get(key, ()) if ask and each.request.ask != ask]
        if left:
            self._waiting[key] = left
        else:
            self._waiting.pop(key, None)

    def find(self, ask: str) -> ApprovalAsked | None:
        """The open request with this id."""
        with self._lock:
            own = (those for (scope, _), those in self._waiting.items() if scope == current_scope())
            waiting = (each.request for those in own for each in those)
            return next((request for request in waiting if request.ask == ask), None)

    def has_open(self, key: str) -> bool:
        return (current_scope(), own_key(key)) in self._waiting

    def resolve(self, key: str, choice: str, *, everything: bool = False, by: str = "") -> int:
        """Answer the oldest request or all of them. Returns how many there were."""
        consent = CONSENTS.get(choice.lower())
        if consent is None:
            raise ValueError(f"unknown answer {choice!r}; use {', '.join(get_args(HermesChoice))}")
        with self._lock:
            own = current_scope(), own_key(key)
            waiting = self._waiting.get(own, [])
            chosen = list(waiting) if everything else waiting[:1]
            for each in chosen:
                self._drop(own, each.request.ask)
        for each in chosen:
            each.answer(AnswerApproval(each.request.ask, consent, by))
        return len(chosen)


OPEN_APPROVALS = OpenApprovals()
"""One per process."""


TYPING_LASTS_S = 2.5
"""How long one typing indicator is assumed to last."""
DEFAULT_LENGTH = 4096
UNNAMED_ID = "nameless:"
"""Prefix of ids that we create for platforms without message ids."""
_SEND_METHODS: dict[MediaKind, str] = {
    "image": "send_image_file",
    "audio": "send_voice",
    "voice": "send_voice",
    "video": "send_video",
    "file": "send_document",
}
_UNDELIVERABLE_KINDS = ("forbidden", "not_found", "not_supported", "blocked", "unauthorized", "unauthorised")
_TIMEOUT_WORDS = ("timeout", "timed out")
_ESCAPED = re.compile(r"\\([\\`*_\[\]<>#|~])|(```.*?```|`[^`\n]*`)", re.DOTALL)
_UNCHANGED = "not modified"
_MISSING_WORDS = ("not found", "message to edit", "unknown message")


def _wanted_busy(entry: PlatformEntry, adapter: Any) -> BusyMode | None:
    """An adapter that handles interruptions, or names the mode, gets it; others get the default."""
    extra = getattr(getattr(adapter, "config", None), "extra", None)
    named = entry.more.get("busy_input_mode") or (extra or {}).get("busy_input_mode")
    modes: tuple[BusyMode, ...] = get_args(BusyMode)
    if named in modes:
        return modes[modes.index(named)]
    return "interrupt" if overrides(adapter, "interrupt_session_activity") else None


class AdapterSender:
    """Calls the adapter in the plugin's name with the keywords it accepts. Errors propagate: the gateway
    has a bulkhead around every platform."""

    def __init__(self, entry: PlatformEntry, adapter: Any) -> None:
        self.name = entry.name
        self.adapter = adapter
        self._entry = entry
        self._limit: int = entry.max_message_length or getattr(adapter, "MAX_MESSAGE_LENGTH", 0) or DEFAULT_LENGTH
        self._count = 0
        asks = callable(getattr(adapter, "send_exec_approval", None))
        self.capabilities = Capabilities(
            max_length=self._limit,
            can_edit=overrides(adapter, "edit_message"),
            typing_seconds=TYPING_LASTS_S if overrides(adapter, "send_typing") else 0.0,
            buttons=asks,
            media=tuple(kind for kind, verb in _SEND_METHODS.items() if overrides(adapter, verb)),
            can_delete=overrides(adapter, "delete_message"),
            busy=_wanted_busy(entry, adapter),
        )
        self._formats = overrides(adapter, "format_message") and not _formats_itself(adapter)

    def format_message(self, text: str) -> tuple[MessagePart, ...]:
        text = _unescape_markdown(text)
        text = str(self.adapter.format_message(text)) if self._formats else text
        cut = PluginCallback(self.adapter.truncate_message)(text, max_length=self._limit)
        return tuple(MessagePart(text=each, plain=each) for each in cut if each)

    async def send(self, address: Address, piece: MessagePart) -> str:
        options = {"reply_to": piece.reply_to or None, "metadata": _thread_metadata(address)}
        if piece.media is not None:
            return await self._send_file(address, piece.media, options)
        if piece.buttons and (id := await self._send_approval(address, piece.buttons[0].data)):
            return id
        return self._message_id(await self.call("send", address.chat, piece.text, **options))

    async def edit(self, address: Address, message: str, piece: MessagePart) -> None:
        if message.startswith(UNNAMED_ID):
            raise Undeliverable(f"{self.name} did not return a message id")
        try:
            self._message_id(
                await self.call(
                    "edit_message", address.chat, message, piece.text, metadata=_thread_metadata(address), finalize=True
                )
            )
        except DeliveryError as error:
            why = str(error).lower()
            if _UNCHANGED in why:
                return
            if any(each in why for each in _MISSING_WORDS):
                raise Undeliverable(str(error)) from error
            raise

    async def delete(self, address: Address, message: str) -> None:
        if not message.startswith(UNNAMED_ID):
            await self.call("delete_message", address.chat, message)

    async def typing(self, address: Address) -> None:
        await self.call("send_typing", address.chat, metadata=_thread_metadata(address))

    async def set_commands(self, commands: tuple[tuple[str, str], ...]) -> None:
        """Adapters have no command menu."""

    async def call(self, verb: str, *given: Any, **offered: Any) -> Any:
        """Call the adapter's method `verb`. Raises DeliveryError if nothing was sent."""
        work = call_plugin(getattr(self.adapter, verb), *given, **offered)
        try:
            return await run_as(self._entry.owner, f"{self.name}.{verb}", work)
        except OSError as error:
            if isinstance(error, ConnectionResetError | ConnectionAbortedError | BrokenPipeError | TimeoutError):
                raise  # it may have arrived
            raise DeliveryError(f"{self.name} cannot be reached: {error}") from error

    async def _send_file(self, address: Address, media: Media, options: dict[str, Any]) -> str:
        more = {"caption": media.caption or None, "file_name": media.name or None, **options}
        return self._message_id(await self.call(_SEND_METHODS[media.kind], address.chat, media.path, **more))

    async def _send_approval(self, address: Address, data: str) -> str:
        """Send a question with the adapter's own buttons. Returns its id; empty if it did not."""
        _, ask, *_ = (*data.split(":"), "")
        request = OPEN_APPROVALS.find(ask)
        if request is None or not self.capabilities.buttons:
            return ""
        sent = await self.call(
            "send_exec_approval",
            address.chat,
            command=_command_text(request),
            session_key=address.key,
            description=request.reason,
            metadata=_thread_metadata(address),
        )
        return self._message_id(sent) if getattr(sent, "success", bool(sent)) else ""

    def _message_id(self, result: Any) -> str:
        """The id of a sent message. Old adapters return nothing or a bool. Raises if it was not sent."""
        if result is False:
            raise DeliveryError(f"{self.name} rejected the message")
        if not isinstance(result, SendResult):
            result = SendResult(True)
        if result.success:
            self._count += 1
            return str(result.message_id) if result.message_id else f"{UNNAMED_ID}{self._count}"
        raise _delivery_error(self.name, result)


def _unescape_markdown(text: str) -> str:
    """Remove Markdown escapes outside of code: most adapters send the text unchanged."""
    return _ESCAPED.sub(lambda found: found[1] or found[2], text).replace("  \n", "\n")


def overrides(adapter: Any, verb: str) -> bool:
    """True if the adapter implements the method itself."""
    mine = getattr(adapter, verb, None)
    inherited = getattr(BasePlatformAdapter, verb, None)
    return callable(mine) and getattr(mine, "__func__", mine) is not inherited


def _delivery_error(name: str, result: SendResult) -> DeliveryError:
    """The error as reported; without a reason it is retried, since losing an answer is worse."""
    why = f"{name} rejected the message: {result.error or 'no reason given'}"
    if result.error_kind in _UNDELIVERABLE_KINDS:
        return Undeliverable(why)
    timed_out = any(each in (result.error or "").lower() for each in _TIMEOUT_WORDS) and not result.retryable
    return DeliveryError(why, retry_after=result.retry_after, uncertain=timed_out)


def _formats_itself(adapter: Any) -> bool:
    """True if one of its own methods calls `format_message`; then we must not format before."""
    return any("format_message" in names for names in _method_names(type(adapter)))


def _method_names(kind: type) -> Iterator[tuple[str, ...]]:
    for each in kind.__mro__:
        if each is not BasePlatformAdapter and not issubclass(BasePlatformAdapter, each):
            for member in vars(each).values():
                code = getattr(_unwrap(member), "__code__", None)
                if code is not None:
                    yield code.co_names


def _unwrap(member: Any) -> Callable[..., Any] | None:
    found: Any = getattr(member, "__func__", member)
    return getattr(found, "__wrapped__", found) if callable(found) else None


def _thread_metadata(address: Address) -> dict[str, Any] | None:
    """Metadata for the thread of an address."""
    return {"thread_id": address.thread} if address.thread else None


def _command_text(request: ApprovalAsked) -> str:
    shown = describe_call(request.call, request.workdir)
    return shown.text if "command" in request.call.args else f"{shown.title} {shown.text}".rstrip()
