"""The user's own command for the status line (`terminal.status_command`)."""

import asyncio
import logging
from collections.abc import Callable, Mapping
from contextlib import suppress

import msgspec

from alipes.cli.terminal.screen.status import StatusLine
from alipes.console.render import to_one_line
from alipes.kernel import turns
from alipes.runtime.processes.child import open_child

log = logging.getLogger(__name__)
TIMEOUT_S = 2.0
MAX_BYTES = 4096
MAX_WIDTH = 60


class StatusCommand:
    """Runs the command at the start and after each turn, and shows its first line."""

    def __init__(
        self, command: str, status: StatusLine, refresh: Callable[[], None], *, cwd: str, env: Mapping[str, str]
    ) -> None:
        self._command, self._status, self._refresh = command, status, refresh
        self._cwd, self._env = cwd, env
        self._due = asyncio.Event()
        self._due.set()

    def handle_event(self, event: turns.Event) -> None:
        if isinstance(event, turns.TurnEnded | turns.SessionChanged):
            self._due.set()

    async def run(self) -> None:
        """Serve until cancelled; without a command there is nothing to do."""
        while self._command:
            await self._due.wait()
            self._due.clear()
            try:
                async with asyncio.timeout(TIMEOUT_S):
                    line = await self._read_line()
            except (OSError, TimeoutError) as error:
                log.warning("terminal.status_command failed: %s", str(error) or f"no answer within {TIMEOUT_S:g} s")
                line = ""
            if line != self._status.extra:
                self._status.extra = line
                self._refresh()

    async def _read_line(self) -> str:
        output = b""
        async with open_child(self._command, cwd=self._cwd, env=self._env, link="pipes") as child:
            with suppress(OSError):  # the command may not read its input
                await child.input.write(msgspec.json.encode(self._facts()) + b"\n", TIMEOUT_S)
            child.input.close()
            while len(output) < MAX_BYTES and (piece := await child.read()):
                output += piece
        return to_one_line(output.decode("utf-8", "replace").strip().partition("\n")[0], MAX_WIDTH)

    def _facts(self) -> dict[str, str | int | float | None]:
        status = self._status
        return {
            "folder": self._cwd,
            "branch": status.branch,
            "model": status.model,
            "mode": status.mode or "ask",
            "context_tokens": status.context_tokens,
            "window": status.window,
            "cost": status.cost,
            "jobs": status.jobs,
        }
