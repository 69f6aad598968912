"""Chat completions over a real door: whole and streamed, with tools of both sides, and every way to end."""

import asyncio
import base64

import pytest

from alipes.kernel.errors import ContextTooLong, NotAuthorised, OutOfCredit, ProviderError, Refused, Transient
from alipes.kernel.messages import Text, Thinking, ToolCall, WebSource, assistant
from alipes.kernel.ports import ToolOutput, ToolSpec
from alipes.kernel.turns import ModelReply, Stop, Usage
from alipes.plugins.owner import PluginOwner
from alipes.plugins.specs import Verdict
from alipes.testing.scripted_provider import ScriptedProvider
from alipes.web.auth import RequestLimits
from tests.unit.agent_harness import Hand
from tests.unit.features.openai.openai_harness import KEY, open_desk, result, said, tool

CALL = ToolCall("c1", "weather", {"city": "Rome"})
PNG_START = b"\x89PNG\r\n\x1a\n...."
PNG = base64.b64encode(PNG_START).decode()


async def test_a_question_is_answered_whole(tmp_path):
    async with open_desk(tmp_path, ["It is sunny."]) as desk:
        answer = await desk.chat("how is it?", model="test/m")
    assert answer["object"] == "chat.completion" and answer["id"].startswith("chatcmpl-")
    assert answer["model"] == "test/m"
    (choice,) = answer["choices"]
    assert choice["message"] == {"role": "assistant", "content": "It is sunny.", "refusal": None}
    assert choice["finish_reason"] == "stop"
    assert answer["usage"]["total_tokens"] == sum(
        answer["usage"][name] for name in ("prompt_tokens", "completion_tokens")
    )


async def test_a_streamed_answer_comes_in_chunks_and_ends_with_done(tmp_path):
    async with open_desk(tmp_path, ["one two three"]) as desk:
        events = await desk.streamed(
            "/v1/chat/completions",
            messages=[{"role": "user", "content": "count"}],
            stream_options={"include_usage": True},
        )
    assert events[-1] == ("", "[DONE]")
    chunks = [data for _, data in events[:-1]]
    assert {chunk["object"] for chunk in chunks} == {"chat.completion.chunk"}
    assert len({chunk["id"] for chunk in chunks}) == 1
    assert chunks[0]["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    deltas = [chunk["choices"][0]["delta"].get("content", "") for chunk in chunks[:-1]]
    assert "".join(deltas) == "one two three" and len(deltas) > 3
    assert chunks[-2]["choices"][0]["finish_reason"] == "stop"
    assert chunks[-1]["choices"] == [] and chunks[-1]["usage"]["total_tokens"] > 0
    assert all(chunk["usage"] is None for chunk in chunks[:-1])


async def test_usage_is_reported_only_to_who_wants_it(tmp_path):
    async with open_desk(tmp_path, ["hi"]) as desk:
        events = await desk.streamed("/v1/chat/completions", messages=[{"role": "user", "content": "hello"}])
    assert all("usage" not in data for _, data in events if data != "[DONE]")


async def test_tools_of_the_agent_run_here_and_are_reported_as_events_of_their_own(tmp_path):
    hand = Hand("look", does="a cat")
    script = [(Text("Let me look."), ToolCall("c1", "look", {"at": "it"})), "It is a cat."]
    async with open_desk(tmp_path, script, hand) as desk:
        events = await desk.streamed("/v1/chat/completions", messages=[{"role": "user", "content": "what is it?"}])
    assert hand.ran == [{"at": "it"}]
    seen = [data["alipes"] for name, data in events if name == "alipes.tool"]
    assert [each["status"] for each in seen] == ["started", "finished"]
    assert seen[0]["name"] == "look" and seen[0]["arguments"] == {"at": "it"}
    assert seen[1]["outcome"] == "ok" and seen[1]["text"] == "a cat"
    chunks = [data for _, data in events if data != "[DONE]"]
    # who reads every event as a chunk finds one that says nothing
    assert all("content" in chunk["choices"][0]["delta"] or chunk["choices"][0]["delta"] == {} for chunk in chunks)
    text = "".join(chunk["choices"][0]["delta"].get("content", "") for chunk in chunks)
    assert text == "Let me look.\n\nIt is a cat."


async def test_a_whole_answer_has_all_that_a_streamed_one_would_have(tmp_path):
    script = [(Text("Let me look."), ToolCall("c1", "look", {})), (Thinking("hm"), Text("It is a cat."))]
    async with open_desk(tmp_path, script, Hand("look")) as desk:
        answer = await desk.chat("what is it?")
    message = answer["choices"][0]["message"]
    assert message["content"] == "Let me look.\n\nIt is a cat."
    assert message["reasoning_content"] == "hm"
    assert "tool_calls" not in message


async def test_sources_are_part_of_whole_and_of_streamed_answers(tmp_path):
    found = ToolOutput("[1] T", sources=(WebSource(1, "https://a.example/", "T"),))
    script = [(ToolCall("c1", "look", {}),), "It is so [1]."]
    text = "It is so [1].\n\nSources:\n- [1] T: <https://a.example/>"
    async with open_desk(tmp_path, script * 2, Hand("look", does=found)) as desk:
        answer = await desk.chat("is it?")
        assert answer["choices"][0]["message"]["content"] == text
        events = await desk.streamed("/v1/chat/completions", messages=[{"role": "user", "content": "is it?"}])
    chunks = [data["choices"][0]["delta"].get("content", "") for name, data in events if data != "[DONE]" and not name]
    assert "".join(chunks) == text


@pytest.mark.parametrize("stream", [False, True])
async def test_a_call_of_the_clients_tool_is_theirs_to_run(tmp_path, stream):
    async with open_desk(tmp_path, [(Text("I ask."), CALL), "It is sunny in Rome."]) as desk:
        first = {"messages": [{"role": "user", "content": "weather?"}], "tools": [tool()]}
        if stream:
            events = await desk.streamed("/v1/chat/completions", **first)
            deltas = [data["choices"][0] for _, data in events if data != "[DONE]"]
            (call,) = [each["delta"]["tool_calls"][0] for each in deltas if "tool_calls" in each["delta"]]
            assert call.pop("index") == 0
            finish = deltas[-1]["finish_reason"]
        else:
            choice = (await desk.chat("weather?", tools=[tool()]))["choices"][0]
            (call,), finish = choice["message"]["tool_calls"], choice["finish_reason"]
        assert finish == "tool_calls"
        assert call == {"id": "c1", "type": "function", "function": {"name": "weather", "arguments": '{"city":"Rome"}'}}
        spoken = {**said("I ask."), "tool_calls": [call]}
        answer = await desk.chat("weather?", spoken, result("c1", "sunny"), tools=[tool()])
        assert answer["choices"][0]["message"]["content"] == "It is sunny in Rome."
        assert answer["choices"][0]["finish_reason"] == "stop"
        assert desk.asked()[:3] == [("user", "weather?"), ("assistant", "I ask. weather"), ("tool", "sunny")]
        (session,) = await desk.list_sessions()
        assert session.turns == 2
        assert desk.provider.asked[0].tools[-1] == ToolSpec(
            "weather", "tells the weather", tool()["function"]["parameters"]
        )


async def test_calls_of_both_sides_in_one_answer_are_each_run_by_their_owner(tmp_path):
    hand = Hand("look", does="a cat")
    script = [(ToolCall("c0", "look", {}), CALL), "done"]
    async with open_desk(tmp_path, script, hand) as desk:
        choice = (await desk.chat("go", tools=[tool()]))["choices"][0]
        assert [each["id"] for each in choice["message"]["tool_calls"]] == ["c1"]
        assert choice["message"]["content"] is None
        await desk.chat("go", choice["message"], result("c1", "sunny"), tools=[tool()])
    assert ("tool", "a cat sunny") in desk.asked()
    assert len(hand.ran) == 1


async def test_no_tool_is_offered_where_none_is_wanted(tmp_path):
    async with open_desk(tmp_path, ["fine"]) as desk:
        await desk.chat("weather?", tools=[tool()], tool_choice="none")
        assert desk.provider.asked[0].tools == ()


async def test_the_words_of_the_system_go_into_the_prompt(tmp_path):
    seen = []
    async with open_desk(tmp_path, ["oui"]) as desk:
        desk.hooks.add(PluginOwner("test"), _watching(seen))
        await desk.chat(
            {"role": "system", "content": "Speak French."},
            {"role": "developer", "content": [{"type": "text", "text": "Be brief."}]},
            "really?",
            response_format={"type": "json_object"},
            tool_choice="required",
            tools=[tool()],
        )
    reported = seen[0].inbound.instructions
    assert reported.startswith("Speak French.\n\nBe brief.\n\nAnswer with one JSON object")
    assert reported.endswith("Answer by calling a tool.")


def _watching(seen):
    async def request_sent(turn):
        seen.append(turn)

    return request_sent


async def test_images_are_attachments(tmp_path):
    picture = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PNG}"}}
    async with open_desk(tmp_path, ["a dot"]) as desk:
        await desk.chat({"role": "user", "content": [{"type": "text", "text": "what?"}, picture]})
        (message,) = desk.provider.asked[0].messages
        text, image = message.parts
    assert text.text == "what?"
    assert (image.media_type, image.data) == ("image/png", PNG_START)


WRONG = {
    "no key": ({}, 401, "invalid_api_key"),
    "no messages": ({"messages": []}, 400, "invalid_value"),
    "unknown role": ({"messages": [{"role": "king", "content": "a"}]}, 400, "invalid_value"),
    "two answers": ({"n": 2}, 400, "invalid_value"),
    "bad tool name": ({"tools": [tool("a b")]}, 400, "invalid_value"),
    "tool name with an end of line": ({"tools": [tool("a\n")]}, 400, "invalid_value"),
    "two tools of one name": ({"tools": [tool("a"), tool("a")]}, 400, "tool_twice"),
    "nothing asked": ({"messages": [said("hello")]}, 400, "nothing_asked"),
    "empty": ({"messages": [{"role": "user", "content": " "}]}, 400, "nothing_asked"),
    "result without call": (
        {"messages": [{"role": "user", "content": "a"}, result("x", "y")]},
        400,
        "tool_call_missing",
    ),
    "result without id": (
        {"messages": [{"role": "user", "content": "a"}, {"role": "tool", "content": "y"}]},
        400,
        "missing_required_parameter",
    ),
    "call without result": (
        {
            "messages": [
                {"role": "user", "content": "a"},
                {"role": "assistant", "tool_calls": [{"id": "x", "function": {"name": "f", "arguments": "{}"}}]},
                {"role": "user", "content": "b"},
            ]
        },
        400,
        "tool_output_missing",
    ),
    "picture elsewhere": (
        {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "http://x/y"}}]}]},
        400,
        "image_url",
    ),
    "no picture": (
        {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": "data:image/png;base64,%"}]}]},
        400,
        "image_data",
    ),
    "text as number": ({"messages": [{"role": "user", "content": 1}]}, 400, "invalid_type"),
    "broken picture": (
        {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": "data:image/png;base64,AAAA"}]}]},
        400,
        "image_data",
    ),
    "a tool that is not offered": (
        {"tools": [tool()], "tool_choice": {"type": "function", "function": {"name": "other"}}},
        400,
        "tool_choice",
    ),
    "a call without tools": ({"tool_choice": "required"}, 400, "tool_choice"),
    "unknown format": ({"response_format": {"type": "xml"}}, 400, "invalid_value"),
    "a file without content": (
        {"messages": [{"role": "user", "content": [{"type": "file", "file": {"filename": "a.pdf"}}]}]},
        400,
        "file_data",
    ),
    "an unknown upload": (
        {"messages": [{"role": "user", "content": [{"type": "file", "file": {"file_id": "0" * 16}}]}]},
        404,
        "no_upload",
    ),
    "sound": ({"messages": [{"role": "user", "content": [{"type": "input_audio"}]}]}, 400, "content_type"),
    "unknown model": ({"model": "test/mgihty"}, 404, "model_not_found"),
}


@pytest.mark.parametrize("case", WRONG)
async def test_what_is_wrong_is_refused_as_openai_does(tmp_path, case):
    body, status, code = WRONG[case]
    async with open_desk(tmp_path, []) as desk:
        body = {"messages": [{"role": "user", "content": "a"}], **body}
        answer = await desk.post("/v1/chat/completions", key="wrong" if status == 401 else "anns-key", **body)
        assert answer.status_code == status, answer.text
        error = answer.json()["error"]
        assert set(error) == {"message", "type", "param", "code"} and error["code"] == code
        if code == "model_not_found":
            assert "Did you mean" in error["message"] and error["param"] == "model"
        assert await desk.list_sessions() == []


async def test_parameters_that_mean_nothing_here_are_ignored(tmp_path):
    async with open_desk(tmp_path, ["fine"]) as desk:
        await desk.chat(
            {"role": "user", "content": "hello", "name": "ann"},
            temperature=0.2,
            max_tokens=5,
            max_completion_tokens=5,
            top_p=1,
            seed=7,
            user="u",
            store=True,
            metadata={"a": "b"},
            reasoning_effort="low",
            parallel_tool_calls=False,
            tools=[{"type": "web_search"}],
            stop=["x"],
        )


FAILURES = [
    (ContextTooLong("too long"), 400, "context_length_exceeded", "invalid_request_error"),
    (OutOfCredit("no money"), 429, "insufficient_quota", "rate_limit_error"),
    (NotAuthorised("wrong key"), 502, "model_not_authorised", "server_error"),
    (ProviderError("odd"), 502, "model_failed", "server_error"),
]


@pytest.mark.parametrize(("error", "status", "code", "kind"), FAILURES)
async def test_a_model_that_fails_is_reported_by_its_kind(tmp_path, error, status, code, kind):
    async with open_desk(tmp_path, [error, error]) as desk:
        answer = await desk.post("/v1/chat/completions", messages=[{"role": "user", "content": "a"}])
        assert answer.status_code == status, answer.text
        assert (answer.json()["error"]["code"], answer.json()["error"]["type"]) == (code, kind)
        streamed = await desk.post("/v1/chat/completions", messages=[{"role": "user", "content": "a"}], stream=True)
        assert (streamed.status_code, streamed.json()) == (status, answer.json())
        assert streamed.headers["x-should-retry"] == answer.headers["x-should-retry"] == "false"


async def test_a_model_that_fails_after_its_first_words_ends_the_stream_with_an_error(tmp_path):
    async with open_desk(tmp_path, [("Hi", ProviderError("odd"))]) as desk:
        events = await desk.streamed("/v1/chat/completions", messages=[{"role": "user", "content": "a"}])
    assert events[-2][1]["error"]["code"] == "model_failed" and events[-1][1] == "[DONE]"


async def test_a_request_that_waited_too_long_is_not_to_be_repeated(tmp_path):
    never = asyncio.Event()
    async with open_desk(tmp_path, [("half", never)], limits=RequestLimits(wait=0.1)) as desk:
        answer = await desk.post("/v1/chat/completions", messages=[{"role": "user", "content": "a"}])
    assert (answer.status_code, answer.headers["x-should-retry"]) == (504, "false")


async def test_a_request_that_was_not_admitted_may_be_repeated(tmp_path):
    async with open_desk(tmp_path, ["one"]) as desk:
        answer = await desk.post("/v1/chat/completions", messages=[{"role": "user", "content": ""}])
    assert answer.status_code == 400 and "x-should-retry" not in answer.headers


async def test_a_client_that_leaves_a_plain_request_stops_the_turn_and_logs_no_error(tmp_path, caplog):
    asked, never = asyncio.Event(), asyncio.Event()

    class Slow(ScriptedProvider):
        def stream(self, request):
            asked.set()
            return super().stream(request)

    async with open_desk(tmp_path, Slow([("half", never)])) as desk:
        host, port = desk.url.removeprefix("http://").split(":")
        _, writer = await asyncio.open_connection(host, int(port))
        body = b'{"messages": [{"role": "user", "content": "a"}]}'
        head = f"POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {KEY}\r\n"
        writer.write(f"{head}content-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n".encode() + body)
        await asked.wait()
        writer.close()
        await desk.sessions.wait_idle()
    assert not [record for record in caplog.records if record.levelname == "ERROR"]


async def test_after_a_tool_has_run_no_client_repeats_the_request_by_itself(tmp_path):
    script = [ToolCall("c1", "look", {}), ProviderError("odd")]
    async with open_desk(tmp_path, script, Hand("look")) as desk:
        answer = await desk.post("/v1/chat/completions", messages=[{"role": "user", "content": "a"}])
    assert answer.headers["x-should-retry"] == "false"


async def test_a_refusal_is_a_filtered_answer(tmp_path):
    async with open_desk(tmp_path, [Refused("the model declines")]) as desk:
        choice = (await desk.chat("a"))["choices"][0]
    assert choice["finish_reason"] == "content_filter"
    assert "declines" in choice["message"]["refusal"] and choice["message"]["content"] is None


async def test_an_answer_that_runs_into_the_limit_again_and_again_ends_for_its_length(tmp_path):
    cut = ModelReply(assistant(Text("more ")), Usage(1, 1), "length")
    async with open_desk(tmp_path, [cut] * 5) as desk:
        choice = (await desk.chat("a"))["choices"][0]
    assert choice["finish_reason"] == "length" and choice["message"]["content"].startswith("more")


async def test_a_turn_that_is_stopped_elsewhere_is_no_answer(tmp_path):
    asked, never = asyncio.Event(), asyncio.Event()

    class Slow(ScriptedProvider):
        def stream(self, request):
            asked.set()
            return super().stream(request)

    async with open_desk(tmp_path, Slow([("half", never)])) as desk, asyncio.TaskGroup() as group:
        answer = group.create_task(desk.post("/v1/chat/completions", messages=[{"role": "user", "content": "a"}]))
        await asked.wait()
        (session,) = await desk.list_sessions()
        await desk.sessions.post(session.key, Stop("user_stop", "session_interrupt"))
        stopped = await answer
    assert stopped.status_code == 409 and stopped.json()["error"]["code"] == "stopped"
    assert stopped.headers["x-should-retry"] == "false"


@pytest.mark.parametrize("stream", [False, True])
async def test_a_client_that_leaves_stops_its_turn(tmp_path, stream):
    never, stops = asyncio.Event(), []

    async def agent_loop_stopped(reason, invalidation_reason):
        stops.append((reason, invalidation_reason))

    async with open_desk(tmp_path, [("half", never)]) as desk:
        desk.hooks.add(PluginOwner("test"), agent_loop_stopped)
        async with asyncio.TaskGroup() as group:
            asking = group.create_task(_ask(desk, stream))
            while not desk.provider.living:
                await asyncio.sleep(0.01)
            asking.cancel()
        await desk.sessions.wait_idle()
        (session,) = await desk.list_sessions()
        exported = await desk.store.archive.export(session.id)
    assert [(turn["ending"], turn["detail"]) for turn in exported["turns"]] == [("stopped", "disconnected")]
    assert stops == [("disconnected", "disconnected")]
    assert desk.provider.living == 0


async def _ask(desk, stream):
    body = {"messages": [{"role": "user", "content": "a"}], "stream": stream}
    async with desk.http.stream(
        "POST", "/v1/chat/completions", json=body, headers={"authorization": "Bearer anns-key"}
    ) as answer:
        await answer.aread()


async def test_who_waits_too_long_is_reported_so_and_the_turn_ends(tmp_path):
    async with open_desk(tmp_path, [asyncio.Event()], limits=RequestLimits(wait=0.2)) as desk:
        answer = await desk.post("/v1/chat/completions", messages=[{"role": "user", "content": "a"}])
        assert answer.status_code == 504
        await desk.sessions.wait_idle()
        (session,) = await desk.list_sessions()
        assert session.unfinished == 0


async def test_what_would_need_a_persons_word_is_denied_at_once(tmp_path):
    hand = Hand("look")
    async with open_desk(tmp_path, [ToolCall("c1", "look", {}), "pity"], hand, interactive=True) as desk:

        async def before_tool(call, turn):
            consent = await desk.sessions.questions.ask_approval(call, "it is dangerous", turn)
            return Verdict("deny", "nobody said yes") if consent == "no" else None

        desk.hooks.add(PluginOwner("test", permanent=True), before_tool, patient=True)
        answer = await desk.chat("go")
    assert answer["choices"][0]["message"]["content"] == "pity" and hand.ran == []


async def test_a_question_of_the_models_is_answered_by_saying_that_nobody_is_there(tmp_path):
    heard = []
    async with open_desk(tmp_path, [ToolCall("c1", "look", {}), "I chose."], Hand("look"), interactive=True) as desk:

        async def before_tool(turn):
            heard.append(await desk.sessions.questions.ask_question(turn, "which?", ("a", "b"), 30))

        desk.hooks.add(PluginOwner("test", permanent=True), before_tool, patient=True)
        answer = await desk.chat("go")
    assert answer["choices"][0]["message"]["content"] == "I chose."
    assert "Decide yourself" in heard[0].text


async def test_an_answer_that_was_taken_back_is_followed_by_another(tmp_path):
    script = [("half an answer", Transient("broke off", 0.01)), "a whole answer"]
    async with open_desk(tmp_path, script) as desk:
        events = await desk.streamed("/v1/chat/completions", messages=[{"role": "user", "content": "a"}])
        text = "".join(data["choices"][0]["delta"].get("content", "") for _, data in events if data != "[DONE]")
        assert text == "half an answer\n\na whole answer"
        desk.provider._script.append("more")
        # the client has both halves, and continues from there all the same
        await desk.chat("a", said(text), "and?")
        assert len(await desk.list_sessions()) == 1
        assert desk.asked() == [("user", "a"), ("assistant", "a whole answer"), ("user", "and?")]
