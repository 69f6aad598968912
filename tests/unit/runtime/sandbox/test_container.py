"""The backends `docker` and `podman`, with a real podman."""

import asyncio
import os
import signal
import sys
from pathlib import Path

import msgspec
import pytest
from msgspec import structs

from alipes.runtime.processes.process_tree import open_orphan_guard
from alipes.runtime.sandbox.backend import CommandScope
from alipes.runtime.sandbox.container import ContainerBackend, ContainerSettings
from alipes.runtime.sandbox.policy import SandboxLimits, SandboxPolicy
from tests.world.container_image import ARGUMENTS, IMAGE, open_container_engine
from tests.world.environment import ROOT
from tests.world.wait import until

ENV = {"PATH": "/nowhere", "LANG": "C.UTF-8", "SSH_AUTH_SOCK": "/run/agent", "EXTRA": "it's"}


@pytest.fixture(scope="module")
def engine():
    with open_container_engine() as engine:
        yield engine


@pytest.fixture
def settings(engine):
    return ContainerSettings("podman", IMAGE, engine.environment, arguments=ARGUMENTS)


@pytest.fixture
def policy(tmp_path):
    for name in "project/.git/hooks", "home", "private", "scratch":
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "project" / ".env").write_text("SECRET=1")
    (tmp_path / "empty").touch()
    return SandboxPolicy(
        str(tmp_path / "project"),
        str(tmp_path / "home"),
        str(tmp_path / "private"),
        str(tmp_path / "scratch"),
        str(tmp_path / "empty"),
        writable=(str(tmp_path / "project"),),
        protected=(str(tmp_path / "project" / ".git" / "hooks"),),
        hidden=(str(tmp_path / "project" / ".env"), str(tmp_path / "home" / ".ssh")),
        files=(("/run/alipes/file", str(tmp_path / "project" / ".env")),),
        environment=(("PROJECT", "p1"),),
        limits=SandboxLimits(memory_bytes=512 << 20, processes=60, file_bytes=1 << 20),
    )


async def run(backend, command, policy, *, session="s1", link="output", data=b""):
    scope = CommandScope(session, policy.workdir)
    async with backend.open(command, scope, cwd=policy.workdir, env=ENV, link=link) as child:
        if data:
            await child.input.write(data, 5)
            await child.input.finish()
        output = b""
        while piece := await child.read():
            output += piece
        return output.decode().replace("\r\n", "\n"), await child.wait()


def find_process(text):
    """Pids on this machine of running processes whose command line contains `text`."""
    found = []
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if text.encode() in file.read_bytes().replace(b"\0", b" "):
                found.append(int(file.parent.name))
        except OSError:
            continue
    return found


async def test_output_exit_code_folder_input_and_terminal(settings, policy):
    async with ContainerBackend(settings, lambda scope: policy) as backend:
        assert await backend.check() == ""
        assert await run(backend, "pwd; exit 3", policy) == (f"{policy.workdir}\n", 3)
        assert await run(backend, ["printf", "%s|", "a b", "it's", "$HOME"], policy) == ("a b|it's|$HOME|", 0)
        assert await run(backend, "cat", policy, link="pipes", data=b"hello") == ("hello", 0)
        assert await run(backend, "tty -s && stty size", policy, link="terminal") == ("24 80\n", 0)
        output, _ = await run(backend, "env", policy)
        lines = output.splitlines()
        assert {f"HOME={policy.home}", "LANG=C.UTF-8", "EXTRA=it's", "PROJECT=p1"} <= {*lines}
        assert not any("/nowhere" in line or line.startswith(("SSH_AUTH_SOCK", "CONTAINERS_")) for line in lines)


async def test_files_are_those_of_the_policy(settings, policy, tmp_path):
    script = (
        "echo 1 >project.txt; echo 2 >~/home.txt; echo 3 >/tmp/tmp.txt; touch .git/hooks/x /usr/x /x; cat .env; ls -a ~"
    )
    async with ContainerBackend(settings, lambda scope: policy) as backend:
        output, code = await run(backend, script, policy)
        assert output.count("Read-only file system") == 3 and "SECRET" not in output and code == 0
        seen = {path: backend.host_path(path, CommandScope()) for path in (f"{policy.home}/home.txt", "/tmp/tmp.txt")}
        assert [Path(path).read_text() for path in seen.values()] == ["2\n", "3\n"]
        assert backend.host_path(f"{policy.workdir}/project.txt", CommandScope()) == f"{policy.workdir}/project.txt"
        assert backend.host_path("/usr/bin/env", CommandScope()) == ""
        assert await run(backend, "cat /run/alipes/file", policy) == ("SECRET=1", 0)


async def test_a_project_behind_a_link_is_the_real_one(settings, policy, tmp_path):
    (tmp_path / "link").symlink_to(policy.workdir)
    async with ContainerBackend(settings, lambda scope: policy) as backend:
        async with backend.open("pwd", CommandScope(), cwd=str(tmp_path / "link"), env=ENV) as child:
            assert await child.read() == f"{policy.workdir}\n".encode()


async def test_one_container_serves_a_conversation_and_ends_with_it(settings, policy, engine):
    async with ContainerBackend(settings, lambda scope: policy) as backend:
        await run(backend, "echo one >/run/mark", policy)
        assert await run(backend, "cat /run/mark", policy) == ("one\n", 0)
        _, code = await run(backend, "cat /run/mark", policy, session="s2")
        assert code == 1 and len(engine.containers()) == 2
        await backend.session_left("s1")
        assert len(engine.containers()) == 1
    assert engine.containers() == []


async def test_leaving_the_scope_ends_the_command_and_what_left_its_session(settings, policy):
    script = "trap '' TERM HUP; (env -i setsid sleep 98761 &); echo on; while :; do sleep 1; done"
    async with ContainerBackend(settings, lambda scope: policy) as backend:
        scope = CommandScope("s1", policy.workdir)
        async with backend.open(script, scope, cwd=policy.workdir, env=ENV, link="pipes") as child:
            assert await child.read() == b"on\n"
            await until(lambda: find_process("sleep 98761"))
        assert not find_process("sleep 98761")
        assert await run(backend, "(env -i setsid sleep 98762 >/dev/null 2>&1 &)", policy) == ("", 0)
        assert not find_process("sleep 98762")
        assert await run(backend, "echo alive", policy) == ("alive\n", 0)


async def test_a_container_that_was_removed_is_started_again(settings, policy, engine):
    async with ContainerBackend(settings, lambda scope: policy) as backend:
        await run(backend, "true", policy)
        (name,) = engine.containers()
        await asyncio.to_thread(engine.run, "rm", "-f", "-t", "0", name)
        ((container, _),) = backend._containers.values()
        await until(lambda: not container.is_running)
        assert await run(backend, "echo again", policy) == ("again\n", 0)


async def test_a_container_ends_when_this_process_is_killed(settings, policy, tmp_path):
    (tmp_path / "policy").write_bytes(msgspec.json.encode(policy))
    victim = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", KILLED, str(tmp_path), IMAGE, *ARGUMENTS),
        env=settings.environment | {"PYTHONPATH": f"{ROOT / 'src'}"},
        stdout=asyncio.subprocess.PIPE,
    )
    assert await victim.stdout.readline() == b"on\n"
    assert find_process("sleep 98763")
    victim.send_signal(signal.SIGKILL)
    await victim.wait()
    await until(lambda: not find_process("sleep 98763"))
    async with open_orphan_guard(tmp_path / "run"):
        pass


KILLED = """
import asyncio, msgspec, os, sys
from pathlib import Path
from alipes.runtime.processes.process_tree import open_orphan_guard
from alipes.runtime.sandbox.backend import CommandScope
from alipes.runtime.sandbox.container import ContainerBackend, ContainerSettings
from alipes.runtime.sandbox.policy import SandboxPolicy

async def main(folder, image, *arguments):
    settings = ContainerSettings("podman", image, dict(os.environ), arguments=arguments)
    policy = msgspec.json.decode(Path(folder, "policy").read_bytes(), type=SandboxPolicy)
    async with open_orphan_guard(Path(folder, "run")) as guard:
        async with ContainerBackend(settings, lambda scope: policy, guard) as backend:
            command = "trap '' HUP TERM PIPE; (env -i setsid sleep 98763 &); echo on; while :; do sleep 1; done"
            async with backend.open(command, CommandScope(), cwd=policy.workdir, env={}, link="pipes") as child:
                sys.stdout.buffer.write(await child.read())
                sys.stdout.buffer.flush()
                await child.wait()

asyncio.run(main(*sys.argv[1:]))
"""


async def test_check_names_what_is_missing(settings, policy, tmp_path):
    async def check(**changes):
        return await ContainerBackend(structs.replace(settings, **changes), lambda scope: policy).check()

    nothing = settings.environment | {"PATH": str(tmp_path)}
    assert "podman is not installed" in await check(environment=nothing)
    assert "Set `sandbox.image`" in await check(image="")
    assert "podman has no image localhost/x" in await check(image="localhost/x")
    broken = tmp_path / "bin"
    broken.mkdir()
    (broken / "docker").write_text("#!/bin/sh\necho 'Cannot connect to the Docker daemon.' >&2\nexit 1\n")
    (broken / "docker").chmod(0o755)
    unreachable = settings.environment | {"PATH": f"{broken}{os.pathsep}{os.environ['PATH']}"}
    assert "docker does not work here: Cannot connect" in await check(program="docker", environment=unreachable)


async def test_a_container_that_cannot_start_is_an_error_with_the_reason(settings, policy):
    async with ContainerBackend(structs.replace(settings, image="localhost/x"), lambda scope: policy) as backend:
        with pytest.raises(OSError, match="podman could not start a container"):
            await run(backend, "true", policy)
