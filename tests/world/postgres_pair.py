"""Private PostgreSQL servers that tests stop, restart and promote: one alone, or a primary with a synchronous standby.

Each has its own data folder and port on 127.0.0.1. `initdb` and the server refuse to run as root, so root starts them
as the user `postgres`. They do not wait for the disk: what is written survives the end of a server all the same.
"""

import asyncio
import atexit
import ctypes
import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import cache
from pathlib import Path

from tests.world.environment import LIMIT_S, is_hidden, skip
from tests.world.leftovers import LASTING

USER, DATABASE = "alipes", "alipes"
DEBIAN = Path("/usr/lib/postgresql")
SETTINGS = {
    "listen_addresses": "'127.0.0.1'",
    "unix_socket_directories": "''",
    "max_connections": "200",
    "shared_buffers": "64MB",
    "wal_level": "replica",
    "max_wal_senders": "8",
    "hot_standby": "on",
    "wal_receiver_status_interval": "1s",
    "logging_collector": "off",
    "log_min_messages": "warning",
    "autovacuum_naptime": "10s",
    "fsync": "off",
}
PR_SET_PDEATHSIG = 1


def find_program(name: str) -> str:
    """A program of the newest PostgreSQL; the test is skipped if there is none."""
    if is_hidden():
        skip("PostgreSQL is not used without `make services`")
    places = sorted(DEBIAN.glob("*/bin"), key=lambda place: int(place.parent.name), reverse=True)
    found = next((str(place / name) for place in places if (place / name).exists()), None) or shutil.which(name)
    return found or skip(f"{name} of PostgreSQL is not installed (make services)")


class PostgresNode:
    """One server. `start` and the ways to end it may be called repeatedly."""

    def __init__(self, folder: Path, port: int, settings: dict[str, str] | None = None) -> None:
        self.data, self.port = folder / f"data{port}", port
        self.wal: Path | None = None
        """Where its write-ahead log is, if not with its data."""
        self._log, self._settings = folder / f"log{port}", settings or {}
        self._process: asyncio.subprocess.Process | None = None

    @property
    def pid(self) -> int:
        assert self._process is not None, "it was not started"
        return self._process.pid

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.returncode is None

    def url(self, port: int = 0, host: str = "127.0.0.1") -> str:
        """Its address; `port`: that of a proxy before it; `host`: another address of this machine."""
        return f"postgresql://{USER}@{host}:{port or self.port}/{DATABASE}"

    async def trust(self, network: str) -> None:
        """Accept connections from these addresses as well."""
        with open(self.data / "pg_hba.conf", "a") as rules:
            rules.write(f"host all all {network} trust\n")
        await self.query("SELECT pg_reload_conf()")

    def log_text(self) -> str:
        return self._log.read_text(errors="replace")

    async def create(self) -> None:
        """Make an empty data folder that trusts every local connection."""
        await run_as_server("cp", "-a", str(data_template()), str(self.data))
        if self.wal is not None:
            await run_as_server("mv", str(self.data / "pg_wal"), str(self.wal))
            (self.data / "pg_wal").symlink_to(self.wal)
        self.write_settings()

    def write_settings(self, **more: str) -> None:
        self._settings.update(more)
        lines = [f"{name} = {value}" for name, value in {**SETTINGS, **self._settings, "port": str(self.port)}.items()]
        path = self.data / "conf.d.conf"
        path.write_text("\n".join(lines) + "\n")
        main = self.data / "postgresql.conf"
        if "conf.d.conf" not in (text := main.read_text()):
            main.write_text(text + "include 'conf.d.conf'\n")
        with open(self.data / "pg_hba.conf", "a") as rules:
            rules.write("host replication all 127.0.0.1/32 trust\n")
        _give_to_server(path)

    async def start(self) -> None:
        """Start it and return when it accepts connections."""
        with open(self._log, "ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                *(find_program("postgres"), "-D", str(self.data)),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                preexec_fn=_end_with_us,
                **_as_server(),
            )
        async with asyncio.timeout(LIMIT_S):
            while not await self._accepts():
                assert self.is_running, f"PostgreSQL did not start: {self.log_text()[-2000:]}"
                await asyncio.sleep(0.02)

    async def _accepts(self) -> bool:
        ready = await asyncio.create_subprocess_exec(
            *(find_program("pg_isready"), "-q", "-h", "127.0.0.1", "-p", str(self.port)),
            stdout=asyncio.subprocess.DEVNULL,
        )
        return await ready.wait() == 0

    async def stop_immediate(self) -> None:
        """End it as a crash does: no checkpoint, connections break."""
        await self._end(signal.SIGQUIT)

    async def stop(self) -> None:
        """End it in order; open transactions are rolled back."""
        await self._end(signal.SIGINT)

    async def kill(self) -> None:
        """Kill the server and its backends with SIGKILL."""
        if self.is_running:
            os.killpg(self.pid, signal.SIGKILL)
            await self._end(signal.SIGKILL)

    async def restart(self, away_s: float = 0.0) -> None:
        """Crash it and start it again after `away_s` seconds."""
        await self.stop_immediate()
        await asyncio.sleep(away_s)
        await self.start()

    async def _end(self, how: signal.Signals) -> None:
        process, self._process = self._process, None
        if process is not None and process.returncode is None:
            process.send_signal(how)
            await process.wait()

    async def query(self, sql: str, database: str = DATABASE) -> str:
        """The unaligned output of `psql`."""
        words = ("-X", "-A", "-t", "-v", "ON_ERROR_STOP=1", "-h", "127.0.0.1", "-p", str(self.port), "-U", USER)
        return await run_as_server("psql", *words, "-d", database, "-c", sql)

    def cpu(self) -> float:
        """CPU seconds of the server and all its processes, ended ones included."""
        ticks = 0
        for pid in (self.pid, *map(int, Path(f"/proc/{self.pid}/task/{self.pid}/children").read_text().split())):
            try:
                fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            ticks += sum(map(int, fields[11:15] if pid == self.pid else fields[11:13]))
        return ticks / os.sysconf("SC_CLK_TCK")


class PostgresPair:
    """A primary and a synchronous standby: a commit returns when both have it on disk."""

    def __init__(self, folder: Path, primary: PostgresNode, standby: PostgresNode) -> None:
        self._folder, self.primary, self.standby = folder, primary, standby

    @property
    def url(self) -> str:
        """Reaches whichever of the two accepts writes."""
        return make_url([self.primary.port, self.standby.port])

    async def promote(self) -> None:
        """Crash the primary and make the standby the new one; it then waits for no standby."""
        await self.primary.kill()
        self.standby.write_settings(synchronous_standby_names="''")
        words = ("promote", "-W", "-D", str(self.standby.data))
        await run_as_server("pg_ctl", *words)
        async with asyncio.timeout(LIMIT_S):
            while (await self.standby.query("SELECT pg_is_in_recovery()")).strip() != "f":
                await asyncio.sleep(0.01)

    async def rebuild(self) -> None:
        """Make the dead primary a synchronous standby of the promoted one; the roles are swapped."""
        self.primary, self.standby = self.standby, self.primary
        await self.standby.kill()
        shutil.rmtree(self.standby.data)
        await _join(self.primary, self.standby)


def make_url(ports: Sequence[int]) -> str:
    """An address with several hosts; libpq tries them until one accepts writes."""
    hosts = ",".join(f"127.0.0.1:{port}" for port in ports)
    more = "?target_session_attrs=read-write&connect_timeout=3" if len(ports) > 1 else ""
    return f"postgresql://{USER}@{hosts}/{DATABASE}{more}"


@asynccontextmanager
async def open_node(
    *, data: Path | None = None, wal: Path | None = None, **settings: str
) -> AsyncIterator[PostgresNode]:
    """A running server with an empty database. `settings`: lines of postgresql.conf.

    `data`, `wal`: where its data and its write-ahead log are, if not in a folder of their own; they are created."""
    with _server_folder() as name:
        node = PostgresNode(Path(name), _free_port(), settings)
        node.data, node.wal = data or node.data, wal
        try:
            await node.create()
            await node.start()
            await node.query(f"CREATE DATABASE {DATABASE}", "postgres")
            yield node
        finally:
            await node.kill()


@asynccontextmanager
async def open_pair(**settings: str) -> AsyncIterator[PostgresPair]:
    """A primary and its synchronous standby, both running."""
    async with open_node(**settings) as primary:
        folder = primary.data.parent
        standby = PostgresNode(folder, _free_port(), dict(settings))
        pair = PostgresPair(folder, primary, standby)
        try:
            await _join(primary, standby)
            yield pair
        finally:
            await pair.standby.kill()
            await pair.primary.kill()


async def _join(primary: PostgresNode, standby: PostgresNode) -> None:
    """Copy the primary and wait until the copy follows it synchronously."""
    source = f"host=127.0.0.1 port={primary.port} user={USER}"
    words = ("-D", str(standby.data), "-d", source, "-X", "stream", "-c", "fast", "--no-sync")
    await run_as_server("pg_basebackup", *words)
    name = f"standby{standby.port}"
    (standby.data / "standby.signal").touch()
    _give_to_server(standby.data / "standby.signal")
    standby.write_settings(primary_conninfo=f"'{source} application_name={name}'", synchronous_standby_names="''")
    await standby.start()
    primary.write_settings(synchronous_standby_names=f"'{name}'")
    await primary.query("SELECT pg_reload_conf()")
    async with asyncio.timeout(LIMIT_S):
        while (await primary.query("SELECT sync_state FROM pg_stat_replication")).strip() != "sync":
            await asyncio.sleep(0.05)


async def run_as_server(program: str, *words: str) -> str:
    """Run a program of PostgreSQL to its end; returns its output."""
    process = await asyncio.create_subprocess_exec(
        *(find_program(program), *words),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        **_as_server(),
    )
    output, errors = await process.communicate()
    assert process.returncode == 0, f"{program} {words} ended with {process.returncode}: {errors.decode()}"
    return output.decode()


@cache
def data_template() -> Path:
    """The data folder of a new server, made once. Tests call it in a fixture of their module: it lasts."""
    made = _server_folder()
    LASTING.callback(made.cleanup)
    atexit.register(LASTING.close)  # for use without pytest
    folder = Path(made.name) / "data"
    words = ("-D", str(folder), "-U", USER, "-A", "trust", "-E", "UTF8", "--no-locale", "-N")
    done = subprocess.run([find_program("initdb"), *words], capture_output=True, check=False, **_as_server())  # type: ignore[call-overload]
    assert done.returncode == 0, done.stderr.decode()
    return folder


def _end_with_us() -> None:
    """The server ends also if this process is killed."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGQUIT, 0, 0, 0)


def _as_server() -> dict[str, object]:
    """How root starts these programs; the folder must be one that the user may enter."""
    if os.geteuid():
        return {}
    try:
        account = pwd.getpwnam("postgres")
    except KeyError:
        skip("there is no user postgres, and PostgreSQL refuses to run as root")
    return {"user": account.pw_uid, "group": account.pw_gid, "extra_groups": [], "cwd": "/"}


def server_user() -> int:
    """The number of the user who runs the servers."""
    return int(_as_server().get("user", os.getuid()))  # type: ignore[call-overload]


def _give_to_server(path: Path) -> None:
    if owner := _as_server():
        os.chown(path, owner["user"], owner["group"])  # type: ignore[call-overload]


def _server_folder() -> "tempfile.TemporaryDirectory[str]":
    made = tempfile.TemporaryDirectory(prefix="postgres-")
    _give_to_server(Path(made.name))
    return made


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
