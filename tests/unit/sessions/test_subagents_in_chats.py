"""Subagents of a conversation in a chat: they say nothing there themselves, but ask and report there."""

import asyncio
from contextlib import asynccontextmanager

from alipes.config.settings import DelegationConfig
from alipes.features.subagents.delegation import Delegation
from alipes.features.subagents.tool import DelegateTask
from alipes.kernel.messages import ToolCall
from alipes.plugins.dispatch import Hooks
from alipes.plugins.owner import CORE
from alipes.plugins.specs import Verdict
from tests.unit.gateway.test_approvals import PEOPLE, Hand, question
from tests.world.gateway_harness import open_gateway
from tests.world.session_harness import SingleModel
from tests.world.subagent_harness import RuleModel, delegate

HAND = ToolCall("h1", "hand", {"command": "explode"})


class Later:
    """A tool that is made when alipes is."""

    def __init__(self):
        self.spec, self.tool = DelegateTask(None).spec, None

    async def run(self, args, act):
        return await self.tool.run(args, act)


@asynccontextmanager
async def open_chat(home, answer, **more):
    """A chat whose calls of `hand` are asked about, and which may delegate."""
    hand, hooks, tool, mind = Hand(), Hooks(), Later(), RuleModel(answer)

    async def before_tool(call, turn):
        if call.name != "hand":
            return None
        word = await g.sessions.questions.ask_approval(call, "explodes", turn)
        return None if word not in (None, "no") else Verdict("deny", f"the word was {word}")

    async def names(turn):
        return ("hand", "delegate_task")

    hooks.add(CORE, before_tool, patient=True)
    async with open_gateway(home, mind, hand, tool, hooks=hooks, manners=PEOPLE, **more) as g:
        delegation = Delegation(g.sessions, g.store, DelegationConfig(), models=SingleModel(mind), tools=names)
        tool.tool = DelegateTask(delegation)
        yield g, hand


async def test_what_a_subagent_says_is_not_said_in_the_chat(tmp_path):
    def answer(seen, request):
        if seen.text == "go":
            return delegate(tasks=[{"goal": "one"}, {"goal": "two"}])
        return "both are done" if seen.role == "tool" else "I did my part"

    async with open_chat(tmp_path, answer) as (g, _):
        await g.take("go")
        await g.messenger.until_said("both are done")
        await g.quiet()
        assert g.messenger.said() == ["both are done"]


async def test_a_subagent_asks_in_the_chat_also_when_who_sent_it_is_done(tmp_path):
    open_door = asyncio.Event()

    async def later():
        await open_door.wait()
        return HAND

    def answer(seen, request):
        if seen.text in ("go", "go off"):
            return delegate(seen.text, goal="look", background=seen.text == "go off")
        if seen.text == "look":
            return later()
        return "well" if seen.role != "tool" or "done" in str(seen.parts) else "so"

    async with open_chat(tmp_path, answer) as (g, hand):
        open_door.set()
        await g.take("go")
        await question(g)
        await g.take("yes")
        await g.messenger.until(lambda: "well" in g.messenger.said())
        assert hand.ran == ["explode"]
        open_door.clear()
        await g.take("go off")
        await g.messenger.until(lambda: "so" in g.messenger.said())
        open_door.set()
        await question(g, number=2)
        await g.take("yes")
        await g.messenger.until(lambda: g.messenger.said().count("well") == 2)
        assert hand.ran == ["explode"] * 2


async def test_what_was_asked_beside_is_answered_in_the_chat_while_something_else_runs(tmp_path):
    hold, begun = asyncio.Event(), asyncio.Event()

    async def wait():
        begun.set()
        await hold.wait()
        return "at last"

    def answer(seen, request):
        return wait() if seen.text == "hold on" else "forty-two"

    async with open_chat(tmp_path, answer) as (g, _):
        await g.take("hold on")
        await begun.wait()
        await g.take("/background count cows")
        await g.messenger.until(lambda: any("forty-two" in text for text in g.messenger.said()))
        first, second = g.messenger.said()
        assert first.startswith("Started in the background (")
        assert second == "Background task “count cows” is done.\n\nforty-two"
        hold.set()
        await g.messenger.until(lambda: len(g.messenger.said()) == 3)
        await g.quiet()
        assert len(g.messenger.said()) == 3


async def test_a_stop_in_the_chat_names_what_continues(tmp_path):
    begun = asyncio.Semaphore(0)

    async def rest():
        begun.release()
        await asyncio.Event().wait()

    def answer(seen, request):
        if seen.text == "go":
            return delegate(goal="look around", background=True)
        return rest()

    async with open_chat(tmp_path, answer) as (g, _):
        await g.take("go")
        for _ in range(2):  # the subagent, and the turn after its call
            await begun.acquire()
        await g.take("/stop")
        await g.messenger.until(lambda: any("Stopped." in text for text in g.messenger.said()))
        (seen,) = g.messenger.said()
        assert "Still running in the background: subagent" in seen and "look around" in seen
