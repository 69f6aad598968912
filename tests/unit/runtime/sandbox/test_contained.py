"""The root of a conversation, made by bubblewrap or by the starter: what is in it, and when it is made again."""

import os
import signal
import socket
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path

import pytest

from alipes.config.settings import SandboxConfig
from alipes.runtime.sandbox.backend import CommandBackend, CommandScope
from tests.e2e.program import children
from tests.world.sandboxes import open_backend, open_machine
from tests.world.wait import until

KINDS = ("bubblewrap", "landlock")
PATH = "/usr/bin:/bin"
PYTHON = os.path.realpath(sys.executable)


class Project:
    """A project in a home, and commands in its sandbox."""

    def __init__(self, backend: CommandBackend, home: Path, project: Path) -> None:
        self.backend, self.home, self.folder = backend, home, project

    async def run(self, command: str, *, session: str = "s1") -> str:
        scope, output = CommandScope(session, str(self.folder)), b""
        async with self.backend.open(
            command, scope, cwd=str(self.folder), env={"PATH": PATH, "HOME": str(self.home)}
        ) as child:
            while piece := await child.read():
                output += piece
        return output.decode()


@asynccontextmanager
async def open_project(
    kind: str, tmp_path: Path, *, config: SandboxConfig | None = None, project: Path | None = None
) -> AsyncIterator[Project]:
    home = tmp_path / "home"
    project = project or home / "project"
    project.mkdir(parents=True, exist_ok=True)
    home.mkdir(exist_ok=True)
    with open_machine(kind, tmp_path):
        async with open_backend(kind, home=home, config=config) as backend:
            yield Project(backend, home, project)


@pytest.mark.parametrize("kind", KINDS)
async def test_only_listed_parts_of_the_machine_are_there(kind, tmp_path):
    async with open_project(kind, tmp_path) as project:
        output = await project.run(
            "ls -d /srv /mnt /media /home/* /run/* /var/spool /var/log /boot 2>/dev/null; ls /var"
        )
        assert set(output.split()) <= {"lib", "cache", "tmp", *map(str, project.home.parents)}


CONNECT = """
import socket, sys
for path in sys.argv[1:]:
    try:
        socket.socket(socket.AF_UNIX).connect(path)
    except OSError:
        print("no", end=" ")
    else:
        print("yes", end=" ")
"""


@pytest.mark.parametrize("kind", [*KINDS, "landlock alone"])
async def test_sockets_of_programs_of_the_machine_are_not_there_unless_they_are_listed(kind, monkeypatch):
    with tempfile.TemporaryDirectory(prefix="s") as folder, ExitStack() as stack:
        home = Path(folder) / "home"
        names = ("project/absolute", "project/d/relative", "read/absolute", "project/listed")
        sockets = [home / name for name in names]
        for path in sockets:
            path.parent.mkdir(parents=True, exist_ok=True)
            server = stack.enter_context(socket.socket(socket.AF_UNIX))
            monkeypatch.chdir(path.parent)
            server.bind(path.name if path.name == "relative" else str(path))
            server.listen()
        config = SandboxConfig(read=(str(home / "read"),), write=(str(home / "project" / "listed"),))
        async with open_project(kind, Path(folder), config=config) as project:
            (project.folder / "connect.py").write_text(CONNECT)
            said = await project.run(f"{PYTHON} connect.py {' '.join(map(str, sockets))}")
            assert said.split() == ["no", "no", "no", "no" if kind == "landlock alone" else "yes"]
            moved = f"mv d e 2>/dev/null; {PYTHON} connect.py d/relative e/relative"
            assert (await project.run(moved)).split() == (await project.run(moved)).split() == ["no", "no"]


@pytest.mark.parametrize("kind", KINDS)
async def test_a_socket_of_a_command_is_there_for_other_commands_of_the_conversation(kind):
    serve = "import socket; s = socket.socket(socket.AF_UNIX); s.bind('own'); s.listen(); print('up', flush=True); s.accept()"
    with tempfile.TemporaryDirectory(prefix="s") as folder:
        async with open_project(kind, Path(folder)) as project:
            (project.folder / "connect.py").write_text(CONNECT)
            scope = CommandScope("s1", str(project.folder))
            argv = (PYTHON, "-c", serve)
            async with project.backend.open(argv, scope, cwd=scope.workdir, env={"PATH": PATH}) as child:
                assert await child.read() == b"up\n"
                assert (await project.run(f"{PYTHON} connect.py own")).split() == ["yes"]


@pytest.mark.parametrize("kind", [*KINDS, "landlock alone"])
async def test_a_settings_folder_of_the_project_may_be_a_link_that_leads_out_of_it(kind, tmp_path):
    async with open_project(kind, tmp_path) as project:
        elsewhere = tmp_path / "elsewhere"
        elsewhere.mkdir()
        (elsewhere / "settings.json").write_text("{}")
        (project.folder / ".vscode").symlink_to(elsewhere)
        assert (await project.run("cat .vscode/settings.json 2>/dev/null; echo done")).strip() == "done"


@pytest.mark.parametrize("kind", [*KINDS, "landlock alone"])
async def test_a_prepared_command_is_run_by_the_process_that_waits_for_it(kind, tmp_path):
    async with open_project(kind, tmp_path) as project:
        scope = CommandScope("s1", str(project.folder))
        assert await project.backend.check() == ""
        await project.backend.prepare(scope)
        await until(_has_spare)
        waiting = {*children(os.getpid())}
        async with project.backend.open(
            "echo begun; cat", scope, cwd=scope.workdir, env={"PATH": PATH}, link="pipes"
        ) as child:
            assert await child.read() == b"begun\n"
            assert {*children(os.getpid())} <= waiting, "another process was started for the command"


def _has_spare():
    names = (Path(f"/proc/{pid}/comm").read_text() for pid in children(os.getpid()))
    return "sandbox\n" in names


@pytest.mark.parametrize("kind", KINDS)
async def test_what_a_hidden_file_is_replaced_with_stays_hidden(kind, tmp_path):
    async with open_project(kind, tmp_path) as project:
        (project.folder / ".env").write_text("KEY=first-canary")
        assert "canary" not in await project.run("cat .env")
        (project.folder / "new").write_text("KEY=second-canary")
        (project.folder / "new").rename(project.folder / ".env")  # as editors save
        assert "canary" not in await project.run("cat .env")


@pytest.mark.parametrize("kind", KINDS)
async def test_project_may_be_in_a_folder_that_is_empty_for_each_command(kind, tmp_path):
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
        async with open_project(kind, tmp_path, project=Path(folder).resolve() / "project") as project:
            assert (
                await project.run("echo kept > file; echo gone > /var/tmp/file; ls /var/tmp/file") == "/var/tmp/file\n"
            )
            assert await project.run("cat file; ls /var/tmp/file 2>/dev/null") == "kept\n"


@pytest.mark.parametrize("kind", KINDS)
async def test_each_command_has_its_own_memory_files_and_terminals(kind, tmp_path):
    async with open_project(kind, tmp_path) as project:
        await project.run("touch /dev/shm/left /run/left")
        assert await project.run("ls /dev/shm /run /dev/pts") == "/dev/pts:\nptmx\n\n/dev/shm:\n\n/run:\n"


@pytest.mark.parametrize("kind", [*KINDS, "landlock alone"])
async def test_nothing_is_writable_but_the_project_the_home_and_temporary_files(kind, tmp_path):
    async with open_project(kind, tmp_path) as project:
        output = await project.run(
            "for at in / /dev /var /usr /etc; do touch $at/x 2>&1; done; touch ~/x ${TMPDIR:-/tmp}/x x"
        )
        assert output.count("Read-only file system") + output.count("Permission denied") == 5


@pytest.mark.parametrize("kind", KINDS)
async def test_first_process_shows_no_path_of_this_machine(kind, tmp_path):
    async with open_project(kind, tmp_path) as project:
        output = await project.run(
            "tr '\\0' ' ' </proc/1/cmdline; cat /proc/1/environ; readlink /proc/1/exe; ls /proc/self/fd"
        )
        assert str(tmp_path) not in output and "cgroup" not in output
        assert output.split()[-4:] == ["0", "1", "2", "3"]


@pytest.mark.parametrize("kind", KINDS)
async def test_link_that_a_command_left_in_its_home_creates_nothing_outside(kind, tmp_path):
    inner = tmp_path / "home" / "below" / "project"
    outside = tmp_path / "outside"
    outside.mkdir()
    async with open_project(kind, tmp_path, project=inner) as project:
        for target in (outside, f"../../../../../../oldroot{outside}"):
            await project.run(
                f"mkdir -p ~/x; mv ~/below ~/x/$RANDOM; ln -sfn {target} ~/below; ln -sfn {target} ~/.ssh"
            )
            with pytest.raises(OSError, match="it is a link"):
                await project.run("true")
            assert [*outside.iterdir()] == []
            home = project.backend.host_path(str(project.home), CommandScope("s1", str(inner)))
            for name in ("below", ".ssh"):
                os.unlink(os.path.join(home, name))


@pytest.mark.parametrize("kind", [*KINDS, "landlock alone"])
async def test_home_of_alipes_is_hidden_although_the_home_is_listed(kind, tmp_path):
    (tmp_path / "home" / ".alipes").mkdir(parents=True)
    (tmp_path / "home" / ".alipes" / "database").write_text("canary")
    (tmp_path / "home" / ".ssh").mkdir()
    (tmp_path / "home" / ".ssh" / "id_ed25519").write_text("canary")
    (tmp_path / "home" / "notes").write_text("listed")
    config = SandboxConfig(read=(str(tmp_path / "home"), str(tmp_path / "home" / ".alipes")))
    async with open_project(kind, tmp_path, config=config) as project:
        assert await project.backend.check() == ""
        output = await project.run(
            "cd ../..; cat home/notes; cat home/.alipes/database home/.ssh/id_ed25519; ls -A home/.alipes;"
            " cd home/project; echo x > new; cat new"
        )
        assert "canary" not in output
        assert output.startswith("listed") and output.endswith("x\n")


@pytest.mark.parametrize("kind", KINDS)
async def test_links_to_settings_are_followed_unless_a_command_can_change_them(kind, tmp_path):
    home, project = tmp_path / "home", tmp_path / "home" / "dotfiles"
    for folder in (project, home / ".ssh", home / "mine"):
        folder.mkdir(parents=True)
    (home / "secret").write_text("canary")
    (home / "mine" / "npmrc").write_text("registry = one")
    (home / ".npmrc").symlink_to("mine/npmrc")
    (home / ".condarc").symlink_to("dotfiles/condarc")
    async with open_project(kind, tmp_path, project=project) as commands:
        await commands.run("ln -s ../secret condarc")
        output = await commands.run("cat ~/.npmrc ~/.condarc")
    assert "registry = one" in output and "canary" not in output


@pytest.mark.parametrize("kind", KINDS)
async def test_commands_run_after_the_starter_has_ended(kind, tmp_path):
    async with open_project(kind, tmp_path) as project:
        before = {*children(os.getpid())}
        await project.run("true")
        started = {*children(os.getpid())} - before
        for pid in started:
            os.kill(pid, signal.SIGKILL)
            os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
        assert await project.run("echo again") == "again\n"


@pytest.mark.parametrize("kind", KINDS)
async def test_commands_of_one_conversation_run_at_the_same_time(kind, tmp_path):
    async with open_project(kind, tmp_path) as project:
        scope, env = CommandScope("s1", str(project.folder)), {"PATH": PATH, "HOME": str(project.home)}
        async with project.backend.open("until [ -e go ]; do sleep 0.01; done", scope, cwd="/", env=env):
            assert await project.run("touch go; ps -e | grep -c sleep") == "0\n"
