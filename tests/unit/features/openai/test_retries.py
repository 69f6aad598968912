"""Requests that a client repeats by itself join the turn of the first one."""

import asyncio

import pytest
from openai import AsyncOpenAI, DefaultAsyncHttpxClient
from starlette.requests import Request

from alipes.features.openai.retries import read_request
from alipes.plugins.owner import PluginOwner
from alipes.web.endpoint import ApiCall, Caller
from tests.unit.agent_harness import Hand, call
from tests.unit.features.openai.openai_harness import open_desk

pytestmark = pytest.mark.deadline(60)
CHAT, RESPONSES = "/v1/chat/completions", "/v1/responses"


def body(path: str, text: str = "write a line") -> dict[str, object]:
    return {"input": text} if path == RESPONSES else {"messages": [{"role": "user", "content": text}]}


async def ask(desk, path: str, retries: int, *, key: str = "anns-key", text: str = "write a line", **more: object):
    headers = {"authorization": f"Bearer {key}", "x-stainless-retry-count": str(retries)}
    return await desk.http.post(path, json={**body(path, text), **more}, headers=headers)


def text_of(answer) -> str:
    found = answer.json()
    return (
        found["choices"][0]["message"]["content"] if "choices" in found else found["output"][-1]["content"][0]["text"]
    )


async def read_answer(client: AsyncOpenAI, messages: list[dict[str, str]], *, stream: bool) -> str:
    if not stream:
        answer = await client.chat.completions.create(model="alipes", messages=messages)
        return answer.choices[0].message.content
    chunks = await client.chat.completions.create(model="alipes", messages=messages, stream=True)
    return "".join([chunk.choices[0].delta.content or "" async for chunk in chunks])


class Line:
    """A tool that writes a line and then waits."""

    def __init__(self) -> None:
        self.written, self.go = 0, asyncio.Event()
        self.tool = Hand("line", does=self._write)

    async def _write(self, _args: object, _act: object) -> str:
        self.written += 1
        await self.go.wait()
        return "written"


@pytest.mark.parametrize("path", [CHAT, RESPONSES])
@pytest.mark.parametrize("stream", [False, True])
async def test_a_retry_joins_the_running_turn(tmp_path, path, stream):
    line = Line()
    async with open_desk(tmp_path, [call("c", "line"), "Done."], line.tool) as desk, asyncio.TaskGroup() as group:
        first = group.create_task(ask(desk, path, 0, stream=stream))
        while not line.written:
            await asyncio.sleep(0.01)
        second = group.create_task(ask(desk, path, 1, stream=stream))
        line.go.set()
    assert line.written == 1
    if stream:
        assert "Done." in first.result().text and "Done." in second.result().text
    else:
        assert text_of(first.result()) == text_of(second.result()) == "Done."
        assert first.result().json()["id"] == second.result().json()["id"]


@pytest.mark.parametrize("path", [CHAT, RESPONSES])
async def test_a_retry_gets_the_answer_of_a_turn_that_has_ended(tmp_path, path):
    async with open_desk(tmp_path, ["One.", "Two.", "Three.", "Four."]) as desk:
        assert text_of(await ask(desk, path, 0)) == "One."
        assert text_of(await ask(desk, path, 1)) == "One."
        assert text_of(await ask(desk, path, 2, text="another one")) == "Two."
        assert text_of(await ask(desk, path, 1, key="bobs-key")) == "Three."
        assert text_of(await ask(desk, path, 0)) == "Four."


async def test_an_answer_of_more_than_ten_minutes_ago_is_not_given_again(tmp_path):
    async with open_desk(tmp_path, ["One.", "Two."]) as desk:
        await ask(desk, CHAT, 0)
        sql = "UPDATE turns SET ended = ended - 601"
        await desk.store.database.execute(sql)
        assert text_of(await ask(desk, CHAT, 1)) == "Two."


@pytest.mark.parametrize("stream", [False, True])
async def test_the_official_client_that_times_out_gets_the_answer_of_one_turn(tmp_path, stream):
    line = Line()
    async with open_desk(tmp_path, [call("c", "line"), "Done."], line.tool) as desk:
        repeated = asyncio.Event()

        async def note(request: object) -> None:
            if request.headers["x-stainless-retry-count"] != "0":  # type: ignore[attr-defined]
                repeated.set()

        hooked = DefaultAsyncHttpxClient(event_hooks={"request": [note]}, trust_env=False)
        options = {"base_url": f"{desk.url}/v1", "api_key": "anns-key", "timeout": 1.0, "max_retries": 20}
        async with AsyncOpenAI(**options, http_client=hooked) as client:
            async with asyncio.TaskGroup() as group:
                messages = [{"role": "user", "content": "write a line"}]
                talking = group.create_task(read_answer(client, messages, stream=stream))
                while not line.written:
                    await asyncio.sleep(0.01)
                if not stream:  # a stream has sent its first event
                    await repeated.wait()
                line.go.set()
    assert (talking.result(), line.written) == ("Done.", 1)


@pytest.mark.parametrize("stream", [False, True])
async def test_a_request_that_is_prepared_until_its_client_has_left_begins_no_turn(tmp_path, stream):
    """As with a document that is fetched slowly: the retry may be ready first."""
    line, slow, requests = Line(), asyncio.Event(), []

    async def before_message(inbound) -> None:
        requests.append(inbound.id)
        if len(requests) == 1:
            await slow.wait()

    async with open_desk(tmp_path, [call("c", "line"), "Done.", call("c", "line"), "Twice."], line.tool) as desk:
        desk.hooks.add(PluginOwner("test"), before_message, patient=True)
        options = {"base_url": f"{desk.url}/v1", "api_key": "anns-key", "timeout": 1.0, "max_retries": 20}
        async with AsyncOpenAI(**options) as client, asyncio.TaskGroup() as group:
            messages = [{"role": "user", "content": "write a line"}]
            talking = group.create_task(read_answer(client, messages, stream=stream))
            while not line.written:
                await asyncio.sleep(0.01)
            slow.set()
            line.go.set()
        await desk.sessions.wait_idle()
    assert (talking.result(), line.written, len(requests)) == ("Done.", 1, 2)


async def test_the_time_that_a_client_waits_is_counted_from_the_arrival_of_its_request():
    """Preparing the turn took a part of it."""
    headers = [(b"x-stainless-read-timeout", b"20.0")]
    request = Request({"type": "http", "path": CHAT, "method": "POST", "headers": headers, "query_string": b""})
    now = asyncio.get_running_loop().time()
    left = [read_request(ApiCall(request, Caller("ann", frozenset()), arrived=now - ago)) for ago in (18, 21)]
    assert [client.has_timed_out for client in left] == [False, True]


async def test_with_the_setting_a_turn_stops_when_its_client_has_waited_too_long(tmp_path):
    line = Line()
    async with open_desk(tmp_path, [call("c", "line"), call("c", "line")], line.tool, on_timeout="stop") as desk:
        async with AsyncOpenAI(base_url=f"{desk.url}/v1", api_key="anns-key", timeout=0.5, max_retries=0) as client:
            with pytest.raises(Exception, match="timed out"):
                await client.chat.completions.create(model="alipes", messages=[{"role": "user", "content": "x"}])
        await desk.sessions.wait_idle()
        (session,) = await desk.list_sessions()
        exported = await desk.store.archive.export(session.id)
    assert [(turn["ending"], turn["detail"]) for turn in exported["turns"]] == [("stopped", "disconnected")]


async def test_a_client_that_leaves_earlier_stops_its_turn_and_a_retry_begins_another(tmp_path):
    line = Line()
    async with open_desk(tmp_path, [call("c", "line"), "Two."], line.tool) as desk:
        async with asyncio.TaskGroup() as group:
            asking = group.create_task(ask(desk, CHAT, 0))
            while not line.written:
                await asyncio.sleep(0.01)
            asking.cancel()
        await desk.sessions.wait_idle()
        assert text_of(await ask(desk, CHAT, 1)) == "Two."


async def test_another_process_knows_the_turn_of_a_retry(tmp_path):
    async with open_desk(tmp_path, ["One.", "Two."]) as desk:
        await ask(desk, CHAT, 0)
    async with open_desk(tmp_path, ["Three."]) as other:
        assert text_of(await ask(other, CHAT, 1)) == "One."
