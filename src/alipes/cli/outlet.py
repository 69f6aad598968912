"""Text to a file descriptor without ever blocking the loop. It knows nothing of what the text means."""

import asyncio
import os
import select

CHUNK = 4096  # PIPE_BUF: what a descriptor that polls as writable takes at once


class Outlet:
    """Written text leaves at the loop's next turn, all that came together in one piece.

    A reader that is slow makes the text wait here, not the loop; a reader that went away
    sets `deserted`, and whatever is written after that is dropped.
    """

    def __init__(self, fd: int | None) -> None:
        """`fd` None: there is nobody to write to."""
        self._fd = fd
        self._loop = asyncio.get_running_loop()
        self._waiting = bytearray()
        self._scheduled: asyncio.Handle | None = None
        self._watched = False
        self._emptied = asyncio.Event()
        self.deserted = asyncio.Event()
        self.failure: OSError | None = None
        """Why it is deserted."""
        self._poll = select.poll()
        if fd is not None:
            self._poll.register(fd, select.POLLOUT)

    @property
    def busy(self) -> bool:
        """What was written before has not left yet, because the reader is slow."""
        return self._watched

    def write(self, text: str | bytes) -> None:
        if self._fd is None or self.deserted.is_set():
            return
        self._waiting += text.encode("utf-8", "replace") if isinstance(text, str) else text
        self._emptied.clear()
        if self._scheduled is None and not self._watched:
            self._scheduled = self._loop.call_soon(self.push)

    def push(self) -> None:
        """Write now whatever can be written without waiting."""
        if self._scheduled is not None:
            self._scheduled.cancel()
            self._scheduled = None
        try:
            while self._waiting and self._poll.poll(0):
                assert self._fd is not None
                del self._waiting[: os.write(self._fd, self._waiting[:CHUNK])]
        except OSError as error:  # nobody reads it, or the disk is full: nobody gets this any more
            self._waiting.clear()
            self.failure = error
            self.deserted.set()
        self._watch(bool(self._waiting))
        if not self._waiting:
            self._emptied.set()

    async def drained(self) -> None:
        """Return once everything written has left, or nobody is there to take it."""
        self.push()
        if self._waiting:
            await self._emptied.wait()

    def close(self) -> None:
        """Stop watching the descriptor; what still waits is dropped. The descriptor stays open."""
        self._waiting.clear()
        self.push()

    def _watch(self, wanted: bool) -> None:
        if wanted == self._watched or self._fd is None:
            return
        self._watched = wanted
        if wanted:
            self._loop.add_writer(self._fd, self.push)
        else:
            self._loop.remove_writer(self._fd)
