"""The decoders of the three wires under fire: real streams, mutated and cut anywhere. No socket."""

import os
from itertools import pairwise

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from alipes.kernel.errors import ProviderError
from alipes.kernel.messages import ToolCall
from alipes.kernel.models import Endpoint
from alipes.kernel.turns import ModelReply, TextDelta, ToolCallBegun
from alipes.providers.anthropic import AnthropicStreamParser
from alipes.providers.errors import ModelTarget, parse_error, retry_after_seconds, translate_error
from alipes.providers.openai_chat import ChatStreamParser
from alipes.providers.openai_responses import ResponsesStreamParser
from alipes.providers.wire import EventTooLong, NotAnEventStream, SseParser
from tests.world.model_replies import Broken, Call, Calls, Refusal, Say, Tokens, Truncated
from tests.world.model_wires import frames

READERS = {
    "openai-chat": ChatStreamParser,
    "openai-responses": ResponsesStreamParser,
    "anthropic": AnthropicStreamParser,
}
EVERY = pytest.mark.parametrize("api", READERS)
PLACE = ModelTarget(Endpoint("acme", "openai-chat"), "m")
REPLIES = [
    Say("Hello, wörld 😀 and more", pieces=5, thinking="hm, so …", usage=Tokens(9, 8, 7, 1, 2)),
    Calls((Call("look", {"at": "ä"}, "c1"), Call("go", {"to": [1, {"x": None}]}, "c2")), text="wait", thinking="so"),
    Call("look", raw='{"at": '),
    Truncated("half"),
    Refusal("no"),
    Broken("so", "boom"),
]
FUZZ = settings(
    max_examples=int(os.environ.get("ALIPES_FUZZ", "60")), deadline=None, suppress_health_check=[HealthCheck.too_slow]
)


def digest(api: str, blocks: list[bytes]) -> tuple[str, object]:
    """What a reader makes of these blocks: the text shown, and the reply or the kind of failure."""
    reader, events = READERS[api](PLACE), SseParser()
    shown, end = "", None
    try:
        for data in (
            data for block in [*blocks, None] for data in (events.end() if block is None else events.feed(block))
        ):
            reader.read(data)
            while (delta := reader.draft.take()) is not None:
                assert isinstance(delta, ToolCallBegun) or delta.text
                shown += delta.text if isinstance(delta, TextDelta) else ""
            if reader.ended:
                break
        end = _settled(reader.reply()) if reader.whole else "broke off"
    except (ProviderError, NotAnEventStream, EventTooLong) as error:
        end = type(error).__name__
    return shown, end


def _settled(reply: ModelReply) -> ModelReply:
    """With made-up ids made equal, and checked to be fit for a database."""
    for part in reply.message.parts:
        msgspec.json.encode(part).decode().encode()
    assert all(-1 < count < 2**63 for count in msgspec.structs.astuple(reply.usage)[:5])
    parts = tuple(
        msgspec.structs.replace(part, id="made") if isinstance(part, ToolCall) and len(part.id) == 21 else part
        for part in reply.message.parts
    )
    return msgspec.structs.replace(reply, message=msgspec.structs.replace(reply.message, parts=parts))


def cut(stream: bytes, places: list[int]) -> list[bytes]:
    borders = sorted({0, len(stream), *(place % (len(stream) + 1) for place in places)})
    return [stream[a:b] for a, b in pairwise(borders)]


def streams(api: str) -> list[bytes]:
    return [b"".join(frames(api, reply)) for reply in REPLIES]


@EVERY
@FUZZ
@given(st.data())
def test_where_the_network_cuts_does_not_change_the_answer(api, data):
    stream = data.draw(st.sampled_from(streams(api)))
    places = data.draw(st.lists(st.integers(0, len(stream)), max_size=30))
    assert digest(api, cut(stream, places)) == digest(api, [stream])


@EVERY
def test_an_answer_byte_by_byte_is_the_same_answer(api):
    for stream in streams(api):
        assert digest(api, [stream[n : n + 1] for n in range(len(stream))]) == digest(api, [stream])


@EVERY
@FUZZ
@given(st.data())
def test_a_stream_cut_short_is_never_an_answer(api, data):
    stream = data.draw(st.sampled_from(streams(api)))
    whole = digest(api, [stream])
    end = data.draw(st.integers(0, len(stream) - 1))
    shown, got = digest(api, [stream[:end]])
    assert whole[0].startswith(shown)
    if isinstance(got, ModelReply):
        # Only what followed the end of the message may be missing: the counts, the last newline.
        assert isinstance(whole[1], ModelReply)
        assert (got.message, got.stop) == (whole[1].message, whole[1].stop)


def mutated(data: st.DataObject, stream: bytes) -> bytes:
    """A real stream with bytes changed, dropped, doubled, or values swapped for others."""
    for _ in range(data.draw(st.integers(1, 6))):
        at = data.draw(st.integers(0, len(stream)))
        length = data.draw(st.integers(0, 40))
        match data.draw(st.sampled_from(["bytes", "drop", "double", "value", "lines"])):
            case "bytes":
                stream = stream[:at] + data.draw(st.binary(max_size=8)) + stream[at + length % 8 :]
            case "drop":
                stream = stream[:at] + stream[at + length :]
            case "double":
                stream = stream[: at + length] + stream[at:]
            case "value":
                old = data.draw(st.sampled_from([b'"', b"0", b"1", b"null", b"{", b"[]", b"delta", b"index", b"item"]))
                new = data.draw(
                    st.sampled_from([b"null", b"{}", b"[]", b'""', b"-1", b"1e99", b"true", b"9" * 30, b"[[[["])
                )
                stream = stream.replace(old, new, data.draw(st.integers(1, 3)))
            case "lines":
                lines = stream.split(b"\n\n")
                stream = b"\n\n".join(data.draw(st.permutations(lines)))
    return stream


@EVERY
@FUZZ
@given(st.data())
def test_a_damaged_stream_gives_an_answer_or_an_error_of_ours(api, data):
    stream = mutated(data, data.draw(st.sampled_from(streams(api))))
    places = data.draw(st.lists(st.integers(0, 10_000), max_size=5))
    assert digest(api, cut(stream, places)) == digest(api, [stream])


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(
        ["type", "choices", "delta", "content", "tool_calls", "function", "arguments", "name", "id", "index", "usage",
         "error", "message", "code", "item", "response", "output", "content_block", "text", "finish_reason", "input",
         "prompt_tokens", "output_index", "reasoning_details", "stop_reason", "status", "metadata", "raw", "details"]
    ), inner, max_size=5),
    max_leaves=20,
)  # fmt: skip
TYPES = st.sampled_from(
    ["message_start", "content_block_start", "content_block_delta", "message_delta", "message_stop", "error", "ping",
     "response.output_text.delta", "response.output_item.added", "response.output_item.done", "response.completed",
     "response.failed", "response.function_call_arguments.done", "response.reasoning_text.delta"]
)  # fmt: skip


@EVERY
@FUZZ
@given(events=st.lists(st.tuples(TYPES, JSON), max_size=6))
def test_events_with_anything_in_them_give_an_answer_or_an_error_of_ours(api, events):
    made = [{**value, "type": kind} if isinstance(value, dict) else value for kind, value in events]
    digest(api, [b"".join(b"data: %s\n\n" % msgspec.json.encode(event) for event in made)])


@FUZZ
@given(body=JSON, status=st.sampled_from([0, 400, 401, 404, 429, 500, 999]))
def test_whatever_a_server_complains_of_becomes_a_sentence(body, status):
    error = translate_error(PLACE, parse_error(body, status))
    assert isinstance(error, ProviderError)
    assert str(error) and "\n" not in str(error)


@FUZZ
@given(st.dictionaries(
    st.sampled_from(["retry-after", "retry-after-ms", "x-ratelimit-reset", "x-ratelimit-remaining", "x-ratelimit-reset-tokens",
                     "x-ratelimit-remaining-tokens"]),
    st.text("0123456789msh.:-TZ+ ", max_size=24) | st.text(max_size=5) | st.just("0"),
))  # fmt: skip
def test_a_wish_to_wait_is_seconds_or_nothing(headers):
    seconds = retry_after_seconds(headers)
    assert seconds is None or seconds >= 0
