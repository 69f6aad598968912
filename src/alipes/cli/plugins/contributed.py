"""`alipes NAME`: a command of an enabled plugin."""

import argparse
import asyncio
import inspect
import os
import sys
from collections.abc import Callable
from typing import Any

from alipes.config.loader import load_settings
from alipes.config.settings import Settings
from alipes.core.standalone import open_standalone
from alipes.features.all import FEATURES
from alipes.kernel.formatting import did_you_mean
from alipes.plugins.discovery import has_plugins
from alipes.plugins.dispatch import guard
from alipes.plugins.interruption.attribution import on_behalf_of
from alipes.plugins.registry import CliContribution
from alipes.runtime import tasks
from alipes.runtime.log_file import open_log


def run(name: str, argv: list[str], ours: tuple[str, ...], *, is_question: bool = False) -> int | None:
    """Run the command `name` of an enabled plugin, or report that it is unknown.

    `is_question`: the words may be a question instead; then None if `name` is not like a command.
    """
    settings = load_settings()
    if not has_plugins(settings):
        return _unknown_command(name, ours, is_question)
    with open_log(settings.paths.make().log, settings.log_level, settings.secrets()):
        return tasks.run_event_loop(_run(settings, name, argv, ours, is_question=is_question))


async def _run(
    settings: Settings, name: str, argv: list[str], ours: tuple[str, ...], *, is_question: bool
) -> int | None:
    act: _PluginCommand | None = None
    try:
        async with open_standalone(settings, FEATURES) as opened:
            offer = opened.contributions.find(CliContribution, name)
            if offer is None:
                theirs = tuple(offer.name for offer in opened.contributions.all(CliContribution))
                status = _unknown_command(name, (*ours, *theirs), is_question)
                if status is not None:
                    opened.report_failures()
                return status
            act = _PluginCommand(offer, argv)
            return await guard(offer.owner, f"alipes {name}", act.run())
    finally:
        if act is not None and act.thread_running:  # its thread cannot be ended, for example while it waits for a key
            sys.stdout.flush()
            os._exit(130)


class _PluginCommand:
    """A command of a plugin. It runs in a thread, because it may block or start its own event loop."""

    def __init__(self, offer: CliContribution, argv: list[str]) -> None:
        self._offer, self._argv = offer, argv
        self.thread_running = False

    async def run(self) -> int:
        """Run the command and return its exit status."""
        try:
            with on_behalf_of(self._offer.owner):
                answer = await asyncio.to_thread(self._run_in_thread)
                if inspect.isawaitable(answer):
                    answer = await answer
        except SystemExit as left:
            answer = _exit_status(left)
        if isinstance(answer, str):
            print(answer)
        return answer if isinstance(answer, int) else 0

    def _run_in_thread(self) -> Any:
        self.thread_running = True
        try:
            parser = argparse.ArgumentParser(prog=f"alipes {self._offer.name}", description=self._offer.help or None)
            self._offer.prepare(parser)
            given = parser.parse_args(self._argv)
            act: Callable[[Any], Any] | None = self._offer.run or getattr(given, "func", None)
            if act is None:
                parser.print_help(sys.stderr)
                return 2
            return act(given)
        except SystemExit as left:  # must not leave the thread: it would end the event loop
            return _exit_status(left)
        finally:
            self.thread_running = False


def _exit_status(left: SystemExit) -> int:
    """The exit status of a SystemExit; a text is printed as an error."""
    if isinstance(left.code, str):
        sys.stderr.write(f"{left.code}\n")
        return 1
    return left.code or 0


def _unknown_command(name: str, known: tuple[str, ...], is_question: bool) -> int | None:
    near = did_you_mean(name, known)
    if is_question and not near:
        return None
    ask = f"`alipes ask {name} ...` to ask a question"
    sys.stderr.write(f"alipes: unknown command {name!r}.{near}\nTry `alipes --help`, or {ask}.\n")
    return 2
