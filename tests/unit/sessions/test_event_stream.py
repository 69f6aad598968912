"""Watching a session: every event once and in order, from the bus and, where that fell silent, the journal."""

import asyncio
from contextlib import asynccontextmanager

import pytest

from alipes.kernel.messages import Message, Text, user
from alipes.kernel.turns import (
    Address,
    Envelope,
    Inbound,
    Retracted,
    Said,
    TextDelta,
    ThinkingDelta,
    TurnEnded,
    TurnStarted,
)
from alipes.sessions.event_stream import SessionFollower
from alipes.store.sqlite.store import open_store
from tests.world.environment import LIMIT_S

PLACE = Address("terminal", "here")
ANSWER = Message("assistant", (Text("the answer"),))


class FakeSessions:
    """Notes who is woken."""

    def __init__(self) -> None:
        self.woken: list[str] = []

    async def wake(self, key: str) -> None:
        self.woken.append(key)


class Seen:
    """A watch on a real store, and what it reported."""

    def __init__(self, store) -> None:
        self.store, self.sessions = store, FakeSessions()
        self.received: list[object] = []
        self.waiting: list[str] = []
        self._watch = SessionFollower(PLACE.key, self.sessions, store, self._tell)

    def _tell(self, turn: str, event: object) -> None:
        self.received.append(event)

    def publish(self, turn: str, *events) -> None:
        for event in events:
            self.store.bus.publish(Envelope(PLACE.key, turn, event))

    async def until(self, count: int) -> list[object]:
        async with asyncio.timeout(LIMIT_S):
            while len(self.received) < count:
                await asyncio.sleep(0.005)
        await asyncio.sleep(0.1)
        return self.received

    @asynccontextmanager
    async def running(self):
        async with asyncio.TaskGroup() as group:
            task = group.create_task(self._watch.run(lambda one: self.waiting.append(one.text)))
            while not self.store.bus.has_subscribers(PLACE.key):
                await asyncio.sleep(0.005)
            await asyncio.sleep(0.05)
            yield
            task.cancel()


@pytest.fixture
def home(tmp_path):
    return tmp_path


async def accept(store, number: int = 1) -> str:
    return await store.turns.accept(Inbound(str(number), PLACE, "me", f"message {number}"))


async def test_events_are_reported_and_text_that_follows_text_is_joined(home):
    async with open_store(home) as store:
        seen = Seen(store)
        async with seen.running():
            seen.publish("t", TurnStarted("t", "s", 1, "hi"), *(TextDelta(letter) for letter in "abc"))
            seen.publish("t", ThinkingDelta("x"), ThinkingDelta("y"), TextDelta("d"), Said(ANSWER))
            seen.publish("t", TurnEnded("t", "answered"))
            reported = await seen.until(6)
        assert reported == [
            TurnStarted("t", "s", 1, "hi"),
            TextDelta("abc"),
            *(ThinkingDelta("x"), ThinkingDelta("y"), TextDelta("d")),
            Said(ANSWER),
            TurnEnded("t", "answered"),
        ]
        assert seen.sessions.woken == []


async def test_a_turn_that_began_before_is_reported_from_the_journal_and_nothing_twice(home):
    async with open_store(home) as store:
        id = await accept(store)
        await accept(store, 2)
        turn = await store.turns.claim_next(PLACE.key)
        await store.turns.record(turn, Said(user("message 1")))
        await store.turns.record(turn, Said(ANSWER))
        seen = Seen(store)
        async with seen.running():
            seen.publish(id, TurnStarted(id, turn.session, 1, "message 1"), Said(ANSWER), Said(ANSWER))
            reported = await seen.until(4)
            assert seen.waiting == ["message 2"] and seen.sessions.woken == [PLACE.key]
        assert isinstance(reported[0], TurnStarted) and reported[0].text == "message 1" and reported[0].attempt == 2
        assert reported[1:] == [Said(user("message 1")), Said(ANSWER), Said(ANSWER)]


async def test_a_turn_that_begins_before_anything_was_read_is_not_resumed(home):
    """A message that is typed while the terminal starts."""
    async with open_store(home) as store:
        seen = Seen(store)
        await accept(store)
        turn = await store.turns.claim_next(PLACE.key)
        await store.turns.record(turn, Said(user("message 1")))
        async with seen.running():
            reported = await seen.until(2)
        assert reported == [TurnStarted(turn.id, turn.session, 1, "message 1"), Said(user("message 1"))]


async def test_when_the_publisher_goes_away_the_journal_tells_the_rest(home):
    async with open_store(home) as store:
        id = await accept(store)
        turn = await store.turns.claim_next(PLACE.key)
        seen = Seen(store)
        async with seen.running():
            await seen.until(1)
            await store.turns.record(turn, Said(ANSWER))
            await store.turns.finish(turn, "answered", "")
            store.bus.close()
            reported = await seen.until(3)
        assert reported[1] == Said(ANSWER) and isinstance(reported[2], TurnEnded) and reported[2].ending == "answered"
        assert reported[2].turn == id


async def test_a_turn_that_is_lived_again_takes_back_what_was_half_said(home):
    async with open_store(home) as store:
        seen = Seen(store)
        async with seen.running():
            seen.publish("t", TurnStarted("t", "s", 1, "hi"), TextDelta("half"))
            await seen.until(2)
            seen.publish("t", TurnStarted("t", "s", 1, "hi"), TurnStarted("t", "s", 2, "hi"), Said(ANSWER))
            reported = await seen.until(4)
        assert isinstance(reported[2], Retracted) and reported[3] == Said(ANSWER)
