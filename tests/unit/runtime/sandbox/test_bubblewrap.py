"""Commands in bubblewrap: what they see, what they may change, and how they end."""

import asyncio
import os
import signal
import sys
from contextlib import suppress
from pathlib import Path

import pytest
from msgspec import structs

from alipes.runtime.processes.child import open_child
from alipes.runtime.sandbox.backend import CommandScope
from alipes.runtime.sandbox.bubblewrap import BubblewrapSandbox
from alipes.runtime.sandbox.namespaces import NetworkNamespaces
from alipes.runtime.sandbox.policy import SandboxPolicy
from tests.e2e.program import children
from tests.world.environment import require
from tests.world.wait import until

ENV = {"PATH": os.environ["PATH"]}


class World:
    """A home with a secret, a project, and a sandbox for it."""

    def __init__(self, tmp_path: Path, **policy) -> None:
        self.home, self.project = tmp_path / "home", tmp_path / "home" / "project"
        self.private, self.scratch, empty = tmp_path / "private", tmp_path / "scratch", tmp_path / "empty"
        for folder in (self.project, self.private, self.scratch):
            folder.mkdir(parents=True)
        empty.touch()
        (self.home / "secret").write_text("canary")
        self.policy = SandboxPolicy(
            workdir=str(self.project),
            home=str(self.home),
            private_home=str(self.private),
            scratch=str(self.scratch),
            empty=str(empty),
            writable=(str(self.project),),
            **policy,
        )
        self.namespaces = NetworkNamespaces()
        self.sandbox = BubblewrapSandbox(lambda scope: self.policy, self.namespaces)

    async def __aenter__(self):
        return self

    async def __aexit__(self, *error):
        await self.namespaces.close_all()

    def open(self, command, *, session="s1", **more):
        scope = CommandScope(session, str(self.project))
        return self.sandbox.open(command, scope, cwd=str(self.project), env=ENV, **more)

    async def run(self, command, **more):
        async with self.open(command, **more) as child:
            output = b""
            while piece := await child.read():
                output += piece
            return output.decode(), await child.wait()


@pytest.fixture(autouse=True)
def programs():
    require("bwrap")


async def test_it_works_here(tmp_path):
    async with World(tmp_path) as world:
        assert await world.sandbox.check() == ""


async def test_the_project_is_writable_and_the_home_is_another(tmp_path):
    async with World(tmp_path) as world:
        output, code = await world.run(f"echo new > file; cat {world.home}/secret; echo mine > {world.home}/own")
    assert "No such file" in output and code == 0
    assert (world.project / "file").read_text() == "new\n"
    assert (world.private / "own").read_text() == "mine\n"
    assert not (world.home / "own").exists()


async def test_temporary_files_are_kept_between_commands_and_are_ours(tmp_path):
    async with World(tmp_path) as world:
        await world.run("echo kept > /tmp/x")
        assert await world.run("cat /tmp/x") == ("kept\n", 0)
        assert world.sandbox.host_path("/tmp/x", CommandScope()) == str(world.scratch / "x")
        assert world.sandbox.host_path(str(world.project / "y"), CommandScope()) == str(world.project / "y")


async def test_protected_paths_are_read_only_and_cannot_be_moved_away(tmp_path):
    world = World(tmp_path)
    hooks = world.project / ".git" / "hooks"
    hooks.mkdir(parents=True)
    world.policy = structs.replace(world.policy, protected=(str(hooks),))
    async with world:
        output, _ = await world.run(f"touch {hooks}/x; mv {hooks.parent} {hooks.parent}2")
    assert "Read-only file system" in output
    assert hooks.is_dir() and not list(hooks.iterdir())


async def test_hidden_files_and_folders_are_empty(tmp_path):
    world = World(tmp_path)
    (world.project / ".env").write_text("canary")
    (world.project / "keys").mkdir()
    (world.project / "keys" / "one").write_text("canary")
    hidden = (str(world.project / ".env"), str(world.project / "keys"))
    world.policy = structs.replace(world.policy, hidden=hidden)
    async with world:
        output, code = await world.run("cat .env; ls -A keys; echo x > .env")
    assert "Read-only file system" in output and "canary" not in output and code == 1


async def test_commands_of_one_conversation_share_loopback_and_others_do_not(tmp_path):
    server = "python3 -m http.server 8000 --bind 127.0.0.1"
    look = (
        'python3 -c \'import socket\ntry: socket.create_connection(("127.0.0.1", 8000)).close(); print("there")\n'
        'except OSError: print("none")\''
    )
    async with World(tmp_path) as world, world.open(server, link="pipes"):
        async with asyncio.timeout(60):
            while (await world.run(look))[0] != "there\n":
                await asyncio.sleep(0.05)
        assert await world.run(look, session="s2") == ("none\n", 0)


async def test_everything_it_started_ends_with_the_command(tmp_path):
    async with World(tmp_path) as world:
        async with world.open("setsid nohup sleep 300 & disown; echo $!; sleep 300") as child:
            await child.read()
            inside = [each.pid for each in child.tree.living()]
        assert len(inside) >= 3
        assert not any(Path(f"/proc/{pid}").exists() for pid in inside)


async def test_a_command_is_asked_to_end_before_it_is_killed(tmp_path):
    async with World(tmp_path) as world:
        async with world.open("trap 'echo saved > note; exit' TERM; echo up; while :; do sleep 0.01; done") as child:
            await child.read()
            child.tree.tell(signal.SIGTERM)
            await child.wait()
    assert (world.project / "note").read_text() == "saved\n"


async def test_it_dies_with_the_process_that_started_it(tmp_path):
    script = (
        "import asyncio, os, sys\nfrom pathlib import Path\nfrom tests.unit.runtime.sandbox.test_bubblewrap import World\n"
        "async def main():\n    world = World(Path(sys.argv[1]))\n"
        "    async with world.open('echo up > up; sleep 300') as child:\n"
        "        while not (world.project / 'up').exists(): await asyncio.sleep(0.01)\n"
        "        print(*(each.pid for each in child.tree.living()), flush=True)\n        os.kill(os.getpid(), 9)\n"
        "asyncio.run(main())"
    )
    env = {**os.environ}
    before = {*children(os.getpid())}
    async with open_child((sys.executable, "-c", script, str(tmp_path)), cwd="/", env=env) as child:
        pids = (await child.read()).split()
        await child.wait()
        assert pids
        await until(lambda: not any(_is_alive(int(pid)) for pid in pids))
    await until(lambda: not any(map(_reap, {*children(os.getpid())} - before)))


def _reap(pid: int) -> bool:
    """Wait for an orphan that this process has adopted. True if it is still running."""
    with suppress(ChildProcessError):
        return os.waitpid(pid, os.WNOHANG) == (0, 0)
    return False


def _is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


async def test_the_environment_has_no_sockets_of_the_user(tmp_path):
    async with World(tmp_path) as world:
        scope = CommandScope("s1", str(world.project))
        env = {**ENV, "SSH_AUTH_SOCK": "/run/agent", "DBUS_SESSION_BUS_ADDRESS": "unix:path=/run/bus", "KEPT": "yes"}
        async with world.sandbox.open("env", scope, cwd=str(world.project), env=env) as child:
            output = b""
            while piece := await child.read():
                output += piece
    assert b"KEPT=yes" in output and b"SOCK" not in output and b"DBUS" not in output
