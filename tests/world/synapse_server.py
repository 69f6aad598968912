"""A real Synapse on loopback, shared by all tests of a run."""

import atexit
import base64
import ctypes
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from functools import cache
from pathlib import Path

from tests.world.environment import LIMIT_S, SERVICES, require
from tests.world.leftovers import LASTING

NAME = "alipes.test"
PYTHON = SERVICES / "matrix-synapse/bin/python"
PR_SET_PDEATHSIG = 1
PLENTY = "{per_second: 100000, burst_count: 100000}"
CONFIG = """\
server_name: {name}
pid_file: {folder}/pid
listeners:
  - {{port: {port}, bind_addresses: [127.0.0.1], type: http, resources: [{{names: [client], compress: false}}]}}
database: {{name: sqlite3, args: {{database: "{folder}/homeserver.db"}}}}
log_config: {folder}/log.yaml
media_store_path: {folder}/media
signing_key_path: {folder}/signing.key
macaroon_secret_key: only-for-tests
form_secret: only-for-tests
report_stats: false
trusted_key_servers: []
federation_domain_whitelist: []
presence: {{enabled: false}}
bcrypt_rounds: 4
enable_registration: true
enable_registration_without_verification: true
max_upload_size: 2M
rc_message: {plenty}
rc_registration: {plenty}
rc_login: {{address: {plenty}, account: {plenty}, failed_attempts: {plenty}}}
rc_joins: {{local: {plenty}, remote: {plenty}}}
rc_joins_per_room: {plenty}
rc_invites: {{per_room: {plenty}, per_user: {plenty}, per_issuer: {plenty}}}
rc_room_creation: {plenty}
"""
LOG = """\
version: 1
formatters: {{plain: {{format: "%(asctime)s %(name)s %(levelname)s %(message)s"}}}}
handlers: {{file: {{class: logging.FileHandler, formatter: plain, filename: "{folder}/log"}}}}
root: {{level: WARNING, handlers: [file]}}
"""


@cache
def synapse() -> str:
    """The address of the homeserver; skips the test if it is not installed."""
    python = require(str(PYTHON))
    folder = Path(tempfile.mkdtemp(prefix="synapse-"))
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    (folder / "homeserver.yaml").write_text(CONFIG.format(name=NAME, folder=folder, port=port, plenty=PLENTY))
    (folder / "log.yaml").write_text(LOG.format(folder=folder))
    seed = base64.b64encode(os.urandom(32)).decode().rstrip("=")
    (folder / "signing.key").write_text(f"ed25519 a_test {seed}\n")
    with (folder / "out").open("wb") as out:
        process = subprocess.Popen(
            [python, "-m", "synapse.app.homeserver", "-c", str(folder / "homeserver.yaml")],
            cwd=folder, stdout=out, stderr=out, stdin=subprocess.DEVNULL, preexec_fn=_end_with_us,
        )  # fmt: skip
    LASTING.callback(_end, process, folder)
    atexit.register(LASTING.close)  # for use without pytest
    _until_it_answers(f"http://127.0.0.1:{port}", process, folder)
    return f"http://127.0.0.1:{port}"


def _until_it_answers(url: str, process: "subprocess.Popen[bytes]", folder: Path) -> None:
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    deadline = time.monotonic() + LIMIT_S
    while time.monotonic() < deadline and process.poll() is None:
        try:
            with opener.open(f"{url}/health", timeout=5):
                return
        except (urllib.error.URLError, OSError):
            time.sleep(0.05)
    raise AssertionError(f"Synapse does not answer: {(folder / 'out').read_text()[-2000:]}")


def _end_with_us() -> None:
    """End it also if pytest is killed."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def _end(process: "subprocess.Popen[bytes]", folder: Path) -> None:
    process.kill()
    process.wait()
    shutil.rmtree(folder, ignore_errors=True)
