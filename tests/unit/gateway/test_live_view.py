"""What a chat is shown while turns live there: rarely changed, made whole once, and silent after a stop."""

import asyncio
import time

import pytest

from alipes.gateway.live.drafts import Bubble
from alipes.gateway.policy import Manners, Pace
from alipes.kernel.errors import DeliveryError
from alipes.kernel.messages import ToolCall, ToolResult
from alipes.kernel.outbox import lane
from alipes.kernel.platform import Talents
from alipes.kernel.ports import ToolSpec
from alipes.kernel.turns import Address
from alipes.providers.scripted import Pause, Scripted
from tests.world.gatehouse import open_gatehouse
from tests.world.messenger import Lost, Messenger

ME = lane(Address("test", "me"))


class Walk:
    """A tool in steps: `go` lets it end."""

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
    return Manners(allow=("me",), busy="queue", progress=progress)


async def test_an_answer_is_shown_as_it_grows_and_becomes_whole_in_the_same_message(tmp_path):
    more, most = asyncio.Event(), asyncio.Event()
    async with open_gatehouse(tmp_path, Scripted([("one ", more, "two ", most, "three")])) as g:
        await g.take("count")
        await g.messenger.until_said("one …")
        more.set()
        await g.messenger.until_said("one two …")
        assert await g.store.drafts.of(ME, (await g.store.archive.sessions())[0].id) == ()
        most.set()
        await g.messenger.until_said("one two three")
        await g.quiet()
        assert len(g.messenger.bubbles) == 1 and g.messenger.bubbles[0].edits <= 3


async def test_a_quick_answer_comes_whole(tmp_path):
    async with open_gatehouse(tmp_path, Scripted([("one ", Pause(0.05), "two")]), rules={"first": 30.0}) as g:
        await g.take("count")
        await g.messenger.until_said("one two")
        assert g.messenger.bubbles[0].edits == 0


async def test_many_tokens_are_few_changes(tmp_path):
    script = tuple(each for n in range(100) for each in (f"{n} ", Pause(0.002)))
    messenger = Messenger(talents=Talents(longest=4000, edits=True, pace=0.1))
    async with open_gatehouse(tmp_path, Scripted([script]), messenger=messenger) as g:
        await g.take("count")
        await messenger.until(lambda: messenger.said() and messenger.said()[0].endswith("99 "))
        assert messenger.bubbles[0].edits < 20 and len(messenger.bubbles) == 1


@pytest.mark.parametrize("fault", [DeliveryError("flood", retry_after=0.2), Lost()], ids=["429", "lost"])
async def test_flood_on_the_last_change_still_gives_exactly_one_whole_text(fault, tmp_path):
    rest = asyncio.Event()
    async with open_gatehouse(tmp_path, Scripted([("one ", rest, "two")])) as g:
        await g.take("count")
        await g.messenger.until_said("one …")
        g.messenger.fail("edit", fault)
        rest.set()
        await g.messenger.until_said("one two")
        while not (sent := await g.store.outbox.look("sent")):
            await asyncio.sleep(0.01)
        assert g.messenger.said() == ["one two"] and len(g.messenger.bubbles) == 1
        assert sent[0].paid == ("m1",) and not sent[0].uncertain


async def test_flood_while_it_grows_is_waited_out_and_the_whole_text_comes(tmp_path):
    more, rest = asyncio.Event(), asyncio.Event()
    async with open_gatehouse(tmp_path, Scripted([("one ", more, "two ", rest, "three")])) as g:
        g.messenger.fail("edit", DeliveryError("flood", retry_after=34.0))
        await g.take("count")
        await g.messenger.until_said("one …")
        more.set()
        await g.messenger.until(lambda: ("edit", "me", "one two …") in g.messenger.log)
        rest.set()
        await g.messenger.until_said("one two three")
        assert len(g.messenger.bubbles) == 1


async def test_a_draft_that_was_lost_on_the_way_makes_the_answer_uncertain(tmp_path):
    rest = asyncio.Event()
    async with open_gatehouse(tmp_path, Scripted([("one ", rest, "two")])) as g:
        g.messenger.fail("send", Lost())
        await g.take("count")
        await g.messenger.until_said("one …")
        rest.set()
        await g.messenger.until_said("one …", "one two")
        await g.quiet()
        (debt,) = await g.store.outbox.look("sent")
        assert debt.uncertain


async def test_a_draft_that_was_lost_stays_in_doubt_though_the_next_one_arrives(tmp_path):
    more, rest, lost = asyncio.Event(), asyncio.Event(), Lost()
    lost.retry_after = 0.01
    async with open_gatehouse(tmp_path, Scripted([("one ", more, "two ", rest, "three")])) as g:
        g.messenger.fail("send", lost)
        await g.take("count")
        await g.messenger.until_said("one …")
        more.set()
        await g.messenger.until(lambda: len(g.messenger.bubbles) == 2)
        rest.set()
        await g.messenger.until_said("one …", "one two three")
        await g.quiet()
        (debt,) = await g.store.outbox.look("sent")
        assert debt.uncertain


async def test_a_long_answer_grows_over_several_messages(tmp_path):
    rest = asyncio.Event()
    async with open_gatehouse(tmp_path, Scripted([("a" * 200 + "b" * 100, rest, "c" * 120)])) as g:
        await g.take("count")
        await g.messenger.until_said("a" * 200, "b" * 100 + " …")
        rest.set()
        await g.messenger.until_said("a" * 200, "b" * 100 + "c" * 100, "c" * 20)


async def test_after_a_stop_nothing_more_is_shown(tmp_path):
    stuck = asyncio.Event()
    async with open_gatehouse(tmp_path, Scripted([("one ", stuck), "hi"])) as g:
        await g.take("count")
        await g.messenger.until_said("one …")
        await g.take("/stop")
        await g.messenger.until_said("one …", "Stopping.")
        await g.quiet()
        assert g.messenger.bubbles[0].edits == 0
        await g.take("hello")
        await g.messenger.until_said("one …", "Stopping.", "hi")


async def test_an_answer_that_is_taken_back_is_shown_anew_in_the_same_message(tmp_path):
    from alipes.kernel.errors import Transient

    rest = asyncio.Event()
    script = [("wrong ", rest, Transient("cut", 0.01)), ("right ", "way")]
    async with open_gatehouse(tmp_path, Scripted(script)) as g:
        await g.take("go")
        await g.messenger.until_said("wrong …")
        rest.set()
        await g.messenger.until_said("right way")
        assert len(g.messenger.bubbles) == 1


async def test_what_was_said_before_a_stop_becomes_whole_though_it_was_held_up(tmp_path):
    tool, rest = Walk(), asyncio.Event()
    async with open_gatehouse(tmp_path, Scripted([("one ", rest, "two", walk())]), tool) as g:
        await g.take("go")
        await g.messenger.until_said("one …")
        g.messenger.fail("edit", *(DeliveryError("flood", retry_after=0.1) for _ in range(3)))
        rest.set()
        await tool.running.wait()
        await g.take("/stop")
        await g.messenger.until_said("one two", "Stopping.")
        assert len(g.messenger.bubbles) == 2


async def test_a_turn_that_came_in_by_another_door_is_shown_and_owed_as_well(tmp_path):
    from alipes.kernel.turns import Inbound

    rest = asyncio.Event()
    async with open_gatehouse(tmp_path, Scripted([("one ", rest, "two")])) as g:
        await g.lobby.submit(Inbound("cron-1", Address("test", "me"), "cron", "count"))
        await g.messenger.until_said("one …")
        rest.set()
        await g.messenger.until_said("one two")


async def test_each_text_of_a_turn_is_a_message_of_its_own_in_order(tmp_path):
    tool, rest = Walk(), asyncio.Event()
    tool.go.set()
    script = [("first ", rest, "words", walk()), ("second ", Pause(0.1), "words")]
    async with open_gatehouse(tmp_path, Scripted(script), tool) as g:
        await g.take("go")
        await g.messenger.until_said("first …")
        rest.set()
        await g.messenger.until_said("first words", "second words")
        assert len(g.messenger.bubbles) == 2


async def test_nothing_is_shown_before_what_was_said_has_arrived(tmp_path):
    tool, held, rest = Walk(), asyncio.Event(), asyncio.Event()
    script = [("first", walk()), ("second ", rest, "words")]
    async with open_gatehouse(tmp_path, Scripted(script), tool, rules={"first": 0.05}) as g:
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


async def test_a_plugin_that_is_slow_to_hear_of_an_answer_does_not_let_a_draft_overwrite_it(tmp_path):
    """The debt is paid before the stage is told that the answer is whole."""
    from alipes.kernel.turns import Said
    from alipes.plugins.dispatch import Hooks
    from alipes.plugins.owner import Owner

    hooks, told, go, rest = Hooks(), asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def on_event(event):
        if isinstance(event, Said) and event.message.role == "assistant":
            told.set()
            await go.wait()

    hooks.add(Owner("slow"), on_event)
    async with open_gatehouse(tmp_path, Scripted([("one ", rest, "two")]), hooks=hooks) as g:
        await g.take("count")
        await g.messenger.until_said("one …")
        rest.set()
        await told.wait()
        await g.messenger.until_said("one two")
        await asyncio.sleep(0.1)
        assert g.messenger.said() == ["one two"]
        go.set()
        await g.quiet()
        assert g.messenger.said() == ["one two"] and len(g.messenger.bubbles) == 1


async def test_after_a_crash_the_draft_becomes_the_answer_and_there_is_no_second_message(tmp_path):
    messenger, stuck = Messenger(), asyncio.Event()
    async with open_gatehouse(tmp_path, Scripted([("one ", stuck)]), messenger=messenger) as g:
        await g.take("count")
        await messenger.until_said("one …")
    rest = asyncio.Event()
    provider = Scripted([("another ", rest, "answer")])
    async with open_gatehouse(tmp_path, provider, messenger=messenger) as g:
        await messenger.until(lambda: "another …" in messenger.said() or len(messenger.said()) > 1)
        rest.set()
        await messenger.until(lambda: "another answer" in messenger.said())
        await g.quiet()
        assert messenger.said() == ["another answer", "I was started anew, and go on with “count”."]


async def test_tools_are_shown_in_one_bubble_as_the_chat_wants_it(tmp_path):
    tool = Walk()
    script = [walk(1), walk(2), "done"]
    async with open_gatehouse(tmp_path, Scripted(script), tool, manners=shown("full")) as g:
        await g.take("go")
        await g.messenger.until(lambda: g.messenger.said())
        await g.messenger.until(lambda: "half-way" in g.messenger.said()[0])
        assert "**walk** `/way/1`" in g.messenger.said()[0]
        tool.go.set()
        await g.messenger.until(lambda: "done" in g.messenger.said())
        await g.quiet()
        assert len(g.messenger.bubbles) == 2, "one bubble and the answer"
        await g.messenger.until(lambda: g.messenger.said()[0].count("✓") == 2)


async def test_a_chat_may_want_to_see_nothing_of_the_tools(tmp_path):
    tool = Walk()
    async with open_gatehouse(tmp_path, Scripted([walk(1), "done"]), tool, manners=shown("short")) as g:
        await g.take("/progress off")
        await g.take("go")
        await tool.running.wait()
        await asyncio.sleep(0.1)
        tool.go.set()
        await g.messenger.until(lambda: "done" in g.messenger.said())
        assert len(g.messenger.bubbles) == 2
    async with open_gatehouse(tmp_path, Scripted([walk(1), "done"]), Walk(), manners=shown("short")) as g:
        await g.take("go")
        await asyncio.sleep(0.2)
        assert g.messenger.bubbles == [], "it is remembered"


async def test_after_a_stop_the_bubble_stays_as_it_is(tmp_path):
    tool = Walk()
    async with open_gatehouse(tmp_path, Scripted([walk()]), tool, manners=shown("short")) as g:
        await g.take("go")
        await g.messenger.until(lambda: g.messenger.said())
        await g.take("/stop")
        await g.quiet()
        before = list(g.messenger.said())
        await asyncio.sleep(0.1)
        assert g.messenger.said() == before and before[-1] == "Stopping." and len(before) == 2


async def test_a_sign_of_typing_is_given_while_it_takes_long(tmp_path):
    stuck = asyncio.Event()
    async with open_gatehouse(tmp_path, Scripted([stuck, "hi"])) as g:
        await g.take("hello")
        await g.messenger.until(lambda: ("typing", "me", "") in g.messenger.log)
        stuck.set()
        await g.messenger.until_said("hi")


async def test_a_platform_without_edits_is_sent_only_what_is_whole(tmp_path):
    messenger = Messenger(talents=Talents(longest=200))
    async with open_gatehouse(tmp_path, Scripted([("one ", Pause(0.1), "two")]), messenger=messenger) as g:
        await g.take("count")
        await messenger.until_said("one two")
        assert [verb for verb, *_ in messenger.log if verb not in ("listen", "menu")] == ["send"]


async def test_a_broken_show_does_not_disturb_the_answer(tmp_path):
    rest = asyncio.Event()
    async with open_gatehouse(tmp_path, Scripted([("one ", rest, "two")])) as g:
        g.messenger.fail("typing", ValueError("a bug"))
        g.messenger.fail("send", ValueError("a bug"))
        await g.take("count")
        await g.messenger.until(lambda: any(verb == "send" for verb, *_ in g.messenger.log))
        rest.set()
        await g.messenger.until_said("one two")


@pytest.mark.deadline(60)
async def test_many_chats_that_are_shown_something_at_once_share_the_pace_and_all_end_whole(tmp_path):
    chats, script = 100, tuple(each for n in range(40) for each in (f"{n} ", Pause(0.01)))
    messenger = Messenger(talents=Talents(longest=4000, edits=True, pace=0.05, typing=5.0))
    everyone = Manners(allow=("*",), busy="queue")
    rules = {"edits": 50.0, "first": 0.1}

    class Everybody(Scripted):
        async def _next(self, request):
            return script

    async with open_gatehouse(
        tmp_path, Everybody([]), messenger=messenger, manners=everyone, rules=rules
    ) as g:
        began = time.monotonic()
        await asyncio.gather(*(g.take("count", chat=f"c{n}", sender=f"p{n}") for n in range(chats)))
        await g.quiet()
        took = time.monotonic() - began
        whole = "".join(f"{n} " for n in range(40))
        assert all(messenger.said(f"c{n}") == [whole] for n in range(chats))
        live = sum(verb in ("send", "edit", "typing") for verb, *_ in messenger.log) - chats
        assert live <= 50 * took + 10


def test_a_bubble_folds_what_tools_do():
    bubble = Bubble()
    assert bubble.text("full") == ""
    for n in range(15):
        bubble.started(ToolCall(f"c{n}", "look_up", {"query": f"`q{n}`\nmore"}))
        bubble.finished(ToolCall(f"c{n}", "look_up", {"query": f"`q{n}`\nmore"}), ToolResult(f"c{n}", "x"))
    bubble.started(ToolCall("last", "nothing", {}))
    bubble.progressed("last", "line 1\nline_2")
    lines = bubble.text("full").split("  \n")
    assert lines[0] == "(4 before)" and lines[-1] == "_line\\_2_" and lines[-2] == "… **nothing**"
    assert lines[1] == "✓ **look\\_up** `` `q4` more ``"
    assert bubble.text("short") == "… **nothing** (16 steps)"
    assert bubble.text("off") == ""


def test_a_pace_gives_everyone_a_moment_of_their_own():
    now = [10.0]
    pace = Pace(10.0, lambda: now[0])
    assert [round(pace.reserve(), 3) for _ in range(3)] == [0.0, 0.1, 0.2]
    assert not pace.spare()
    now[0] += 1
    assert pace.spare() and not pace.spare()
