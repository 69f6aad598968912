"""Live views: few edits, completed once, and nothing after a stop."""

import asyncio
import time

import pytest

from alipes.gateway.live_view import ToolProgressView
from alipes.gateway.policy import EditRateLimiter, PlatformPolicy
from alipes.kernel.errors import DeliveryError
from alipes.kernel.messages import ToolCall, ToolResult
from alipes.kernel.outbox import lane
from alipes.kernel.platform import Capabilities
from alipes.kernel.ports import ToolSpec
from alipes.kernel.turns import Address
from alipes.testing.scripted_provider import Pause, ScriptedProvider
from tests.world.fake_platform import FakePlatform, ReplyLost
from tests.world.gateway_harness import open_gateway

ME = lane(Address("test", "me"))


class Walk:
    """A tool in steps; `go` lets it finish."""

    spec = ToolSpec("walk", "walk", {"type": "object", "properties": {"path": {"type": "string"}}})

    def __init__(self):
        self.running, self.go = asyncio.Event(), asyncio.Event()

    async def run(self, args, act):
        self.running.set()
        await act.progress("half-way")
        await self.go.wait()
        return "there"


def walk(n=1):
    return ToolCall(f"c{n}", "walk", {"path": f"/way/{n}"})


def shown(progress):
    return PlatformPolicy(allow=("me",), busy="queue", progress=progress)


async def test_an_answer_grows_and_is_completed_in_the_same_message(tmp_path):
    more, most = asyncio.Event(), asyncio.Event()
    async with open_gateway(tmp_path, ScriptedProvider([("one ", more, "two ", most, "three")])) as g:
        await g.take("count")
        await g.messenger.until_said("one …")
        more.set()
        await g.messenger.until_said("one two …")
        assert await g.store.drafts.list_ids(ME, (await g.store.archive.sessions())[0].id) == ()
        most.set()
        await g.messenger.until_said("one two three")
        await g.quiet()
        assert len(g.messenger.bubbles) == 1 and g.messenger.bubbles[0].edits <= 3


async def test_a_quick_answer_arrives_in_one_piece(tmp_path):
    async with open_gateway(
        tmp_path, ScriptedProvider([("one ", Pause(0.05), "two")]), rules={"draft_delay": 30.0}
    ) as g:
        await g.take("count")
        await g.messenger.until_said("one two")
        assert g.messenger.bubbles[0].edits == 0


async def test_many_tokens_cause_few_edits(tmp_path):
    script = tuple(each for n in range(100) for each in (f"{n} ", Pause(0.002)))
    messenger = FakePlatform(talents=Capabilities(max_length=4000, can_edit=True, edit_interval=0.1))
    async with open_gateway(tmp_path, ScriptedProvider([script]), messenger=messenger) as g:
        began = time.monotonic()
        await g.take("count")
        await messenger.until(lambda: messenger.said() and messenger.said()[0].endswith("99 "))
        most = (time.monotonic() - began) / messenger.capabilities.edit_interval + 2
        assert messenger.bubbles[0].edits <= most and len(messenger.bubbles) == 1


@pytest.mark.parametrize("fault", [DeliveryError("flood", retry_after=0.2), ReplyLost()], ids=["429", "lost"])
async def test_a_rate_limit_on_the_last_edit_still_gives_one_complete_text(fault, tmp_path):
    rest = asyncio.Event()
    async with open_gateway(tmp_path, ScriptedProvider([("one ", rest, "two")])) as g:
        await g.take("count")
        await g.messenger.until_said("one …")
        g.messenger.fail("edit", fault)
        rest.set()
        await g.messenger.until_said("one two")
        while not (sent := await g.store.outbox.list_deliveries("sent")):
            await asyncio.sleep(0.01)
        assert g.messenger.said() == ["one two"] and len(g.messenger.bubbles) == 1
        assert sent[0].paid == ("m1",) and not sent[0].uncertain


async def test_a_rate_limit_while_it_grows_is_waited_for_and_the_text_completes(tmp_path):
    more, rest = asyncio.Event(), asyncio.Event()
    async with open_gateway(tmp_path, ScriptedProvider([("one ", more, "two ", rest, "three")])) as g:
        g.messenger.fail("edit", DeliveryError("flood", retry_after=34.0))
        await g.take("count")
        await g.messenger.until_said("one …")
        more.set()
        await g.messenger.until(lambda: ("edit", "me", "one two …") in g.messenger.log)
        rest.set()
        await g.messenger.until_said("one two three")
        assert len(g.messenger.bubbles) == 1


async def test_a_lost_draft_makes_the_answer_uncertain(tmp_path):
    rest = asyncio.Event()
    async with open_gateway(tmp_path, ScriptedProvider([("one ", rest, "two")])) as g:
        g.messenger.fail("send", ReplyLost())
        await g.take("count")
        await g.messenger.until_said("one …")
        rest.set()
        await g.messenger.until_said("one …", "one two")
        await g.quiet()
        (debt,) = await g.store.outbox.list_deliveries("sent")
        assert debt.uncertain


async def test_a_lost_draft_stays_uncertain_after_the_next_one_arrives(tmp_path):
    more, rest, lost = asyncio.Event(), asyncio.Event(), ReplyLost()
    lost.retry_after = 0.01
    async with open_gateway(tmp_path, ScriptedProvider([("one ", more, "two ", rest, "three")])) as g:
        g.messenger.fail("send", lost)
        await g.take("count")
        await g.messenger.until_said("one …")
        more.set()
        await g.messenger.until(lambda: len(g.messenger.bubbles) == 2)
        rest.set()
        await g.messenger.until_said("one …", "one two three")
        await g.quiet()
        (debt,) = await g.store.outbox.list_deliveries("sent")
        assert debt.uncertain


async def test_a_long_answer_grows_over_several_messages(tmp_path):
    rest = asyncio.Event()
    async with open_gateway(tmp_path, ScriptedProvider([("a" * 200 + "b" * 100, rest, "c" * 120)])) as g:
        await g.take("count")
        await g.messenger.until_said("a" * 200, "b" * 100 + " …")
        rest.set()
        await g.messenger.until_said("a" * 200, "b" * 100 + "c" * 100, "c" * 20)


async def test_after_a_stop_nothing_more_is_shown(tmp_path):
    stuck = asyncio.Event()
    async with open_gateway(tmp_path, ScriptedProvider([("one ", stuck), "hi"])) as g:
        await g.take("count")
        await g.messenger.until_said("one …")
        await g.take("/stop")
        await g.messenger.until_said("one …", "Stopped.")
        await g.quiet()
        assert g.messenger.bubbles[0].edits == 0
        await g.take("hello")
        await g.messenger.until_said("one …", "Stopped.", "hi")


async def test_a_retracted_answer_is_replaced_in_the_same_message(tmp_path):
    from alipes.kernel.errors import Transient

    rest = asyncio.Event()
    script = [("wrong ", rest, Transient("cut", 0.01)), ("right ", "way")]
    async with open_gateway(tmp_path, ScriptedProvider(script)) as g:
        await g.take("go")
        await g.messenger.until_said("wrong …")
        rest.set()
        await g.messenger.until_said("right way")
        assert len(g.messenger.bubbles) == 1


async def test_a_text_said_before_a_stop_is_completed_although_it_was_delayed(tmp_path):
    tool, rest = Walk(), asyncio.Event()
    async with open_gateway(tmp_path, ScriptedProvider([("one ", rest, "two", walk())]), tool) as g:
        await g.take("go")
        await g.messenger.until_said("one …")
        g.messenger.fail("edit", *(DeliveryError("flood", retry_after=0.1) for _ in range(3)))
        rest.set()
        await tool.running.wait()
        await g.take("/stop")
        await g.messenger.until_said("one two", "Stopped.")
        assert len(g.messenger.bubbles) == 2


async def test_a_turn_of_another_front_end_is_shown_and_delivered(tmp_path):
    from alipes.kernel.turns import Inbound

    rest = asyncio.Event()
    async with open_gateway(tmp_path, ScriptedProvider([("one ", rest, "two")])) as g:
        await g.sessions.submit(Inbound("cron-1", Address("test", "me"), "cron", "count"))
        await g.messenger.until_said("one …")
        rest.set()
        await g.messenger.until_said("one two")


async def test_each_text_of_a_turn_is_a_message_of_its_own_in_order(tmp_path):
    tool, rest = Walk(), asyncio.Event()
    tool.go.set()
    script = [("first ", rest, "words", walk()), ("second ", Pause(0.1), "words")]
    async with open_gateway(tmp_path, ScriptedProvider(script), tool) as g:
        await g.take("go")
        await g.messenger.until_said("first …")
        rest.set()
        await g.messenger.until_said("first words", "second words")
        assert len(g.messenger.bubbles) == 2


async def test_no_draft_is_shown_before_earlier_messages_arrived(tmp_path):
    tool, held, rest = Walk(), asyncio.Event(), asyncio.Event()
    script = [("first", walk()), ("second ", rest, "words")]
    async with open_gateway(tmp_path, ScriptedProvider(script), tool, rules={"draft_delay": 0.05}) as g:
        g.messenger.fail("send", DeliveryError("flood", retry_after=0.4), held)
        await g.take("go")
        await tool.running.wait()
        tool.go.set()
        await asyncio.sleep(0.2)
        assert g.messenger.said() == []
        held.set()
        await g.messenger.until_said("first", "second …")
        rest.set()
        await g.messenger.until_said("first", "second words")


async def test_a_slow_plugin_does_not_let_a_draft_overwrite_the_answer(tmp_path):
    """The message is delivered before the live view learns that the answer is complete."""
    from alipes.kernel.turns import Said
    from alipes.plugins.dispatch import Hooks
    from alipes.plugins.owner import PluginOwner

    hooks, seen, go, rest = Hooks(), asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def on_event(event):
        if isinstance(event, Said) and event.message.role == "assistant":
            seen.set()
            await go.wait()

    hooks.add(PluginOwner("slow"), on_event)
    async with open_gateway(tmp_path, ScriptedProvider([("one ", rest, "two")]), hooks=hooks) as g:
        await g.take("count")
        await g.messenger.until_said("one …")
        rest.set()
        await seen.wait()
        await g.messenger.until_said("one two")
        await asyncio.sleep(0.1)
        assert g.messenger.said() == ["one two"]
        go.set()
        await g.quiet()
        assert g.messenger.said() == ["one two"] and len(g.messenger.bubbles) == 1


async def test_after_a_crash_the_draft_becomes_the_answer_and_there_is_no_second_message(tmp_path):
    messenger, stuck = FakePlatform(), asyncio.Event()
    async with open_gateway(tmp_path, ScriptedProvider([("one ", stuck)]), messenger=messenger) as g:
        await g.take("count")
        await messenger.until_said("one …")
    rest = asyncio.Event()
    provider = ScriptedProvider([("another ", rest, "answer")])
    async with open_gateway(tmp_path, provider, messenger=messenger) as g:
        await messenger.until(lambda: "another …" in messenger.said() or len(messenger.said()) > 1)
        rest.set()
        await messenger.until(lambda: "another answer" in messenger.said())
        await g.quiet()
        assert messenger.said() == ["another answer", "I was restarted. Continuing with “count”."]


async def test_tool_progress_is_one_message_in_the_chosen_mode(tmp_path):
    tool = Walk()
    script = [walk(1), walk(2), "done"]
    async with open_gateway(tmp_path, ScriptedProvider(script), tool, manners=shown("full")) as g:
        await g.take("go")
        await g.messenger.until(lambda: g.messenger.said())
        await g.messenger.until(lambda: "half-way" in g.messenger.said()[0])
        assert "**walk** `/way/1`" in g.messenger.said()[0]
        tool.go.set()
        await g.messenger.until(lambda: "done" in g.messenger.said())
        await g.quiet()
        assert len(g.messenger.bubbles) == 2, "one progress message and the answer"
        await g.messenger.until(lambda: g.messenger.said()[0].count("✓") == 2)


async def test_a_chat_can_hide_tool_progress(tmp_path):
    tool = Walk()
    async with open_gateway(tmp_path, ScriptedProvider([walk(1), "done"]), tool, manners=shown("short")) as g:
        await g.take("/progress off")
        await g.take("go")
        await tool.running.wait()
        await asyncio.sleep(0.1)
        tool.go.set()
        await g.messenger.until(lambda: "done" in g.messenger.said())
        assert len(g.messenger.bubbles) == 2
    async with open_gateway(tmp_path, ScriptedProvider([walk(1), "done"]), Walk(), manners=shown("short")) as g:
        await g.take("go")
        await asyncio.sleep(0.2)
        assert g.messenger.bubbles == [], "it is stored"


async def test_after_a_stop_the_tool_progress_stays(tmp_path):
    tool = Walk()
    async with open_gateway(tmp_path, ScriptedProvider([walk()]), tool, manners=shown("short")) as g:
        await g.take("go")
        await g.messenger.until(lambda: g.messenger.said())
        await g.take("/stop")
        await g.quiet()
        before = list(g.messenger.said())
        await asyncio.sleep(0.1)
        assert g.messenger.said() == before and before[-1] == "Stopped." and len(before) == 2


async def test_the_typing_indicator_is_shown_during_a_long_turn(tmp_path):
    stuck = asyncio.Event()
    async with open_gateway(tmp_path, ScriptedProvider([stuck, "hi"])) as g:
        await g.take("hello")
        await g.messenger.until(lambda: ("typing", "me", "") in g.messenger.log)
        stuck.set()
        await g.messenger.until_said("hi")


async def test_a_platform_without_edits_gets_only_complete_texts(tmp_path):
    messenger = FakePlatform(talents=Capabilities(max_length=200))
    async with open_gateway(tmp_path, ScriptedProvider([("one ", Pause(0.1), "two")]), messenger=messenger) as g:
        await g.take("count")
        await messenger.until_said("one two")
        assert [verb for verb, *_ in messenger.log if verb not in ("listen", "menu")] == ["send"]


async def test_a_failing_live_view_does_not_affect_the_answer(tmp_path):
    rest = asyncio.Event()
    async with open_gateway(tmp_path, ScriptedProvider([("one ", rest, "two")])) as g:
        g.messenger.fail("typing", ValueError("a bug"))
        g.messenger.fail("send", ValueError("a bug"))
        await g.take("count")
        await g.messenger.until(lambda: any(verb == "send" for verb, *_ in g.messenger.log))
        rest.set()
        await g.messenger.until_said("one two")


@pytest.mark.deadline(60)
async def test_many_live_views_share_the_rate_limit_and_all_answers_complete(tmp_path):
    chats, script = 100, tuple(each for n in range(40) for each in (f"{n} ", Pause(0.01)))
    messenger = FakePlatform(
        talents=Capabilities(max_length=4000, can_edit=True, edit_interval=0.05, typing_seconds=5.0)
    )
    everyone = PlatformPolicy(allow=("*",), busy="queue")
    rules = {"edits_per_second": 50.0, "draft_delay": 0.1}

    class Everybody(ScriptedProvider):
        async def _next(self, request):
            return script

    async with open_gateway(tmp_path, Everybody([]), messenger=messenger, manners=everyone, rules=rules) as g:
        began = time.monotonic()
        await asyncio.gather(*(g.take("count", chat=f"c{n}", sender=f"p{n}") for n in range(chats)))
        await g.quiet()
        took = time.monotonic() - began
        whole = "".join(f"{n} " for n in range(40))
        assert all(messenger.said(f"c{n}") == [whole] for n in range(chats))
        live = sum(verb in ("send", "edit", "typing") for verb, *_ in messenger.log) - chats
        assert live <= 50 * took + 10


def test_tool_progress_is_built_from_events():
    bubble = ToolProgressView()
    assert bubble.text("full") == ""
    for n in range(15):
        bubble.start(ToolCall(f"c{n}", "look_up", {"query": f"`q{n}`\nmore"}))
        bubble.finish(ToolCall(f"c{n}", "look_up", {"query": f"`q{n}`\nmore"}), ToolResult(f"c{n}", "x"))
    bubble.start(ToolCall("last", "nothing", {}))
    bubble.update("last", "line 1\nline_2")
    lines = bubble.text("full").split("  \n")
    assert lines[0] == "(4 before)" and lines[-1] == "_line\\_2_" and lines[-2] == "… **nothing**"
    assert lines[1] == "✓ **look\\_up** `` `q4` more `` · x"
    assert bubble.text("short") == "… **nothing** (16 steps)"
    assert bubble.text("off") == ""


def test_the_rate_limiter_gives_everyone_their_own_slot():
    now = [10.0]
    pace = EditRateLimiter(10.0, lambda: now[0])
    assert [round(pace.reserve(), 3) for _ in range(3)] == [0.0, 0.1, 0.2]
    assert not pace.try_reserve()
    now[0] += 1
    assert pace.try_reserve() and not pace.try_reserve()


def test_a_call_of_another_agent_has_its_title_alone():
    bubble = ToolProgressView()
    bubble.start(ToolCall("1", "agent_tool", {"title": "Write a.txt", "kind": "edit"}))
    assert bubble.text("short") == "… `Write a.txt`"
