"""Questions to people: approvals of tool calls, and clarifications asked by the model."""

import asyncio
import os
import time
from typing import Protocol, TypeAlias
from weakref import WeakValueDictionary

import msgspec
from msgspec import Struct, structs

from alipes.kernel.conversations import ApprovalDecision, QuestionUndelivered
from alipes.kernel.messages import ToolCall
from alipes.kernel.turns import (
    AnswerApproval,
    AnswerQuestion,
    ApprovalAnswered,
    ApprovalAsked,
    Envelope,
    Event,
    QuestionAnswered,
    QuestionAsked,
    Turn,
)
from alipes.plugins import specs
from alipes.plugins.dispatch import Hooks
from alipes.store.store import Store

NOBODY = "nobody"
"""Instead of a person, if the question could not be delivered."""
Asked: TypeAlias = ApprovalAsked | QuestionAsked
Answer: TypeAlias = AnswerApproval | AnswerQuestion


class FrontEnd(Protocol):
    """A front end that reaches people who are not connected at the moment."""

    def can_reach(self, key: str) -> bool:
        """True if questions for `key` can be delivered later even though no client is connected."""

    async def before_resume(self, keys: tuple[str, ...]) -> None:
        """Awaited with the sessions whose interrupted turns are about to resume."""


class _OpenQuestion(Struct, frozen=True):
    turn: Turn
    asked: Asked
    answer: "asyncio.Future[Answer]"


class Questions:
    """Asks the people who watch a session, while the turn waits; stopping the turn answers "no".

    A turn that works for another conversation asks there. One approval at a time per session; `session`
    approvals are remembered here, `always` in the store.
    """

    def __init__(self, store: Store, hooks: Hooks, *, interactive: bool) -> None:
        self._grants, self._bus, self._hooks, self._interactive = store.grants, store.bus, hooks, interactive
        self.front_end: FrontEnd | None = None
        self._granted: set[tuple[str, str]] = set()
        self._interrupted: dict[str, list[ApprovalAnswered]] = {}
        self._open: dict[str, _OpenQuestion] = {}
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def ask_approval(self, call: ToolCall, reason: str, turn: Turn) -> ApprovalDecision:
        """The decision on `call`: made now, or earlier for exactly this call. None: nobody can be asked."""
        rule, (key, session, _) = rule_for(call, turn), _place(turn)
        async with self._locks.setdefault(key, asyncio.Lock()):
            if (session, rule) in self._granted:
                return "session"
            if await self._grants.is_allowed(rule):
                return "always"
            if not self._can_answer(key):
                return None
            answer = await self._ask_approval(ApprovalAsked(os.urandom(6).hex(), call, reason, rule), turn)
            if answer.unasked:
                return QuestionUndelivered(answer.unasked)
            if answer.choice == "session":
                self._granted.add((session, rule))
            elif answer.choice == "always":
                await self._grants.allow(rule)
            return answer.choice

    async def _ask_approval(self, asked: ApprovalAsked, turn: Turn) -> AnswerApproval:
        question = self._add(turn, asked)
        answered = ApprovalAnswered(asked.ask, "no", "stop")
        try:
            await self._hooks.dispatcher.notify(specs.on_event, event=asked, turn=turn)
            self._publish(turn, asked)
            answer = await question.answer
            assert isinstance(answer, AnswerApproval)
            answer = structs.replace(answer, choice="no", by=NOBODY) if answer.unasked else answer
            answered = ApprovalAnswered(asked.ask, answer.choice, answer.by)
        except asyncio.CancelledError:
            self._interrupted.setdefault(turn.id, []).append(answered)
            raise
        finally:  # also when stopped: front ends must remove the question
            del self._open[asked.ask]
            self._publish(turn, answered)
        await self._hooks.dispatcher.notify(specs.on_event, event=answered, turn=turn)
        return answer

    async def ask_question(
        self, turn: Turn, text: str, choices: tuple[str, ...], seconds: float
    ) -> AnswerQuestion | None:
        """A person's answer, or why the question could not be delivered; None if nobody can be asked or
        nobody answers in time."""
        if not self._can_answer(_place(turn)[0]):
            return None
        asked = QuestionAsked(os.urandom(6).hex(), text, choices, time.time() + seconds)
        question = self._add(turn, asked)
        self._publish(turn, asked)
        answered = QuestionAnswered(asked.ask)
        try:
            async with asyncio.timeout(seconds):
                answer = await question.answer
            assert isinstance(answer, AnswerQuestion)
            answered = QuestionAnswered(asked.ask, answer.text, answer.by)
        except TimeoutError:
            return None
        else:
            return answer
        finally:
            del self._open[asked.ask]
            self._publish(turn, answered)

    def answer(self, answer: Answer) -> None:
        """Pass on an answer; the first one counts, and one to a closed question is ignored."""
        question = self._open.get(answer.ask)
        if question is not None and not question.answer.done():
            question.answer.set_result(answer)

    def open(self, key: str) -> tuple[tuple[str, Asked], ...]:
        """The open questions of `key`, each with the turn it belongs to."""
        placed = ((_place(question.turn), question.asked) for question in self._open.values())
        return tuple((turn, asked) for (place, _, turn), asked in placed if place == key)

    def is_waiting(self, turn: str) -> bool:
        """True if the turn, or one that works for it, waits for a person."""
        askers = (question.turn for question in self._open.values())
        return any(turn in (asker.id, asker.inbound.parent, _place(asker)[2]) for asker in askers)

    def take_interrupted(self, turn: str) -> tuple[ApprovalAnswered, ...]:
        """The approvals that the end of the turn answered, for its plugins; each is returned once."""
        return tuple(self._interrupted.pop(turn, ()))

    def _can_answer(self, key: str) -> bool:
        """True if a client is connected, or a front end reaches the person."""
        if not self._interactive:
            return False
        return self._bus.has_subscribers(key) or (self.front_end is not None and self.front_end.can_reach(key))

    def _add(self, turn: Turn, asked: Asked) -> _OpenQuestion:
        question = _OpenQuestion(turn, asked, asyncio.get_running_loop().create_future())
        self._open[asked.ask] = question
        return question

    def _publish(self, turn: Turn, event: Event) -> None:
        key, _, asker = _place(turn)
        self._bus.publish(Envelope(key, asker, event))


def _place(turn: Turn) -> tuple[str, str, str]:
    """Where a person is asked for the turn: key, session, and the person's turn."""
    origin = turn.inbound.origin
    if origin is None:
        return turn.key, turn.session, turn.id
    asker = turn.id if origin.reports else origin.turn  # background work may ask after that turn has ended
    return origin.address.key, origin.session, asker


def rule_for(call: ToolCall, turn: Turn) -> str:
    """A readable rule that matches exactly this call in this directory."""
    args = msgspec.json.encode(call.args, order="sorted").decode()
    where = f" in {turn.inbound.workdir}" if turn.inbound.workdir else ""
    return f"{call.name} {args}{where}"
