"""`alipes NAME`, where NAME is a plugin's own command: its words are parsed, its code is run."""

import argparse
import asyncio
import inspect
import os
import sys
from collections.abc import Callable
from typing import Any

from alipes.cli.plugins.alone import Opened, open_alone
from alipes.config.near import did_you_mean
from alipes.config.settings import Settings, load
from alipes.hooks.finding import anything_wanted
from alipes.hooks.offers import CliOffer
from alipes.hooks.relay import guard
from alipes.hooks.tracking import on_behalf_of
from alipes.runtime import workers
from alipes.runtime.logs import open_log


def run(name: str, argv: list[str], ours: tuple[str, ...]) -> int:
    """Run what an enabled plugin offers as `name`; if none does, say which commands there are."""
    settings = load()
    if not anything_wanted(settings):
        return _refuse(name, ours)
    with open_log(settings.paths.make().log, settings.log_level, settings.secrets()):
        return workers.run(_run(settings, name, argv, ours))


async def _run(settings: Settings, name: str, argv: list[str], ours: tuple[str, ...]) -> int:
    act: _Act | None = None
    try:
        async with open_alone(settings) as opened:
            offer = opened.offers.find(CliOffer, name)
            if offer is None:
                return _absent(opened, name, ours)
            act = _Act(offer, argv)
            return await guard(offer.owner, f"alipes {name}", act.done())
    finally:
        if act is not None and act.blocks:  # it waits for a key, perhaps: nothing can make its thread end
            sys.stdout.flush()
            os._exit(130)


class _Act:
    """One command of a plugin. It runs in a thread: it may block, or make a loop of its own."""

    def __init__(self, offer: CliOffer, argv: list[str]) -> None:
        self._offer, self._argv = offer, argv
        self.blocks = False
        """Its thread is at work."""

    async def done(self) -> int:
        """Its status, once it is done."""
        try:
            with on_behalf_of(self._offer.owner):
                answer = await asyncio.to_thread(self._begin)
                if inspect.isawaitable(answer):
                    answer = await answer
        except SystemExit as left:
            answer = _left(left)
        if isinstance(answer, str):
            print(answer)
        return answer if isinstance(answer, int) else 0

    def _begin(self) -> Any:
        self.blocks = True
        try:
            parser = argparse.ArgumentParser(
                prog=f"alipes {self._offer.name}", description=self._offer.help or None
            )
            self._offer.prepare(parser)
            given = parser.parse_args(self._argv)
            act: Callable[[Any], Any] | None = self._offer.run or getattr(given, "func", None)
            if act is None:
                parser.print_help(sys.stderr)
                return 2
            return act(given)
        except SystemExit as left:  # must not leave a thread as such: it would end the loop
            return _left(left)
        finally:
            self.blocks = False


def _left(left: SystemExit) -> int:
    """The status of who leaves as argparse does; a text as status is the reason."""
    if isinstance(left.code, str):
        sys.stderr.write(f"{left.code}\n")
        return 1
    return left.code or 0


def _absent(opened: Opened, name: str, ours: tuple[str, ...]) -> int:
    theirs = tuple(offer.name for offer in opened.offers.all(CliOffer))
    status = _refuse(name, (*ours, *theirs))
    for facts in opened.plugins.facts():
        if facts.state != "on":
            sys.stderr.write(f"The plugin {facts.name} could not be loaded: {facts.why}\n")
    return status


def _refuse(name: str, known: tuple[str, ...]) -> int:
    sys.stderr.write(
        f"alipes: there is no command {name!r}.{did_you_mean(name, known)}\nTry `alipes --help`.\n"
    )
    return 2
