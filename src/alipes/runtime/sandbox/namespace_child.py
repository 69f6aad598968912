"""Program that makes a network namespace in which only loopback exists, with a listening socket for the proxy.

It runs in a separate Python process, passes the namespaces and the socket to its parent, and exits. It must
not import anything of alipes.
"""

import ctypes
import fcntl
import os
import socket
import struct
import sys

CLONE_NEWUSER, CLONE_NEWNET = 0x10000000, 0x40000000
SIOCSIFFLAGS, IFF_UP, IFF_RUNNING = 0x8914, 0x1, 0x40


def main(channel: int, port: int) -> None:
    user, group = os.getuid(), os.getgid()
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(CLONE_NEWUSER | CLONE_NEWNET):
        raise OSError(ctypes.get_errno(), "user namespaces are not available")
    _write("setgroups", "deny")
    _write("uid_map", f"{user} {user} 1")
    _write("gid_map", f"{group} {group} 1")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        fcntl.ioctl(any_socket, SIOCSIFFLAGS, struct.pack("16sH14s", b"lo", IFF_UP | IFF_RUNNING, b""))
    listener = socket.socket()
    listener.bind(("127.0.0.1", port))
    listener.listen(128)
    namespaces = [os.open(f"/proc/self/ns/{name}", os.O_RDONLY) for name in ("user", "net")]
    socket.send_fds(socket.socket(fileno=channel), [b"ok"], [*namespaces, listener.fileno()])


def _write(name: str, text: str) -> None:
    with open(f"/proc/self/{name}", "w") as file:
        file.write(text)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
