"""Notifications to systemd: ready, watchdog, reloading, stopping. Does nothing without systemd."""

import asyncio
import os
import socket
import time
from collections.abc import Mapping
from contextlib import suppress


class SystemdNotifier:
    """Sends datagrams to `NOTIFY_SOCKET`. No method blocks or raises.

    The variables are kept, because a restart by `exec` needs them again.
    """

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._path = environ.get("NOTIFY_SOCKET", "")
        wanted, whose = environ.get("WATCHDOG_USEC", ""), environ.get("WATCHDOG_PID", "")
        applies = wanted.isdecimal() and whose in ("", str(os.getpid()))
        self.interval = int(wanted) / 2e6 if applies else 0.0
        """Seconds between watchdog pings, half of what systemd expects; zero: not requested."""

    def ready(self, status: str) -> None:
        self._send("READY=1", f"STATUS={status}")

    def status(self, text: str) -> None:
        self._send(f"STATUS={text}")

    def reloading(self) -> None:
        """Announce a restart in the same process; `ready` follows."""
        self._send("RELOADING=1", f"MONOTONIC_USEC={time.monotonic_ns() // 1000}")

    def stopping(self, status: str) -> None:
        self._send("STOPPING=1", f"STATUS={status}")

    def extend_timeout(self, seconds: float) -> None:
        """Ask for more time to start or stop."""
        self._send(f"EXTEND_TIMEOUT_USEC={int(seconds * 1e6)}")

    async def send_watchdog_pings(self) -> None:
        if not self.interval or not self._path:
            return
        while True:
            self._send("WATCHDOG=1")
            await asyncio.sleep(self.interval)

    def _send(self, *lines: str) -> None:
        if not self._path.startswith(("/", "@")):
            return
        address = "\0" + self._path[1:] if self._path.startswith("@") else self._path
        text = "\n".join(line.replace("\n", " ") for line in lines)
        with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sender:
            sender.setblocking(False)
            sender.sendto(text.encode(), address)
