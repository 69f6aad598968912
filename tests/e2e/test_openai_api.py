"""The official `openai` package and the `llm` command against `alipes serve`, unchanged."""

import asyncio
import re
import sqlite3
import sys
from contextlib import asynccontextmanager, closing

import openai
import pytest
from openai import AsyncOpenAI

from tests.e2e.openai_script import PLAN, play
from tests.e2e.program import ROOT, Home
from tests.e2e.service import open_serve, write_settings
from tests.world.environment import environment
from tests.world.model_server import Call, ModelServer, Plan, Say, Stall

pytestmark = pytest.mark.deadline(60)
KEY = "an-operators-key-that-is-long-enough"
PAGE = (ROOT / "docs" / "openai-api.md").read_text()


@asynccontextmanager
async def served(tmp_path, plan):
    """Its address and its home."""
    home = Home(tmp_path / "home")
    async with ModelServer(plan) as model:
        write_settings(home, model)
        async with open_serve(home, ALIPES_API_KEY=KEY) as service:
            yield f"{service.address}/v1", home, model


def sessions(home):
    with closing(sqlite3.connect(home.path / "alipes.db")) as db:
        return db.execute("SELECT count(*) FROM sessions").fetchone()[0]


async def test_one_script_has_the_same_result_with_alipes_and_a_scripted_openai(tmp_path):
    async with ModelServer(PLAN, key=KEY) as theirs:
        expected = await play(theirs.url("openai-chat"), KEY, "scripted")
    async with served(tmp_path, PLAN) as (url, _, _):
        got = await play(url, KEY, "alipes")
        named = await play(url, KEY, "test/scripted")
    assert got == expected
    assert named == expected
    assert expected["errors"] == [
        ("AuthenticationError", 401),
        ("NotFoundError", 404),
        ("BadRequestError", 400),
        ("BadRequestError", 400),
    ]


async def test_the_agents_own_tools_run_unseen_by_the_client(tmp_path):
    plan = Plan((Call("terminal", {"command": "echo meow"}), Say("The cat says meow.")))
    async with served(tmp_path, plan) as (url, _, model):
        async with AsyncOpenAI(base_url=url, api_key=KEY, max_retries=0) as client:
            async with client.chat.completions.stream(
                model="alipes", messages=[{"role": "user", "content": "what does it say?"}]
            ) as stream:
                kinds = [event.type async for event in stream]
                answer = await stream.get_final_completion()
            assert answer.choices[0].message.content == "The cat says meow."
            assert "content.delta" in kinds
            async with client.responses.stream(model="alipes", input="what does it say?") as stream:
                names = [event.type async for event in stream]
                response = await stream.get_final_response()
            assert response.output_text == "The cat says meow." and "alipes.tool" in names
        results = [message for message in model.bodies[1]["messages"] if message["role"] == "tool"]
        assert "meow" in results[0]["content"]


async def test_responses_are_continued_retrieved_and_deleted(tmp_path):
    async with served(tmp_path, PLAN) as (url, home, model):
        async with AsyncOpenAI(base_url=url, api_key=KEY, max_retries=0) as client:
            first = await client.responses.create(model="alipes", input="hello")
            second = await client.responses.create(input="count", previous_response_id=first.id)
            assert second.output_text == "one two three"
            roles = [message["role"] for message in model.bodies[-1]["messages"]]
            assert roles == ["system", "user", "assistant", "user"]
            assert sessions(home) == 1
            assert (await client.responses.retrieve(first.id)).output_text == "Hello, you."
            await client.responses.delete(first.id)
            with pytest.raises(openai.NotFoundError):
                await client.responses.retrieve(first.id)
            assert (await client.models.retrieve("test/scripted")).id == "test/scripted"
            with pytest.raises(openai.NotFoundError, match="test/scripted"):
                await client.chat.completions.create(
                    model="test2/scripted", messages=[{"role": "user", "content": "hello"}]
                )


async def test_a_client_that_disconnects_cancels_the_model_request(tmp_path):
    async with served(tmp_path, [Stall("half an answer")]) as (url, home, model):
        async with AsyncOpenAI(base_url=url, api_key=KEY, max_retries=0) as client:
            stream = await client.chat.completions.create(
                model="alipes", messages=[{"role": "user", "content": "hello"}], stream=True
            )
            async for chunk in stream:
                if chunk.choices[0].delta.content:
                    break
            await stream.close()
            await model.closed_early()
        while not _endings(home)[0][0]:
            await asyncio.sleep(0.02)
        assert _endings(home) == [("stopped", "disconnected")]


def _endings(home):
    with closing(sqlite3.connect(home.path / "alipes.db")) as db:
        return db.execute("SELECT ending, detail FROM turns").fetchall()


def shown(language, number=0):
    """A code block of the page in this language."""
    return re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)[number]


async def test_the_script_for_data_in_the_docs_runs(tmp_path):
    async with served(tmp_path, Plan((Say('Rome: {"name": "Rome", "inhabitants": 2800000}'),))) as (url, _, _):
        out = await child(tmp_path, "-c", shown("python", 1), ALIPES_URL=url, ALIPES_API_KEY=KEY)
    assert out == "2800000\n" and PAGE.count("```python") == 2


async def test_the_script_in_the_docs_runs(tmp_path):
    plan = Plan((Say("Two files."),), by={"oldest": (Say("The first one."),)})
    async with served(tmp_path, plan) as (url, home, _):
        out = await child(tmp_path, "-c", shown("python"), ALIPES_URL=url, ALIPES_API_KEY=KEY)
        assert out == "Two files.\nThe first one.\n"
        assert sessions(home) == 2


async def test_the_llm_command_chats_continues_and_runs_its_own_tools(tmp_path):
    plan = Plan(
        (Say("Hello, you."),), by={"time": (Call("llm_time", {}), Say("It is late.")), "again": (Say("Hello again."),)}
    )
    async with served(tmp_path, plan) as (url, home, model):
        (tmp_path / "llm").mkdir()
        ours = shown("yaml").replace("http://127.0.0.1:8742/v1", url)
        newer = ours.replace("model_id: alipes", "model_id: newer") + "  responses: true\n"
        (tmp_path / "llm" / "extra-openai-models.yaml").write_text(ours + newer)
        assert await llm(tmp_path, "-m", "alipes", "hello") == "Hello, you.\n"
        assert await llm(tmp_path, "-c", "and again") == "Hello again.\n"
        assert sessions(home) == 1, "a continued conversation is one session"
        assert [m["role"] for m in model.bodies[-1]["messages"]] == ["system", "user", "assistant", "user"]
        assert await llm(tmp_path, "-m", "alipes", "-T", "llm_time", "what time is it?") == "It is late.\n"
        assert "utc_time" in str(model.bodies[-1]["messages"])
        assert await llm(tmp_path, "-m", "newer", "hello") == "Hello, you.\n"
        assert await llm(tmp_path, "-m", "alipes", "--no-stream", "hello") == "Hello, you.\n"


async def llm(folder, *words):
    """Its output."""
    place = {"LLM_USER_PATH": str(folder / "llm"), "LLM_LOAD_PLUGINS": ""}
    return await child(folder, "-m", "llm", *words, "--key", KEY, **place)


async def child(folder, *words, **more):
    """The output of a Python program, run in a controlled environment."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, *words),
        env=environment(folder, **more),
        cwd=folder,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await process.communicate()
    assert process.returncode == 0, err.decode()
    return out.decode()
