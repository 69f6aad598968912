"""The backend `ssh` with a real sshd on loopback."""

import asyncio
import os
import signal
import sys
from pathlib import Path

import pytest
from msgspec import structs

from alipes.runtime.processes.process_tree import open_orphan_guard
from alipes.runtime.sandbox.backend import CommandScope
from alipes.runtime.sandbox.ssh import SshBackend, SshSettings
from tests.world.environment import ROOT
from tests.world.ssh_server import DESTINATION, open_ssh_server
from tests.world.wait import until

ENV = {"PATH": "/nowhere", "TERM": "dumb", "LANG": "C.UTF-8", "SECRET": "s3cret", "EXTRA": "it's"}


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with open_ssh_server(tmp_path_factory.mktemp("ssh") / "server") as server:
        yield server


@pytest.fixture
def settings(server, tmp_path):
    folder = tmp_path / "there"
    (folder / "sub").mkdir(parents=True)
    return SshSettings(
        DESTINATION, str(folder), server.environment, names=("EXTRA",), options=("-F", server.client_config)
    )


async def run(backend, command, *, cwd="/project", link="output", data=b""):
    async with backend.open(command, CommandScope("s1", "/project"), cwd=cwd, env=ENV, link=link) as child:
        if data:
            await child.input.write(data, 5)
            await child.input.finish()
        output = b""
        while piece := await child.read():
            output += piece
        return output.decode().replace("\r\n", "\n"), await child.wait()


def running(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


async def test_output_exit_code_folder_and_input_are_those_of_the_other_machine(settings):
    async with SshBackend(settings) as backend:
        assert await backend.check() == ""
        assert await run(backend, "pwd; exit 3") == (f"{settings.workdir}\n", 3)
        assert await run(backend, "pwd", cwd="/project/sub") == (f"{settings.workdir}/sub\n", 0)
        assert await run(backend, ["printf", "%s|", "a b", "it's", "$HOME"]) == ("a b|it's|$HOME|", 0)
        assert await run(backend, "cat", link="pipes", data=b"hello") == ("hello", 0)
        assert await run(backend, "tty -s && stty size", link="terminal") == ("24 80\n", 0)
        assert backend.host_path("/project/a", CommandScope("s1", "/project")) == ""


async def test_only_listed_variables_are_passed(settings):
    async with SshBackend(settings) as backend:
        output, _ = await run(backend, "env")
        lines = output.splitlines()
        assert "LANG=C.UTF-8" in lines and "EXTRA=it's" in lines
        assert "s3cret" not in output and "/nowhere" not in output


async def test_processes_that_leave_their_session_end_with_the_command(settings):
    script = "env -i setsid nohup sleep 1000 >/dev/null 2>&1 & echo $!"
    async with SshBackend(settings) as backend:
        output, code = await run(backend, script)
        await until(lambda: not running(int(output)))
        assert code == 0


async def test_leaving_the_scope_ends_the_command_there(settings):
    script = "trap '' TERM HUP; (env -i setsid sleep 1000 & echo $!); echo $$; while :; do sleep 1; done"
    async with SshBackend(settings) as backend:
        opened = backend.open(script, CommandScope("s1", "/project"), cwd="/project", env=ENV, link="pipes")
        async with opened as child:
            output = b""
            while output.count(b"\n") < 2:
                output += await child.read()
            assert all(running(int(pid)) for pid in output.split())
        assert not any(running(int(pid)) for pid in output.split())


async def test_a_broken_connection_ends_the_commands_there_and_the_next_one_connects_again(settings):
    async with SshBackend(settings) as backend:
        async with backend.open("echo $$; exec sleep 1000", CommandScope(), cwd="/", env=ENV) as child:
            pid = int(await child.read())
            os.kill(backend._master.pid, signal.SIGKILL)
            await until(lambda: not running(pid))
        assert await run(backend, "echo again") == ("again\n", 0)


async def test_commands_there_end_when_this_process_is_killed(settings, tmp_path):
    victim = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", KILLED, str(tmp_path / "run"), settings.workdir, settings.options[1]),
        env=settings.environment | {"PYTHONPATH": f"{ROOT / 'src'}"},
        stdout=asyncio.subprocess.PIPE,
    )
    pid = int(await victim.stdout.readline())
    assert running(pid)
    victim.kill()
    await victim.wait()
    victim.stdout.feed_eof()
    await until(lambda: not running(pid))
    async with open_orphan_guard(tmp_path / "run"):
        pass


KILLED = """
import asyncio, os, sys
from pathlib import Path
from alipes.runtime.processes.process_tree import open_orphan_guard
from alipes.runtime.sandbox.backend import CommandScope
from alipes.runtime.sandbox.ssh import SshBackend, SshSettings

async def main(run, workdir, config):
    settings = SshSettings("sandbox", workdir, dict(os.environ), options=("-F", config))
    async with open_orphan_guard(Path(run)) as guard, SshBackend(settings, guard) as backend:
        command = "trap '' HUP TERM PIPE; echo $$; while :; do sleep 1; done"
        async with backend.open(command, CommandScope(), cwd="/", env={}, link="pipes") as child:
            sys.stdout.buffer.write(await child.read())
            sys.stdout.buffer.flush()
            await child.wait()

asyncio.run(main(*sys.argv[1:]))
"""


async def test_check_names_what_is_missing(settings, tmp_path):
    async def check(**changes):
        async with SshBackend(structs.replace(settings, **changes)) as backend:
            return await backend.check()

    nothing = settings.environment | {"PATH": str(tmp_path)}
    assert "ssh is not installed" in await check(environment=nothing)
    assert "Set `sandbox.ssh`" in await check(destination="")
    assert "Create it, or change `sandbox.ssh_workdir`" in await check(workdir=str(tmp_path / "missing"))
    unknown = tmp_path / "config"
    unknown.write_text(Path(settings.options[1]).read_text().replace("known_hosts", "other_hosts"))
    assert "Host key verification failed. `ssh sandbox` must work" in await check(options=("-F", str(unknown)))
