"""Connections over stdio to a real child process: calls, cancellation, requests of the server, broken servers."""

import asyncio

import pytest

from alipes.features.mcp.client.connection import open_connection
from alipes.features.mcp.client.definitions import McpError
from alipes.features.mcp.client.host import Elicitation, ElicitationAnswer, SamplingReply
from alipes.features.mcp.client.sdk import find_hidden
from alipes.features.mcp.client.server_log import read_log
from alipes.features.mcp.settings import McpServerConfig
from tests.world.mcp_harness import FakeContext, events, is_alive, open_host, world_server
from tests.world.wait import until

pytestmark = pytest.mark.deadline(60)


def text_of(result) -> str:
    return "".join(part.text for part in result.content)


async def test_a_server_is_started_listed_called_and_ended(tmp_path):
    async with open_host(tmp_path) as host:
        async with open_connection("world", world_server(tmp_path), host, workdir=str(tmp_path)) as connection:
            assert (connection.info.name, connection.info.transport) == ("world", "stdio")
            assert {"echo", "write_note"} <= {tool.name for tool in connection.tools}
            assert [tool.read_only for tool in connection.tools if tool.name in ("echo", "write_note")] == [True, False]
            assert [each.uri for each in connection.resources] == ["note://one"]
            assert [each.name for each in connection.prompts] == ["Brief"]
            assert text_of(await connection.call_tool("echo", {"text": "hi"})) == "hi"
            assert await connection.ping() < 60
            (pid,) = events(tmp_path, "started")
            assert is_alive(pid)
        assert not is_alive(pid)


async def test_a_cancelled_call_tells_the_server_and_other_calls_go_ahead(tmp_path):
    async with open_host(tmp_path) as host, open_connection("world", world_server(tmp_path), host) as connection:
        async with asyncio.TaskGroup() as group:
            slow = group.create_task(connection.call_tool("wait", {"seconds": 600}))
            other = group.create_task(connection.call_tool("wait", {"seconds": 0.5}))
            await until(lambda: events(tmp_path, "calls") == ["wait", "wait"])
            slow.cancel()
        assert slow.cancelled()
        assert text_of(other.result()) == "waited"
        await until(lambda: events(tmp_path, "cancelled"))
        assert text_of(await connection.call_tool("echo", {"text": "still here"})) == "still here"


async def test_a_call_that_takes_too_long_is_cancelled(tmp_path):
    config = world_server(tmp_path, timeout=1.0)
    async with open_host(tmp_path) as host, open_connection("world", config, host) as connection:
        with pytest.raises(McpError, match="did not answer within 1 s"):
            await connection.call_tool("wait", {"seconds": 600})
        await until(lambda: events(tmp_path, "cancelled"))


async def test_progress_and_warnings_are_shown_and_logged(tmp_path):
    act = FakeContext(tmp_path)
    async with open_host(tmp_path) as host, open_connection("world", world_server(tmp_path), host) as connection:
        assert text_of(await connection.call_tool("progress", {}, act)) == "done"
    assert "3 of 3 step 3\n" in act.shown
    assert "[warning] careful\n" in act.shown
    assert any("careful" in line for line in read_log(host.logs, "world"))


async def test_the_root_is_the_working_directory(tmp_path):
    config = world_server(tmp_path)
    async with open_host(tmp_path) as host, open_connection("world", config, host, workdir=str(tmp_path)) as connection:
        assert f'"uri": "file://{tmp_path}"' in text_of(await connection.call_tool("roots", {}, FakeContext(tmp_path)))


class Requests:
    """Answers of a person and a model."""

    def __init__(self) -> None:
        self.asked: list[Elicitation] = []
        self.waiting = asyncio.Event()
        self.withdrawn = asyncio.Event()
        self.never = False
        self.connection, self.deadlines = None, []

    async def sample(self, server, turn, request):
        return SamplingReply(f"{server}: {request.messages[0].text} {request.max_tokens}", "m")

    async def elicit(self, server, turn, question):
        self.asked.append(question)
        if self.never:
            self.waiting.set()
            try:
                await asyncio.Event().wait()
            finally:
                self.withdrawn.set()
        self.deadlines = [call._timeout.when() for call in self.connection._running] if self.connection else []
        return ElicitationAnswer("accept", {"city": "Graz", "days": 3})


async def test_the_server_can_ask_the_person_and_the_time_of_the_call_stops_meanwhile(tmp_path):
    requests = Requests()
    async with open_host(tmp_path, requests=requests) as host:
        async with open_connection("world", world_server(tmp_path), host) as connection:
            requests.connection = connection
            said = text_of(await connection.call_tool("elicit", {}, FakeContext(tmp_path)))
    assert '"city": "Graz"' in said and requests.deadlines == [None]
    assert requests.asked[0].message == "Where to?"
    assert requests.asked[0].required == ("city",)


async def test_a_question_is_withdrawn_when_its_call_is_stopped(tmp_path):
    requests = Requests()
    requests.never = True
    async with open_host(tmp_path, requests=requests) as host:
        async with open_connection("world", world_server(tmp_path), host) as connection, asyncio.TaskGroup() as group:
            call = group.create_task(connection.call_tool("elicit", {}, FakeContext(tmp_path)))
            await requests.waiting.wait()
            call.cancel()
            await requests.withdrawn.wait()


async def test_the_server_can_ask_a_model(tmp_path):
    async with open_host(tmp_path, requests=Requests()) as host:
        async with open_connection("world", world_server(tmp_path), host) as connection:
            said = text_of(await connection.call_tool("sample", {}, FakeContext(tmp_path)))
    assert "world: What is 2 + 2? 50" in said


async def test_nobody_is_asked_for_a_call_without_a_conversation(tmp_path):
    async with open_host(tmp_path, requests=Requests()) as host:
        async with open_connection("world", world_server(tmp_path), host) as connection:
            assert '"action": "cancel"' in text_of(await connection.call_tool("elicit", {}))
            assert "no conversation" in text_of(await connection.call_tool("sample", {}))


@pytest.mark.parametrize(
    ("mode", "why"),
    [
        ("silent", "did not connect within 2 s"),
        ("mute", "did not connect within 2 s"),
        ("deaf", "did not connect within 2 s"),
        ("exit", "exited with code 4: cannot open the database"),
        ("garbage", "its output is not MCP"),
    ],
)
async def test_a_server_that_does_not_start_has_a_reason_and_leaves_nothing(tmp_path, mode, why):
    # a server that does not know the newer protocol and never says so takes 10 s to be recognised
    config = world_server(tmp_path, mode, start_timeout=2.0 if "within" in why else 60.0)
    async with open_host(tmp_path) as host:
        with pytest.raises(McpError, match=why):
            async with open_connection("world", config, host):
                raise AssertionError("connected")
    assert not any(map(is_alive, events(tmp_path, "started")))


@pytest.mark.parametrize(
    ("script", "why"),
    [
        ("echo 'no database' >&2; exit 1", "it exited with code 1: no database"),
        ("printf 'no database' >&2; exit 1", "it exited with code 1: no database"),
        ("exec >&-; sleep 1; echo 'no database' >&2; exit 1", "it exited with code 1: no database"),
        ("echo 'no database' >&2; sleep 30 & exit 1", "it exited with code 1: no database"),
    ],
    ids=["at once", "within a line", "after its output", "with a process left"],
)
async def test_the_last_words_of_a_server_that_exits_are_its_reason_and_in_its_log(tmp_path, script, why):
    async with open_host(tmp_path) as host:
        with pytest.raises(McpError, match=f"world: {why}$"):
            async with open_connection("world", McpServerConfig(command="sh", args=("-c", script)), host):
                pass
    assert [line[20:] for line in read_log(host.logs, "world")] == ["no database"]


async def test_lines_that_are_no_messages_are_ignored_and_logged(tmp_path):
    async with open_host(tmp_path) as host:
        async with open_connection("world", world_server(tmp_path, "chatty"), host) as connection:
            assert text_of(await connection.call_tool("echo", {"text": "hi"})) == "hi"
    assert any("Welcome to my server!" in line for line in read_log(host.logs, "world"))


async def test_a_missing_command_is_named(tmp_path):
    async with open_host(tmp_path) as host:
        with pytest.raises(McpError, match="the command no-such-program was not found"):
            async with open_connection("world", McpServerConfig(command="no-such-program"), host):
                pass


async def test_a_server_that_ends_during_a_call_fails_that_call_with_the_reason(tmp_path):
    async with open_host(tmp_path) as host, open_connection("world", world_server(tmp_path), host) as connection:
        with pytest.raises(McpError, match="exited with code 3: the disk is full"):
            await connection.call_tool("die", {})
        await until(lambda: connection.ended)
        with pytest.raises(McpError, match="exited with code 3"):
            await connection.call_tool("echo", {})


async def test_a_server_that_ignores_the_end_of_its_input_is_killed(tmp_path):
    async with open_host(tmp_path) as host:
        async with open_connection("world", world_server(tmp_path, "stubborn"), host):
            (pid,) = events(tmp_path, "started")
        assert not is_alive(pid)


async def test_the_program_gets_its_variables_and_no_others(tmp_path):
    config = world_server(tmp_path, env={"WORLD_KEY": "value"})
    async with open_host(tmp_path) as host, open_connection("world", config, host) as connection:
        assert text_of(await connection.call_tool("env", {"name": "WORLD_KEY"})) == "value"
        assert text_of(await connection.call_tool("env", {"name": "PYTHONPATH"})) == "(not set)"


async def test_a_prompt_and_a_resource_are_read(tmp_path):
    async with open_host(tmp_path) as host, open_connection("world", world_server(tmp_path), host) as connection:
        prompt = await connection.get_prompt("Brief", {"topic": "tea"})
        assert prompt.messages[0].content.text == "Write about tea, plainly."
        found = await connection.read_resource("note://one")
        assert found.contents[0].text == "text of note://one"


def test_a_file_of_the_command_line_that_the_sandbox_hides_is_found(tmp_path):
    program, script = tmp_path / "server", tmp_path / "server.py"
    for file in (program, script):
        file.write_text("")
        file.chmod(0o700)
    folder = str(tmp_path)
    gone, said = "it exited with code 127", f"python3: can't open file '{script}': [Errno 2]"
    assert find_hidden(gone, "", McpServerConfig(command=str(program)), folder) == str(program)
    assert find_hidden(gone, "", McpServerConfig(command="server"), folder, folder) == str(program)
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "linked").symlink_to(program)
    assert find_hidden(gone, "", McpServerConfig(command="linked"), folder, f"{folder}/bin") == str(program)
    assert find_hidden(gone, "", McpServerConfig(command="server"), folder, "/nowhere") == ""
    started = McpServerConfig(command="python3", args=("-u", "server.py"))
    assert find_hidden("it exited with code 2", said, started, folder) == str(script)
    assert find_hidden("it exited with code 2", "wrong key", started, folder) == ""


async def test_the_reason_of_a_server_that_ends_reaches_the_call(tmp_path):
    async with open_host(tmp_path) as host, open_connection("world", world_server(tmp_path), host) as connection:
        with pytest.raises(McpError, match="world: it exited with code 3: the disk is full"):
            await connection.call_tool("die", {})
