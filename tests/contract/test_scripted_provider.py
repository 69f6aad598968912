"""The double that every suite shares must itself be trusted: streams, waits, fails and improvises as scripted."""

import asyncio

import pytest

from alipes.kernel.errors import ProviderError, Transient
from alipes.kernel.messages import Message, Text, Thinking, ToolCall, ToolResult, assistant, user
from alipes.kernel.ports import Request
from alipes.kernel.turns import ModelReply, TextDelta, ThinkingDelta, Usage
from alipes.testing.scripted_provider import Pause, ScriptedProvider


def request(*messages: Message) -> Request:
    return Request("m", "Be brief.", messages or (user("hello there"),))


async def heard(provider: ScriptedProvider, *messages: Message) -> list:
    async with provider.stream(request(*messages)) as deltas:
        return [delta async for delta in deltas]


async def reply(provider: ScriptedProvider, *messages: Message) -> Message:
    return (await heard(provider, *messages))[-1].message


async def test_text_is_streamed_in_pieces_that_make_up_the_reply():
    *pieces, end = await heard(ScriptedProvider([" two  words\nand more \n"]))
    assert len(pieces) > 3 and all(isinstance(piece, TextDelta) for piece in pieces)
    assert "".join(piece.text for piece in pieces) == end.message.text == " two  words\nand more \n"
    assert end.stop == "end" and end.usage.input > 0 and end.usage.output > 0


async def test_lines_are_used_in_order_and_every_request_is_kept():
    provider = ScriptedProvider(["one", ToolCall("1", "ls", {})])
    assert (await reply(provider)).text == "one"
    assert (await heard(provider))[-1].stop == "calls"
    assert [asked.system for asked in provider.asked] == ["Be brief.", "Be brief."]
    with pytest.raises(ProviderError, match="no line for request 3"):
        await heard(provider)


async def test_a_tuple_is_one_answer_of_many_parts():
    call = ToolCall("1", "ls", {"path": "."})
    deltas = await heard(ScriptedProvider([(Thinking("hm, well"), "Let me look.", call)]))
    assert [d.text for d in deltas if isinstance(d, ThinkingDelta)] == ["hm,", " well"]
    assert deltas[-1].message == assistant(Thinking("hm, well"), Text("Let me look."), call)


async def test_a_reply_is_given_as_it_is_written():
    written = ModelReply(assistant(Text("cut he")), Usage(input=7, output=3, cached=2), "length")
    assert (await heard(ScriptedProvider([written])))[-1] is written


async def test_an_error_is_raised_on_entering_and_inside_a_tuple_after_what_precedes_it():
    with pytest.raises(Transient, match="busy"):
        async with ScriptedProvider([Transient("busy", 3)]).stream(request()):
            pytest.fail("nothing may be read")
    seen = []
    with pytest.raises(Transient, match="cut"):
        async with ScriptedProvider([("half an", Transient("cut"))]).stream(request()) as deltas:
            async for delta in deltas:
                seen.append(delta.text)
    assert seen == ["half", " an"]


async def test_an_event_is_waited_for():
    gate, provider = asyncio.Event(), None
    provider = ScriptedProvider([gate, "first", ("before", gate, "after")])
    async with asyncio.TaskGroup() as group:
        waiting = group.create_task(reply(provider))
        while not provider.living:
            await asyncio.sleep(0)
        assert not waiting.done()
        gate.set()
    assert waiting.result().text == "first"
    assert (await reply(provider)).text == "beforeafter"


async def test_a_pause_delays_and_a_stream_that_is_cancelled_or_left_is_no_longer_open():
    provider = ScriptedProvider([Pause(0.001), "late", (Pause(60), "never"), "left early"])
    assert (await reply(provider)).text == "late"
    stopped = asyncio.create_task(heard(provider))
    while not provider.living:
        await asyncio.sleep(0)
    stopped.cancel()
    with pytest.raises(asyncio.CancelledError):
        await stopped
    assert provider.living == 0
    async with provider.stream(request()) as deltas:
        assert (await anext(deltas)).text == "left"
        assert provider.living == 1
    assert provider.living == 0


async def test_without_a_script_it_repeats_what_it_was_sent():
    assert (await reply(ScriptedProvider())).text == "You said: hello there"
    assert (await reply(ScriptedProvider(), user("!unknown order"))).text == "You said: !unknown order"


async def test_without_a_script_it_calls_the_tools_it_is_asked_to_and_tells_what_they_gave():
    asked = user('Do this:\n!call terminal {"command": "ls"}\n!call broken {"a\n!call bare')
    made = await reply(ScriptedProvider(), asked)
    terminal, broken, bare = made.calls
    assert (terminal.name, terminal.args) == ("terminal", {"command": "ls"})
    assert (broken.name, broken.args, broken.raw) == ("broken", {}, '{"a')
    assert (bare.name, bare.args, bare.raw) == ("bare", {}, "")
    assert len({call.id for call in made.calls}) == 3
    results = Message("tool", (ToolResult(terminal.id, "a b"), ToolResult(bare.id, "no such tool", "failed")))
    assert (await reply(ScriptedProvider(), asked, made, results)).text == (
        "terminal (ok): a b\nbare (failed): no such tool"
    )


async def test_without_a_script_it_thinks_speaks_waits_and_fails_on_request():
    deltas = await heard(ScriptedProvider(), user("!think hm\n!wait 0.001\n!say so be it"))
    assert deltas[-1].message == assistant(Thinking("hm"), Text("so be it"))
    with pytest.raises(ProviderError, match="out of order"):
        await heard(ScriptedProvider(), user("!say I try\n!fail out of order"))
