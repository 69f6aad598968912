"""What a service tells systemd: ready, alive, reloading, leaving. Where nobody supervises us it is silent."""

import asyncio
import os
import socket
import time
from collections.abc import Mapping
from contextlib import suppress


class Notifier:
    """Datagrams to the socket that `NOTIFY_SOCKET` names. None of them ever waits or raises.

    The variables stay as they are, because a restart by `exec` needs them again.
    """

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._path = environ.get("NOTIFY_SOCKET", "")
        self.interval = _interval(environ)
        """Seconds between two signs of life; zero: nobody waits for them."""

    def ready(self, status: str) -> None:
        self._send("READY=1", f"STATUS={status}")

    def status(self, text: str) -> None:
        self._send(f"STATUS={text}")

    def reloading(self) -> None:
        """We are about to begin anew in the same process; `ready` follows."""
        self._send("RELOADING=1", f"MONOTONIC_USEC={time.monotonic_ns() // 1000}")

    def stopping(self, status: str) -> None:
        self._send("STOPPING=1", f"STATUS={status}")

    def patience(self, seconds: float) -> None:
        """Ask for more time to start or to stop than the unit grants."""
        self._send(f"EXTEND_TIMEOUT_USEC={int(seconds * 1e6)}")

    async def live(self) -> None:
        """Give signs of life until cancelled, as long as the loop turns."""
        if not self.interval or not self._path:
            return
        while True:
            self._send("WATCHDOG=1")
            await asyncio.sleep(self.interval)

    def _send(self, *lines: str) -> None:
        if not self._path.startswith(("/", "@")):
            return
        address = "\0" + self._path[1:] if self._path.startswith("@") else self._path
        words = "\n".join(line.replace("\n", " ") for line in lines)
        with (
            suppress(OSError),
            socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as door,
        ):
            door.setblocking(False)
            door.sendto(words.encode(), address)


def _interval(environ: Mapping[str, str]) -> float:
    """Half of what systemd waits for, if it waits for this very process."""
    wanted, whose = environ.get("WATCHDOG_USEC", ""), environ.get("WATCHDOG_PID", "")
    if not wanted.isdecimal() or (whose and whose != str(os.getpid())):
        return 0.0
    return int(wanted) / 2e6
