"""Conditions of somebody else's machine, for the tests: nothing optional is installed, no variable is set, signals are
ignored as under nohup, other model servers answer on their usual ports, and the processor is busy."""

import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from tests.world.environment import program_path

MODEL_PORTS = (11434, 1234, 8080, 8000)
BUSY = "import os; parent = os.getppid()\nwhile os.getppid() == parent: pass"
NICE = ("nice", "-n", "10")
IGNORE_SIGNALS = ("sh", "-c", "trap '' HUP INT QUIT; exec \"$@\"", "sh")
"""Words before a command that runs as under nohup."""


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
        print(f"run_tests: something listens on port {port} already", file=sys.stderr)
        yield
        return
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()


@contextmanager
def running(words: list[str]) -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(words)
    try:
        yield process
    finally:
        process.terminate()
        process.wait()


@contextmanager
def hidden_programs() -> Iterator[Mapping[str, str]]:
    """The variables of a machine with only what any Unix has, and an empty home."""
    with tempfile.TemporaryDirectory(prefix="alipes-bare-") as home:
        yield {"PATH": program_path(), "HOME": home, "ALIPES_SERVICES": f"{home}/no-services"}


@contextmanager
def busy_machine() -> Iterator[None]:
    """Model servers of somebody else, and two busy processes."""
    with ExitStack() as stack:
        for port in MODEL_PORTS:
            stack.enter_context(listen(port))
        for _ in range(2):
            stack.enter_context(running([*NICE, sys.executable, "-c", BUSY]))
        yield
