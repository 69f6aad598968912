"""A real S3 server (moto) on loopback, shared by all tests of a run."""

import atexit
import ctypes
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request
from functools import cache

from tests.world.environment import LIMIT_S, SERVICES, require
from tests.world.leftovers import LASTING

PROGRAM = SERVICES / "moto[server]" / "bin" / "moto_server"
BUCKET = "chat-files"
PR_SET_PDEATHSIG = 1
_opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))


@cache
def s3_server() -> str:
    """The address of a server that has the bucket `BUCKET`; skips the test if it is not installed."""
    program = require(str(PROGRAM))
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    process = subprocess.Popen(
        [program, "-H", "127.0.0.1", "-p", str(port)],
        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, preexec_fn=_end_with_us,
    )  # fmt: skip
    LASTING.callback(_end, process)
    atexit.register(LASTING.close)  # for use without pytest
    address = f"http://127.0.0.1:{port}"
    _wait_until_ready(address, process)
    _opener.open(urllib.request.Request(f"{address}/{BUCKET}", method="PUT"), timeout=5).close()
    return address


def _wait_until_ready(address: str, process: "subprocess.Popen[bytes]") -> None:
    deadline = time.monotonic() + LIMIT_S
    while time.monotonic() < deadline and process.poll() is None:
        try:
            with _opener.open(f"{address}/moto-api/", timeout=5):
                return
        except (urllib.error.URLError, OSError):
            time.sleep(0.05)
    raise AssertionError("the S3 server does not answer")


def _end_with_us() -> None:
    """End it also if pytest is killed."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def _end(process: "subprocess.Popen[bytes]") -> None:
    process.kill()
    process.wait()
