"""The Landlock sandbox with real commands: with namespaces and mounts of its own, and with Landlock alone."""

import asyncio
import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import msgspec
import pytest

from alipes.runtime.sandbox import starter
from alipes.runtime.sandbox.backend import CommandScope
from alipes.runtime.sandbox.landlock import LandlockSandbox
from alipes.runtime.sandbox.namespaces import NetworkNamespaces
from alipes.runtime.sandbox.policy import SandboxPolicy
from tests.unit.runtime.sandbox.test_seccomp import EVERYDAY

VERSION = starter.landlock_version()
PATH = os.defpath
pytestmark = pytest.mark.skipif(not VERSION, reason="this kernel has no Landlock")
scoped = pytest.mark.skipif(VERSION < 6, reason="this Landlock does not know scopes")
PROBE = Path(sys.executable).resolve()


class Machine:
    """A project, a home with a secret, and a sandbox for commands."""

    def __init__(self, root: Path, *, isolate: bool, **more: object) -> None:
        self.project, self.home, self.scratch = root / "project", root / "home", root / "scratch"
        self.private, self.tools, self.outside = root / "private", root / "tools", root / "outside"
        for folder in (
            self.project / ".git" / "hooks",
            self.home,
            self.scratch,
            self.private,
            self.tools,
            self.outside,
        ):
            folder.mkdir(parents=True)
        self.secret = self.home / "secret"
        for path in (self.secret, self.outside / "file", self.tools / "file", root / "empty"):
            path.write_text("text of " + path.name if path.name != "empty" else "")
        self.policy = SandboxPolicy(
            workdir=str(self.project),
            home=str(self.home),
            private_home=str(self.private),
            scratch=str(self.scratch),
            empty=str(root / "empty"),
            writable=(str(self.project),),
            readable=(str(self.tools), *_python_folders()),
            protected=(str(self.project / ".git" / "hooks"),),
        )
        self.namespaces = NetworkNamespaces()
        self.sandbox = LandlockSandbox(lambda scope: self.policy, self.namespaces, isolate=isolate, **more)
        self.scope = CommandScope(session="one", workdir=str(self.project))
        self.isolated, self.running = isolate, 0

    def set(self, **changes: object) -> None:
        self.policy = msgspec.structs.replace(self.policy, **changes)

    async def run(self, command: str | list[str], **more: object) -> tuple[int, str]:
        async with self.open(command, **more) as child:
            written = b""
            while piece := await child.read():
                written += piece
            return await child.wait(), written.decode().strip()

    @asynccontextmanager
    async def open(self, command: str | list[str], *, env: dict[str, str] | None = None, **more: str) -> AsyncIterator:
        environment = {"PATH": PATH, "HOME": str(self.home), **(env or {})}
        cwd = more.pop("cwd", str(self.project))
        self.running += 1
        try:
            async with self.sandbox.open(command, self.scope, cwd=cwd, env=environment, **more) as child:
                yield child
        finally:
            self.running -= 1
            if not self.running:
                await self.namespaces.close_all()

    @asynccontextmanager
    async def closed(self) -> AsyncIterator[None]:
        """Ends what stays for the next command."""
        try:
            yield
        finally:
            await self.namespaces.close_all()

    async def python(self, code: str, *arguments: object) -> str:
        """What a Python program prints; the name of the exception that ended it, if one did."""
        program = (
            f"import ctypes, os, signal, socket, sys\ntry:\n  {code}\nexcept OSError as e: print(type(e).__name__)"
        )
        return (await self.run([str(PROBE), "-I", "-c", program, *map(str, arguments)]))[1]


def _python_folders() -> tuple[str, ...]:
    return tuple(folder for folder in {sys.base_prefix, sys.prefix} if not folder.startswith("/usr"))


def make_machine(root: Path, *, isolate: bool) -> Machine:
    if isolate and subprocess.run(["unshare", "-Urmn", "true"]).returncode:
        pytest.skip("this machine has no user namespaces")
    made = Machine(root, isolate=isolate)
    made.sandbox._isolated = isolate  # known: do not find out for each test
    return made


@pytest.fixture(params=["isolated", "landlock"])
def machine(request, tmp_path) -> Machine:
    return make_machine(tmp_path, isolate=request.param == "isolated")


@pytest.fixture
def alone(tmp_path) -> Machine:
    """Landlock without namespaces."""
    return make_machine(tmp_path, isolate=False)


@pytest.fixture
def isolated(tmp_path_factory) -> Machine:
    return make_machine(tmp_path_factory.mktemp("isolated"), isolate=True)


async def test_check_finds_no_fault(alone):
    async with alone.closed():
        assert await alone.sandbox.check() == ""


async def test_namespaces_are_used_where_they_work(isolated):
    fresh = LandlockSandbox(lambda scope: isolated.policy, isolated.namespaces)
    async with isolated.closed():
        assert await fresh.check() == ""
    assert fresh.scratch(isolated.scope) == (str(isolated.scratch), "/tmp")


async def test_landlock_alone_is_used_where_namespaces_do_not_work(isolated):
    isolated.set(readable=("/no/such/path",))
    fresh = LandlockSandbox(lambda scope: isolated.policy, isolated.namespaces)
    async with isolated.closed():
        assert await fresh.check() == ""
    assert fresh.scratch(isolated.scope) == (str(isolated.scratch), str(isolated.scratch))


async def test_check_names_a_kernel_without_landlock(tmp_path):
    made = Machine(tmp_path, isolate=False, version=0)
    assert "no Landlock" in await made.sandbox.check()


async def test_project_scratch_and_private_home_are_writable(machine):
    line = 'echo a > file; mkdir -p d/e; mv file d/e/f; echo b > "$TMPDIR/x"; echo c > ~/y; ln -s f d/g; rm d/e/f'
    assert await machine.run("set -e; TMPDIR=${TMPDIR:-/tmp};" + line) == (0, "")
    assert (machine.scratch / "x").read_text() == "b\n"
    assert (machine.private / "y").read_text() == "c\n"


async def test_system_programs_run(machine):
    assert await machine.run("ls /usr/bin/env | wc -l; cat /dev/null; head -c 3 /dev/zero | wc -c") == (0, "1\n3")


async def test_exit_code_is_that_of_the_command(machine):
    assert (await machine.run("exit 7"))[0] == 7
    assert (await machine.run("kill -9 $$"))[0] == (128 + signal.SIGKILL if machine.isolated else -signal.SIGKILL)


async def test_writer_into_a_closed_pipe_ends_silently(machine):
    assert await machine.run("yes | head -1; echo ${PIPESTATUS[0]}") == (0, "y\n141")


async def test_program_that_does_not_exist_is_named(machine):
    assert await machine.run(["no-such-program"]) == (127, "no-such-program: No such file or directory")


async def test_home_cannot_be_read(machine):
    code, output = await machine.run(["cat", str(machine.secret)])
    assert code == 1
    assert "text" not in output


async def test_hidden_path_below_a_readable_one_cannot_be_read(machine):
    machine.set(hidden=(str(machine.tools / "file"),))
    assert "text" not in (await machine.run(["cat", str(machine.tools / "file")]))[1]


async def test_hidden_file_of_the_project_cannot_be_read(machine):
    (machine.project / ".env").write_text("KEY=secret")
    (machine.project / "other").write_text("other")
    machine.set(hidden=(str(machine.project / ".env"),))
    assert (
        "secret"
        not in (await machine.run("cat .env; mv .env new; cat new; ln .env hard; cat hard; echo x >> other"))[1]
    )
    assert (machine.project / ".env").read_text() == "KEY=secret"
    assert (machine.project / "other").read_text() == "otherx\n"


async def test_readable_path_cannot_be_changed(machine):
    target = machine.tools / "file"
    line = f"cat {target}; echo x > {target}; rm {target}; touch {machine.tools}/new; mv {target} {machine.tools}/b"
    assert "text of file" in (await machine.run(line))[1]
    assert [path.name for path in machine.tools.iterdir()] == ["file"]
    assert target.read_text() == "text of file"


async def test_nothing_outside_can_be_changed(machine):
    target = machine.outside / "file"
    before = target.stat()
    assert await machine.python("os.truncate(sys.argv[1], 0)", target) in ("PermissionError", "FileNotFoundError")
    for line in (
        f"echo x > {target}", f"echo x >> {target}", f"rm {target}", f"mv {target} here", f"ln {target} here; echo x > here",
        f"ln -s {target} link; echo x > link", f"touch {machine.outside}/new", f"mkdir {machine.outside}/new",
        f"cp /bin/true {machine.outside}/new", f"mv /bin/true {machine.outside}", f"ln -s / {machine.outside}/new",
        f"mkfifo {machine.outside}/new", f"truncate -s 0 {target}", f"dd if=/dev/null of={target}",
    ):  # fmt: skip
        await machine.run(line)
    after = target.stat()
    assert (before.st_size, before.st_mtime_ns, before.st_nlink) == (after.st_size, after.st_mtime_ns, after.st_nlink)
    assert [path.name for path in machine.outside.iterdir()] == ["file"]


async def test_permissions_and_times_outside_cannot_be_changed(isolated):
    target = isolated.tools / "file"
    before = target.stat()
    await isolated.run(f"chmod 777 {target}; touch -d 2000-01-01 {target}; setfattr -n user.x -v y {target}")
    assert target.stat() == before


async def test_protected_path_cannot_be_changed(isolated):
    hooks = isolated.project / ".git" / "hooks"
    await isolated.run(
        "echo x > .git/hooks/pre-commit; mv .git/hooks .git/old; mv .git old; rm -r .git; mkdir -p .git/hooks; touch .git/new"
    )
    assert list(hooks.iterdir()) == []
    assert (isolated.project / ".git" / "new").exists()


async def test_old_landlock_refuses_to_truncate_by_path(tmp_path):
    machine = Machine(tmp_path, isolate=False, version=1)
    target = machine.outside / "file"
    async with machine.closed():
        assert await machine.sandbox.check() == ""
    assert await machine.python("os.truncate(sys.argv[1], 0)", target) == "PermissionError"
    assert target.read_text() == "text of file"


@pytest.mark.parametrize("version", range(1, VERSION + 1))
async def test_every_version_of_landlock_can_be_used(version, tmp_path):
    machine = Machine(tmp_path, isolate=False, version=version)
    assert await machine.run(f"echo a > b; cat b {machine.secret}") == (
        1,
        f"a\ncat: {machine.secret}: Permission denied",
    )


@pytest.fixture
def neighbour() -> Iterator[int]:
    """A process of this user outside the sandbox, with a secret in its environment."""
    with subprocess.Popen(["sleep", "300"], env={"PATH": PATH, "TOKEN": "canary"}) as process:
        yield process.pid
        process.kill()


@pytest.mark.parametrize("name", ["environ", "mem", "maps", "auxv", "stack", "syscall", "pagemap", "io"])
async def test_memory_and_environment_of_other_processes_cannot_be_read(name, alone, neighbour):
    output = await alone.python("print(open(sys.argv[1], 'rb').read(10))", f"/proc/{neighbour}/{name}")
    assert output == "PermissionError"


@pytest.mark.parametrize("name", ["cwd", "root", "exe", "fd/0", "ns/net"])
async def test_links_of_other_processes_cannot_be_followed(name, alone, neighbour):
    assert await alone.python("print(os.readlink(sys.argv[1]))", f"/proc/{neighbour}/{name}") == "PermissionError"


async def test_root_of_another_process_is_no_way_out(machine, neighbour):
    code, output = await machine.run(["cat", f"/proc/{neighbour}/root{machine.secret}"])
    assert (code, "text" in output) == (1, False)


@pytest.mark.parametrize(
    "call",
    [
        "ptrace(16, {pid}, 0, 0)",  # attach
        "ptrace(0x4206, {pid}, 0, 0)",  # seize
        "process_vm_readv({pid}, ctypes.byref(v), 1, ctypes.byref(v), 1, 0)",
        "syscall(438, os.pidfd_open({pid}), 0, 0)",  # pidfd_getfd
        "prlimit({pid}, 7, ctypes.byref(v), 0)",
    ],
)
async def test_other_processes_cannot_be_debugged(call, alone, neighbour):
    code = "l = ctypes.CDLL(None, use_errno=True); v = (ctypes.c_long * 2)(1, 1); print(l.{}, ctypes.get_errno())"
    assert await alone.python(code.format(call.format(pid=neighbour))) == "-1 1"


@scoped
async def test_other_processes_cannot_be_signalled(alone, neighbour):
    assert await alone.python("os.kill(int(sys.argv[1]), 15)", neighbour) == "PermissionError"


async def test_other_processes_do_not_exist_in_a_pid_namespace(isolated, neighbour):
    _, output = await isolated.run(f"kill {neighbour}; ls -d /proc/[0-9]* | wc -l")
    assert "No such process" in output
    assert int(output.splitlines()[-1]) < 10


async def test_own_children_can_be_signalled_and_debugged(machine):
    assert await machine.run(
        "sleep 300 & until test -s e; do cat /proc/$!/environ > e; done; kill $!; wait $! || test -s e"
    ) == (0, "")


async def test_internet_sockets_do_not_exist_without_namespaces(alone):
    assert await alone.python("socket.socket()") == "PermissionError"
    assert await alone.python("socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)") == "PermissionError"


async def test_commands_of_a_conversation_share_loopback(isolated):
    async with isolated.open([str(PROBE), "-I", "-m", "http.server", "8123", "--bind", "127.0.0.1"]):
        fetch = "until curl -sf --noproxy '*' http://127.0.0.1:8123/ > page; do sleep 0.05; done; wc -l < page"
        code, output = await isolated.run(fetch)
        assert (code, int(output) > 0) == (0, True)


async def test_server_of_this_machine_cannot_be_reached(machine):
    with socket.create_server(("127.0.0.1", 0)) as server:
        code = "socket.create_connection(('127.0.0.1', int(sys.argv[1]))); print('connected')"
        assert await machine.python(code, server.getsockname()[1]) in ("PermissionError", "ConnectionRefusedError")


async def test_network_of_this_machine_can_be_granted(machine):
    machine.set(network="open")
    with socket.create_server(("127.0.0.1", 0)) as server:
        code = "socket.create_connection(('127.0.0.1', int(sys.argv[1]))); print('connected')"
        assert await machine.python(code, server.getsockname()[1]) == "connected"


@pytest.mark.parametrize("abstract", [True, False])
@pytest.mark.parametrize("kind", ["SOCK_STREAM", "SOCK_DGRAM"])
async def test_unix_socket_of_this_machine_cannot_be_reached(abstract, kind, machine):
    address = f"\0alipes-{os.getpid()}" if abstract else str(machine.outside / "s")
    with socket.socket(socket.AF_UNIX, getattr(socket, kind)) as server:
        server.bind(address)
        if kind == "SOCK_STREAM":
            server.listen()
        code = f"a, b = socket.socketpair(type=socket.SOCK_STREAM); s = socket.socket(1, socket.{kind}); s.connect({address!r})"
        refused = ("PermissionError", "ConnectionRefusedError", "FileNotFoundError")
        assert await machine.python(code + "; print('connected')") in refused


async def test_socket_pairs_work(machine):
    assert await machine.python("a, b = socket.socketpair(); a.send(b'x'); print(b.recv(1))") == "b'x'"


async def test_rights_of_root_are_gone(machine):
    assert "CapEff:\t0000000000000000" in (await machine.run("grep Cap /proc/self/status"))[1]
    assert "NoNewPrivs:\t1" in (await machine.run("grep NoNew /proc/self/status"))[1]


async def test_no_descriptors_are_inherited(machine):
    assert await machine.run(["sh", "-c", "ls /proc/$$/fd"]) == (0, "0\n1\n2")


async def test_variables_that_name_sockets_are_removed(machine):
    assert await machine.run("echo [$SSH_AUTH_SOCK]", env={"SSH_AUTH_SOCK": "/run/agent"}) == (0, "[]")


async def test_host_path_finds_what_a_command_wrote(machine):
    _, folder = machine.sandbox.scratch(machine.scope)
    await machine.run(f"mkdir {folder}/d; echo a > {folder}/d/f; echo b > g; echo c > ~/h; pwd")
    for path, text in ((f"{folder}/d/f", "a\n"), (f"{machine.project}/g", "b\n")):
        assert Path(machine.sandbox.host_path(path, machine.scope)).read_text() == text
    home = str(machine.home) if machine.isolated else str(machine.private)
    assert Path(machine.sandbox.host_path(f"{home}/h", machine.scope)).read_text() == "c\n"


async def test_command_runs_in_its_directory(machine):
    (machine.project / "sub").mkdir()
    assert await machine.run("pwd", cwd=str(machine.project / "sub")) == (0, str(machine.project / "sub"))


async def test_terminal_works(machine):
    async with machine.open('read -r line; echo "got $line"; test -t 0 && stty size', link="terminal") as child:
        await child.input.write(b"hello\n", 5.0)
        written = b""
        while piece := await child.read():
            written += piece
    assert written.decode().split() == ["hello", "got", "hello", "24", "80"]


async def test_own_terminals_can_be_made(isolated):
    assert await isolated.python("import pty; pty.spawn(['/bin/echo', 'x'])") == "x"


def is_running(command: str) -> bool:
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            if path.read_bytes() == command.replace(" ", "\0").encode() + b"\0":
                return True
    return False


async def test_end_of_the_scope_ends_a_process_that_hides(machine):
    hidden = f"sleep 3{os.getpid()}"
    code = (
        "import os, resource, sys, time\n"
        "resource.setrlimit(resource.RLIMIT_RTTIME, (1000, 1000))\n"
        "if os.fork() == 0:\n"
        "  os.setsid()\n"
        "  if os.fork() == 0:\n"
        "    os.execve('/bin/sh', ['sh', '-c', 'echo > started; exec ' + sys.argv[1]], {})\n"
        "  os._exit(0)\n"
        "time.sleep(300)\n"
    )
    async with machine.open([str(PROBE), "-I", "-c", code, hidden]):
        while not is_running(hidden):
            await asyncio.sleep(0.01)
    assert not is_running(hidden)


async def test_command_is_asked_to_end_before_it_is_killed(machine):
    line = "trap 'echo saved > note; exit' TERM; echo up; while :; do sleep 0.01; done"
    async with machine.open(line) as child:
        await child.read()
        child.tree.tell(signal.SIGTERM)
        await child.wait()
    assert (machine.project / "note").read_text() == "saved\n"


async def test_background_process_does_not_outlive_its_command_in_a_pid_namespace(isolated):
    async with isolated.open("sleep 300 & echo up") as child:
        assert await child.read() == b"up\n"
        assert await child.wait() == 0
        assert child.tree.living() == []


async def test_gaps_are_fewer_with_namespaces(alone, isolated):
    async with isolated.closed():
        assert await isolated.sandbox.check() == ""
    assert set(isolated.sandbox.describe_gaps()) < set(alone.sandbox.describe_gaps())


EVERYDAY_PROGRAMS = (
    "bash",
    "git",
    "gcc",
    "python3",
    "node",
    "java",
    "sqlite3",
    "tar",
    "make",
    "gdb",
    "strace",
    "script",
)
NEED_NAMESPACES = ("python3", "script")
"""They need /dev/shm and terminals."""


@pytest.mark.parametrize("program", EVERYDAY_PROGRAMS)
async def test_everyday_program_works(program, machine):
    if shutil.which(program, path=PATH) is None:
        pytest.skip(f"{program} is not installed")
    if program in NEED_NAMESPACES and not machine.isolated:
        pytest.skip("a gap of Landlock alone")
    code, output = await machine.run(f"set -euo pipefail; {EVERYDAY[program]}")
    assert (code, output if code else "") == (0, "")
