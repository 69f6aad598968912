"""Runs a representative part of the tests as on somebody else's machine. `make test-bare`; arguments go to pytest.

Nothing optional is installed, no variable is set, signals are ignored as under nohup, model servers of somebody else
answer on their usual ports, and the processor is busy.
"""

import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from tests.world.environment import program_path  # noqa: E402

PARTS = ("tests/contract", "tests/unit/cli", "tests/e2e")
SAME_EVERYWHERE = (
    "tests/contract/test_*_store.py",
    "tests/contract/test_*_stores.py",
    "tests/contract/test_outbox.py",
    "tests/contract/test_cluster_*.py",
    "tests/contract/test_dispatcher_bus.py",
    "tests/unit/console/test_screen_diff.py",
)
"""Not repeated: they start no program, send no signal and read no variable; `make test` runs them."""
MODEL_PORTS = (11434, 1234, 8080, 8000)
IGNORED = (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT)
BUSY = "import os; parent = os.getppid()\nwhile os.getppid() == parent: pass"
NICE, NICER = ("nice", "-n", "5"), ("nice", "-n", "15")


class ModelServer(BaseHTTPRequestHandler):
    """Offers a model that no test asked for, and answers everything with an error."""

    def do_GET(self) -> None:
        self._answer(200, b'{"object": "list", "data": [{"id": "found-by-accident", "object": "model"}]}')

    def do_POST(self) -> None:
        self._answer(500, b'{"error": {"message": "a test used a model server that it did not start"}}')

    def _answer(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


@contextmanager
def listen(port: int) -> Iterator[None]:
    """Listen there, unless somebody does already."""
    try:
        server = ThreadingHTTPServer(("127.0.0.1", port), ModelServer)
    except OSError:
        print(f"bare tests: something listens on port {port} already", file=sys.stderr)
        yield
        return
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()


@contextmanager
def running(words: list[str], **more: object) -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(words, **more)  # type: ignore[call-overload]
    try:
        yield process
    finally:
        process.terminate()
        process.wait()


@contextmanager
def signals_ignored() -> Iterator[None]:
    """What is started meanwhile inherits it."""
    before = [(number, signal.signal(number, signal.SIG_IGN)) for number in IGNORED]
    try:
        yield
    finally:
        for number, handler in before:
            signal.signal(number, handler)


def main(arguments: list[str]) -> int:
    with ExitStack() as stack:
        home = stack.enter_context(tempfile.TemporaryDirectory(prefix="alipes-bare-"))
        environ = {"PATH": program_path(), "HOME": home, "ALIPES_SERVICES": f"{home}/no-services"}
        for port in MODEL_PORTS:
            stack.enter_context(listen(port))
        for _ in range(2):
            stack.enter_context(running([*NICER, sys.executable, "-c", BUSY]))
        words = [*NICE, sys.executable, "tools/run_tests.py", "-n", "4", "--dist", "worksteal", "-rs"]
        arguments = arguments or [*PARTS, *(f"--ignore-glob={ROOT / pattern}" for pattern in SAME_EVERYWHERE)]
        with signals_ignored():
            tests = stack.enter_context(running([*words, *arguments], cwd=ROOT, env=environ))
        return tests.wait()


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # what was started is ended too
    sys.exit(main(sys.argv[1:]))
