"""What is said on a platform: in order, in pieces, once more where the platform asks for it."""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any
from weakref import WeakValueDictionary

from alipes.compat.hermes.adapters import call
from alipes.compat.hermes.adapters_values import MessageEvent, ProcessingOutcome, SendResult
from alipes.compat.hermes.entries import PlatformEntry
from alipes.compat.hermes.session_keys import SessionSource
from alipes.hooks.owners import Owner
from alipes.hooks.relay import guard
from alipes.hooks.tracking import on_behalf_of
from alipes.kernel.errors import PluginError

log = logging.getLogger(__name__)
TRIES = 3
PATIENCE = 60.0
"""Seconds that one sending may take."""
SHORT = 5.0
_LENGTH = 4096


class Speaker:
    """Calls the adapter, in its plugin's name. What goes wrong is said in the log and ends nothing: a network
    that fails three times is no reason to switch a plugin off."""

    def __init__(self, adapter: Any, entry: PlatformEntry) -> None:
        self._adapter, self._entry = adapter, entry
        self._blamed = Owner(f"{entry.owner.name} ({entry.name})", lasting=True)
        self._lanes: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def do(self, verb: str, *given: Any, patience: float | None = SHORT, **offered: Any) -> Any:
        """What the adapter's `verb` gives, which it may lack. Raises PluginError where it breaks."""
        function = getattr(self._adapter, verb, None)
        if not callable(function):
            return None
        work = self._as_plugin(call(function, *given, **offered))
        return await guard(self._blamed, verb, work, deadline=patience)

    async def tried(self, verb: str, *given: Any, patience: float | None = SHORT, **offered: Any) -> Any:
        """The same; None where it breaks, which is in the log then."""
        try:
            return await self.do(verb, *given, patience=patience, **offered)
        except PluginError:
            return None

    async def _as_plugin(self, work: Coroutine[Any, Any, Any]) -> Any:
        with on_behalf_of(self._entry.owner):
            return await work

    async def say(self, source: SessionSource, text: str, reply_to: str | None = None) -> bool:
        """Send it, piece by piece; nothing comes between. False where something did not arrive."""
        async with self._lanes.setdefault(source.chat_id, asyncio.Lock()):
            for piece in await self._pieces(text):
                result = await self._sent(source, piece, reply_to)
                if not result.success:
                    log.warning("%s did not take a message: %s", self._blamed.name, result.error)
                    return False
                reply_to = None  # the first piece is the answer, the others follow it
        return True

    async def _pieces(self, text: str) -> list[str]:
        formatted = await self.tried("format_message", text)
        words = formatted if isinstance(formatted, str) else text
        own = getattr(self._adapter, "MAX_MESSAGE_LENGTH", 0)
        limit = self._entry.max_message_length or own or _LENGTH
        cut = await self.tried("truncate_message", words, max_length=limit)
        return [each for each in cut if each] if isinstance(cut, list | tuple) else [words]

    async def _sent(self, source: SessionSource, piece: str, reply_to: str | None) -> SendResult:
        result = SendResult(False)
        for number in range(1, TRIES + 1):
            result = await self._send(source, piece, reply_to)
            if result.success or not result.retryable:
                break
            await asyncio.sleep(result.retry_after or 0.5 * number)
        return result

    async def _send(self, source: SessionSource, piece: str, reply_to: str | None) -> SendResult:
        told = {"reply_to": reply_to, "metadata": where(source)}
        try:
            answer = await self.do("send", source.chat_id, piece, patience=PATIENCE, **told)
        except PluginError as error:
            return SendResult(False, error=str(error))
        if isinstance(answer, SendResult):
            return answer
        return SendResult(answer is not False)  # the oldest say nothing, or yes or no

    async def keep_typing(self, source: SessionSource) -> None:
        """Show that we are at work, until cancelled."""
        await self.tried("_keep_typing", source.chat_id, patience=None, metadata=where(source))

    async def ended(self, event: MessageEvent, outcome: ProcessingOutcome) -> None:
        """The oldest plugins are told whether it went well, the others how."""
        hook = getattr(self._adapter, "on_processing_complete", None)
        told = outcome is ProcessingOutcome.SUCCESS if "success" in _parameters(hook) else outcome
        await self.tried("on_processing_complete", event, told)


def where(source: SessionSource) -> dict[str, Any] | None:
    """What a sending is told of the place beside the chat."""
    return {"thread_id": source.thread_id} if source.thread_id else None


def _parameters(function: Callable[..., Any] | None) -> tuple[str, ...]:
    code = getattr(getattr(function, "__func__", function), "__code__", None)
    return code.co_varnames[: code.co_argcount] if code is not None else ()
