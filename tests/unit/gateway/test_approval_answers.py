"""Answers in chats that say more than yes or no: a pattern of commands, or why not; and the mode of a chat."""

from contextlib import asynccontextmanager

import pytest

from alipes.kernel.conversations import denial_reason
from alipes.kernel.messages import ToolCall
from alipes.kernel.ports import ToolSpec
from alipes.kernel.turns import Address
from alipes.plugins.dispatch import Hooks
from alipes.plugins.owner import CORE
from alipes.plugins.specs import Verdict
from alipes.testing.scripted_provider import ScriptedProvider
from tests.unit.gateway.test_approvals import PEOPLE, Hand, question
from tests.world.gateway_harness import open_gateway


class TerminalHand(Hand):
    spec = ToolSpec("terminal", "", {"type": "object", "properties": {"command": {"type": "string"}}})


def push(id="c1", target="main"):
    return ToolCall(id, "terminal", {"command": f"git push -f {target}"})


@asynccontextmanager
async def open_guarded(home, *script):
    """Every command needs approval, and a pattern may give it."""
    hand, hooks = TerminalHand(), Hooks()

    async def before_tool(call, turn):
        word = await g.sessions.questions.ask_approval(call, "force-pushes", turn, exact=False)
        return Verdict("deny", f"not run: {denial_reason(word)}") if denial_reason(word) else None

    hooks.add(CORE, before_tool, patient=True)
    async with open_gateway(home, ScriptedProvider(script), hand, hooks=hooks, manners=PEOPLE) as g:
        yield g, hand


@pytest.mark.parametrize("answer", ["always git push *", "Always: `git push *`"])
async def test_an_owner_allows_a_pattern_by_answering_with_it(tmp_path, answer):
    async with open_guarded(tmp_path, push("c1"), push("c2", "other"), "ok") as (g, hand):
        await g.take("go", sender="boss")
        bubble = await question(g)
        assert "`always git push -f main`" in bubble.text
        await g.take(answer, sender="boss")
        await g.messenger.until(lambda: "ok" in g.messenger.said())
        await g.quiet()
        assert len(hand.ran) == 2 and "Always approved: `git push *`" in bubble.text


async def test_a_pattern_that_does_not_fit_is_refused_and_the_question_stays_open(tmp_path):
    async with open_guarded(tmp_path, push(), "ok") as (g, hand):
        await g.take("go", sender="boss")
        await question(g)
        await g.take("always git pull *", sender="boss")
        await g.messenger.until(lambda: any("does not match" in each for each in g.messenger.said()))
        assert not hand.ran
        await g.take("no", sender="boss")
        await g.messenger.until(lambda: "ok" in g.messenger.said())


async def test_only_an_owner_can_allow_a_pattern(tmp_path):
    async with open_guarded(tmp_path, push(), "ok") as (g, hand):
        await g.take("go")
        bubble = await question(g)
        assert "always" not in bubble.text
        await g.take("always git push *")
        await g.messenger.until(lambda: any("Only an owner" in each for each in g.messenger.said()))
        assert not hand.ran
        await g.take("no")
        await g.messenger.until(lambda: "ok" in g.messenger.said())


@pytest.mark.parametrize("answer", ["no, because it is Friday", "No: it is Friday", "deny because it is Friday"])
async def test_the_model_gets_the_reason(tmp_path, answer):
    async with open_guarded(tmp_path, push(), "ok") as (g, hand):
        await g.take("go")
        bubble = await question(g)
        await g.take(answer)
        await g.messenger.until(lambda: "ok" in g.messenger.said())
        await g.quiet()
        said = await g.store.archive.messages((await g.store.sessions.active(Address("test", "me").key)).session)
        assert not hand.ran and "Denied: it is Friday" in bubble.text
        assert any(
            "who said: “it is Friday”" in part.text for each in said for part in each.parts if hasattr(part, "text")
        )


async def test_other_text_at_a_question_is_a_message(tmp_path):
    async with open_guarded(tmp_path, push(), "ok", "sure") as (g, _):
        await g.take("go", sender="boss")
        await question(g)
        await g.take("always use tabs", sender="boss")
        await g.take("no", sender="boss")
        await g.messenger.until(lambda: "sure" in g.messenger.said())


async def test_only_owners_change_the_mode_of_a_chat(tmp_path):
    async with open_guarded(tmp_path, "ok") as (g, _):
        await g.take("/mode all")
        await g.messenger.until(lambda: any("owner" in each for each in g.messenger.said()))
        assert await g.sessions.permissions.of_key(Address("test", "me").key) == "ask"
        await g.take("/mode plan", sender="boss")
        await g.messenger.until(lambda: any("Permission mode plan" in each for each in g.messenger.said()))
        assert await g.sessions.permissions.of_key(Address("test", "me").key) == "plan"
