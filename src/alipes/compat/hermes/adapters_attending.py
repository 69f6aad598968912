"""One turn as its chat sees it: at work, what it says, what it asks, how it ended. It begins none."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import suppress

from alipes.compat.hermes.adapters_asking import ASKING
from alipes.compat.hermes.adapters_speaking import PATIENCE, Speaker, where
from alipes.compat.hermes.adapters_values import MessageEvent, ProcessingOutcome
from alipes.compat.hermes.session_keys import SessionSource
from alipes.kernel.turns import Answer, ApprovalAnswered, ApprovalAsked, Event, Said, TurnEnded, TurnStarted

_OUTCOMES = {"answered": ProcessingOutcome.SUCCESS, "out_of_steps": ProcessingOutcome.SUCCESS}
_OUTCOMES |= {"stopped": ProcessingOutcome.CANCELLED}
_KNOWN_STOPS = ("user_stop", "reset", "superseded")
"""Whoever stopped it so was told already, or needs no word."""
_ASK = "{reason}\n{what}\nAnswer with /approve, /approve session, /approve always or /deny."


class Attending:
    """Tells the chat of a turn. `answer` passes a person's word on; it may be called from any thread."""

    def __init__(
        self,
        speaker: Speaker,
        event: MessageEvent,
        key: str,
        *,
        active: dict[str, asyncio.Event],
        answer: Callable[[Answer], None],
    ) -> None:
        assert event.source is not None
        self._speaker, self._event, self._key = speaker, event, key
        self._source: SessionSource = event.source
        self._active, self._answer = active, answer
        self._mark = asyncio.Event()
        self._typing: asyncio.Task[None] | None = None
        self._reply_to = event.message_id

    async def run(self, events: AsyncIterator[Event], group: asyncio.TaskGroup, begun: bool = False) -> None:
        """To its end; `begun`: it was at work before we came."""
        try:
            if begun:
                await self._begin(group)
            async for event in events:
                await self._tell(event, group)
        finally:
            self._rest()

    async def _tell(self, event: Event, group: asyncio.TaskGroup) -> None:
        match event:
            case TurnStarted():
                await self._begin(group)
            case Said(message) if message.role == "assistant" and message.text.strip():
                reply_to, self._reply_to = self._reply_to, None
                await self._speaker.say(self._source, message.text, reply_to)
            case ApprovalAsked():
                ASKING.put(self._key, event, self._answer)
                await self._ask(event)
            case ApprovalAnswered():
                ASKING.drop(self._key, event.ask)
            case TurnEnded(ending=ending, detail=detail):
                await self._end(ending, detail)

    async def _begin(self, group: asyncio.TaskGroup) -> None:
        if self._typing is not None:
            return
        self._active[self._key] = self._mark
        self._typing = group.create_task(self._speaker.keep_typing(self._source), name=f"typing {self._key}")
        await self._speaker.tried("on_processing_start", self._event)

    async def _end(self, ending: str, detail: str) -> None:
        begun = self._typing is not None
        self._rest()
        if not begun:  # it ended before it began: nobody saw anything of it
            return
        if ending == "stopped":
            self._mark.set()
            await self._speaker.tried("interrupt_session_activity", self._key, self._source.chat_id)
        await self._speaker.tried("stop_typing", self._source.chat_id, metadata=where(self._source))
        if ending == "failed" or (ending == "stopped" and detail not in _KNOWN_STOPS):
            words = f"That failed: {detail}" if ending == "failed" else f"Stopped: {detail}."
            await self._speaker.say(self._source, words)
        await self._speaker.ended(self._event, _OUTCOMES.get(ending, ProcessingOutcome.FAILURE))

    def _rest(self) -> None:
        """It is at work no longer; also where we were cut off."""
        if self._typing is not None:
            self._typing.cancel()
        if self._active.get(self._key) is self._mark:
            del self._active[self._key]
            ASKING.drop(self._key)

    async def _ask(self, asked: ApprovalAsked) -> None:
        command = asked.call.args.get("command")
        what = command if isinstance(command, str) else f"{asked.call.name} {json.dumps(asked.call.args)}"
        shown = await self._speaker.tried(
            "send_exec_approval",
            self._source.chat_id,
            patience=PATIENCE,
            command=what,
            session_key=self._key,
            description=asked.reason,
            metadata=where(self._source),
        )
        if not getattr(shown, "success", bool(shown)):
            with suppress(KeyError):
                await self._speaker.say(self._source, _ASK.format(reason=asked.reason, what=what))
