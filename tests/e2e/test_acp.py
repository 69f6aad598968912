"""`alipes acp` behind the client of the protocol package, behind acpx, the example of the TypeScript SDK, and raw pipes."""

import asyncio
import base64
import json
import os
import shutil
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from acp import RequestError, resource_link_block, text_block
from acp.schema import (
    ClientCapabilities,
    ElicitationCapabilities,
    ElicitationFormCapabilities,
    EmbeddedResourceContentBlock,
    EnvVariable,
    ImageContentBlock,
    McpServerStdio,
    TextResourceContents,
)

from alipes.features.mcp.client.conversation_servers import name_server
from tests.e2e.program import ROOT, Home, wait_finished
from tests.e2e.test_caller import ALIPES, run_as_agent
from tests.world.editor_client import EditorClient, Thread, open_editor
from tests.world.environment import LIMIT_S, skip
from tests.world.mcp_harness import events, is_alive, world_server
from tests.world.model_server import Call, Calls, ModelServer, Reply, Say, Stall

pytestmark = pytest.mark.deadline(120)
PNG = b"\x89PNG\r\n\x1a\n" + bytes(40)
PUSH = Calls((Call("terminal", {"command": "git push --force 2>/dev/null; touch pushed"}),))
MODULES = ROOT / ".services/node_modules"
ACPX = MODULES / ".bin/acpx"
EXAMPLE = MODULES / "@agentclientprotocol/sdk/dist/examples/client.js"


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path / "home")


@pytest.fixture
def work(tmp_path: Path) -> Path:
    path = tmp_path / "work"
    path.mkdir()
    return path


class Desk:
    """An editor with one open session."""

    def __init__(self, model: ModelServer, client: EditorClient, process: Any, session: Any) -> None:
        self.model, self.client, self.process, self.opened = model, client, process, session
        self.id: str = session.session_id

    @property
    def thread(self) -> Thread:
        return self.client.thread(self.id)

    async def ask(self, *blocks: Any) -> str:
        return (await self.client.ask(self.id, *blocks)).stop_reason


@asynccontextmanager
async def open_desk(
    home: Home, work: Path, *replies: Reply, words: tuple[str, ...] = (), able: ClientCapabilities | None = None
) -> AsyncIterator[Desk]:
    async with ModelServer(replies) as model:
        home.use(model)
        with open(home.path / "config.toml", "a") as file:
            file.write("[mcp]\nwait = 60\n")
        async with open_editor(home, *words, able=able) as (client, process):
            session = await client.agent.new_session(cwd=str(work), mcp_servers=[])
            yield Desk(model, client, process, session)


async def test_an_edit_shows_its_diff_and_a_list_becomes_the_plan(home: Home, work: Path):
    (work / "app.py").write_text("a = 1\nb = 2\n")
    plan = [
        {"id": "1", "content": "edit", "status": "in_progress"},
        {"id": "2", "content": "test", "status": "pending"},
    ]
    acts = Calls(
        (
            Call("todo", {"todos": plan}),
            Call("patch", {"mode": "replace", "path": "app.py", "old_string": "b = 2", "new_string": "b = 3"}),
            Call("read_file", {"path": "app.py"}),
        )
    )
    async with open_desk(home, work, acts, Say("Done."), words=("--mode", "edits")) as desk:
        assert desk.opened.modes.current_mode_id == "edits"
        assert [each.id for each in desk.opened.modes.available_modes] == ["ask", "edits", "plan", "all"]
        assert await desk.ask("change it") == "end_turn"
        assert desk.thread.plan == [("edit", "in_progress"), ("test", "pending")]
        calls = {each["kind"]: each for each in desk.thread.calls.values()}
        assert [block.partition(" ")[0] for block in desk.thread.seen()[:2]] == ["[completed]"] * 2, desk.thread.seen()
        (diff,) = calls["edit"]["content"]
        assert (diff.path, diff.old_text, diff.new_text) == (str(work / "app.py"), "a = 1\nb = 2\n", "a = 1\nb = 3\n")
        assert calls["read"]["locations"][0].path == str(work / "app.py")
        assert desk.thread.seen()[-1] == "Done." and desk.thread.title
    assert (work / "app.py").read_text() == "a = 1\nb = 3\n"


async def test_modes_models_and_commands_are_chosen_in_the_editor(home: Home, work: Path):
    async with open_desk(home, work, Say("One."), Say("Two.")) as desk:
        agent, thread = desk.client.agent, desk.thread
        assert {each.id: each.current_value for each in desk.opened.config_options} == {
            "mode": "ask", "model": "test/scripted", "effort": "default",
        }  # fmt: skip
        await desk.client.until(lambda: "status" in thread.commands)
        await agent.set_session_mode(session_id=desk.id, mode_id="plan")
        await desk.client.until(lambda: thread.mode == "plan")
        assert await desk.ask("/mode") == "end_turn" and "plan" in thread.seen()[-1]
        changed = await agent.set_config_option(session_id=desk.id, config_id="mode", value="ask")
        assert {each.id: each.current_value for each in changed.config_options}["mode"] == "ask"
        await agent.set_config_option(session_id=desk.id, config_id="model", value="test/other")
        await agent.set_config_option(session_id=desk.id, config_id="effort", value="high")
        assert await desk.ask("hello") == "end_turn"
        assert desk.model.bodies[0]["model"] == "other"
        assert await desk.ask("/model test/scripted") == "end_turn" and thread.options["model"] == "test/scripted"
        assert await desk.ask("/nonsense") == "end_turn" and "Unknown command /nonsense" in thread.seen()[-1]
        assert await desk.ask("/quit") == "end_turn" and "Close the thread" in thread.seen()[-1]
        for wrong in (
            agent.set_session_mode(session_id=desk.id, mode_id="wild"),
            agent.set_config_option(session_id=desk.id, config_id="model", value="nobody/nothing"),
            agent.set_config_option(session_id=desk.id, config_id="colour", value="red"),
            agent.prompt(session_id="0" * 12, prompt=[text_block("hello")]),
            agent.new_session(cwd="relative", mcp_servers=[]),
            agent.authenticate(method_id="x"),
        ):
            with pytest.raises(RequestError):
                await wrong
    assert len(desk.model.requests) == 1


async def test_images_files_and_selections_reach_the_model(home: Home, work: Path):
    (work / "notes.txt").write_text("first\nsecond\n")
    (work / "secret.env").write_text("x")
    image = ImageContentBlock(type="image", mime_type="image/png", data=base64.b64encode(PNG).decode())
    link = resource_link_block("notes.txt", f"file://{work}/notes.txt")
    chosen = EmbeddedResourceContentBlock(
        type="resource", resource=TextResourceContents(uri=f"file://{work}/app.py#L3:4", text="unsaved = True")
    )
    async with open_desk(home, work, Say("Seen."), Say("Yes.")) as desk:
        assert await desk.ask("compare ", link, " with ", chosen, image) == "end_turn"
        parts = desk.model.bodies[0]["messages"][-1]["content"]
        words = "".join(part.get("text", "") for part in parts)
        assert "second" in words and 'path="' + str(work / "app.py") + '" lines="3-4"' in words
        assert "unsaved = True" in words and [part["type"] for part in parts].count("image_url") == 1
        with pytest.raises(RequestError, match="not a PNG"):
            await desk.ask(ImageContentBlock(type="image", mime_type="image/png", data=base64.b64encode(b"x").decode()))
        assert await desk.ask("see @notes.txt") == "end_turn"
        assert "second" in str(desk.model.bodies[1]["messages"][-1]["content"])


async def test_an_approval_is_a_permission_request_and_session_holds(home: Home, work: Path):
    async with open_desk(home, work, PUSH, Say("One."), PUSH, Say("Two.")) as desk:
        asking = asyncio.create_task(desk.ask("push it"))
        await desk.client.until(lambda: desk.client.questions)
        question = desk.client.questions.pop()
        assert [each.option_id for each in question.options] == ["once", "session", "always", "no"]
        assert "git push --force" in question.text and "Why: " in question.text
        assert desk.thread.calls[question.call.tool_call_id]["status"] == "pending" and not (work / "pushed").exists()
        question.chosen.set_result("session")
        assert await asking == "end_turn" and (work / "pushed").exists()
        assert await desk.ask("again") == "end_turn" and not desk.client.questions
        assert desk.thread.seen()[-1] == "Two."


async def test_cancel_stops_the_turn_and_its_open_question(home: Home, work: Path):
    async with open_desk(home, work, PUSH, Stall("Once upon"), Say("Here I am.")) as desk:
        asking = asyncio.create_task(desk.ask("push it"))
        await desk.client.until(lambda: desk.client.questions)
        await desk.client.agent.cancel(session_id=desk.id)
        assert await asking == "cancelled" and not (work / "pushed").exists()
        desk.client.questions.pop().chosen.set_result("once")  # too late
        telling = asyncio.create_task(desk.ask("tell me a story"))
        await desk.client.until(lambda: "Once upon" in desk.thread.seen())
        behind = asyncio.create_task(desk.ask("/queue and then?"))
        await desk.client.until(lambda: any("queue" in each.lower() for each in desk.thread.seen()))
        await desk.client.agent.cancel(session_id=desk.id)
        assert await telling == "cancelled"
        await desk.model.closed_early()
        assert await behind == "cancelled"
        assert await desk.ask("are you there?") == "end_turn" and desk.thread.seen()[-1] == "Here I am."
        assert not (work / "pushed").exists()


async def test_a_question_of_the_model_is_a_choice_or_a_form(home: Home, work: Path):
    asks = Calls((Call("clarify", {"question": "Which colour?", "choices": ["red", "blue"]}),))
    open_ended = Calls((Call("clarify", {"question": "Which name?"}),))
    async with open_desk(home, work, asks, Say("Blue."), open_ended, Say("No name.")) as desk:
        asking = asyncio.create_task(desk.ask("paint it"))
        await desk.client.until(lambda: desk.client.questions)
        question = desk.client.questions.pop()
        assert [each.name for each in question.options] == ["red", "blue", "No answer"]
        question.chosen.set_result("2")
        assert await asking == "end_turn" and "blue" in str(desk.model.bodies[1]["messages"][-1])
        assert await desk.ask("name it") == "end_turn"
        assert "cannot show a question" in str(desk.model.bodies[3]["messages"][-1])
    forms = ClientCapabilities(elicitation=ElicitationCapabilities(form=ElicitationFormCapabilities()))
    async with open_desk(home, work, open_ended, Say("Ada it is."), able=forms) as desk:
        desk.client.answer = "Ada"
        assert await desk.ask("name it") == "end_turn"
        assert desk.client.forms[0][0] == "Which name?" and "Ada" in str(desk.model.bodies[1]["messages"][-1])


async def test_a_failed_turn_is_an_error(home: Home, work: Path):
    async with ModelServer((Say("Fine."),)) as model:
        home.use(model)
        async with open_editor(home) as (client, _process):
            session = await client.agent.new_session(cwd=str(work), mcp_servers=[])
            assert (await client.ask(session.session_id, "hello")).stop_reason == "end_turn"
            with pytest.raises(RequestError):
                await client.ask(session.session_id, "and now?")  # the model has no more answers
            await client.agent.close_session(session_id=session.session_id)
            with pytest.raises(RequestError, match="not open"):
                await client.ask(session.session_id, "hello")


def tool_names(body: dict[str, Any]) -> set[str]:
    return {tool["function"]["name"] for tool in body["tools"]}


async def test_a_server_of_the_editor_is_used_in_its_thread_only_and_ends_with_it(home: Home, work: Path):
    config = world_server(work / "notes")
    key = EnvVariable(name="API_KEY", value="secret-of-the-editor")
    server = McpServerStdio(name="My Notes", command=config.command, args=[*config.args], env=[key])
    name = name_server("My Notes", config)
    asks = Calls((Call(f"mcp__{name}__env", {"name": "API_KEY"}), Call(f"mcp__{name}__write_note", {"text": "hello"})))
    stray = Calls((Call(f"mcp__{name}__echo", {"text": "stray"}),))
    async with open_desk(home, work, asks, Say("Noted."), stray, Say("No.")) as desk:
        agent, model = desk.client.agent, desk.model
        own = (await agent.new_session(cwd=str(work), mcp_servers=[server])).session_id
        asking = asyncio.create_task(desk.client.ask(own, "note it"))
        await desk.client.until(lambda: desk.client.questions)
        question = desk.client.questions.pop()
        assert f"calls write_note of the MCP server {name}, which may change something" in question.text
        question.chosen.set_result("once")
        assert (await asking).stop_reason == "end_turn" and events(work / "notes", "notes") == ["hello"]
        assert {f"mcp__{name}__env", f"mcp__{name}__write_note"} <= tool_names(model.bodies[0])
        results = str(model.bodies[1]["messages"][-2:])
        assert "<untrusted" in results and "***" in results and "secret-of-the-editor" not in str(model.bodies)
        assert await desk.ask("and here?") == "end_turn"
        assert not any(each.startswith("mcp_") for each in tool_names(model.bodies[2]))
        assert "stray" not in str(model.bodies[3]["messages"][-1])
        (pid,) = events(work / "notes", "started")
        assert is_alive(pid)
        await agent.close_session(session_id=own)
        assert not is_alive(pid)


async def test_conversations_are_listed_loaded_and_continued_in_the_terminal(home: Home, work: Path):
    act = Calls((Call("terminal", {"command": "echo hi"}),), "First I look.")
    async with open_desk(home, work, act, Say("Good morning."), Say("Back again."), Say("In the shell.")) as desk:
        assert await desk.ask("hello") == "end_turn"
        async with open_editor(home) as (other, _process):
            (listed,) = (await other.agent.list_sessions(cwd=str(work))).sessions
            assert (listed.session_id, listed.cwd, listed.title) == (desk.id, str(work), "hello")
            assert (await other.agent.list_sessions(cwd="/nowhere")).sessions == []
            await other.agent.load_session(cwd=str(work), session_id=desk.id, mcp_servers=[])
            thread = other.thread(desk.id)
            assert thread.users == ["hello"]
            assert thread.seen() == ["First I look.", "[completed] Run echo hi\n```\nhi\n```", "Good morning."]
            assert (await other.ask(desk.id, "still there?")).stop_reason == "end_turn"
            assert thread.seen()[-1] == "Back again."
            with pytest.raises(RequestError, match="No conversation matches"):
                await other.agent.load_session(cwd=str(work), session_id="nothing", mcp_servers=[])
            await desk.client.until(lambda: "Back again." in desk.thread.seen())  # the first editor sees it too
            assert desk.thread.users == ["still there?"]
    async with ModelServer((Say("In the shell."),)) as model:
        home.use(model)
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "alipes", "ask", "-c", "and here?"),
            env=home.environ(),
            cwd=work,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        done = await wait_finished(process)
        assert done.out == "In the shell.\n"
        said = [message.get("content") for message in model.bodies[0]["messages"]]
        assert "Back again." in said


@pytest.mark.parametrize("how", ["closed", "killed"])
async def test_a_turn_that_was_cut_off_resumes_when_its_conversation_is_loaded(home: Home, work: Path, how: str):
    def script(body: dict[str, Any]) -> Reply:
        return Stall("Once upon") if len(model.requests) < 2 else Say("Once upon a time.")

    async with ModelServer(script) as model:
        home.use(model)
        async with open_editor(home) as (client, process):
            session = (await client.agent.new_session(cwd=str(work), mcp_servers=[])).session_id
            asking = asyncio.create_task(client.ask(session, "tell me a story"))
            await client.until(lambda: client.thread(session).seen() == ["Once upon"])
            if how == "killed":
                process.kill()
            else:
                process.stdin.close()
            async with asyncio.timeout(LIMIT_S):
                assert await process.wait() == (0 if how == "closed" else -9)
            with pytest.raises((ConnectionError, RequestError, asyncio.CancelledError)):
                await asking
        async with open_editor(home) as (client, _process):
            assert len(model.requests) == 1  # nothing resumes before the editor asks for it
            await client.agent.load_session(cwd=str(work), session_id=session, mcp_servers=[])
            thread = client.thread(session)
            await client.until(lambda: thread.seen() == ["Once upon a time."])
            assert thread.users == ["tell me a story"] and "Resuming" in str(thread.thoughts)


async def test_raw_lines_get_protocol_answers_and_nothing_else(home: Home, work: Path):
    """Also for what is no JSON, comes too early, or is unknown; a plugin that prints does not disturb it."""
    lines = [
        "no JSON",
        "[1]",
        '{"jsonrpc":"2.0","id":1,"method":"session/new","params":{}}',
        '{"jsonrpc":"2.0","id":2,"method":"initialize","params":{"protocolVersion":1}}',
        json.dumps(
            {"jsonrpc": "2.0", "id": 3, "method": "session/new", "params": {"cwd": str(work), "mcpServers": []}}
        ),
        '{"jsonrpc":"2.0","id":4,"method":"session/fly","params":{}}',
        '{"jsonrpc":"2.0","id":5,"method":"session/prompt","params":{"sessionId":3}}',
    ]
    async with ModelServer(()) as model:
        home.use(model)
        async with home.started("acp", stdin=asyncio.subprocess.PIPE) as process:
            assert process.stdin is not None and process.stdout is not None
            process.stdin.write("\n".join(lines).encode() + b"\n")
            answers: dict[Any, Any] = {}
            async with asyncio.timeout(LIMIT_S):
                while not {3, 4, 5} <= set(answers):
                    message = json.loads(await process.stdout.readline())
                    answers.setdefault(message.get("id"), message)
            process.stdin.close()
            assert await process.wait() == 0
            rest = (await process.stdout.read()).splitlines()
    assert answers[None]["error"]["code"] in (-32700, -32600)
    assert answers[1]["error"]["message"] == "send initialize first"
    assert answers[2]["result"]["protocolVersion"] == 1 and answers[3]["result"]["sessionId"]
    assert answers[4]["error"]["code"] == -32601 and answers[5]["error"]["code"] == -32602
    assert all(json.loads(line)["jsonrpc"] == "2.0" for line in rest)


async def test_the_agent_itself_may_not_start_it(home: Home):
    home.path.mkdir()
    done = await run_as_agent(home, f"{ALIPES} acp")
    assert done.status == 2 and "started by alipes itself" in done.err + done.out


@pytest.mark.service
async def test_acpx_talks_to_it(home: Home, work: Path, tmp_path: Path):
    if not ACPX.exists() or not shutil.which("node"):
        skip("acpx is not installed (make services)")
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    async with ModelServer((PUSH, Say("Good morning."))) as model:
        home.use(model)
        process = await asyncio.create_subprocess_exec(
            *(str(ACPX), "--agent", f"{sys.executable} -m alipes acp", "--approve-all", "--format", "json"),
            *("exec", "hello"),
            env={**home.environ(), "HOME": str(scratch), "PATH": os.environ["PATH"]},
            cwd=work,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        done = await wait_finished(process)
    if "requires Node" in done.err or "Unsupported engine" in done.err:
        skip(f"acpx refuses this version of Node: {done.err.strip()[:200]}")
    assert done.status == 0, done.err
    assert "Good morning." in done.out and "agent_message_chunk" in done.out and (work / "pushed").exists()


@pytest.mark.service
async def test_the_example_of_the_typescript_sdk_talks_to_it(home: Home, work: Path, tmp_path: Path):
    """It starts its agent with `npx`: ours is called so here."""
    if not EXAMPLE.exists() or not shutil.which("node"):
        skip("the TypeScript SDK is not installed (make services)")
    (tmp_path / "bin").mkdir()
    npx = tmp_path / "bin" / "npx"
    npx.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m alipes acp\n')
    npx.chmod(0o755)
    async with ModelServer((PUSH, Say("Good morning."))) as model:
        home.use(model)
        process = await asyncio.create_subprocess_exec(
            *("node", str(EXAMPLE)),
            env=home.environ(PATH=f"{npx.parent}:{os.environ['PATH']}"),
            cwd=work,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        done = await wait_finished(process, b"1\n")
    assert "Permission requested" in done.out and "Good morning." in done.out, done
    assert "Agent completed with: end_turn" in done.out and (work / "pushed").exists()


async def test_an_editor_that_does_not_name_itself_gets_the_older_updates_only(home: Home, work: Path):
    async with ModelServer((Say("One."),)) as model:
        home.use(model)
        async with open_editor(home, name="") as (client, _):
            session = (await client.agent.new_session(cwd=str(work), mcp_servers=[])).session_id
            with pytest.raises(RequestError, match="the prompt is empty"):
                await client.ask(session)
            await client.ask(session, text_block("one"))
            kinds = {each.session_update for each in client.thread(session).updates}
    assert "agent_message_chunk" in kinds
    assert not kinds & {"config_option_update", "session_info_update", "usage_update"}
