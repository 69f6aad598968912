"""The pure parts: text while it is being said, how turns end, what requests mean. No door, no house."""

import msgspec
import pytest

from alipes.agent.tool_calls import CLIENT_RUNS_IT
from alipes.features.openai import requests as reading
from alipes.features.openai.requests import ChatRequest, ResponseRequest
from alipes.features.openai.turns import (
    MAX_ERRORS,
    MAX_RESULT_CHARS,
    MessageText,
    ProviderErrors,
    TurnRecord,
    build_outcome,
    tool_progress,
)
from alipes.kernel.errors import ContextTooLong, NotAuthorised, ProviderError, Refused, Transient
from alipes.kernel.messages import Message, Text, ToolCall, ToolResult, assistant, user
from alipes.kernel.turns import Address, Said, TextDelta, ToolFinished, ToolProgress, ToolStarted, TurnEnded, Usage
from alipes.web.endpoint import HttpProblem
from tests.unit.agent_harness import turn

CALL = ToolCall("c1", "weather", {"city": "Rome"})
OFFERED = frozenset({"weather"})


@pytest.mark.parametrize(
    ("heard", "whole", "rest"),
    [
        (["Hel", "lo"], "Hello", ""),
        (["Hel"], "Hello", "lo"),
        ([], "Hello", "Hello"),
        (["Hlo"], "Hello", "Hello"),
        (["Hello "], "Hello", ""),
    ],
)
def test_what_the_bus_lost_of_a_message_is_sent_when_it_is_whole(heard, whole, rest):
    speech = MessageText()
    for text in heard:
        assert speech.add(TextDelta(text)) == text
    assert speech.complete(whole) == rest
    assert speech.current == ""


def test_what_was_taken_back_is_known_to_have_been_sent():
    speech = MessageText()
    assert not speech.drop()
    speech.add(TextDelta("half"))
    assert speech.drop() and speech.complete("whole") == "whole"


def test_tools_of_the_client_are_none_of_our_progress_and_long_results_are_cut():
    assert tool_progress(ToolStarted(CALL), OFFERED) is None
    assert tool_progress(ToolFinished(CALL, ToolResult("c1", CLIENT_RUNS_IT)), OFFERED) is None
    assert tool_progress(TextDelta("a"), OFFERED) is None
    assert tool_progress(ToolProgress("c1", "half"), OFFERED) == {"status": "progress", "call_id": "c1", "text": "half"}
    seen = tool_progress(ToolFinished(CALL, ToolResult("c1", "x" * 10_000)), frozenset())
    assert seen is not None and len(seen["text"]) == MAX_RESULT_CHARS + 1


def ended(ending, *said, detail="", error_of_request=None, usage=None):
    seen = TurnRecord()
    for message in said:
        seen.add(Said(message))
    seen.add(TurnEnded("t", ending, detail, usage))
    return build_outcome(seen, OFFERED, error_of_request)


def test_an_answer_is_all_that_the_model_said_in_the_turn():
    result = ended(
        "answered",
        user("a"),
        assistant(Text("Wait."), ToolCall("x", "look", {})),
        Message("tool", (ToolResult("x", "a cat"),)),
        assistant(Text(" ")),
        assistant(Text("A cat.")),
        usage=Usage(3, 4),
    )
    assert result.text == "Wait.\n\nA cat." and [place for place, _ in result.texts] == [0, 2]
    assert (result.finish, result.calls, result.usage) == ("stop", (), Usage(3, 4))
    assert result.message() == assistant(Text("Wait.\n\nA cat."))


def test_a_turn_that_ends_with_results_has_calls_for_the_client():
    results = Message("tool", (ToolResult("c1", CLIENT_RUNS_IT),))
    assert ended("answered", assistant(CALL), results).calls == (CALL,)
    assert ended("answered", assistant(CALL), results).finish == "tool_calls"
    # cut short: the calls were answered for the model's sake, and are not to be run
    assert ended("stopped", assistant(CALL), results).calls == ()


@pytest.mark.parametrize(
    ("ending", "error_of_request", "finish", "status"),
    [
        ("out_of_steps", None, "length", 0),
        ("failed", Refused("no"), "content_filter", 0),
        ("failed", Transient("away"), "stop", 503),
        ("failed", None, "stop", 500),
        ("stopped", None, "stop", 409),
    ],
)
def test_every_ending_has_its_word(ending, error_of_request, finish, status):
    result = ended(ending, assistant(Text("half")), detail="why", error_of_request=error_of_request)
    assert result.finish == finish
    assert (result.problem.status if result.problem else 0) == status


def with_status(error, status):
    error.status = status
    return error


@pytest.mark.parametrize(
    ("error_of_request", "status", "code", "retry_after"),
    [
        (with_status(Transient("busy", 7.2), 429), 429, "rate_limit_exceeded", "8"),
        (with_status(Transient("busy"), 429), 429, "rate_limit_exceeded", None),
        (with_status(Transient("away", 30), 503), 503, "model_unavailable", "30"),
        (with_status(NotAuthorised("wrong key"), 401), 502, "model_not_authorised", None),
        (with_status(NotAuthorised("wrong key"), 403), 502, "model_not_authorised", None),
        (with_status(ProviderError("a tool has no name"), 400), 400, "model_rejected_request", None),
        (with_status(ProviderError("no model"), 404), 404, "model_rejected_request", None),
        (with_status(ContextTooLong("too long"), 413), 400, "context_length_exceeded", None),
        (with_status(ProviderError("moved"), 301), 502, "model_failed", None),
    ],
)
def test_what_the_models_server_says_is_passed_on(error_of_request, status, code, retry_after):
    problem = ended("failed", detail="why", error_of_request=error_of_request).problem
    assert (problem.status, problem.code, problem.headers.get("retry-after")) == (status, code, retry_after)
    assert problem.headers["x-should-retry"] == "false"


def test_a_rejected_key_of_ours_does_not_look_like_the_callers():
    error = with_status(NotAuthorised("wrong key"), 401)
    assert "yours is valid" in ended("failed", error_of_request=error).problem.detail


def test_a_turn_that_never_ended_is_trouble():
    assert build_outcome(TurnRecord(), OFFERED).problem is not None


async def test_errors_are_kept_for_api_callers_only_and_not_forever():
    errors, error = ProviderErrors(), Transient("away")
    ours, api = turn(), turn_of_a_caller()
    await errors.request_failed(error, False, ours)
    assert errors.take(ours.id) is None
    await errors.request_failed(error, True, api)
    assert errors.take(api.id) is None
    for number in range(MAX_ERRORS + 5):
        await errors.request_failed(error, False, msgspec.structs.replace(api, id=str(number)))
    assert errors.take("0") is None
    assert str(errors.take(str(MAX_ERRORS))) == "away" and errors.take(str(MAX_ERRORS)) is None


async def test_an_error_that_is_remembered_holds_nothing_of_its_turn():
    errors, api = ProviderErrors(), turn_of_a_caller()
    try:
        raise Transient("away", 7.0) from OSError("a connection")
    except Transient as raised:
        raised.status = 503
        await errors.request_failed(raised, False, api)
    kept = errors.take(api.id)
    assert isinstance(kept, Transient) and (str(kept), kept.retry_after, kept.status) == ("away", 7.0, 503)
    assert kept.__traceback__ is None and kept.__cause__ is None and kept.__context__ is None


def turn_of_a_caller():
    ours = turn()
    return msgspec.structs.replace(ours, inbound=msgspec.structs.replace(ours.inbound, address=reading_address()))


def reading_address():
    return Address("api", "chat-1", user="ann")


def chat(**body):
    return reading.parse_chat(msgspec.convert({"messages": [{"role": "user", "content": "a"}], **body}, ChatRequest))


def test_messages_of_one_side_are_joined():
    asked = chat(
        messages=[
            {"role": "user", "content": "a"},
            {"role": "user", "content": [{"type": "text", "text": "b"}, {"type": "text", "text": "c"}]},
            {"role": "assistant", "content": "d"},
            {"role": "assistant", "content": [{"type": "refusal", "refusal": "e"}]},
            {"role": "user", "content": "f"},
        ]
    )
    assert asked.before == (user("a\n\nb\n\nc"), assistant(Text("d\n\ne")))
    assert (asked.text, asked.results) == ("f", ())


def test_the_wish_for_a_tool_is_described_in_words():
    choice = {"type": "function", "function": {"name": "weather"}}
    function = {"name": "weather", "parameters": {}}
    tools = [{"type": "function", "function": function}]
    assert chat(tool_choice=choice, tools=tools).instructions == "Call the tool weather."
    assert chat(tool_choice="auto").instructions == ""
    assert "one JSON object" in chat(response_format={"type": "json_object"}).instructions
    tools = [{"type": "function", "name": "f"}]
    schema = {"format": {"type": "json_schema", "name": "x", "schema": {"type": "array"}}}
    request = msgspec.convert(
        {"input": "a", "text": schema, "tool_choice": {"name": "f"}, "tools": tools}, ResponseRequest
    )
    seen = reading.parse_response(request)
    assert seen.schema == {"type": "array"} and seen.instructions == "Call the tool f."


def test_a_picture_of_the_wrong_kind_is_refused_and_a_usual_slip_is_not():
    def picture(url):
        part = {"type": "image_url", "image_url": {"url": url}}
        return chat(messages=[{"role": "user", "content": [part]}]).images

    assert picture("data:image/jpg;base64,/9j/")[0].media_type == "image/jpeg"
    with pytest.raises(HttpProblem, match="image/tiff is not supported"):
        picture("data:image/tiff;base64,AAAA")
