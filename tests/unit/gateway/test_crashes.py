"""The whole gateway, killed at random moments and restarted: nothing is lost or doubled, the order is
kept."""

import asyncio
import random
from contextlib import AsyncExitStack

import pytest

from alipes.kernel.errors import DeliveryError
from alipes.kernel.platform import Capabilities
from alipes.testing.scripted_provider import Pause, ScriptedProvider
from tests.world.fake_platform import FakePlatform, ReplyLost
from tests.world.gateway_harness import make_message, open_gateway

CHATS, EACH = ("a", "b", "c"), 4
TALENTS = Capabilities(max_length=60, can_edit=True, edit_interval=0.0, typing_seconds=1.0, can_delete=True)


class Slow(ScriptedProvider):
    """Repeats the last message in a few chunks."""

    def __init__(self, dice):
        super().__init__([])
        self._dice = dice

    async def _next(self, request):
        words = f"answer to {request.messages[-1].text} {'x' * self._dice.randint(0, 90)} end".split(" ")
        return tuple(each for word in words for each in (f"{word} ", Pause(self._dice.random() * 0.01)))


class World:
    """A messenger that repeats messages until they are accepted, and fails now and then."""

    def __init__(self, home, seed):
        self.home, self.dice = home, random.Random(seed)
        self.messenger = FakePlatform(talents=TALENTS)
        self.waiting = {
            chat: [make_message(f"{chat}{n}", id=f"{chat}{n}", chat=chat) for n in range(EACH)] for chat in CHATS
        }
        for verb in ("send", "edit"):
            self.messenger.fail(verb, *(self._fault() for _ in range(400)))

    def _fault(self):
        kinds = (DeliveryError("flood", retry_after=0.01), DeliveryError("no"), ReplyLost())
        return self.dice.choice(kinds) if self.dice.random() < 0.05 else None

    async def deliver(self, g, chat):
        while self.waiting[chat]:
            await asyncio.sleep(self.dice.random() * 0.03)
            await g.gateway.receive("test", self.waiting[chat][0])
            if self.dice.random() < 0.2:
                await g.gateway.receive("test", self.waiting[chat][0])
            del self.waiting[chat][0]

    async def live(self, seconds):
        """Run one process; True once there is nothing left to do."""
        async with AsyncExitStack() as stack:
            opened = open_gateway(self.home, Slow(self.dice), messenger=self.messenger, rules={"max_attempts": 50})
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
        """Polls the rows."""
        await g.sessions.wait_idle()
        while (
            any(self.waiting.values())
            or g.sessions.activity.busy
            or await g.store.outbox.list_deliveries("queued", "sending")
        ):
            await asyncio.sleep(0.02)
            await g.sessions.wait_idle()


def finished(texts):
    """The complete answers in the order of the chat, parts joined."""
    words = [text for text in texts if "I was restarted" not in text]
    return [part.split(" ")[2] for part in words if part.startswith("answer to ") and not part.endswith("…")]


@pytest.mark.deadline(120)
@pytest.mark.parametrize("seed", range(6))
async def test_no_message_is_lost_doubled_or_out_of_order(seed, tmp_path):
    world = World(tmp_path, seed)
    for _ in range(2):  # a turn that is interrupted a third time would be given up
        await world.live(0.05 + world.dice.random() * 0.5)
    assert await world.live(60.0), "it does not finish"
    async with open_gateway(tmp_path, ScriptedProvider([]), messenger=world.messenger) as g:
        debts = await g.store.outbox.list_deliveries(limit=1000)
        doubtful = {debt.outbound.text.split(" ")[2] for debt in debts if debt.uncertain and debt.outbound.turn}
        said = [debt for debt in debts if not debt.outbound.fleeting]
        assert {debt.state for debt in said} <= {"sent", "failed"}
        dead = [debt for debt in debts if debt.state == "failed"]
        assert all("may have been delivered" in debt.why for debt in dead), "only uncertain messages were given up"
        facts = [await g.store.archive.turn(debt.outbound.turn) for debt in debts if debt.outbound.turn]
        assert {each.ending for each in facts} == {"answered"} and len(facts) == len(CHATS) * EACH
    for chat in CHATS:
        wanted, seen = [f"{chat}{n}" for n in range(EACH)], finished(world.messenger.said(chat))
        assert list(dict.fromkeys(seen)) == wanted, (seed, world.messenger.said(chat))
        for name in wanted:
            assert seen.count(name) == 1 or name in doubtful, (seed, name, world.messenger.said(chat))
