"""Production code with one of its rules taken away, each by a small patch; what they break must be found."""

import asyncio
from collections.abc import Callable
from functools import wraps
from typing import Any

import pytest
from msgspec import structs

from alipes.agent import loop, tool_calls
from alipes.gateway import platform_runner
from alipes.gateway.gateway import Gateway
from alipes.gateway.outbound.delivery import DeliveryAttempts, OutboxWorker
from alipes.gateway.platform_runner import PlatformRunner
from alipes.gateway.questions import Questions
from alipes.kernel.errors import DeliveryError
from alipes.kernel.messages import ToolResult
from alipes.kernel.turns import Said, ToolFinished, ToolStarted
from alipes.platforms.telegram.poll import Poller
from alipes.sessions import session
from alipes.sessions.session import Session
from alipes.sessions.subagents.registry import SubagentRegistry
from alipes.sessions.turn_runner import TurnRunner
from alipes.store import turn_rows
from alipes.store.database.database import Database
from alipes.store.inbox import SqliteInbox
from alipes.store.outbox import SqliteOutbox
from alipes.store.turns import SqliteTurns
from tests.simulation.plan import USUAL, Taste

Patch = pytest.MonkeyPatch
STOPPED = Taste(verbs=("act", "both", "twice"), stops=0.8, dies=0.2, fails=0.0)
KILLED = Taste(stops=0.0, dies=1.0, fails=0.0)
KILLED_AT_WORK = Taste(verbs=("act", "twice"), stops=0.0, dies=1.0, fails=0.0)
KILLED_ASKING = Taste(verbs=("risk",), chats=(2,), stops=0.0, dies=1.0, fails=0.0)
UNANSWERED = Taste(verbs=("echo",), stops=0.0, dies=0.0, fails=1.0, wires=("sendMessage",))
ASKED_IN_VAIN = Taste(verbs=("risk", "ask"), stops=0.0, dies=0.0, fails=1.0, wires=("sendMessage",))
ASKED = Taste(verbs=("risk", "ask"), stops=0.0, dies=0.6, fails=0.2, wires=("getUpdates",))
BROKEN = Taste(dies=1.0, fails=1.0, wires=("getUpdates",), hows=("odd",), ends=("term",), within=(150,))
SENT = Taste(verbs=("send",), stops=0.5, dies=0.3, fails=0.0)
KILLED_SENDING = Taste(
    verbs=("echo",), chats=(1,), stops=0.0, dies=1.0, fails=0.0, ends=("crash",), deaths=(4,), within=(200,)
)
TRIPPED = Taste(verbs=("trip",), dies=0.0, fails=0.0)
MUTATIONS: dict[str, tuple[Callable[[Patch], None], Taste]] = {}
"""By the rule that is taken away: how, and in what kind of world that is looked for."""


def _rule(rule: str, taste: Taste = USUAL) -> Callable[[Callable[[Patch], None]], Callable[[Patch], None]]:
    def keep(mutate: Callable[[Patch], None]) -> Callable[[Patch], None]:
        MUTATIONS[rule] = mutate, taste
        return mutate

    return keep


# --- the four rules of the session


@_rule("a parent that is itself shutting down writes no ending", KILLED)
def _(patch: Patch) -> None:
    suspend = Session._suspend

    async def ending(self: Any) -> None:
        living = self._living
        await suspend(self)
        if living is not None:
            await self._around.turns.finish(living.turn, "stopped", "shutdown")

    patch.setattr(Session, "_suspend", ending)


@_rule("a turn never writes its own ending")
def _(patch: Patch) -> None:
    run = TurnRunner.run

    @wraps(run)
    async def ending(self: Any) -> Any:
        over = await run(self)
        if over.ending is not None:
            await self._around.turns.finish(over.running.turn, over.ending, over.detail)
        return over

    patch.setattr(TurnRunner, "run", ending)


@_rule("the journal comes before the screen")
def _(patch: Patch) -> None:
    note = TurnRunner.emit

    async def shown_first(self: Any, event: Any) -> None:
        if isinstance(event, Said):
            self._around.publish(self._living.envelope(event))
        await note(self, event)

    patch.setattr(TurnRunner, "note", shown_first)


@_rule("memory comes before the journal")
def _(patch: Patch) -> None:
    async def journal_first(self: Any, event: Any) -> None:
        living = self._living
        await self.proceed()
        living.hear(event)
        if isinstance(event, Said | ToolStarted | ToolFinished):
            await self._around.turns.record(living.turn, event, *self._around.owes(living.turn, event))
            living.fold(event)
        await self._show(event)

    patch.setattr(TurnRunner, "note", journal_first)


@_rule("database writes are shielded from cancellation", STOPPED)
def _(patch: Patch) -> None:
    run = Database.run

    async def given_up(self: Any, work: Any, *, sync: bool = True) -> Any:
        gone = []

        def unless(db: Any) -> Any:
            return None if gone else work(db)

        try:
            return await run(self, unless, sync=sync)
        except asyncio.CancelledError:
            gone.append(True)
            raise

    patch.setattr(Database, "run", given_up)


@_rule("ending a turn answers its open calls", STOPPED)
def _(patch: Patch) -> None:
    patch.setattr(session, "close", lambda *_args: ())


@_rule("a write that was cut off is never run again", KILLED_AT_WORK)
def _(patch: Patch) -> None:
    def finished(calls: Any, acts: Any, _effect: Any) -> dict[str, ToolResult]:
        return {call.id: acts[call.id] for call in calls if acts.get(call.id) is not None}

    patch.setattr(loop, "recall", finished)


@_rule("the intent is on disk before the act")
def _(patch: Patch) -> None:
    record = SqliteTurns.record

    async def unless_begun(self: Any, turn: Any, event: Any, *owed: Any) -> None:
        if not isinstance(event, ToolStarted):
            await record(self, turn, event, *owed)

    patch.setattr(SqliteTurns, "record", unless_begun)


# --- who owns whom


@_rule("at most one turn lives in a session")
def _(patch: Patch) -> None:
    read = Session._handle

    async def any_time(self: Any, letter: Any, group: Any) -> None:
        if isinstance(letter, session.Wake):
            self._asked -= 1
            await self._take_up(group)
        else:
            await read(self, letter, group)

    patch.setattr(Session, "_read", any_time)


@_rule("a stop cancels the turn", STOPPED)
def _(patch: Patch) -> None:
    async def marked_only(self: Any, living: Any, stop: Any) -> None:
        living.mark(stop)

    async def nobody_looks(self: Any, living: Any, task: Any) -> None:
        return None

    patch.setattr(Session, "_cut_short", marked_only)
    patch.setattr(Session, "_see_it_end", nobody_looks)


@_rule("a tool dies with its turn", STOPPED)
def _(patch: Patch) -> None:
    run = tool_calls._run_tool

    async def detached(desk: Any, call: Any) -> Any:
        return await asyncio.shield(asyncio.get_running_loop().create_task(run(desk, call)))

    patch.setattr(tool_calls, "_run", detached)


@_rule("the error of a broken tool is reported to the model", TRIPPED)
def _(patch: Patch) -> None:
    async def bare(desk: Any, call: Any) -> Any:
        given = await desk.tools[call.name].run(call.args, tool_calls.ToolCallContext(call, desk))
        return ToolResult(call.id, str(given)), None

    patch.setattr(tool_calls, "_run", bare)


@_rule("a broken platform is restarted and does not affect others")
def _(patch: Patch) -> None:
    async def bare(self: Any, verb: str, work: Any, within: float | None = None) -> Any:
        async with asyncio.timeout(within):
            return await work

    patch.setattr(PlatformRunner, "_guarded", bare)


@_rule("a cancellation is never swallowed")
def _(patch: Patch) -> None:
    guarded = PlatformRunner._guarded

    async def swallowing(self: Any, verb: str, work: Any, within: float | None = None) -> Any:
        try:
            return await guarded(self, verb, work, within)
        except asyncio.CancelledError:
            raise DeliveryError("cancelled") from None

    patch.setattr(PlatformRunner, "_guarded", swallowing)


@_rule("the work of a dead process is resumed through the normal path", KILLED)
def _(patch: Patch) -> None:
    async def nothing(self: Any, *_args: Any) -> tuple[str, ...]:
        return ()

    patch.setattr(SqliteTurns, "orphans", nothing)


@_rule("a resumed turn asks in its chat even if no client is connected yet", KILLED_ASKING)
def _(patch: Patch) -> None:
    make = Gateway.__init__

    def unreached(self: Any, house: Any, *args: Any, **more: Any) -> None:
        make(self, house, *args, **more)
        house.sessions.reaches = lambda _key: False

    patch.setattr(Gateway, "__init__", unreached)


# --- the way in and the way out


@_rule("the second copy of a message is refused")
def _(patch: Patch) -> None:
    admit = turn_rows.admit_turn

    def again(db: Any, entry: Any, busy: Any, usual: Any) -> Any:
        again = structs.replace(entry, inbound_id=f"{entry.inbound_id}:again")
        return admit(db, entry, busy, usual) or admit(db, again, busy, usual)

    patch.setattr(turn_rows, "admit", again)


@_rule("an update is confirmed only after it was taken", KILLED)
def _(patch: Patch) -> None:
    see = Poller._see

    def confirmed(self: Any, raw: Any, tasks: Any) -> bool:
        fresh = see(self, raw, tasks)
        self._pending.clear()
        return fresh

    async def hand_over(self: Any, update: Any) -> None:
        await self._bring(update)

    patch.setattr(Poller, "_see", confirmed)
    patch.setattr(Poller, "_hand_over", hand_over)


@_rule("a message and its outbox row are one transaction", KILLED)
def _(patch: Patch) -> None:
    say = SqliteTurns._say

    async def apart(self: Any, turn: Any, said: Any, owed: Any) -> None:
        await say(self, turn, said, ())
        await SqliteOutbox(self._database).enqueue(*owed)

    patch.setattr(SqliteTurns, "_say", apart)


@_rule("one ordered lane per chat")
def _(patch: Patch) -> None:
    def at_once(self: Any, platform: str, lane: str) -> None:
        channel = self._channels[platform]
        if channel.ready:
            self._group.start(self._serve(channel, lane), f"lane {lane}")

    patch.setattr(OutboxWorker, "nudge", at_once)
    patch.setattr(OutboxWorker, "lock", lambda _self, _lane: asyncio.Lock())


@_rule("a send that a crash cut off counts as uncertain", KILLED)
def _(patch: Patch) -> None:
    async def sure(self: Any, _channel: Any, debt: Any) -> None:
        await self._outbox.postpone(debt, 0.0, "cut off")

    patch.setattr(DeliveryAttempts, "cut_off", sure)


@_rule("a send without an answer counts as uncertain", UNANSWERED)
def _(patch: Patch) -> None:
    failed = DeliveryAttempts._failed

    async def sure(self: Any, channel: Any, debt: Any, error: Any) -> None:
        await failed(self, channel, debt, DeliveryError(str(error), retry_after=error.retry_after))

    patch.setattr(DeliveryAttempts, "_failed", sure)


@_rule("what may be there twice is not sent a third time", KILLED_SENDING)
def _(patch: Patch) -> None:
    async def again(self: Any, _channel: Any, debt: Any) -> None:
        await self._outbox.postpone(debt, 0.0, "cut off", uncertain=True)

    patch.setattr(DeliveryAttempts, "cut_off", again)


# --- questions


@_rule("nobody waits for the answer to a question that reached nobody", ASKED_IN_VAIN)
def _(patch: Patch) -> None:
    async def nothing(self: Any) -> None:
        return None

    patch.setattr(Questions, "review", nothing)


@_rule("an answer is nothing else, however often it is brought", ASKED)
def _(patch: Patch) -> None:
    patch.setattr(turn_rows, "ANSWER", "nothing")


@_rule("a message that is brought again answers nothing", ASKED)
def _(patch: Patch) -> None:
    async def always(self: Any, platform: str, id: str) -> bool:
        sql = "INSERT OR IGNORE INTO inbox (platform, id, batch, created, handled) VALUES (?, ?, 'answer', 0, 1e12)"
        return bool(await self._database.run(lambda db: db.execute(sql, (platform, id)).rowcount))

    patch.setattr(SqliteInbox, "answered", always)


@_rule("who is asked to end ends, whatever breaks at that moment", BROKEN)
def _(patch: Patch) -> None:
    patch.setattr(platform_runner, "heed", lambda: None)


@_rule("subagents end with who waits for them", SENT)
def _(patch: Patch) -> None:
    async def left_alone(self: Any, *_args: Any) -> None:
        return None

    patch.setattr(SubagentRegistry, "stop", left_alone)
    patch.setattr(SubagentRegistry, "leave", left_alone)
