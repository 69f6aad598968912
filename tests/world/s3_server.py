"""A real S3 server (moto) on loopback, for one test module at a time."""

import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager

from tests.world.environment import LIMIT_S, SERVICES, require

PROGRAM = SERVICES / "moto[server]" / "bin" / "moto_server"


@contextmanager
def run_s3_server(*buckets: str) -> Iterator[str]:
    """The address of a server that has `buckets`."""
    program, port = require(str(PROGRAM)), _free_port()
    address = f"http://127.0.0.1:{port}"
    command = [program, "-H", "127.0.0.1", "-p", str(port)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as server:
        try:
            _wait_until_ready(address)
            for bucket in buckets:
                request = urllib.request.Request(f"{address}/{bucket}", method="PUT")
                urllib.request.urlopen(request).close()
            yield address
        finally:
            server.kill()


def _wait_until_ready(address: str) -> None:
    until = time.monotonic() + LIMIT_S
    while True:
        try:
            urllib.request.urlopen(f"{address}/moto-api/").close()
        except (urllib.error.URLError, ConnectionError):
            if time.monotonic() > until:
                raise
            time.sleep(0.05)
        else:
            return


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])
