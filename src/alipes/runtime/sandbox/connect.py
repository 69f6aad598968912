"""Connects stdin and stdout to a host through an HTTP proxy, as ProxyCommand of ssh.

    python3 -I -S connect.py PROXY_PORT HOST PORT

Imports nothing of alipes, because it runs inside a sandbox where alipes is not installed.
"""

import os
import socket
import sys
import threading

BLOCK_BYTES = 64 * 1024
MAX_HEAD_BYTES = 64 * 1024


def open_tunnel(proxy_port: int, host: str, port: int) -> socket.socket:
    """A connection to the host. Exits with the proxy's answer if it refuses."""
    place = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    connection = socket.create_connection(("127.0.0.1", proxy_port))
    connection.sendall(f"CONNECT {place} HTTP/1.1\r\nHost: {place}\r\n\r\n".encode())
    head = b""
    while not head.endswith(b"\r\n\r\n"):  # byte by byte: what follows belongs to the host
        byte = connection.recv(1)
        if not byte or len(head) > MAX_HEAD_BYTES:
            sys.exit(f"The proxy gave no answer about {place}.")
        head += byte
    _, _, status = head.partition(b" ")
    if not status.startswith(b"200"):
        sys.exit(status.partition(b"\r\n")[0][4:].decode(errors="replace"))
    return connection


def copy_in(connection: socket.socket) -> None:
    """Send stdin until it ends."""
    while data := os.read(0, BLOCK_BYTES):
        connection.sendall(data)
    connection.shutdown(socket.SHUT_WR)


def copy_out(connection: socket.socket) -> None:
    """Write to stdout until the host has sent everything."""
    while data := connection.recv(BLOCK_BYTES):
        while data:
            data = data[os.write(1, data) :]


def main(proxy_port: str, host: str, port: str) -> None:
    connection = open_tunnel(int(proxy_port), host, int(port))
    threading.Thread(target=copy_in, args=(connection,), daemon=True).start()  # noqa: TID251
    copy_out(connection)


if __name__ == "__main__":
    try:
        main(*sys.argv[1:])
    except OSError as error:
        sys.exit(f"Not connected: {error}")
