"""Documents, steps of tools, embeddings and the smaller rules of OpenAI's API."""

import base64
import struct

import pytest
from openai import AsyncOpenAI

from alipes.plugins.owner import PluginOwner
from alipes.plugins.registry import ProviderContribution
from tests.unit.agent_harness import Hand, call
from tests.unit.features.openai.openai_harness import open_desk

pytestmark = pytest.mark.deadline(60)
DATA = "data:application/pdf;base64," + base64.b64encode(b"text of a report").decode()
FILE = {"type": "file", "file": {"filename": "report.pdf", "file_data": DATA}}
INPUT_FILE = {"type": "input_file", "filename": "report.pdf", "file_data": DATA}


async def test_the_text_of_a_document_reaches_the_model_as_a_strangers(tmp_path):
    async with open_desk(tmp_path, ["A report.", "Short."]) as desk:
        question = {"role": "user", "content": [{"type": "text", "text": "What is it?"}, FILE]}
        first = await desk.chat(question)
        (_, text), *_ = desk.asked()
        assert "What is it?" in text and "text of a report" in text
        answer = {"role": "assistant", "content": first["choices"][0]["message"]["content"]}
        await desk.chat(question, answer, "And shorter?")
        (session,) = await desk.list_sessions()  # the same document has the same text, so the conversation continues
        stored = await desk.store.sessions.active(session.key)
        assert stored is not None
        assert len(list((tmp_path / "uploads").rglob("*report.pdf"))) == 1
        exported = await desk.store.archive.export(session.id)
    assert len(exported["turns"]) == 2


@pytest.mark.parametrize("part", [INPUT_FILE, INPUT_FILE | {"file_data": DATA.partition(",")[2]}])
async def test_a_document_is_part_of_a_response(tmp_path, part):
    async with open_desk(tmp_path, ["A report."]) as desk:
        item = {"role": "user", "content": [{"type": "input_text", "text": "What is it?"}, part]}
        answer = await desk.post("/v1/responses", input=[item])
        assert answer.status_code == 200, answer.text
        assert "text of a report" in desk.asked()[0][1]


async def test_too_many_documents_are_refused(tmp_path):
    async with open_desk(tmp_path, []) as desk:
        answer = await desk.post("/v1/chat/completions", messages=[{"role": "user", "content": [FILE] * 17}])
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "file_data")


def meow() -> Hand:
    async def say(_args: object, _act: object) -> str:
        return "meow"

    return Hand("cat", does=say)


@pytest.mark.parametrize("by", ["field", "header"])
async def test_steps_of_the_agents_tools_are_reasoning_if_the_client_asks(tmp_path, by):
    more = {"steps": "reasoning"} if by == "field" else {}
    headers = {"authorization": "Bearer anns-key", **({"x-alipes-steps": "reasoning"} if by == "header" else {})}
    async with open_desk(tmp_path, [call("c", "cat"), "It says meow."] * 4, meow()) as desk:

        async def post(path: str, **body: object):
            return (await desk.http.post(path, json={**body, **more}, headers=headers)).json()

        messages = [{"role": "user", "content": "What does it say?"}]
        (choice,) = (await post("/v1/chat/completions", messages=messages))["choices"]
        assert "cat" in choice["message"]["reasoning_content"] and "meow" in choice["message"]["reasoning_content"]
        assert choice["message"]["content"] == "It says meow."
        answer = await post("/v1/responses", input="What does it say?")
        assert [item["type"] for item in answer["output"]] == ["reasoning", "message"]
        (summary,) = answer["output"][0]["summary"]
        assert summary["type"] == "summary_text" and "meow" in summary["text"]
        again = (await desk.http.get(f"/v1/responses/{answer['id']}", headers=headers)).json()
        assert again["output"] == answer["output"]


async def test_without_being_asked_for_no_step_is_shown(tmp_path):
    async with open_desk(tmp_path, [call("c", "cat"), "It says meow."], meow()) as desk:
        answer = await desk.chat("What does it say?")
    assert "reasoning_content" not in answer["choices"][0]["message"]


async def test_the_official_client_streams_steps_as_reasoning_items(tmp_path):
    async with open_desk(tmp_path, [call("c", "cat"), "It says meow."] * 2, meow()) as desk:
        async with AsyncOpenAI(base_url=f"{desk.url}/v1", api_key="anns-key", max_retries=0) as client:
            body = {"steps": "reasoning"}
            stream = client.responses.stream(model="alipes", input="What does it say?", extra_body=body)
            async with stream as events:
                kinds = [event.type async for event in events]
                final = await events.get_final_response()
            assert "response.reasoning_summary_text.delta" in kinds
            assert [item.type for item in final.output] == ["reasoning", "message"]
            replayed = [event async for event in await client.responses.retrieve(final.id, stream=True)]
            parts = ("alipes.tool", "response.output_text.delta")  # a replay has whole texts
            assert [each.type for each in replayed if each.type not in parts] == [
                each for each in kinds if each not in parts
            ]
            chunks = await client.chat.completions.create(
                model="alipes", messages=[{"role": "user", "content": "Again?"}], stream=True, extra_body=body
            )
            deltas = [getattr(each.choices[0].delta, "reasoning_content", None) or "" async for each in chunks]
    assert "meow" in "".join(deltas)


async def test_what_a_response_was_asked_can_be_listed(tmp_path):
    async with open_desk(tmp_path, ["Fine."]) as desk:
        async with AsyncOpenAI(base_url=f"{desk.url}/v1", api_key="anns-key", max_retries=0) as client:
            made = await client.responses.create(model="alipes", input="How are you?")
            items = [item async for item in client.responses.input_items.list(made.id)]
    assert [(item.role, item.content[0].text) for item in items] == [("user", "How are you?")]


async def test_embeddings_are_those_of_the_provider_of_embeddings(tmp_path):
    async with open_desk(tmp_path, []) as desk:
        asked: list[list[str]] = []

        class Embeddings:
            async def embed(self, texts: list[str]) -> list[list[float]]:
                asked.append(texts)
                return [[float(len(text)), 0.5] for text in texts]

        desk.contributions.add(ProviderContribution(PluginOwner("p"), "embeddings", "p", Embeddings()))
        async with AsyncOpenAI(base_url=f"{desk.url}/v1", api_key="anns-key", max_retries=0) as client:
            found = await client.embeddings.create(model="alipes", input=["a", "bcd"])
            assert [each.embedding for each in found.data] == [[1.0, 0.5], [3.0, 0.5]]
        packed = await desk.post("/v1/embeddings", input="a", encoding_format="base64")
        (one,) = packed.json()["data"]
        assert struct.unpack("<2f", base64.b64decode(one["embedding"])) == (1.0, 0.5)
        assert asked == [["a", "bcd"], ["a"]]
        wrong = await desk.post("/v1/embeddings", input="a", dimensions=3)
        assert (wrong.status_code, wrong.json()["error"]["param"]) == (400, "dimensions")


async def test_a_wrong_field_is_named(tmp_path):
    async with open_desk(tmp_path, []) as desk:
        missing = (await desk.post("/v1/chat/completions")).json()["error"]
        assert (missing["code"], missing["param"]) == ("missing_required_parameter", "messages")
        wrong = (await desk.post("/v1/chat/completions", messages=[{"role": "user", "content": 1}])).json()["error"]
        assert (wrong["code"], wrong["param"]) == ("invalid_type", "messages[0].content")
        unknown = await desk.get("/v1/models", key="wrong")
        assert unknown.json()["error"]["type"] == "invalid_request_error"
