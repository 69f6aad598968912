"""Answers with a schema on OpenAI's endpoints: whole, streamed, corrected, given up, continued and replayed."""

import pytest

from alipes.config import extras
from alipes.kernel.errors import Refused, ToolError
from alipes.kernel.messages import Text, ToolCall
from tests.unit.agent_harness import Hand, replied
from tests.unit.features.openai.openai_harness import open_desk, said, tool

PERSON = {"type": "object", "properties": {"age": {"type": "integer"}}, "required": ["age"]}
CHAT = {"type": "json_schema", "json_schema": {"name": "person", "strict": True, "schema": PERSON}}
TEXT = {"format": {"type": "json_schema", "name": "person", "schema": PERSON}}
LOOK = (Text("Let me look."), ToolCall("c1", "look", {}))


def text_of(events):
    chunks = [data for name, data in events if data != "[DONE]" and not name]
    return "".join(chunk["choices"][0]["delta"].get("content", "") for chunk in chunks)


async def test_only_the_document_is_the_answer(tmp_path):
    async with open_desk(tmp_path, [LOOK, 'It is ```json\n{"age": 4}\n```'], Hand("look")) as desk:
        answer = await desk.chat("how old?", response_format=CHAT)
    assert answer["choices"][0]["message"]["content"] == '{"age": 4}'
    assert answer["choices"][0]["finish_reason"] == "stop"
    assert desk.provider.asked[0].output_schema == PERSON


async def test_a_streamed_document_is_sent_when_it_matches(tmp_path):
    async with open_desk(tmp_path, [LOOK, '{"age": "four"}', '{"age": 4}'], Hand("look")) as desk:
        events = await desk.streamed(
            "/v1/chat/completions", messages=[{"role": "user", "content": "how old?"}], response_format=CHAT
        )
    assert text_of(events) == '{"age": 4}'
    assert [data["alipes"]["status"] for name, data in events if name == "alipes.tool"] == ["started", "finished"]


async def test_a_corrected_answer_continues_the_same_conversation(tmp_path):
    async with open_desk(tmp_path, ["no", '{"age": 4}', "on"]) as desk:
        answer = await desk.chat("how old?", response_format=CHAT)
        await desk.chat("how old?", said(answer["choices"][0]["message"]["content"]), "and now?")
        (session,) = await desk.list_sessions()
    assert session.turns == 2


async def test_giving_up_is_an_error_that_names_the_path(tmp_path):
    async with open_desk(tmp_path, ['{"age": "four"}'] * 8) as desk:
        whole = await desk.post(
            "/v1/chat/completions", messages=[{"role": "user", "content": "a"}], response_format=CHAT
        )
        events = await desk.post(
            "/v1/chat/completions", messages=[{"role": "user", "content": "b"}], response_format=CHAT, stream=True
        )
        response = await desk.post("/v1/responses", input="c", text=TEXT)
        (await desk.post("/v1/responses", input="d", text=TEXT, background=True)).json()["id"]
    for answer in (whole, events, response):
        assert answer.status_code == 422 and answer.headers["x-should-retry"] == "false"
        error = answer.json()["error"]
        assert error["code"] == "schema_mismatch"
        assert error["message"].endswith("at $.age: 'four' is not of type 'integer'")


async def test_a_refusal_and_a_cut_off_answer_are_not_taken_for_giving_up(tmp_path):
    async with open_desk(tmp_path, [Refused("no")]) as desk:
        answer = await desk.chat("how old?", response_format=CHAT)
    assert answer["choices"][0]["finish_reason"] == "content_filter"
    async with open_desk(tmp_path / "b", [replied(Text('{"age"'), stop="length")] * 8) as desk:
        answer = await desk.chat("how old?", response_format=CHAT)
    assert answer["choices"][0]["finish_reason"] == "length"


async def test_a_call_of_the_clients_tool_is_no_answer(tmp_path):
    async with open_desk(tmp_path, [(ToolCall("c1", "weather", {"city": "Rome"}),)]) as desk:
        answer = await desk.chat("weather?", tools=[tool()], response_format=CHAT)
    assert answer["choices"][0]["finish_reason"] == "tool_calls"


async def test_a_response_echoes_its_schema_and_is_replayed_with_the_same_text(tmp_path):
    async with open_desk(tmp_path, [LOOK, "no", '{"age": 4}'], Hand("look")) as desk:
        events = await desk.streamed("/v1/responses", input="how old?", text=TEXT)
        done = events[-1][1]["response"]
        assert done["text"]["format"] == {"type": "json_schema", "name": "person", "schema": PERSON}
        (item,) = done["output"]
        assert item["content"][0]["text"] == '{"age": 4}'
        deltas = [data for name, data in events if name == "response.output_text.delta"]
        assert [each["delta"] for each in deltas] == ['{"age": 4}'] and deltas[0]["item_id"] == item["id"]
        again = (await desk.get(f"/v1/responses/{done['id']}?stream=true")).text
        assert again.count("response.output_text.delta") == 2 and '"delta":"{\\"age\\": 4}"' in again
        assert (await desk.get(f"/v1/responses/{done['id']}")).json()["output"] == [item]


async def test_a_response_that_gave_up_has_failed(tmp_path):
    async with open_desk(tmp_path, ["no"] * 2) as desk:
        id = (await desk.post("/v1/responses", input="a", text=TEXT, background=True)).json()["id"]
        await desk.sessions.wait_idle()
        answer = (await desk.get(f"/v1/responses/{id}")).json()
    assert answer["status"] == "failed" and answer["error"]["code"] == "schema_mismatch" and answer["output"] == []


@pytest.mark.parametrize(
    ("schema", "problem"), [({"type": "x"}, "is not valid at $.type"), ({}, "must be a JSON object")]
)
async def test_a_wrong_schema_is_refused(tmp_path, schema, problem):
    wanted = {"type": "json_schema", "json_schema": {"name": "a", "schema": schema}}
    async with open_desk(tmp_path, []) as desk:
        answer = await desk.post(
            "/v1/chat/completions", messages=[{"role": "user", "content": "a"}], response_format=wanted
        )
    error = answer.json()["error"]
    assert answer.status_code == 400 and error["code"] == "invalid_schema" and error["param"] == "response_format"
    assert problem in error["message"]


async def test_without_the_packages_the_answer_says_how_to_install_them(tmp_path, monkeypatch):
    monkeypatch.setitem(extras.EXTRAS, "schema", extras.Extra("checking answers", ("nothing",), ("no_such_module",)))

    class Installer:
        async def require(self, name):
            raise ToolError(extras.explain_missing(name))

    async with open_desk(tmp_path, []) as desk:
        desk.extras = Installer()
        answer = await desk.post("/v1/responses", input="a", text=TEXT)
    assert answer.status_code == 501 and "alipes install schema" in answer.json()["error"]["message"]
