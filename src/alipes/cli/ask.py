"""`alipes ask`: one question, one answer on standard output. The turn itself lives in the lobby."""

import asyncio
import os
import sys
from typing import TextIO, TypeAlias

import msgspec
from msgspec import structs

from alipes.app import App, open_app
from alipes.cli import attachments
from alipes.cli import options as arguments
from alipes.cli.common import find_place, new_id, workdir
from alipes.cli.options import AskOptions, TalkOptions
from alipes.cli.render import Telling, one_line
from alipes.cli.signals import Interrupts
from alipes.cli.stdio import Screen, wants_colour
from alipes.config.loader import read
from alipes.config.settings import Settings, build, with_plugins
from alipes.kernel.errors import NotTaken
from alipes.kernel.messages import Image
from alipes.kernel.turns import Inbound, TurnEnded
from alipes.runtime import threads
from alipes.runtime.log_file import open_log
from alipes.runtime.unhandled import guarding
from alipes.sessions.event_stream import Following
from alipes.sessions.subagents.text import interrupted

STATUS = {"answered": 0, "steered": 0, "failed": 1, "out_of_steps": 1, "stopped": 130}
STOPPED, UNREAD = 130, 141


class Asking:
    """Asks through the lobby, so the turn may live here or in the process that holds the session."""

    def __init__(
        self,
        app: App,
        screen: Screen,
        interrupts: Interrupts,
        *,
        json: bool = False,
        verbose: bool = False,
        quiet: bool = False,
    ) -> None:
        self._app, self._screen, self._interrupts = app, screen, interrupts
        self._telling = Telling(screen.answer, screen.remark, verbose=verbose, quiet=quiet or json)
        self._encode = msgspec.json.Encoder().encode if json else None

    async def ask(self, inbound: Inbound, *, last: bool = False) -> int:
        """Ask, show everything until the turn has ended, and return what that means as an exit status.

        `last`: the process leaves then.
        """
        key = inbound.address.key
        async with self._app.lobby.ask(inbound, "queue") as following, asyncio.TaskGroup() as watching:
            if last and following.turn is not None:
                self._app.lobby.last[key] = following.turn
            self._interrupts.begin()
            watches = (
                watching.create_task(self._heed(following, key)),
                watching.create_task(self._notice_desertion()),
            )
            try:
                status = await self._follow(following)
            finally:
                self._interrupts.end()
                for watch in watches:
                    watch.cancel()
        await self._screen.drained()
        if self._screen.failure:
            self._screen.complain(f"the answer cannot be written: {self._screen.failure}")
            return 1
        return UNREAD if self._screen.deserted.is_set() else status

    def complain(self, text: str) -> None:
        self._screen.complain(text)

    async def wait_for_others(self) -> None:
        """Turns that another process left unfinished came to us; they are not left a second time."""
        if others := self._app.lobby.recovered:
            self._screen.remark(f"· finishing what was interrupted: {one_line(interrupted(others), 100)}")
            await self._app.lobby.settled()

    async def _follow(self, following: Following) -> int:
        async for event in following:
            if self._encode is not None:
                self._screen.line(self._encode(event))
            else:
                self._telling.tell(event)
            if isinstance(event, TurnEnded):
                return STATUS[event.ending]
        return 1

    async def _heed(self, following: Following, key: str) -> None:
        await self._interrupts.asked.wait()
        assert following.turn is not None
        stop = self._interrupts.stop(following.turn)
        await self._app.lobby.post(key, stop)
        await self._interrupts.insisted.wait()
        # Who takes the turn up after us must find that it was stopped.
        await self._app.store.turns.put_control(key, stop)
        self._interrupts.leave()

    async def _notice_desertion(self) -> None:
        await self._screen.deserted.wait()
        self._interrupts.ask("disconnected")


Question: TypeAlias = tuple[str, tuple[Image, ...]]


def run(argv: list[str]) -> int:
    options = arguments.ask(argv)
    reading = read()
    settings = with_plugins(build(reading), not options.safe)
    question = _question(options)
    if not question[0].strip() and not question[1]:
        sys.stderr.write("alipes ask: there is nothing to ask\nTry `alipes ask --help`.\n")
        return 2
    colour = wants_colour(reading.variables)
    with open_log(settings.paths.make().log, settings.log_level, settings.secrets()):
        try:
            return threads.run(_ask(settings, options, question, colour))
        except asyncio.CancelledError:  # by a signal; the loop is closed, and so is all that was open
            return STOPPED


def _question(options: AskOptions) -> Question:
    """What is asked and shown: the prompt, the images, and what was piped in."""
    images = tuple(attachments.read_image(name) for name in options.images)
    if sys.stdin is None or sys.stdin.isatty():
        return options.prompt, images
    piped = attachments.read_piped(sys.stdin.buffer)
    shown = images if piped.image is None else (*images, piped.image)
    return attachments.with_context(options.prompt, piped.text), shown


async def _ask(settings: Settings, options: AskOptions, question: Question, colour: bool) -> int:
    screen = Screen(sys.stdout, sys.stderr, colour=colour)
    try:
        with Interrupts() as interrupts, guarding(screen.complain):
            async with open_app(settings) as app:
                asking = Asking(
                    app,
                    screen,
                    interrupts,
                    json=options.json,
                    verbose=options.verbose,
                    quiet=options.quiet,
                )
                inbound = await _inbound(app, options, question)
                if not (options.quiet or options.json):
                    await _introduce(app, options, inbound, screen)
                status = await asking.ask(inbound, last=True)
                if not interrupts.asked.is_set():
                    await asking.wait_for_others()
                return status
    finally:
        screen.close()


async def _inbound(app: App, options: AskOptions, question: Question) -> Inbound:
    if options.model:
        await app.models.open(options.model)  # a wrong name is told before anything is kept
    text, images = question
    return Inbound(
        id=new_id(),
        address=await find_place(options.where, app.store.archive),
        sender="owner",
        text=text,
        attachments=images,
        model=options.model,
        workdir=workdir(),
        trusted=options.trusted,
    )


async def _introduce(app: App, options: AskOptions, inbound: Inbound, screen: Screen) -> None:
    """Who answers, where a person would not expect it; where the conversation is kept, if wanted."""
    choice = None if options.model else await app.choice()
    if choice is not None and options.verbose:
        screen.remark(f"· {choice.model}. {choice.why}")
    elif choice is not None and choice.toy:
        screen.remark(f"· {choice.model} answers, which is a toy; `alipes model` tells how to choose another")
    if options.verbose:
        screen.remark(f"· session {inbound.address.chat}")


PIECE = 65_536


def run_piped(argv: list[str]) -> int:
    options = arguments.talk(argv)
    reading = read()
    settings = with_plugins(build(reading), not options.safe)
    colour = wants_colour(reading.variables)
    with open_log(settings.paths.make().log, settings.log_level, settings.secrets()):
        try:
            return threads.run(_converse(settings, options, colour))
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
