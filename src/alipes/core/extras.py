"""Installs what a tool lacks at its first use, after a yes of the person at the terminal."""

import asyncio
import importlib
import os
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeAlias

from alipes.agent.builtin_tools import AsksPeople
from alipes.config import extras
from alipes.config.environment import process_environment
from alipes.config.paths import find_root
from alipes.config.settings import Settings
from alipes.kernel.errors import ToolError
from alipes.kernel.turns import Turn
from alipes.plugins.interruption.attribution import TURN
from alipes.runtime.program_name import name_program

TERMINAL = "terminal"
YES, NO = "yes", "no"
RunInstaller: TypeAlias = Callable[[str], Awaitable[None]]
"""Installs what a requirements file says. Raises `ToolError`."""


async def run_installer(requirements: str) -> None:
    """Install in a child process, which ends with the turn."""
    import tempfile  # noqa: PLC0415

    from alipes.runtime import packages  # noqa: PLC0415
    from alipes.runtime.processes.child import open_child  # noqa: PLC0415

    with tempfile.NamedTemporaryFile("w", suffix=".txt") as file:
        file.write(requirements)
        file.flush()
        argv, output = (sys.executable, "-I", packages.__file__, file.name), b""
        async with open_child(argv, cwd=os.sep, env=process_environment()) as child:
            while piece := await child.read():
                output += piece
            status = await child.wait()
    if status:
        last = output.decode(errors="replace").strip().splitlines()[-1:]
        raise ToolError(last[0] if last else "The packages could not be installed.")


class ExtraInstaller:
    """One question at a time. What a person has declined is not asked again by this process."""

    def __init__(
        self,
        questions: AsksPeople,
        settings: Settings,
        notify: Callable[[str, Turn | None], None],
        *,
        run: RunInstaller = run_installer,
        is_installed: Callable[[str], bool] = extras.is_installed,
    ) -> None:
        self._questions, self._notify, self._run, self.is_installed = questions, notify, run, is_installed
        self._root, self._auto, self._timeout = (
            find_root(settings.home),
            settings.install.auto,
            settings.clarify.timeout,
        )
        self._lock = asyncio.Lock()
        self._declined: set[str] = set()

    async def require(self, name: str, turn: Turn | None = None) -> None:
        """See `RequireExtra`. `turn`: whose person is asked, if it is not the one that runs."""
        if self.is_installed(name):
            return
        async with self._lock:
            if self.is_installed(name):
                return
            from alipes.runtime import packages  # noqa: PLC0415

            turn = turn or TURN.get()
            if obstacle := packages.find_obstacle():
                raise ToolError(f"{extras.describe_need(name)}. {obstacle}")
            if not await self._may_install(name, turn):
                raise ToolError(name_program(extras.explain_missing(name)))
            self._notify(f"{extras.describe_need(name)}: installing now.", turn)
            await self._install(name)

    async def _may_install(self, name: str, turn: Turn | None) -> bool:
        """By the settings, by a yes that was given before an upgrade, or by one that is given now."""
        if self._auto or name in extras.read_added(self._root):
            return True
        if turn is None or name in self._declined or _place(turn) != TERMINAL:
            return False
        question = f"{extras.describe_need(name)}. Install them now?"
        answer = await self._questions.ask_question(turn, question, (YES, NO), self._timeout)
        if answer is None or answer.unasked:
            return False
        agreed = answer.text.strip().lower().rstrip(".!") in (YES, "y", "ok")
        if not agreed:
            self._declined.add(name)
        return agreed

    async def _install(self, name: str) -> None:
        try:
            await self._run(extras.select_missing((name,)))
        except ToolError as error:
            raise ToolError(name_program(f"{error} The command is `{extras.install_command(name)}`.")) from error
        importlib.invalidate_caches()
        if not self.is_installed(name):
            raise ToolError(name_program(f"{extras.explain_missing(name)} It was tried now, without success."))
        await asyncio.to_thread(extras.remember_added, Path(self._root), (name,))


def _place(turn: Turn) -> str:
    origin = turn.inbound.origin
    return (turn.inbound.address if origin is None else origin.address).platform
