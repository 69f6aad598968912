"""Finds out whether the other end of a loopback connection is a process that an agent of this home started.

Reads /proc and may take some milliseconds: call it in a thread. Outside Linux nothing is found.
"""

import fcntl
import os
import socket
import struct
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TypeAlias

from alipes.runtime.processes.ancestors import living_agents

SocketAddress: TypeAlias = tuple[str, int]
"""Host and port."""
_LOOPBACK = ("127.0.0.1", "::1")
_HEAD = struct.Struct("=IHHII")
"""Header of a netlink message: length, type, flags, sequence, port."""
_NETLINK_SOCK_DIAG, _SOCK_DIAG_BY_FAMILY, _NLM_F_REQUEST = 4, 20, 1
_ALL_STATES = 0xFFFFFFFF
_ANY_DEVICE_AND_COOKIE = b"\0" * 4 + b"\xff" * 8
_SIOCGSKNS = 0x894C
"""Returns a descriptor of the network namespace of a socket."""
_INODE_AT = 84
"""Offset in the answer: after the header, the socket's id, timers, queues and user."""


def find_connected_child(client: SocketAddress, server: SocketAddress, *runs: Path, agents: bool = False) -> int | None:
    """The pid of the child of an agent that holds the client's end; None if it is no child of ours.

    `runs`: directories of homes, which name their processes. `agents`: also an agent itself, whose tools may connect.
    """
    if sys.platform != "linux" or client[0] not in _LOOPBACK:
        return None
    known = {os.getpid(), *(pid for run in runs for pid in living_agents(run))}
    children: set[int] = {*_list_descendants(known), *(known if agents else ())}
    if not children or not (inode := _find_inode(client, server)):
        return None
    hidden = []
    for pid in children:
        holds = _holds_socket(pid, inode)
        if holds:
            return pid
        if holds is None:
            hidden.append(pid)
    if not hidden or any(_holds_socket(pid, inode) for pid in _list_processes()):
        return None
    return hidden[0]  # nobody else holds it


def find_namespaced_peers(accepted: socket.socket) -> tuple[int, ...]:
    """Our descendants that hold the other end of a loopback connection accepted in their network namespace."""
    try:
        handle = fcntl.ioctl(accepted, _SIOCGSKNS)
    except OSError:
        return ()
    try:
        namespace = os.fstat(handle).st_ino
        client, server = accepted.getpeername()[:2], accepted.getsockname()[:2]
    except OSError:  # it was closed meanwhile
        return ()
    finally:
        os.close(handle)
    inside = [pid for pid in _list_descendants({os.getpid()}) if _namespace(pid) == namespace]
    inode = next((found for pid in inside if (found := _read_inode(pid, client, server))), 0)
    return tuple(pid for pid in inside if _holds_socket(pid, inode)) if inode else ()


def parent_of(pid: int) -> int:
    """The parent of a process; 0 if it is gone."""
    fields = _read(f"/proc/{pid}/stat").rpartition(")")[2].split()
    return int(fields[1]) if len(fields) > 1 else 0


def _namespace(pid: int) -> int:
    try:
        return os.stat(f"/proc/{pid}/ns/net").st_ino
    except OSError:
        return 0


def _read_inode(pid: int, client: SocketAddress, server: SocketAddress) -> int:
    """The inode of the client's socket, from the table of the namespace of a process."""
    wanted = [_format_address(client), _format_address(server)]
    rows = (line.split() for line in _read(f"/proc/{pid}/net/tcp").splitlines()[1:])
    return next((int(row[9]) for row in rows if row[1:3] == wanted), 0)


def _format_address(address: SocketAddress) -> str:
    number = int.from_bytes(socket.inet_aton(address[0]), sys.byteorder)
    return f"{number:08X}:{address[1]:04X}"


def _list_descendants(agents: Iterable[int]) -> Iterator[int]:
    """The children of the agents and their children, without the agents themselves."""
    agents = set(agents)
    waiting, seen = list(agents), set(agents)
    for pid in waiting:
        for child in _list_children(pid):
            if child not in seen:
                seen.add(child)
                waiting.append(child)
                yield child


def _list_children(pid: int) -> Iterator[int]:
    try:
        threads = os.listdir(f"/proc/{pid}/task")
    except OSError:
        return
    for thread in threads:
        yield from map(int, _read(f"/proc/{pid}/task/{thread}/children").split())


def _list_processes() -> Iterator[int]:
    return (int(name) for name in os.listdir("/proc") if name.isdigit())


def _find_inode(client: SocketAddress, server: SocketAddress) -> int:
    """The inode of the client's socket, from the kernel's socket diagnostics (a scan of /proc/net/tcp takes 8 ms).

    0 if it is not on this machine, is closed already, or the kernel has no diagnostics.
    """
    family = socket.AF_INET6 if ":" in client[0] else socket.AF_INET
    local, remote = (socket.inet_pton(family, host).ljust(16, b"\0") for host, _ in (client, server))
    wanted = struct.pack("!HH16s16s", client[1], server[1], local, remote)
    body = struct.pack("=BBBBI", family, socket.IPPROTO_TCP, 0, 0, _ALL_STATES) + wanted + _ANY_DEVICE_AND_COOKIE
    head = _HEAD.pack(_HEAD.size + len(body), _SOCK_DIAG_BY_FAMILY, _NLM_F_REQUEST, 0, 0)
    try:
        with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, _NETLINK_SOCK_DIAG) as kernel:
            kernel.settimeout(1.0)
            kernel.send(head + body)
            answer = kernel.recv(4096)
    except OSError:
        return 0
    if _HEAD.unpack_from(answer)[1] != _SOCK_DIAG_BY_FAMILY or answer[20:56] != wanted:
        return 0
    return int(struct.unpack_from("=I", answer, _INODE_AT)[0])


def _holds_socket(pid: int, inode: int) -> bool | None:
    """True if the process has the socket open; None if its files cannot be seen."""
    folder = f"/proc/{pid}/fd"
    try:
        names = os.listdir(folder)
    except PermissionError:
        return None
    except OSError:
        return False
    return any(_read_link(f"{folder}/{name}") == f"socket:[{inode}]" for name in names)


def _read_link(path: str) -> str:
    try:
        return os.readlink(path)
    except OSError:
        return ""


def _read(path: str) -> str:
    try:
        with open(path, encoding="ascii", errors="replace") as file:
            return file.read()
    except OSError:
        return ""
