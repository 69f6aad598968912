"""The whole gateway, ended at random moments and opened again: nothing lost, nothing doubled, order kept."""

import asyncio
import random
from contextlib import AsyncExitStack

import pytest

from alipes.kernel.errors import DeliveryError
from alipes.kernel.platform import Talents
from alipes.providers.scripted import Pause, Scripted
from tests.world.gatehouse import arrival, open_gatehouse
from tests.world.messenger import Lost, Messenger

CHATS, EACH = ("a", "b", "c"), 4
TALENTS = Talents(longest=60, edits=True, pace=0.0, typing=1.0, deletes=True)


class Slow(Scripted):
    """Repeats what was said last, in a few pieces."""

    def __init__(self, dice):
        super().__init__([])
        self._dice = dice

    async def _next(self, request):
        words = f"answer to {request.messages[-1].text} {'x' * self._dice.randint(0, 90)} end".split(" ")
        return tuple(each for word in words for each in (f"{word} ", Pause(self._dice.random() * 0.01)))


class World:
    """A messenger that delivers until it is told that it was taken, and fails now and then."""

    def __init__(self, home, seed):
        self.home, self.dice = home, random.Random(seed)
        self.messenger = Messenger(talents=TALENTS)
        self.waiting = {
            chat: [arrival(f"{chat}{n}", id=f"{chat}{n}", chat=chat) for n in range(EACH)] for chat in CHATS
        }
        for verb in ("send", "edit"):
            self.messenger.fail(verb, *(self._fault() for _ in range(400)))

    def _fault(self):
        kinds = (DeliveryError("flood", retry_after=0.01), DeliveryError("no"), Lost())
        return self.dice.choice(kinds) if self.dice.random() < 0.05 else None

    async def deliver(self, g, chat):
        while self.waiting[chat]:
            await asyncio.sleep(self.dice.random() * 0.03)
            await g.gateway.take("test", self.waiting[chat][0])
            if self.dice.random() < 0.2:
                await g.gateway.take("test", self.waiting[chat][0])
            del self.waiting[chat][0]

    async def live(self, seconds):
        """One life of the process; True once there is nothing left to do."""
        async with AsyncExitStack() as stack:
            opened = open_gatehouse(self.home, Slow(self.dice), messenger=self.messenger, rules={"tries": 50})
            g = await stack.enter_async_context(opened)
            try:
                async with asyncio.timeout(seconds), asyncio.TaskGroup() as group:
                    for chat in CHATS:
                        group.create_task(self.deliver(g, chat))
                    group.create_task(self.done(g))
            except TimeoutError:
                return False
            return True

    async def done(self, g):
        """Polled: the rows are the facts."""
        await g.lobby.settled()
        while any(self.waiting.values()) or g.lobby._busy or await g.store.outbox.look("owed", "trying"):
            await asyncio.sleep(0.02)
            await g.lobby.settled()


def finished(texts):
    """The answers that are whole, in the order they stand there, parts put together."""
    words = [text for text in texts if "started anew" not in text]
    return [part.split(" ")[2] for part in words if part.startswith("answer to ") and not part.endswith("…")]


@pytest.mark.deadline(120)
@pytest.mark.parametrize("seed", range(6))
async def test_nothing_is_lost_doubled_or_out_of_order(seed, tmp_path):
    world = World(tmp_path, seed)
    for _ in range(2):  # a turn that is cut off a third time would be given up
        await world.live(0.05 + world.dice.random() * 0.5)
    assert await world.live(60.0), "it does not come to an end"
    async with open_gatehouse(tmp_path, Scripted([]), messenger=world.messenger) as g:
        debts = await g.store.outbox.look(limit=1000)
        doubtful = {
            debt.outbound.text.split(" ")[2] for debt in debts if debt.uncertain and debt.outbound.turn
        }
        said = [debt for debt in debts if not debt.outbound.fleeting]
        assert {debt.state for debt in said} <= {"sent", "dead"}
        dead = [debt for debt in debts if debt.state == "dead"]
        assert all("may be there" in debt.why for debt in dead), "only what may be there was given up"
        facts = [await g.store.archive.turn(debt.outbound.turn) for debt in debts if debt.outbound.turn]
        assert {each.ending for each in facts} == {"answered"} and len(facts) == len(CHATS) * EACH
    for chat in CHATS:
        wanted, seen = [f"{chat}{n}" for n in range(EACH)], finished(world.messenger.said(chat))
        assert list(dict.fromkeys(seen)) == wanted, (seed, world.messenger.said(chat))
        for name in wanted:
            assert seen.count(name) == 1 or name in doubtful, (seed, name, world.messenger.said(chat))
