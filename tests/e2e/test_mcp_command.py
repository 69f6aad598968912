"""`alipes mcp` as a program: a login with a browser, the tools of a project's server in a turn, and the agent itself."""

import asyncio
import json
import re

import httpx2
import pytest
from acp import text_block

from tests.e2e.program import Home, read_until
from tests.e2e.service import open_serve, write_settings
from tests.world.editor_client import open_editor
from tests.world.environment import LIMIT_S
from tests.world.mcp_harness import world_server
from tests.world.model_server import Call, Calls, ModelServer, Say
from tests.world.oauth_server import browse, open_login_server
from tests.world.terminal_process import ENTER, TerminalProcess

pytestmark = pytest.mark.deadline(90)


@pytest.fixture
def home(tmp_path):
    return Home(tmp_path / "home")


async def test_a_login_in_a_browser_is_kept_used_and_ended(home):
    async with open_login_server() as server:
        assert (await home.run("mcp", "add", "guarded", "--no-test", "--url", server.url)).status == 0
        refused = await home.run("mcp", "test", "guarded")
        assert refused.status == 1 and "run `alipes mcp login guarded`" in refused.err
        async with home.started("mcp", "login", "guarded", "--no-browser") as process:
            shown = await read_until(process.stderr, "code_challenge_method")
            page = await browse(re.search(r"http://\S+", shown)[0])
            out, _ = await process.communicate()
        assert process.returncode == 0 and "You are logged in" in page.text
        assert f"Logged in at guarded. The login is kept in {home.path}/.env." in out.decode()
        works = await home.run("mcp", "test", "guarded")
        assert works.status == 0 and "whoami (write): Say who is logged in." in works.out
        (listed,) = json.loads((await home.run("mcp", "list", "--json")).out)
        assert listed["logged_in"] and listed["tools"] == 1  # the list of the test is kept
        left = await home.run("mcp", "logout", "guarded")
        assert left.out == "Logged out at guarded.\n" and not server.provider.refresh
        everything = "".join(each.read_text() for each in home.path.rglob("*.log"))
        tokens = {*server.provider.access, *server.provider.revoked}
        assert not any(token in everything for token in tokens)


async def test_a_login_ends_with_the_command(home):
    async with open_login_server() as server:
        await home.run("mcp", "add", "guarded", "--no-test", "--url", server.url)
        async with home.started("mcp", "login", "guarded", "--no-browser") as process:
            await read_until(process.stderr, "code_challenge_method")
            process.send_signal(2)
            assert await asyncio.wait_for(process.wait(), 30) == 130
        assert not (home.path / ".env").exists()


async def test_the_server_of_a_folder_is_used_once_it_is_accepted(home, tmp_path):
    config = world_server(tmp_path / "notes")
    entry = {"command": config.command, "args": [*config.args]}
    (tmp_path / ".mcp.json").write_text(json.dumps({"mcpServers": {"world": entry}}))
    await home.run("config", "set", "mcp.wait", "60")  # a busy machine starts it late
    first = await home.run("ask", "-m", "scripted", "hello")
    assert first.status == 0 and not any((tmp_path / "notes").iterdir())
    assert "not accepted: world" in (await home.run("doctor", "--json")).out
    await home.run("mcp", "accept", "--yes")
    assert "not accepted" not in (await home.run("doctor", "--json")).out
    await home.run("ask", "-m", "scripted", "hello")
    listed = json.loads((await home.run("mcp", "list", "--json")).out)
    assert listed[0]["state"] == "on" and listed[0]["tools"] > 0


ECHO = Calls((Call("mcp__world__echo", {"text": "from the new server"}),))


async def add_world(home, tmp_path) -> None:
    config = world_server(tmp_path / "world")
    added = await home.run("mcp", "add", "world", "--yes", "--", config.command, *config.args)
    assert added.status == 0 and "echo (read): Return the text." in added.out, added.err


def offered(body) -> set[str]:
    return {each["function"]["name"] for each in body["tools"] if each["function"]["name"].startswith("mcp__")}


async def test_a_server_that_is_added_while_serve_runs_is_used_by_the_next_turn(home, tmp_path):
    async with ModelServer([Say("One."), ECHO, Say("Two."), Say("Three.")]) as model:
        write_settings(home, model)
        async with open_serve(home) as served:
            key = (await home.run("serve", "key")).out.strip()
            headers = {"authorization": f"Bearer {key}"}
            async with httpx2.AsyncClient(base_url=served.address, headers=headers, trust_env=False) as client:

                async def ask(text: str) -> str:
                    body = {"messages": [{"role": "user", "content": text}]}
                    answer = await client.post("/v1/chat/completions", json=body, timeout=LIMIT_S)
                    return answer.json()["choices"][0]["message"]["content"]

                assert await ask("one") == "One." and offered(model.bodies[-1]) == set()
                await add_world(home, tmp_path)
                assert await ask("two") == "Two."
                assert "from the new server" in json.dumps(model.bodies[-1]["messages"][-1])
                listed = (await client.get("/v1/mcp")).json()["servers"]
                assert [(each["name"], each["state"]) for each in listed] == [("world", "connected")]
                await home.run("mcp", "remove", "world")
                assert await ask("three") == "Three." and offered(model.bodies[-1]) == set()


async def test_a_server_that_is_added_while_a_terminal_runs_is_used_by_the_next_turn(home, tmp_path):
    async with ModelServer([Say("First answer."), ECHO, Say("Second answer.")]) as model:
        home.use(model)
        async with TerminalProcess.of(home) as terminal:
            terminal.type("one" + ENTER)
            await terminal.until("First answer.")
            await add_world(home, tmp_path)
            terminal.type("two" + ENTER)
            await terminal.until("Second answer.")
        assert "from the new server" in json.dumps(model.bodies[-1]["messages"][-1])


async def test_a_server_that_is_added_while_an_editor_runs_is_used_by_the_next_turn(home, tmp_path):
    async with ModelServer([Say("One."), ECHO, Say("Two.")]) as model:
        home.use(model)
        async with open_editor(home) as (client, _):
            session = await client.agent.new_session(cwd=str(tmp_path), mcp_servers=[])
            await client.ask(session.session_id, text_block("one"))
            await add_world(home, tmp_path)
            await client.ask(session.session_id, text_block("two"))
        assert offered(model.bodies[0]) == set()
        assert "from the new server" in json.dumps(model.bodies[-1]["messages"][-1])


def echo_or_nothing(body):
    """Calls the tool of the server if it is offered. The answer begins with the question."""
    question = [each["content"] for each in body["messages"] if each["role"] == "user"][-1]
    last = body["messages"][-1]
    if last["role"] == "tool":
        return Say(f"{question}: {'heard it' if 'from the new server' in str(last) else 'heard nothing'}.")
    return ECHO if offered(body) else Say(f"{question}: no server.")


@pytest.mark.deadline(180)
async def test_serve_a_terminal_and_an_editor_that_run_at_once_all_use_what_is_added_and_removed(home, tmp_path):
    async with ModelServer(echo_or_nothing) as model:
        write_settings(home, model)
        (home.path / ".env").write_text("ALIPES_API_KEY=an-operators-key-that-is-long-enough\n")
        (home.path / ".env").chmod(0o600)
        headers = {"authorization": "Bearer an-operators-key-that-is-long-enough"}
        async with open_serve(home) as served, TerminalProcess.of(home) as terminal, open_editor(home) as (editor, _):
            session = (await editor.agent.new_session(cwd=str(tmp_path), mcp_servers=[])).session_id
            async with httpx2.AsyncClient(base_url=served.address, headers=headers, trust_env=False) as client:

                async def ask(text: str, expected: str) -> None:
                    body = {"messages": [{"role": "user", "content": f"{text} API"}]}
                    answer = await client.post("/v1/chat/completions", json=body, timeout=LIMIT_S)
                    assert answer.json()["choices"][0]["message"]["content"] == f"{text} API: {expected}."
                    terminal.type(f"{text} terminal" + ENTER)
                    await terminal.until(f"{text} terminal: {expected}.")
                    await editor.ask(session, text_block(f"{text} editor"))
                    assert editor.thread(session).seen()[-1] == f"{text} editor: {expected}."

                await ask("one", "no server")
                await add_world(home, tmp_path)
                await ask("two", "heard it")
                assert (await home.run("mcp", "remove", "world")).status == 0
                await ask("three", "no server")
