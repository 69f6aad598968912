"""A conversation where there is no terminal: each line that comes in is asked, each answer goes out."""

import asyncio
import os
import sys
from typing import TextIO

from msgspec import structs

from alipes.app import open_app
from alipes.cli import arguments
from alipes.cli.arguments import TalkOptions
from alipes.cli.asking import STOPPED, Asking
from alipes.cli.interrupts import Interrupts
from alipes.cli.places import find_place, new_id, workdir
from alipes.cli.screen import Screen, wants_colour
from alipes.config.reading import read
from alipes.config.settings import Settings, build, with_plugins
from alipes.kernel.errors import NotTaken
from alipes.kernel.turns import Inbound
from alipes.runtime import workers
from alipes.runtime.guard import guarding
from alipes.runtime.logs import open_log

PIECE = 65_536


def run(argv: list[str]) -> int:
    options = arguments.talk(argv)
    reading = read()
    settings = with_plugins(build(reading), not options.safe)
    colour = wants_colour(reading.variables)
    with open_log(settings.paths.make().log, settings.log_level, settings.secrets()):
        try:
            return workers.run(_converse(settings, options, colour))
        except asyncio.CancelledError:  # by a signal
            return STOPPED


async def _converse(settings: Settings, options: TalkOptions, colour: bool) -> int:
    """Until the input ends; the status of the last answer."""
    screen = Screen(sys.stdout, sys.stderr, colour=colour)
    status = 0
    try:
        with Interrupts() as interrupts, guarding(screen.complain):
            async with open_app(settings) as app:
                if options.model:
                    await app.models.open(options.model)
                place = await find_place(options.where, app.store.archive)
                message = Inbound("", place, "owner", "", model=options.model, trusted=options.trusted)
                message = structs.replace(message, workdir=workdir())
                asking, lines = Asking(app, screen, interrupts), Lines(sys.stdin)
                while (line := await lines.next()) is not None:
                    if line.strip():
                        status = await _said(asking, structs.replace(message, id=new_id(), text=line))
                    if interrupts.asked.is_set():  # also when the answer was just complete
                        return status or STOPPED
                await asking.wait_for_others()
                return status
    finally:
        screen.close()


async def _said(asking: Asking, inbound: Inbound) -> int:
    try:
        return await asking.ask(inbound)
    except NotTaken as refused:  # one message; the next may pass
        asking.complain(str(refused))
        return 1


class Lines:
    """The lines of a stream as they come, whatever it is: a pipe, a file, a terminal."""

    def __init__(self, stream: TextIO | None) -> None:
        self._fd = None if stream is None else stream.fileno()
        self._held = b""
        self._ended = stream is None

    async def next(self) -> str | None:
        """The next line without its break; None at the end."""
        while b"\n" not in self._held and not self._ended:
            piece = await self._read()
            self._ended = not piece
            self._held += piece
        line, found, rest = self._held.partition(b"\n")
        self._held = rest
        return line.decode("utf-8", "replace") if line or found else None

    async def _read(self) -> bytes:
        assert self._fd is not None
        loop, ready = asyncio.get_running_loop(), asyncio.Event()
        try:
            loop.add_reader(self._fd, ready.set)
        except PermissionError:  # a plain file is always ready, and cannot be watched
            return os.read(self._fd, PIECE)
        try:
            await ready.wait()
        finally:
            loop.remove_reader(self._fd)
        return os.read(self._fd, PIECE)
