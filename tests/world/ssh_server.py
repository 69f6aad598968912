"""A real sshd on loopback, with a throwaway home for its client."""

import getpass
import os
import shlex
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
    with socket.create_server(("127.0.0.1", 0)) as free:
        server = SshServer(folder, free.getsockname()[1])
    _write_keys(server)
    argv = [sys.executable, "-c", INIT, program, "-D", "-e", "-f", str(folder / "sshd_config")]
    with subprocess.Popen(argv, cwd="/") as process:
        try:
            _wait_until_listening(server.port)
            yield server
        finally:
            process.terminate()


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


@contextmanager
def open_other_machine(folder: Path) -> Iterator[SshServer]:
    """An sshd in its own file system, processes and network, reached by a pipe: a machine that is not this one.

    Its only writable directory is `folder/there`, which it sees at the same path.
    """
    bwrap, program = require("bwrap"), require("sshd")
    (folder / "there").mkdir(parents=True)
    server = SshServer(folder, 0)
    _write_keys(server)
    shown = [word for name in ("/usr", "/etc/passwd", "/etc/group") for word in ("--ro-bind", name, name)]
    links = [word for name in ("bin", "sbin", "lib", "lib64") for word in ("--symlink", f"usr/{name}", f"/{name}")]
    own = ["--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp", "--dir", "/run/sshd", "--dir", "/root"]
    keys = ["--ro-bind", str(folder), str(folder), "--bind", str(folder / "there"), str(folder / "there")]
    apart = ["--unshare-pid", "--unshare-net", "--unshare-ipc", "--unshare-uts", "--die-with-parent"]
    rights = ["--cap-add", "ALL"] if os.getuid() == 0 else []
    argv = [bwrap, *apart, *rights, *shown, *links, *own, *keys, program, "-i", "-e", "-f", str(folder / "sshd_config")]
    with open(folder / "client_config", "a") as config:
        config.write(f"  ProxyCommand {shlex.join(argv)}\n")
    yield server


def _write_keys(server: SshServer) -> None:
    folder, port = server.folder, server.port or 22
    for name in "host_key", "key":
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / name)], check=True)
    (folder / "authorized_keys").write_bytes((folder / "key.pub").read_bytes())
    host_key = " ".join((folder / "host_key.pub").read_text().split()[:2])
    host = f"[127.0.0.1]:{port}" if server.port else "127.0.0.1"
    (folder / "known_hosts").write_text(f"{host} {host_key}\n")
    (folder / "sshd_config").write_text(CONFIG.format(port=port, folder=folder))
    (folder / "client_config").write_text(CLIENT.format(port=port, folder=folder, user=getpass.getuser()))
