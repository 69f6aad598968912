"""A real sshd on loopback, with a throwaway home for its client."""

import getpass
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.world.environment import FIXED, LIMIT_S, require

CONFIG = """
ListenAddress 127.0.0.1
Port {port}
HostKey {folder}/host_key
AuthorizedKeysFile {folder}/authorized_keys
PidFile none
StrictModes no
UsePAM no
PasswordAuthentication no
KbdInteractiveAuthentication no
PermitRootLogin prohibit-password
LogLevel ERROR
"""
CLIENT = """
Host sandbox
  HostName 127.0.0.1
  Port {port}
  User {user}
  IdentityFile {folder}/key
  IdentitiesOnly yes
  UserKnownHostsFile {folder}/known_hosts
  StrictHostKeyChecking yes
"""
DESTINATION = "sandbox"
INIT = """
import ctypes, os, signal, subprocess, sys
ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)  # PR_SET_CHILD_SUBREAPER
server = subprocess.Popen(sys.argv[1:])
signal.signal(signal.SIGTERM, lambda *_: server.terminate())
try:
    while True:
        os.wait()
except ChildProcessError:
    pass
"""
"""Takes the place of the other machine's init: the orphans there are not children of the tests."""


class SshServer:
    """`client_config` is the file by which a client reaches `DESTINATION`."""

    def __init__(self, folder: Path, port: int) -> None:
        self.folder, self.port = folder, port
        self.client_config = str(folder / "client_config")
        self.environment = {"PATH": os.environ["PATH"], "HOME": str(folder), **FIXED}


@contextmanager
def open_ssh_server(folder: Path) -> Iterator[SshServer]:
    program = require("sshd")
    folder.mkdir(parents=True)
    if os.getuid() == 0:
        Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)  # sshd insists on it
    for name in "host_key", "key":
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / name)], check=True)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    (folder / "authorized_keys").write_bytes((folder / "key.pub").read_bytes())
    host_key = (folder / "host_key.pub").read_text().split()[:2]
    (folder / "known_hosts").write_text(f"[127.0.0.1]:{port} {' '.join(host_key)}\n")
    (folder / "sshd_config").write_text(CONFIG.format(port=port, folder=folder))
    (folder / "client_config").write_text(CLIENT.format(port=port, folder=folder, user=getpass.getuser()))
    argv = [sys.executable, "-c", INIT, program, "-D", "-e", "-f", str(folder / "sshd_config")]
    with subprocess.Popen(argv, cwd="/") as server:
        try:
            _wait_until_listening(port)
            yield SshServer(folder, port)
        finally:
            server.terminate()


def _wait_until_listening(port: int) -> None:
    end = time.monotonic() + LIMIT_S
    while True:
        try:
            socket.create_connection(("127.0.0.1", port)).close()
        except OSError:
            assert time.monotonic() < end, "sshd does not listen"
            time.sleep(0.01)
        else:
            return
