"""The client library of the remote tools example."""

import asyncio
import importlib.util
import signal
import sys

import pytest

pytest.importorskip("websockets", reason="the example needs websockets (make test installs it)")

from alipes.kernel.turns import ToolProgress
from tests.world.remote_tools import EXAMPLE, free_port, open_client, open_remote, wait_until


@pytest.fixture
def library():
    """Imported as if the file had been copied."""
    spec = importlib.util.spec_from_file_location("remote_tools_client", EXAMPLE / "client.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    yield module
    del sys.modules[spec.name]


class Serving:
    """Run the client beside the test, and stop it at the end."""

    def __init__(self, tools):
        self.tools = tools

    async def __aenter__(self):
        self.task = asyncio.create_task(self.tools.run())
        ready = asyncio.create_task(self.tools.ready.wait())
        await asyncio.wait({self.task, ready}, return_when=asyncio.FIRST_COMPLETED)
        assert ready.done(), self.task.exception()
        return self.tools

    async def __aexit__(self, *_):
        self.task.cancel()
        await asyncio.wait({self.task})


async def test_a_function_is_a_tool_and_gets_the_arguments_by_name(tmp_path, library):
    async with open_remote(tmp_path) as remote:
        tools = library.RemoteTools(remote.socket, remote.token, name="workshop")

        @tools.tool("Add.", {"one": {"type": "integer"}, "other": {"type": "integer"}}, effect="read")
        async def add(call, one, other):
            await call.progress("adding")
            return {"sum": one + other}

        async with Serving(tools):
            heard = await remote.ask('!call add {"one": 1, "other": 2}')
            assert heard.text == 'add (ok): {"sum":3}'
            assert [event.text for event in heard if isinstance(event, ToolProgress)] == ["adding"]
            assert "workshop (c1): add" in await remote.command("/remote")


async def test_an_exception_reaches_the_model_and_the_client_keeps_serving(tmp_path, library):
    async with open_remote(tmp_path) as remote:
        tools = library.RemoteTools(remote.socket, remote.token)

        @tools.tool("Fail.", {"how": {"type": "string"}})
        async def fail(call, how):
            raise library.Failed("the drill is broken") if how == "politely" else ValueError("no such hole")

        async with Serving(tools):
            text = (await remote.ask('!call fail {"how": "politely"}')).text
            assert text == "fail (failed): the drill is broken"
            text = (await remote.ask('!call fail {"how": "rudely"}')).text
            assert text == "fail (failed): ValueError: no such hole"


async def test_a_stop_cancels_the_function_and_a_timeout_does_too(tmp_path, library):
    async with open_remote(tmp_path) as remote:
        tools = library.RemoteTools(remote.socket, remote.token)
        begun, ended = asyncio.Event(), asyncio.Event()

        @tools.tool("Wait.", timeout=0.2)
        async def wait(call):
            begun.set()
            try:
                await asyncio.Event().wait()
            finally:
                ended.set()

        async with Serving(tools):
            asking = asyncio.create_task(remote.ask("!call wait"))
            await begun.wait()
            await remote.stop()
            await ended.wait()
            assert (await asking).ending == "stopped"
            ended.clear()
            assert "did not answer within 0.2 s" in (await remote.ask("!call wait")).text
            await ended.wait()


async def test_the_client_reconnects_after_a_restart(tmp_path, library):
    port = free_port()
    async with open_remote(tmp_path, port=port) as remote:
        tools = library.RemoteTools(remote.socket, remote.token)
        cancelled = asyncio.Event()

        @tools.tool("Say what you are.")
        async def who(call):
            return "me"

        @tools.tool("Wait.")
        async def wait(call):
            try:
                await asyncio.Event().wait()
            finally:
                cancelled.set()

        serving = Serving(tools)
        await serving.__aenter__()
        task = asyncio.create_task(remote.ask("!call wait"))
        await wait_until(lambda: len(tools._running) == 1)
        task.cancel()  # the watcher leaves; the turn continues
        await asyncio.wait({task})
        assert not cancelled.is_set()
    await cancelled.wait()
    assert not tools.ready.is_set()
    async with open_remote(tmp_path, port=port) as remote:
        await tools.ready.wait()
        assert (await remote.ask("!call who", chat="another")).text == "who (ok): me"
        await remote.command("/remote renew")
        with pytest.raises(library.Refused, match="the token was renewed"):
            await serving.task


@pytest.mark.deadline(30)
async def test_the_client_reconnects_after_a_reload(tmp_path, library):
    async with open_remote(tmp_path, port=free_port()) as remote:
        tools = library.RemoteTools(remote.socket, remote.token)

        @tools.tool("Say what you are.")
        async def who(call):
            return "me"

        async with Serving(tools):
            init = remote.folder / "__init__.py"
            init.write_text(init.read_text().replace("No clients connected", "There are no clients"))
            await remote.command("/plugins reload remote_tools")
            await wait_until(lambda: not tools.ready.is_set())
            await tools.ready.wait()
            assert (await remote.ask("!call who")).text == "who (ok): me"
        while "There are no clients" not in await remote.command("/remote"):
            await asyncio.sleep(0.01)


@pytest.mark.deadline(30)
async def test_a_turn_running_during_a_reload_is_served_to_its_end(tmp_path, library):
    async with open_remote(tmp_path, port=free_port()) as remote:
        tools = library.RemoteTools(remote.socket, remote.token)
        begun, go = asyncio.Event(), asyncio.Event()

        @tools.tool("Wait.")
        async def wait(call):
            begun.set()
            await go.wait()
            return "done"

        async with Serving(tools):
            asking = asyncio.create_task(remote.ask("!call wait"))
            await begun.wait()
            await remote.command("/plugins reload remote_tools")
            go.set()
            assert (await asking).text == "wait (ok): done"
            await wait_until(lambda: not tools.ready.is_set())
            await tools.ready.wait()
            assert (await remote.ask("!call wait")).text == "wait (ok): done"


async def test_errors_that_retries_cannot_fix_are_reported(tmp_path, library):
    async with open_remote(tmp_path) as remote, open_client(remote, "dig", name="shovel"):
        with pytest.raises(library.Refused, match="not the token"):
            await library.RemoteTools(remote.socket, "wrong").run()
        tools = library.RemoteTools(remote.socket, remote.token)
        tools.tool("Dig.")(dig)
        with pytest.raises(library.Refused, match="shovel has a tool dig already"):
            await tools.run()


async def dig(call):
    return "gold"


@pytest.mark.deadline(30)
async def test_the_countdown_example_counts_stops_and_exits_cleanly(tmp_path):
    async with open_remote(tmp_path) as remote:
        argv = [str(EXAMPLE / "client.py"), "--url", remote.socket, "--token-file", str(remote.token_file)]
        pipe = asyncio.subprocess.PIPE
        program = await asyncio.create_subprocess_exec(sys.executable, *argv, stdout=pipe, stderr=pipe)
        try:
            while b'"registered"' not in await program.stdout.readline():
                pass
            assert (await remote.ask('!call countdown {"start": 1}')).text == "countdown (ok): counted down from 1"
            asking = asyncio.create_task(remote.ask('!call countdown {"start": 100}'))
            while b'"start": 100' not in await program.stdout.readline():
                pass
            await remote.stop()
            while b'"cancelled"' not in await program.stdout.readline():
                pass
            assert (await asking).ending == "stopped"
            program.send_signal(signal.SIGINT)
            _, complaints = await program.communicate()
            assert (program.returncode, complaints) == (0, b"")
        finally:
            if program.returncode is None:
                program.kill()
                await program.wait()
