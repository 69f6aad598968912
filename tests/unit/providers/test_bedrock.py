"""What is particular about Amazon Bedrock: its frames, its errors, and what differs by the family of a model."""

import json

import pytest

from alipes.kernel.errors import ContextTooLong, NotAuthorised, ProviderError, Transient
from alipes.kernel.messages import Image, Message, ToolCall, ToolResult, assistant, user
from alipes.providers.event_frames import FrameParser
from alipes.providers.wire import MAX_EVENT_BYTES, EventTooLong, NotAnEventStream
from alipes.runtime.http.clients import ClientScope
from tests.world.model_calls import ask, converse, provider
from tests.world.model_replies import Fail, Raw, Say
from tests.world.model_server import ModelServer
from tests.world.model_wires import binary_frame

CLAUDE = "eu.anthropic.claude-opus-5"


async def send(request, *replies):
    """The request that was sent, and what was heard."""
    async with ModelServer(replies or [Say("ok")]) as server, ClientScope() as scope:
        heard = await converse(provider("bedrock", server.url("bedrock"), scope), request)
        return server.requests[0], heard


def stream(*frames: bytes) -> Raw:
    return Raw(b"".join(frames))


def text(words: str) -> bytes:
    return binary_frame("contentBlockDelta", {"contentBlockIndex": 0, "delta": {"text": words}})


STOP = binary_frame("messageStop", {"stopReason": "end_turn"})


def test_frames_are_read_wherever_they_are_cut():
    data = text("a") + binary_frame("news", {"x": 1}) + STOP
    for size in (1, 7, 64, len(data)):
        parser, events = FrameParser(), []
        for at in range(0, len(data), size):
            events += parser.feed(data[at : at + size])
        assert len(events) == 3 and parser.end() == []
        assert events[2] == b'{"kind":"messageStop","fault":"","body":{"stopReason":"end_turn"}}'


def test_another_body_than_a_stream_and_a_huge_frame_are_refused():
    with pytest.raises(NotAnEventStream):
        FrameParser().feed(b'{"message": "no such model"}')
    parser = FrameParser()
    parser.feed(b"<html>"[:5])
    with pytest.raises(NotAnEventStream):
        parser.end()
    huge = binary_frame("x", b" " * (MAX_EVENT_BYTES + 1))
    with pytest.raises(EventTooLong):
        FrameParser().feed(huge[:64])


@pytest.mark.parametrize("place", [3, 40, -1])
async def test_a_damaged_frame_is_a_lost_connection(place):
    broken = bytearray(text("half"))
    broken[place] ^= 1
    with pytest.raises(Transient):
        await send(ask("hello"), stream(text("so far"), bytes(broken), STOP))


async def test_events_nobody_knows_are_passed_over_and_a_wrong_shape_is_not_tried_again():
    _, heard = await send(ask("hello"), stream(binary_frame("news", {"a": [1]}), text("fine"), STOP))
    assert heard.text == "fine"
    with pytest.raises(ProviderError) as caught:
        await send(ask("hello"), stream(binary_frame("contentBlockDelta", {"delta": "text"})))
    assert not isinstance(caught.value, Transient)


async def test_errors_within_a_stream_say_who_acts_next():
    slow = binary_frame("throttlingException", {"message": "Too many tokens, please wait"}, "exception")
    with pytest.raises(Transient) as caught:
        await send(ask("hello"), stream(slow))
    assert caught.value.status == 429
    long = binary_frame("validationException", {"message": "Input is too long for requested model."}, "exception")
    with pytest.raises(ContextTooLong):
        await send(ask("hello"), stream(long))


async def test_the_model_is_a_part_of_the_path_and_claude_takes_cache_points_and_effort():
    asked, _ = await send(ask("hello", model=CLAUDE, effort="high"))
    assert asked.path.endswith("/model/eu.anthropic.claude-opus-5/converse-stream")
    assert asked.body["system"] == [{"text": "Be brief."}, {"cachePoint": {"type": "default"}}]
    assert asked.body["messages"][-1]["content"][-1] == {"cachePoint": {"type": "default"}}
    assert asked.body["additionalModelRequestFields"]["output_config"] == {"effort": "high"}


@pytest.mark.parametrize(
    ("model", "effort", "fields"),
    [
        ("openai.gpt-oss-120b-1:0", "low", {"reasoning_effort": "low"}),
        ("openai.gpt-oss-120b-1:0", "off", None),
        ("us.openai.gpt-6-sol", "max", {"reasoning": {"effort": "max"}}),
        ("us.openai.gpt-6-sol", "off", {"reasoning": {"effort": "none"}}),
        (
            "us.amazon.nova-2-lite-v1:0",
            "medium",
            {"reasoningConfig": {"type": "enabled", "maxReasoningEffort": "medium"}},
        ),
        ("us.amazon.nova-2-lite-v1:0", "xhigh", {"reasoningConfig": {"type": "enabled", "maxReasoningEffort": "high"}}),
        ("us.amazon.nova-2-lite-v1:0", "off", {"reasoningConfig": {"type": "disabled"}}),
        ("us.deepseek.r1-v1:0", "high", None),
        ("mistral.mistral-large-3-675b-instruct", "high", None),
    ],
)
async def test_each_family_has_its_own_words_for_a_reasoning_level_and_some_have_none(model, effort, fields):
    asked, _ = await send(ask("hello", model=model, effort=effort))
    assert asked.body.get("additionalModelRequestFields") == fields
    # Nova refuses a limit together with its highest level
    assert ("inferenceConfig" in asked.body) is ("high" not in str(fields))


async def test_nova_takes_cache_points_only_where_no_tools_are_used_and_other_families_none():
    call, answer = ToolCall("c1", "look", {}), Message("tool", (ToolResult("c1", "seen"),))
    talk = ("hello", assistant(call), answer)
    asked, _ = await send(ask(*talk, model="amazon.nova-2-lite-v1:0"))
    marked = ["cachePoint" in message["content"][-1] for message in asked.body["messages"]]
    assert marked == [True, False, False] and "cachePoint" in asked.body["system"][-1]
    asked, _ = await send(ask(*talk, model="openai.gpt-oss-120b-1:0"))
    assert b"cachePoint" not in asked.raw


async def test_a_tool_loop_of_another_model_is_continued_without_a_thinking_budget():
    call, answer = ToolCall("c1", "look", {}), Message("tool", (ToolResult("c1", "seen"),))
    older = {"model": "anthropic.claude-sonnet-4-20250514-v1:0", "effort": "high", "max_tokens": 8000}
    asked, _ = await send(ask("hello", **older))
    assert asked.body["additionalModelRequestFields"]["thinking"] == {"type": "enabled", "budget_tokens": 4000}
    asked, _ = await send(ask("hello", assistant(call), answer, **older))
    assert "additionalModelRequestFields" not in asked.body


async def test_the_server_is_given_a_schema_that_it_enforces():
    schema = {"type": "object", "properties": {}, "additionalProperties": False}
    async with ModelServer([Say("{}")]) as server, ClientScope() as scope:
        bedrock = provider("bedrock", server.url("bedrock"), scope, schemas="on")
        await converse(bedrock, ask("hello", model=CLAUDE, output_schema=schema))
        form = server.requests[0].body["outputConfig"]["textFormat"]
    assert form["type"] == "json_schema"
    assert json.loads(form["structure"]["jsonSchema"]["schema"]) == schema


async def test_refused_credentials_are_said_to_be_those_of_the_cloud():
    refused = Fail(403, body='{"Message": "The security token included in the request is expired"}')
    async with ModelServer([refused]) as server, ClientScope() as scope:
        with pytest.raises(
            NotAuthorised, match=r"refused these credentials of AWS \(403\): The security token included"
        ):
            await converse(provider("bedrock", server.url("bedrock"), scope, credentials="aws"), "hello")


async def test_pictures_go_with_messages_and_results():
    image = Image("image/jpg", b"jpg")
    call, answer = ToolCall("c1", "look", {}), Message("tool", (ToolResult("c1", "", "failed", images=(image,)),))
    asked, _ = await send(ask(Message("user", (*user("see").parts, image)), assistant(call), answer))
    shown = {"image": {"format": "jpeg", "source": {"bytes": "anBn"}}}
    first, _, last = asked.body["messages"]
    assert first["content"] == [{"text": "see"}, shown]
    result = last["content"][0]["toolResult"]
    assert (result["status"], result["content"]) == ("error", [{"text": "(no output)"}, shown])


async def test_a_transcript_with_calls_brings_their_tools_also_where_none_are_offered():
    call, answer = ToolCall("c1", "look", {}), Message("tool", (ToolResult("c1", "seen"),))
    asked, _ = await send(ask("hello", assistant(call), answer, model=CLAUDE, tools=()))
    assert asked.body["toolConfig"]["tools"][0]["toolSpec"]["name"] == "look"
    assert asked.body["additionalModelRequestFields"] == {"tool_choice": {"type": "none"}}
