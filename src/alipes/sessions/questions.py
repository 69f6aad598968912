"""Questions to the person about dangerous calls, and the word on each. The danger is judged elsewhere."""

import asyncio
import os
import time
from collections.abc import Callable
from weakref import WeakValueDictionary

import msgspec
from msgspec import structs

from alipes.kernel.conversations import Leave, Unasked
from alipes.kernel.messages import ToolCall
from alipes.kernel.ports import Grants
from alipes.kernel.turns import (
    Answer,
    ApprovalAnswered,
    ApprovalAsked,
    Asked,
    Envelope,
    Event,
    Heard,
    Reply,
    Turn,
)
from alipes.plugins import specs
from alipes.plugins.dispatch import Hooks

NOBODY = "nobody"
"""In place of a person, where the question reached none."""


class Approvals:
    """Asks whoever watches the session, and waits in the turn: to stop the turn is to say no.
    A turn that works for another conversation asks there.

    One question at a time per session. `session` is remembered here, `always` in the store.
    """

    def __init__(
        self,
        grants: Grants,
        hooks: Hooks,
        publish: Callable[[Envelope], None],
        heard: Callable[[str], bool],
        *,
        interactive: bool = False,
    ) -> None:
        """`heard(key)`: does anybody watch? `interactive`: could they answer?"""
        self._grants, self._hooks, self._publish = grants, hooks, publish
        self._heard, self._interactive = heard, interactive
        self._granted: set[tuple[str, str]] = set()
        self._cut: dict[str, list[ApprovalAnswered]] = {}
        self._open: dict[str, tuple[Turn, ApprovalAsked, asyncio.Future[Answer]]] = {}
        self._lanes: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def ask(self, call: ToolCall, reason: str, turn: Turn) -> Leave:
        """The word on `call`: given now, or before for exactly this call. None: there is nobody to ask."""
        rule, (key, session, _) = exactly(call, turn), _place(turn)
        async with self._lanes.setdefault(key, asyncio.Lock()):
            if (session, rule) in self._granted:
                return "session"
            if await self._grants.allowed(rule):
                return "always"
            if not (self._interactive and self._heard(key)):
                return None
            answer = await self._put(ApprovalAsked(os.urandom(6).hex(), call, reason, rule), turn)
            if answer.unasked:
                return Unasked(answer.unasked)
            if answer.choice == "session":
                self._granted.add((session, rule))
            elif answer.choice == "always":
                await self._grants.allow(rule)
            return answer.choice

    def answer(self, answer: Answer) -> None:
        """Somebody's word, from wherever; one on a question that is not open any more says nothing."""
        if answer.ask in self._open and not (waiting := self._open[answer.ask][2]).done():
            waiting.set_result(answer)

    def open(self, key: str) -> tuple[ApprovalAsked, ...]:
        """The questions that wait under `key`, for who begins to watch only now."""
        return tuple(asked for _, asked in self.asking(key))

    def asking(self, key: str) -> tuple[tuple[str, ApprovalAsked], ...]:
        """The same, each with the turn that it is asked for."""
        here = ((_place(turn), asked) for turn, asked, _ in self._open.values())
        return tuple((turn, asked) for (place, _, turn), asked in here if place == key)

    async def _put(self, asked: ApprovalAsked, turn: Turn) -> Answer:
        waiting: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._open[asked.ask] = turn, asked, waiting
        answered = ApprovalAnswered(asked.ask, "no", "stop")
        try:
            await self._hooks.relay.tell(specs.on_event, event=asked, turn=turn)
            self._tell(turn, asked)
            answer = await waiting
            answer = structs.replace(answer, choice="no", by=NOBODY) if answer.unasked else answer
            answered = ApprovalAnswered(asked.ask, answer.choice, answer.by)
        except asyncio.CancelledError:
            self._cut.setdefault(turn.id, []).append(answered)
            raise
        finally:  # also when stopped: whoever shows the question must take it away
            del self._open[asked.ask]
            self._tell(turn, answered)
        await self._hooks.relay.tell(specs.on_event, event=answered, turn=turn)
        return answer

    def unanswered(self, turn: str) -> tuple[ApprovalAnswered, ...]:
        """The questions of a turn that its end answered, for whoever tells the plugins; once."""
        return tuple(self._cut.pop(turn, ()))

    def waits(self, turn: str) -> bool:
        """Does the turn wait for a person's word, or what works for it?"""
        return any(
            turn in (asker.id, asker.inbound.parent, _place(asker)[2]) for asker, _, _ in self._open.values()
        )

    def _tell(self, turn: Turn, event: Event) -> None:
        key, _, asker = _place(turn)
        self._publish(Envelope(key, asker, event))


def _place(turn: Turn) -> tuple[str, str, str]:
    """Where a person is asked for the turn: key, session, and the turn that is theirs."""
    origin = turn.inbound.origin
    if origin is None:
        return turn.key, turn.session, turn.id
    asker = turn.id if origin.reports else origin.turn  # what is detached may ask when that turn is over
    return origin.address.key, origin.session, asker


def exactly(call: ToolCall, turn: Turn) -> str:
    """Equal for equal calls in the same folder and for nothing else; a person can read it."""
    args = msgspec.json.encode(call.args, order="sorted").decode()
    where = f" in {turn.inbound.workdir}" if turn.inbound.workdir else ""
    return f"{call.name} {args}{where}"


class Questions:
    """Those that wait for an answer, in this process."""

    def __init__(
        self, publish: Callable[[Envelope], None], heard: Callable[[str], bool], *, interactive: bool
    ) -> None:
        """`heard(key)`: does anybody watch? `interactive`: could they answer?"""
        self._publish, self._heard, self._interactive = publish, heard, interactive
        self._waiting: dict[str, asyncio.Future[Reply]] = {}
        self._asked: dict[str, tuple[str, Asked]] = {}
        """By session key, the question that is open there: the latest."""

    async def ask(self, turn: Turn, question: str, choices: tuple[str, ...], seconds: float) -> Reply | None:
        """What a person answers, or why the question did not reach them; None where nobody answers in time,
        or is there to. Every front end is told."""
        if not (self._interactive and self._heard(turn.key)):
            return None
        asked = Asked(os.urandom(6).hex(), question, choices, time.time() + seconds)
        answer: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        self._waiting[asked.ask], self._asked[turn.key] = answer, (turn.id, asked)
        self._publish(Envelope(turn.key, turn.id, asked))
        heard = Heard(asked.ask)
        try:
            async with asyncio.timeout(seconds):
                reply = await answer
            heard = Heard(asked.ask, reply.text, reply.by)
        except TimeoutError:
            return None
        else:
            return reply
        finally:
            del self._waiting[asked.ask]
            self._asked.pop(turn.key, None)
            self._publish(Envelope(turn.key, turn.id, heard))

    def answer(self, reply: Reply) -> None:
        """The first counts."""
        waiting = self._waiting.get(reply.ask)
        if waiting is not None and not waiting.done():
            waiting.set_result(reply)

    def waits(self, turn: str) -> bool:
        """Does the turn wait for an answer?"""
        return any(asker == turn for asker, _ in self._asked.values())

    def open(self, key: str) -> Asked | None:
        """What the session waits to hear."""
        found = self._asked.get(key)
        return found[1] if found else None

    def asking(self, key: str) -> tuple[tuple[str, Asked], ...]:
        """The same, with the turn that asks."""
        return (self._asked[key],) if key in self._asked else ()
