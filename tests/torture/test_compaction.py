"""Compaction against a real program, a model with a small window and a summariser that fails."""

import asyncio
import contextlib
import json
import os
import random
import sys

import pytest

from alipes.agent.compaction.compaction import visible_messages
from alipes.store.sql.history import CompactionStore
from alipes.store.sqlite.store import open_store
from tests.e2e.program import Home
from tests.torture.homes import open_service, write_home
from tests.world.kill_trial import environment
from tests.world.model_server import Call, Calls, Fail, ModelServer, Say, Stall, Tokens
from tests.world.window_model import find_invalid

WINDOW = 9_000
RULE = "Rule seven: every answer ends with a bow."
FIRST = "Please write a book about lighthouses."
SUMMARY = "The person wants a book about lighthouses; three chapters are done."
BAD_SUMMARIES = {
    "error": Fail(400, "the summariser is out of order"),
    "empty": Say(" "),
    "longer": Say("and then " * 20_000),
    "silent": Stall(),
}
BACKGROUND_CALLS = (
    Call("terminal", {"command": "sleep 300", "background": True}),
    Call("todo", {"todos": [{"id": "1", "content": "write the end", "status": "pending"}]}),
)
TRIALS = int(os.environ.get("ALIPES_TORTURE_TRIALS", "0")) // 20


def config(url, *, timeout=5.0, window=WINDOW):
    return f"""
model = "loop/m"
max_tokens = 500
[providers.loop]
api = "openai-chat"
base_url = "{url}"
[models."loop/m"]
window = {window}
[auxiliary.compaction]
timeout = {timeout}
[compaction]
background = false
"""


class BookModel:
    """The model: counts its input, refuses what is too long, and summarises badly if scripted to."""

    def __init__(self, summary=None, window=WINDOW):
        self.summary, self.summary_requests, self.refused, self.window = summary or Say(SUMMARY), 0, 0, window
        self.summary_requested = asyncio.Event()
        self.bodies = []

    def __call__(self, body):
        size = len(json.dumps(body)) // 4
        system = str(body["messages"][0]["content"])
        if system.startswith("You write the memory"):
            self.summary_requests += 1
            self.summary_requested.set()
            return self.summary
        if "watch the sea" in str(body["messages"][1]["content"]):
            return Stall("I watch")
        self.bodies.append(body)
        if size > self.window:
            self.refused += 1
            return Fail(400, f"context_length_exceeded: {size} tokens are more than {self.window}")
        usage = Tokens(input=size, output=400)
        last = body["messages"][-1]
        text = str(last["content"])
        if last["role"] == "user" and "measure" in text:
            call = Call("terminal", {"command": "yes lighthouse | head -c 1200000"})
            return Calls((call,), usage=usage)
        if last["role"] == "user" and "send somebody" in text:
            return Calls((Call("delegate_task", {"goal": "watch the sea", "background": True}),), usage=usage)
        if last["role"] == "user" and "wait beside" in text:
            return Calls(BACKGROUND_CALLS, usage=usage)
        return Say("A short one." if "short" in text else "chapter " * 500, usage=usage)


async def start_process(home, folder, *argv):
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "alipes", *argv),
        env=environment(home),
        cwd=folder,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )


async def talk(home, folder, *lines):
    """Send the lines in one process and one conversation; returns status, answers and notices."""
    process = await start_process(home, folder, "--session", "book", "--yes")
    out, errors = await process.communicate("".join(f"{line}\n" for line in lines).encode())
    return process.returncode, out.decode(), errors.decode()


def make_home(tmp_path, url, **more):
    home, folder = tmp_path / "home", tmp_path / "work"
    home.mkdir()
    folder.mkdir()
    (home / "config.toml").write_text(config(url, **more))
    (folder / "AGENTS.md").write_text(RULE)
    return home, folder


async def read_conversation(home):
    """The id of the conversation, its latest turn, the visible messages and the failed attempts."""
    async with open_store(home) as store:
        (facts,) = [each for each in await store.archive.sessions() if each.key.endswith(":book")]
        digests = CompactionStore(store.database)
        turn = await digests.latest(facts.id)
        assert await store.archive.search("lighthouses") and facts.unfinished == 0
        shown = visible_messages(turn.history, turn.compaction)
        assert find_invalid(shown) == "" and find_invalid(turn.history) == ""
        return facts.id, turn, shown, await digests.attempts(facts.id)


CHAPTERS = [f"Now chapter {n}." for n in range(1, 9)]


@pytest.mark.deadline(120)
@pytest.mark.parametrize("kind", BAD_SUMMARIES)
async def test_a_failing_summariser_is_tried_twice_then_reported_and_the_conversation_continues(
    tmp_path, kind, figures
):
    model = BookModel(BAD_SUMMARIES[kind])
    async with ModelServer(model) as server:
        home, folder = make_home(tmp_path, server.url("openai-chat"), timeout=0.3)
        status, _, errors = await talk(home, folder, FIRST, "wait beside", "measure it", *CHAPTERS)
    assert status == 0, errors
    assert model.summary_requests == 2, model.summary_requests
    figures.worst("attempts of a failing summariser", model.summary_requests)
    assert "compaction failed" in errors
    _, turn, shown, tries = await read_conversation(home)
    assert tries.count == 2 and turn.compaction.covered > 0
    assert sum(message.role == "user" for message in turn.history) == len(CHAPTERS) + 3
    last = model.bodies[-1]["messages"]
    assert RULE in last[0]["content"] and last[1]["content"] == FIRST
    for text in ("background process: p1 (sleep 300)", "write the end"):
        assert text in last[2]["content"], text
    assert shown[0].text == FIRST


@pytest.mark.deadline(120)
async def test_subagents_continue_during_compaction_and_stay_known(tmp_path):
    model, home = BookModel(), Home(tmp_path / "home")
    lines = (
        f'models."test/scripted".window = {WINDOW}',
        "compaction.background = false",
        "max_tokens = 500",
        "serve.drain = 1",
    )
    async with ModelServer(model) as server:
        write_home(home, server, lines=lines)
        async with open_service(home) as (served, api):
            for text in (FIRST, "send somebody", *CHAPTERS[:5]):
                seen = await api.finish(await api.begin(text, session="book"))
                assert seen["status"] == "answered", seen
            assert server.open_requests == 1, "the subagent is still running"
            assert await served.left() == 0
    last = model.bodies[-1]["messages"]
    assert model.summary_requests >= 1 and model.refused == 0 and last[1]["content"] == FIRST
    assert "background subagent: " in last[2]["content"] and SUMMARY in last[2]["content"]


@pytest.mark.deadline(120)
@pytest.mark.parametrize(("window", "status"), [(WINDOW, 0), (1_000, 1)])
async def test_tools_that_exceed_the_limit_alone_are_reported_and_nothing_is_summarised(tmp_path, window, status):
    """The model answers if it accepts the request; otherwise the error says why."""
    model = BookModel(window=window)
    async with ModelServer(model) as server:
        home, folder = make_home(tmp_path, server.url("openai-chat"), window=1_500)
        process = await start_process(home, folder, "ask", "--session", "book", f"{FIRST} A short one.")
        _, errors = await process.communicate(b"")
        again = await start_process(home, folder, "ask", "--session", "book", "Another short one.")
        _, more = await again.communicate(b"")
    assert (process.returncode, again.returncode) == (status, status), errors
    assert model.summary_requests == 0 and b"alone take" in more
    assert (b"does not fit into the context window" in more) == bool(status)
    assert len(model.bodies) <= 4


@pytest.mark.deadline(120)
async def test_a_message_sent_during_compaction_is_answered_in_the_same_conversation(tmp_path):
    model = BookModel(Say(SUMMARY, wait=0.5))
    async with ModelServer(model) as server:
        home, folder = make_home(tmp_path, server.url("openai-chat"))
        talking = asyncio.create_task(talk(home, folder, FIRST, *CHAPTERS))
        await model.summary_requested.wait()
        other = await start_process(home, folder, "ask", "--session", "book", "Are you there?")
        other.stdin.close()
        (out, errors), (status, _, more) = await asyncio.gather(other.communicate(), talking)
    assert other.returncode == 0 and b"chapter" in out, errors
    assert status == 0 and "were compacted by loop/m" in more, more
    _, turn, shown, tries = await read_conversation(home)
    assert tries.count == 0 and model.summary_requests >= 1 and model.refused == 0
    assert [m.text for m in turn.history if m.role == "user"].count("Are you there?") == 1
    assert sum(SUMMARY in message.text for message in shown) == 1


@pytest.mark.deadline(240)
@pytest.mark.parametrize("seed", range(2 + TRIALS))
async def test_a_kill_during_compaction_resumes_from_the_journal(tmp_path, seed):
    rng = random.Random(seed)
    model = BookModel(Say(SUMMARY, wait=0.05))
    async with ModelServer(model) as server:
        home, folder = make_home(tmp_path, server.url("openai-chat"))
        process = await start_process(home, folder, "--session", "book", "--yes")
        process.stdin.write("".join(f"{line}\n" for line in (FIRST, *CHAPTERS)).encode())
        await model.summary_requested.wait()
        await asyncio.sleep(rng.random() * 0.15)
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.communicate()
        status, _, errors = await talk(home, folder, "Where were we?", *CHAPTERS[:2])
    assert status == 0, errors
    session, turn, shown, _ = await read_conversation(home)
    assert turn.compaction.covered > 0 and shown[0].text == FIRST
    assert sum(SUMMARY in message.text for message in shown) == 1
    assert model.refused == 0, session
