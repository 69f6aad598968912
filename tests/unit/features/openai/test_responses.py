"""Responses over a real door: made, streamed, built on, shown again, deleted; and the list of models."""

import asyncio

import pytest

from alipes.kernel.errors import ProviderError, Refused, Transient
from alipes.kernel.messages import Text, ToolCall, ToolResult
from alipes.plugins.owner import PluginOwner
from tests.unit.agent_harness import Hand
from tests.unit.features.openai.openai_harness import open_desk

CALL = ToolCall("c1", "weather", {"city": "Rome"})
TOOL = {"type": "function", "name": "weather", "description": "tells", "parameters": {"type": "object"}}


async def made(desk, input="hello", *, key="anns-key", **more):
    answer = await desk.post("/v1/responses", key=key, input=input, **more)
    assert answer.status_code == 200, answer.text
    return answer.json()


def text_of(response):
    return "".join(part["text"] for item in response["output"] if item["type"] == "message" for part in item["content"])


async def test_a_response_is_made_and_can_be_shown_again(tmp_path):
    async with open_desk(tmp_path, ["hi there"]) as desk:
        response = await made(desk, model="test/m", instructions="Be kind.", metadata={"a": "b"})
        assert response["object"] == "response" and response["status"] == "completed"
        (item,) = response["output"]
        assert (item["type"], item["role"], item["status"]) == ("message", "assistant", "completed")
        assert item["content"] == [{"type": "output_text", "text": "hi there", "annotations": [], "logprobs": []}]
        assert response["usage"]["total_tokens"] > 0
        assert (response["instructions"], response["metadata"]) == ("Be kind.", {"a": "b"})
        again = await desk.get(f"/v1/responses/{response['id']}", key="anns-key")
        assert again.json() == response


async def test_a_response_belongs_to_who_asked_and_to_the_operator(tmp_path):
    async with open_desk(tmp_path, ["hi"]) as desk:
        path = f"/v1/responses/{(await made(desk))['id']}"
        assert (await desk.get(path, key="bobs-key")).status_code == 404
        assert (await desk.get(path)).status_code == 200
        others = await desk.post("/v1/responses", key="bobs-key", input="a", previous_response_id=path[14:])
        assert others.status_code == 400
        assert others.json()["error"]["code"] == "previous_response_not_found"


async def test_a_response_follows_on_another_and_an_older_one_branches(tmp_path):
    async with open_desk(tmp_path, ["one", "two", "three"]) as desk:
        first = await made(desk, "a")
        second = await made(desk, "b", previous_response_id=first["id"])
        assert second["previous_response_id"] == first["id"]
        assert len(await desk.list_sessions()) == 1
        await made(desk, "c", previous_response_id=first["id"])
        assert [text for _, text in desk.asked()] == ["a", "one", "c"]
        branch, trunk = await desk.list_sessions()
        assert branch.parent == trunk.id


async def test_instructions_count_for_their_own_response_alone(tmp_path):
    seen = []
    async with open_desk(tmp_path, ["one", "two"]) as desk:

        async def request_sent(turn):
            seen.append(turn.inbound.instructions)

        desk.hooks.add(PluginOwner("test"), request_sent)
        first = await made(desk, "a", instructions="Be kind.")
        message = {"role": "developer", "content": "Be brief."}
        await made(
            desk,
            [message, {"role": "user", "content": [{"type": "input_text", "text": "b"}]}],
            previous_response_id=first["id"],
        )
    assert seen == ["Be kind.", "Be brief."]


async def test_a_function_of_the_clients_is_called_and_its_output_continues(tmp_path):
    async with open_desk(tmp_path, [(Text("I ask."), CALL), "Sunny."]) as desk:
        first = await made(desk, "weather?", tools=[TOOL])
        message, call = first["output"]
        assert message["content"][0]["text"] == "I ask."
        assert call == {
            "type": "function_call",
            "id": "fc_c1",
            "call_id": "c1",
            "name": "weather",
            "arguments": '{"city":"Rome"}',
            "status": "completed",
        }
        assert first["status"] == "completed" and first["tools"][0]["name"] == "weather"
        wrong = await desk.post("/v1/responses", key="anns-key", input="well?", previous_response_id=first["id"])
        assert wrong.status_code == 400 and wrong.json()["error"]["code"] == "tool_output_missing"
        output = {"type": "function_call_output", "call_id": "c1", "output": "sun"}
        second = await made(desk, [output], previous_response_id=first["id"], tools=[TOOL])
        assert text_of(second) == "Sunny."
        assert desk.provider.asked[1].messages[2].parts == (ToolResult("c1", "sun"),)
        # what the first one was does not change by what followed
        again = (await desk.get(f"/v1/responses/{first['id']}")).json()
        assert again["output"] == first["output"]


async def test_a_client_that_keeps_everything_itself_may_send_all_items(tmp_path):
    async with open_desk(tmp_path, [CALL, "Sunny."]) as desk:
        first = await made(desk, "weather?", tools=[TOOL], store=False)
        assert await desk.list_sessions() == []
        assert (await desk.get(f"/v1/responses/{first['id']}")).status_code == 404
        items = [
            {"role": "user", "content": "weather?"},
            *first["output"],
            {"type": "reasoning", "id": "rs_1", "summary": []},
            {"type": "function_call_output", "call_id": "c1", "output": [{"type": "input_text", "text": "sun"}]},
        ]
        second = await made(desk, items, tools=[TOOL], store=False)
        assert text_of(second) == "Sunny." and second["store"] is False
        assert desk.asked()[:3] == [("user", "weather?"), ("assistant", "weather"), ("tool", "sun")]
        assert await desk.list_sessions() == [] and await desk.store.archive.search("weather") == []


async def test_what_is_not_stored_may_follow_on_what_is(tmp_path):
    async with open_desk(tmp_path, ["one", "two", "three"]) as desk:
        first = await made(desk, "a")
        await made(desk, "b", previous_response_id=first["id"], store=False)
        assert [text for _, text in desk.asked()] == ["a", "one", "b"]
        await made(desk, "c", previous_response_id=first["id"])
        assert [text for _, text in desk.asked()] == ["a", "one", "c"]
        assert len(await desk.list_sessions()) == 1


async def test_items_of_a_conversation_we_had_go_on_in_it(tmp_path):
    async with open_desk(tmp_path, [(Text("Wait."), ToolCall("x", "look", {})), "one", "two"], Hand("look")) as desk:
        first = await made(desk, "a")
        assert [item["content"][0]["text"] for item in first["output"]] == ["Wait.", "one"]
        items = [{"role": "user", "content": "a"}, *first["output"], {"role": "user", "content": "b"}]
        await made(desk, items)
        assert len(await desk.list_sessions()) == 1


async def test_a_streamed_response_tells_official_events_in_order(tmp_path):
    script = [(Text("I look."), ToolCall("x", "look", {})), (Text("And ask."), CALL)]
    async with open_desk(tmp_path, script, Hand("look", does="a cat")) as desk:
        events = await desk.streamed("/v1/responses", input="a", tools=[TOOL])
    assert all(name == data["type"] for name, data in events)
    numbers = [data["sequence_number"] for name, data in events if name != "alipes.tool"]
    assert numbers[:2] == [0, 1] and numbers == sorted(set(numbers))
    message = [
        "response.output_item.added",
        "response.content_part.added",
        "response.output_text.delta",
        "response.output_text.done",
        "response.content_part.done",
        "response.output_item.done",
    ]
    names = [name for name, data in events]
    assert list(dict.fromkeys(names[:2])) == ["response.created", "response.in_progress"]
    once = [name for place, name in enumerate(names) if names[place - 1] != name]
    assert once == [
        "response.created",
        "response.in_progress",
        *message,
        "alipes.tool",
        *message,
        "response.output_item.added",
        "response.function_call_arguments.delta",
        "response.function_call_arguments.done",
        "response.output_item.done",
        "response.completed",
    ]
    final = events[-1][1]["response"]
    done = [data["item"] for name, data in events if name == "response.output_item.done"]
    assert final["output"] == done and final["status"] == "completed"
    assert [data["output_index"] for name, data in events if name == "response.output_item.done"] == [0, 1, 2]


async def test_an_item_that_was_taken_back_ends_incomplete(tmp_path):
    async with open_desk(tmp_path, [("half", Transient("broke off", 0.01)), "whole"]) as desk:
        events = await desk.streamed("/v1/responses", input="a")
    done = [data["item"] for name, data in events if name == "response.output_item.done"]
    assert [(item["status"], item["content"][0]["text"]) for item in done] == [
        ("incomplete", "half"),
        ("completed", "whole"),
    ]
    assert len({item["id"] for item in done}) == 2
    assert text_of(events[-1][1]["response"]) == "whole"


@pytest.mark.parametrize(
    ("script", "status", "last"),
    [
        ([("half", ProviderError("odd"))], "failed", "response.failed"),
        ([Refused("declined")], "incomplete", "response.incomplete"),
    ],
)
async def test_a_response_that_fails_says_so_and_is_kept_as_such(tmp_path, script, status, last):
    async with open_desk(tmp_path, script) as desk:
        events = await desk.streamed("/v1/responses", input="a")
        name, data = events[-1]
        assert (name, data["response"]["status"]) == (last, status)
        if status == "failed":
            assert data["response"]["error"]["code"] == "server_error"
            kept = (await desk.get(f"/v1/responses/{data['response']['id']}")).json()
            assert kept["status"] == "failed" and "odd" in kept["error"]["message"]
        else:
            assert data["response"]["incomplete_details"] == {"reason": "content_filter"}


async def test_a_response_that_fails_before_its_first_event_has_the_status_of_the_failure(tmp_path):
    async with open_desk(tmp_path, [ProviderError("odd")]) as desk:
        answer = await desk.post("/v1/responses", input="a", stream=True)
        assert (answer.status_code, answer.json()["error"]["code"]) == (502, "model_failed")
        assert answer.headers["x-should-retry"] == "false"


async def test_a_response_in_the_background_is_announced_before_the_model_answers(tmp_path):
    async with open_desk(tmp_path, [ProviderError("odd")]) as desk:
        events = await desk.streamed("/v1/responses", input="a", background=True)
    assert (events[0][0], events[-1][0]) == ("response.created", "response.failed")


async def test_a_response_in_the_background_continues_and_can_be_cancelled(tmp_path):
    never = asyncio.Event()
    async with open_desk(tmp_path, ["one", ("half", never)]) as desk:
        first = await made(desk, "a", background=True)
        assert first["status"] == "queued"
        await desk.sessions.wait_idle()
        shown = (await desk.get(f"/v1/responses/{first['id']}")).json()
        assert (shown["status"], text_of(shown)) == ("completed", "one")
        second = await made(desk, "b", background=True)
        while not desk.provider.living:
            await asyncio.sleep(0.01)
        path = f"/v1/responses/{second['id']}"
        assert (await desk.get(path)).json()["status"] == "in_progress"
        early = await desk.post("/v1/responses", key="anns-key", input="c", previous_response_id=second["id"])
        assert early.json()["error"]["code"] == "previous_response_unfinished"
        cancelled = await desk.post(f"{path}/cancel", key="anns-key")
        assert cancelled.json()["status"] == "cancelled"
        assert (await desk.post(f"{path}/cancel", key="anns-key")).json()["status"] == "cancelled"


async def test_a_response_in_the_background_survives_a_restart(tmp_path):
    async with open_desk(tmp_path, [asyncio.Event(), "never"]) as desk:
        first = await made(desk, "a", background=True)
        while not desk.provider.living:
            await asyncio.sleep(0.01)
    async with open_desk(tmp_path, ["at last"]) as desk:
        await desk.sessions.wait_idle()
        shown = (await desk.get(f"/v1/responses/{first['id']}", key="anns-key")).json()
        assert (shown["status"], text_of(shown)) == ("completed", "at last")
        assert (shown["created_at"], shown["background"]) == (first["created_at"], True)


async def test_a_response_is_deleted_and_its_conversation_with_the_last_one(tmp_path):
    async with open_desk(tmp_path, ["one", "two"]) as desk:
        first = await made(desk, "a")
        second = await made(desk, "b", previous_response_id=first["id"])
        for response, left in ((first, 1), (second, 0)):
            path = f"/v1/responses/{response['id']}"
            gone = await desk.http.delete(path, headers={"authorization": "Bearer anns-key"})
            assert gone.json() == {"id": response["id"], "object": "response", "deleted": True}
            assert (await desk.get(path)).status_code == 404
            assert len(await desk.list_sessions()) == left
        wrong = await desk.post("/v1/responses", key="anns-key", input="c", previous_response_id=first["id"])
        assert wrong.status_code == 400


WRONG = {
    "nothing": {"input": []},
    "only the system": {"input": [{"role": "system", "content": "x"}]},
    "stray output": {"input": [{"type": "function_call_output", "call_id": "x", "output": "y"}]},
    "no input": {},
    "empty input": {"input": ""},
    "output without a call": {"input": [{"type": "function_call_output", "output": "y"}]},
    "kept by nobody": {"input": "a", "background": True, "store": False},
    "unknown previous": {"input": "a", "previous_response_id": "resp_x"},
}


@pytest.mark.parametrize("case", WRONG)
async def test_a_response_that_cannot_be_made_is_refused(tmp_path, case):
    async with open_desk(tmp_path, []) as desk:
        answer = await desk.post("/v1/responses", **WRONG[case])
        assert answer.status_code == 400, answer.text
        assert answer.json()["error"]["type"] == "invalid_request_error"
        assert await desk.list_sessions() == []


async def test_with_a_previous_response_only_what_is_new_is_sent(tmp_path):
    async with open_desk(tmp_path, ["one"]) as desk:
        first = await made(desk, "a")
        items = [{"role": "user", "content": "a"}, *first["output"], {"role": "user", "content": "b"}]
        answer = await desk.post("/v1/responses", input=items, previous_response_id=first["id"])
        assert answer.status_code == 400 and answer.json()["error"]["code"] == "input_not_new"


async def test_a_listener_of_a_response_that_leaves_stops_it_unless_it_is_in_the_background(tmp_path):
    for background, ending in ((False, "stopped"), (True, "answered")):
        go_on = asyncio.Event()
        (home := tmp_path / ending).mkdir()
        async with open_desk(home, [("half", go_on, "whole")]) as desk:
            body = {"input": "a", "stream": True, "background": background}
            headers = {"authorization": "Bearer anns-key"}
            async with desk.http.stream("POST", "/v1/responses", json=body, headers=headers) as answer:
                async for line in answer.aiter_lines():
                    if "output_text.delta" in line:
                        break
            if not background:
                await desk.sessions.wait_idle()
            go_on.set()
            await desk.sessions.wait_idle()
            (session,) = await desk.list_sessions()
            exported = await desk.store.archive.export(session.id)
            assert [turn["ending"] for turn in exported["turns"]] == [ending]


async def test_models_are_listed_and_shown_by_name(tmp_path):
    async with open_desk(tmp_path, []) as desk:
        listed = (await desk.get("/v1/models")).json()
        assert listed["object"] == "list"
        names = [model["id"] for model in listed["data"]]
        assert names == ["alipes", "test/m", "test/mighty", "far/family/m"]
        for name in (*names, "test%2Fm"):
            shown = (await desk.get(f"/v1/models/{name}")).json()
            assert shown["id"] == name.replace("%2F", "/") and shown["object"] == "model"
        wrong = await desk.get("/v1/models/test/mihgty")
        assert wrong.status_code == 404 and "test/mighty" in wrong.json()["error"]["message"]
