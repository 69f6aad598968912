"""The conversation in the terminal, line by line: typing, telling and stopping are tasks of one loop."""

import asyncio
import os
import signal
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, TypeAlias

from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.patch_stdout import patch_stdout

from alipes import __version__
from alipes.cli import arguments, programs
from alipes.cli.arguments import TalkOptions
from alipes.cli.page import Page
from alipes.cli.places import find_place, new_id, new_place
from alipes.cli.render import Telling, one_line
from alipes.cli.screen import wants_colour
from alipes.config.near import did_you_mean
from alipes.config.reading import read
from alipes.config.settings import Settings, build
from alipes.kernel.turns import Address, Inbound, Stop, TurnEnded, TurnStarted
from alipes.runtime.guard import guarding
from alipes.runtime.logs import open_log

if TYPE_CHECKING:
    from alipes.app import App

Opening: TypeAlias = "Callable[[Settings], AbstractAsyncContextManager[App]]"
COMMANDS = {
    "/help": "show this list",
    "/new": "begin a new conversation",
    "/stop": "stop what is being done (also Ctrl-C)",
    "/quit": "leave (also Ctrl-D)",
}

LEAVING = "· still working: Ctrl-C stops it; Ctrl-D again leaves, and it goes on at the next start"


def run(argv: list[str], open_app: Opening) -> int:
    """Talk until the person leaves. `open_app` is called once the prompt stands, as it takes a moment."""
    options = arguments.talk(argv)
    reading = read()
    settings = build(reading)
    colour = wants_colour(reading.variables)
    with open_log(settings.paths.make().log, settings.log_level, settings.secrets()):
        try:
            return asyncio.run(_run(Talk(settings, options, open_app, colour=colour)))
        except asyncio.CancelledError:  # by a signal: what was being done is taken up at the next start
            return 130


async def _run(talk: "Talk") -> int:
    main, loop = asyncio.current_task(), asyncio.get_running_loop()
    assert main is not None
    for number in (signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(number, main.cancel)
    with guarding(talk.complain), patch_stdout(raw=True):
        await talk.run()
    return 0


class Talk:
    """One conversation at a time, on the session that `options` name."""

    def __init__(self, settings: Settings, options: TalkOptions, open_app: Opening, *, colour: bool) -> None:
        self._settings, self._options, self._open_app = settings, options, open_app
        self._page = Page(self._keys(), self._status, colour=colour)
        self._typed: asyncio.Queue[str] = asyncio.Queue()
        self._waiting: list[str] = []
        """What was typed and is not being answered yet."""
        self._living: dict[str, Address] = {}
        """The turns that were asked for here and have not ended."""
        self._app: App | None = None
        self._place: Address | None = None
        self._stops: asyncio.Queue[Stop] = asyncio.Queue()
        self._warned = False

    async def run(self) -> None:
        """Until the person leaves; unfinished turns are then kept for the next start."""
        self._page.remark(f"alipes {__version__} · /help for the commands, Ctrl-D to leave")
        async with asyncio.TaskGroup() as group:
            house = group.create_task(self._serve())
            await self._read()
            house.cancel()

    def complain(self, line: str) -> None:
        self._page.remark(f"alipes: {line}")

    async def _read(self) -> None:
        while True:
            try:
                text = await self._page.read()
            except EOFError:
                return
            word = text.strip()
            if word == "/quit":
                return
            if word.startswith("/") and word[1:].isalpha():
                self._page.echo(word)
                self._command(word)
            elif word:
                self._waiting.append(text)
                self._typed.put_nowait(text)

    def _command(self, word: str) -> None:
        match word:
            case "/help":
                for name, meaning in COMMANDS.items():
                    self._page.remark(f"  {name:6} {meaning}")
                self._page.remark("What you type while something is being done is answered next.")
            case "/stop":
                self._stop("user_stop", "stop_command")
            case "/new":
                if self._living:
                    self._stop("reset", "new_command")
                self._place = new_place()
                self._page.remark("· a new conversation")
            case _:
                self._page.remark(
                    f"· there is no {word}.{did_you_mean(word, COMMANDS)} /help shows the commands"
                )

    def _stop(self, reason: str, invalidation_reason: str) -> None:
        if self._living:
            self._stops.put_nowait(Stop(reason, invalidation_reason))
        else:
            self._page.remark("· nothing is being done")

    async def _serve(self) -> None:
        async with self._open_app(self._settings) as app:
            orphans = await app.store.turns.orphans()  # before the lobby takes them up
            self._app = app
            self._place = self._place or await find_place(self._options.where, app.store.archive)
            async with asyncio.TaskGroup() as turns:
                turns.create_task(self._pass_on_stops(app))
                if self._place.key in orphans:
                    turns.create_task(self._overhear(app, self._place))
                await self._introduce(app, orphans)
                while True:
                    text = await self._typed.get()
                    accepted = asyncio.Event()
                    turns.create_task(self._ask(app, text, accepted))
                    await accepted.wait()  # so that they are answered in the order they were typed

    async def _introduce(self, app: "App", orphans: tuple[str, ...]) -> None:
        """Which model answers and why, and what else a person should know at the start."""
        if self._options.model:
            backend = await app.models.open(self._options.model)
            self._page.remark(f"{backend.name} answers, as asked with --model.")
        else:
            choice = await app.choice()
            self._page.remark(f"{choice.model} answers. {choice.why}")
        for note in (*self._settings.notes, programs.tell_once(self._settings.home)):
            if note:
                self._page.remark(f"· {note}")
        if orphans:
            self._page.remark(f"· taking up what was interrupted: {', '.join(orphans)}")

    async def _ask(self, app: "App", text: str, accepted: asyncio.Event) -> None:
        assert self._place is not None
        inbound = Inbound(
            id=new_id(),
            address=self._place,
            sender="owner",
            text=text,
            model=self._options.model,
            workdir=os.getcwd(),
            trusted=self._options.trusted,
        )
        telling = Telling(self._page.answer, self._page.remark)
        async with app.lobby.ask(inbound) as following:
            assert following.turn is not None
            self._living[following.turn] = inbound.address
            accepted.set()
            try:
                async for event in following:
                    if not telling.begun:
                        self._waiting.remove(text)
                        self._page.echo(text)
                    telling.tell(event)
            finally:
                del self._living[following.turn]
        self._page.remark("")

    async def _overhear(self, app: "App", place: Address) -> None:
        """Show the turn that was interrupted here and goes on now; ours come after it."""
        telling = Telling(self._page.answer, self._page.remark)
        async with app.store.bus.subscribe(place.key) as envelopes:
            async for envelope in envelopes:
                if isinstance(envelope.event, TurnStarted):
                    self._living[envelope.turn] = place
                    self._page.echo(envelope.event.text)
                telling.tell(envelope.event)
                if isinstance(envelope.event, TurnEnded):
                    break
        self._living.pop(envelope.turn, None)
        self._page.remark("")

    async def _pass_on_stops(self, app: "App") -> None:
        while True:
            stop = await self._stops.get()
            for key in {place.key for place in self._living.values()}:
                await app.lobby.post(key, stop)

    def _status(self) -> str:
        doing = "· starting" if self._app is None else "· working; Ctrl-C stops it" if self._living else ""
        waiting = [f"> {one_line(text, 60)}" for text in self._waiting]
        return "\n".join(line for line in (doing, *waiting) if line)

    def _keys(self) -> KeyBindings:
        keys = KeyBindings()
        keys.add("c-c")(self._on_ctrl_c)
        keys.add("<sigint>")(self._on_ctrl_c)
        keys.add("c-d")(self._on_ctrl_d)
        return keys

    def _on_ctrl_c(self, event: KeyPressEvent) -> None:
        """Stop the turn and keep what is being typed; without a turn, clear that; else say how to leave."""
        if self._living:
            self._stop("user_stop", "session_interrupt")
        elif event.current_buffer.text:
            event.current_buffer.reset()
        else:
            self._page.remark("· Ctrl-D or /quit leaves")

    def _on_ctrl_d(self, event: KeyPressEvent) -> None:
        if event.current_buffer.text:
            event.current_buffer.delete()
        elif self._living and not self._warned:
            self._warned = True
            self._page.remark(
                "· still working: Ctrl-C stops it; Ctrl-D again leaves, and it goes on at the next start"
            )
        else:
            event.app.exit(exception=EOFError)
