"""One private PostgreSQL for all tests of this process, and a schema of its own for each test."""

import atexit
import ctypes
import itertools
import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import AbstractAsyncContextManager, contextmanager
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import quote

import psycopg

from alipes.store.postgres.store import ClusterLimits
from alipes.store.postgres.store import open_postgres_store as open_cluster_store
from tests.world.environment import LIMIT_S, is_hidden, skip
from tests.world.leftovers import LASTING

DEBIAN = Path("/usr/lib/postgresql")
PR_SET_PDEATHSIG = 1
USER = "alipes"
LEASE_S = 60.0
"""A loaded machine may stop a test for seconds; tests of leases have their own."""
_numbers = itertools.count(1)


def find_postgres(program: str) -> str:
    """A program of the newest PostgreSQL; the test is skipped if there is none."""
    if is_hidden():
        skip("PostgreSQL is not used without `make services`")
    places = sorted(DEBIAN.glob("*/bin"), key=lambda place: int(place.parent.name), reverse=True)
    found = next((str(place / program) for place in places if (place / program).exists()), None)
    return found or shutil.which(program) or skip(f"{program} of PostgreSQL is not installed (make services)")


class PostgresServer:
    """`start` and `stop` may be called repeatedly; the port stays the same after the first start."""

    def __init__(self, *, fsync: bool = False) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="postgres-"))
        self.port = _free_port()
        self._has_started = False
        self._fsync = fsync
        self._process: subprocess.Popen[bytes] | None = None
        self._account = _server_account()
        if self._account is not None:
            os.chown(self.folder, self._account.pw_uid, self._account.pw_gid)
        self._run("initdb", "-D", f"{self.folder}/data", "-U", USER, "-A", "trust", "-E", "UTF8", "--no-locale", "-N")

    @property
    def url(self) -> str:
        return f"postgresql://{USER}@127.0.0.1:{self.port}/postgres"

    def start(self) -> None:
        """Start it and return when it answers; at another port if somebody took this one before the first start."""
        while not self._try_start():
            assert not self._has_started and "could not bind" in self.log_text(), self.log_text()[-2000:]
            self.port = _free_port()
        self._has_started = True

    def _try_start(self) -> bool:
        settings = {
            "listen_addresses": "127.0.0.1", "port": self.port, "unix_socket_directories": self.folder,
            "max_connections": 200, "shared_buffers": "64MB", "fsync": "on" if self._fsync else "off",
            "full_page_writes": "on" if self._fsync else "off", "autovacuum_naptime": "10s",
        }  # fmt: skip
        words = [word for name, value in settings.items() for word in ("-c", f"{name}={value}")]
        with (self.folder / "log").open("ab") as out:
            self._process = subprocess.Popen(
                [find_postgres("postgres"), "-D", f"{self.folder}/data", *words],
                stdin=subprocess.DEVNULL, stdout=out, stderr=out, cwd="/", env={},
                preexec_fn=self._enter,
            )  # fmt: skip
        deadline = time.monotonic() + LIMIT_S
        while True:
            try:
                psycopg.connect(self.url, connect_timeout=5).close()
            except psycopg.OperationalError:
                if self._process.poll() is not None:
                    return False
                assert time.monotonic() < deadline, self.log_text()[-2000:]
                time.sleep(0.02)
            else:
                return self._process.poll() is None

    def stop(self, how: signal.Signals = signal.SIGINT) -> None:
        """SIGINT: in order; SIGQUIT: as a crash does."""
        process, self._process = self._process, None
        if process is not None:
            process.send_signal(how)
            process.wait()

    def close(self) -> None:
        self.stop(signal.SIGQUIT)
        shutil.rmtree(self.folder, ignore_errors=True)

    def log_text(self) -> str:
        return (self.folder / "log").read_text(errors="replace")

    def _run(self, program: str, *words: str) -> None:
        command = [find_postgres(program), *words]
        done = subprocess.run(command, cwd="/", env={}, capture_output=True, preexec_fn=self._enter, check=False)
        assert done.returncode == 0, done.stderr.decode()

    def _enter(self) -> None:
        """Root runs it as the user `postgres`; it ends with us also if pytest is killed."""
        if self._account is not None:
            os.setgroups([])
            os.setgid(self._account.pw_gid)
            os.setuid(self._account.pw_uid)
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGQUIT, 0, 0, 0)


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port: int = free.getsockname()[1]
    return port


def _server_account() -> pwd.struct_passwd | None:
    if os.geteuid():
        return None
    try:
        return pwd.getpwnam("postgres")
    except KeyError:
        return skip("there is no user postgres, and PostgreSQL refuses to run as root")


@cache
def postgres_server() -> PostgresServer:
    """The server of this process; skips the test if PostgreSQL is not installed."""
    find_postgres("initdb")
    server = PostgresServer()
    LASTING.callback(server.close)
    atexit.register(LASTING.close)  # for use without pytest
    server.start()
    return server


@cache
def _home_schema(home: Path) -> str:
    """An address for the home of a test; its schema ends with the server."""
    server, name = postgres_server(), f"home_{os.getpid()}_{next(_numbers)}"
    with psycopg.connect(server.url, autocommit=True) as db:
        db.execute(f"CREATE SCHEMA {name}".encode())
    return f"{server.url}?options={quote(f'-csearch_path={name}')}"


def open_postgres_store(home: Path, **options: Any) -> AbstractAsyncContextManager[Any]:
    """A store on PostgreSQL; each call with the same home acts as another worker of its cluster."""
    return open_cluster_store(_home_schema(home), **{"limits": ClusterLimits(lease_s=LEASE_S), **options})


@contextmanager
def postgres_schema(server: PostgresServer | None = None) -> Iterator[str]:
    """An address with an empty schema of its own, which is dropped afterwards."""
    server = server or postgres_server()
    name = f"test_{os.getpid()}_{next(_numbers)}"
    with psycopg.connect(server.url, autocommit=True) as db:
        db.execute(f"CREATE SCHEMA {name}".encode())
    try:
        yield f"{server.url}?options={quote(f'-csearch_path={name}')}"
    finally:
        with psycopg.connect(server.url, autocommit=True) as db:
            db.execute(f"DROP SCHEMA {name} CASCADE".encode())
