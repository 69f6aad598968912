"""What a breach would reach on this machine: a throwaway home with secrets, listeners, a process, shared memory."""

import ctypes
import os
import secrets
import socket
import sqlite3
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

_LIBC = ctypes.CDLL(None, use_errno=True)
_LIBC.shmat.restype = ctypes.c_void_p
IPC_CREAT, IPC_RMID = 0o1000, 0
ADD_KEY, KEYCTL, KEYCTL_INVALIDATE, USER_KEYRING = 248, 250, 21, -4  # x86-64


class BreachWorld:
    """The home of a user with secrets. Tests look here for effects of commands."""

    def __init__(self, folder: Path) -> None:
        self.canary = f"canary-{secrets.token_hex(8)}"
        self.folder, self.home = folder, folder / "home"
        self.alipes_home = self.home / ".alipes"
        self.workdir, self.other = self.home / "work" / "project", self.home / "work" / "other"
        self.linked_workdir = self.home / "linked-work" / "project"
        self.shm_name = f"alipes-{secrets.token_hex(8)}"
        self.shm_key = secrets.randbelow(2**30) + 1
        self.sockets: dict[str, socket.socket] = {}
        self.own_address = find_own_address()
        self._victim: subprocess.Popen[bytes] | None = None
        self._stack = ExitStack()

    @property
    def victim(self) -> int:
        """A process of the same user, with a secret in its environment and in its working directory."""
        if self._victim is None or self._victim.poll() is not None:
            self._victim = subprocess.Popen(
                ["sleep", "1000"], cwd=self.home / ".ssh", env={"PATH": os.defpath, "SECRET": self.canary}
            )
            self._stack.callback(self._end_victim)
        return self._victim.pid

    def is_victim_alive(self) -> bool:
        """Whether it survived; a signal takes a moment."""
        assert self._victim is not None
        try:
            self._victim.wait(0.5)
        except subprocess.TimeoutExpired:
            return True
        return False

    def reached(self) -> set[str]:
        """Names of the listeners that got a connection or a datagram since the last call."""
        return {name for name, listener in self.sockets.items() if _drain(listener)}

    def environment(self) -> dict[str, str]:
        """The environment of commands."""
        return {
            "PATH": "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin",
            "HOME": str(self.home),
            "SSH_AUTH_SOCK": str(self.folder / "agent.sock"),
            "DBUS_SESSION_BUS_ADDRESS": f"unix:path={self.folder / 'bus.sock'}",
            "LANG": "C.UTF-8",
        }

    def values(self) -> dict[str, object]:
        """What scripts of breaches are formatted with."""
        names = (
            "canary",
            "folder",
            "home",
            "alipes_home",
            "workdir",
            "other",
            "shm_name",
            "shm_key",
            "victim",
            "own_address",
        )
        ports = {f"{name}_port": each.getsockname()[1] for name, each in self.sockets.items() if _has_port(each)}
        return {name: getattr(self, name) for name in names} | ports | {"test_pid": os.getpid()}

    def make_files(self) -> None:
        for path in (
            *(".ssh/id_ed25519", ".aws/credentials", ".config/google-chrome/Default/Login Data", ".bash_history"),
            *(".hermes/.env", ".openclaw/openclaw.json", ".claude/.credentials.json", ".alipes/.env", ".bashrc"),
            *("work/other/notes.txt", "work/project/.git/hooks/pre-commit", "work/project/file.txt"),
        ):
            file = self.home / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text("echo\n" if "project" in path else f"{self.canary}\n")
        with sqlite3.connect(self.alipes_home / "alipes.db") as database:
            database.execute("CREATE TABLE secrets (value TEXT)")
            database.execute("INSERT INTO secrets VALUES (?)", (self.canary,))
        database.close()
        (self.home / "linked-work").symlink_to("work")
        (self.workdir / "link").symlink_to(self.home / ".ssh" / "id_ed25519")
        (self.workdir / "linked-folder").symlink_to(self.other)

    def listen(self) -> None:
        run = Path("/run") if os.access("/run", os.W_OK) else self.folder
        self._listen("tcp4", socket.AF_INET, ("127.0.0.1", 0))
        with suppress(OSError):  # no IPv6 here
            self._listen("tcp6", socket.AF_INET6, ("::1", 0))
        self._listen("udp", socket.AF_INET, ("127.0.0.1", 0), socket.SOCK_DGRAM)
        self._listen("own_tcp", socket.AF_INET, (self.own_address, 0))
        self._listen("own_udp", socket.AF_INET, (self.own_address, 0), socket.SOCK_DGRAM)
        self._listen("abstract", socket.AF_UNIX, f"\0{self.canary}")
        for name, path in (
            ("agent", self.folder / "agent.sock"),
            ("bus", self.folder / "bus.sock"),
            ("run", run / f"{self.canary}.sock"),
        ):
            self._listen(name, socket.AF_UNIX, _short(path))
            self._stack.callback(path.unlink, missing_ok=True)

    def share_memory(self) -> None:
        file = Path("/dev/shm", self.shm_name)
        file.write_text(self.canary)
        self._stack.callback(file.unlink)
        shm = _LIBC.shmget(self.shm_key, 4096, IPC_CREAT | 0o600)
        assert shm >= 0, os.strerror(ctypes.get_errno())
        ctypes.memmove(_LIBC.shmat(shm, None, 0), self.canary.encode() + b"\0", len(self.canary) + 1)
        self._stack.callback(_LIBC.shmctl, shm, IPC_RMID, None)
        data = self.canary.encode()
        key = _LIBC.syscall(ADD_KEY, b"user", b"alipes-breach", data, len(data), USER_KEYRING)
        if key >= 0:
            self._stack.callback(_LIBC.syscall, KEYCTL, KEYCTL_INVALIDATE, key)

    def close(self) -> None:
        self._stack.close()

    def _listen(self, name: str, family: int, address: object, kind: int = socket.SOCK_STREAM) -> None:
        listener = socket.socket(family, kind)
        self._stack.callback(listener.close)
        listener.setblocking(False)
        listener.bind(address)
        if kind == socket.SOCK_STREAM:
            listener.listen(64)
        self.sockets[name] = listener

    def _end_victim(self) -> None:
        if self._victim is not None:
            self._victim.kill()
            self._victim.wait()


@contextmanager
def open_breach_world(folder: Path) -> Iterator[BreachWorld]:
    world = BreachWorld(folder)
    try:
        world.make_files()
        world.listen()
        world.share_memory()
        yield world
    finally:
        world.close()


def find_processes(text: str) -> list[int]:
    """Pids on this machine of processes whose command line contains `text`."""
    found = list[int]()
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            if text.encode() in file.read_bytes().replace(b"\0", b" "):
                found.append(int(file.parent.name))
    return found


def find_own_address() -> str:
    """The address of this machine in its network; loopback if it has none."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # sends nothing
        except OSError:
            return "127.0.0.1"
        return str(probe.getsockname()[0])


def _short(path: Path) -> str:
    """The path of a socket may have 107 characters."""
    return str(path) if len(str(path)) < 108 else os.path.relpath(path)


def _has_port(listener: socket.socket) -> bool:
    return listener.family in (socket.AF_INET, socket.AF_INET6)


def _drain(listener: socket.socket) -> bool:
    reached = False
    with suppress(BlockingIOError):
        while True:
            if listener.type == socket.SOCK_DGRAM:
                listener.recv(4096)
            else:
                listener.accept()[0].close()
            reached = True
    return reached
