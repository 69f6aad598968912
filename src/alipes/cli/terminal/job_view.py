"""The output of a background process that a person follows in the terminal."""

import asyncio
from contextlib import suppress

from alipes.cli.terminal.view import SessionView
from alipes.kernel.errors import ToolError
from alipes.tools.shell.background import BackgroundProcess, BackgroundProcesses

FOLLOWED_LINES = 10
REFRESH_S = 0.2
"""Shortest time between two updates."""


class JobView:
    """Shows jobs in a `SessionView`. At most one process is followed."""

    def __init__(self, processes: BackgroundProcesses, view: SessionView) -> None:
        self._processes, self._view = processes, view
        self._scope: asyncio.Timeout | None = None
        """Open while a process is followed."""

    async def follow(self, session: str, name: str) -> None:
        """Show the output of a process until it ends or `leave` is called; an earlier one is left first."""
        self.leave()
        try:
            process = self._processes.find(session, name)
        except ToolError:
            return  # its conversation ended
        with suppress(TimeoutError):
            async with asyncio.timeout(None) as self._scope:
                await self._show_output(process)
        self._view.transcript.followed.pop(name, None)
        if process.is_finished:
            self._scope = None
            self._view.transcript.add_job_end(f"{process.title} {process.status}", await _last_lines(process))
        self._view.update()

    def leave(self) -> None:
        """Stop following; the process keeps running."""
        if self._scope is not None:
            self._scope.reschedule(0)
            self._scope = None

    async def _show_output(self, process: BackgroundProcess) -> None:
        changed = asyncio.Event()
        with process.watch(changed):
            while not process.is_finished:
                self._view.transcript.followed[process.name] = (process.title, await _last_lines(process))
                self._view.update()
                await changed.wait()
                changed.clear()
                await asyncio.sleep(REFRESH_S)


async def _last_lines(process: BackgroundProcess) -> list[str]:
    lines = (await process.log.read_lines(0, FOLLOWED_LINES)).split("\n")
    return [line for line in lines if line.strip() and not line.startswith("[lines ")]
