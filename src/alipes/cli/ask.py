"""`alipes ask`: one question, one answer on standard output. The turn itself lives in the lobby."""

import asyncio
import sys
from typing import TypeAlias

from alipes.app import App, open_app
from alipes.cli import arguments, attachments
from alipes.cli.arguments import AskOptions
from alipes.cli.asking import STOPPED, Asking
from alipes.cli.interrupts import Interrupts
from alipes.cli.places import find_place, new_id, workdir
from alipes.cli.screen import Screen, wants_colour
from alipes.config.reading import read
from alipes.config.settings import Settings, build, with_plugins
from alipes.kernel.messages import Image
from alipes.kernel.turns import Inbound
from alipes.runtime import workers
from alipes.runtime.guard import guarding
from alipes.runtime.logs import open_log

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
            return workers.run(_ask(settings, options, question, colour))
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
