"""A conversation in the terminal: what is typed goes to the session, what happens there is shown.

Loaded when the prompt stands already: everything slow is behind this door.
"""

import asyncio
import os
from contextlib import suppress

from msgspec import structs

from alipes.app import App, open_app
from alipes.cli import common
from alipes.cli.common import PLATFORM, find_place, new_id
from alipes.cli.options import TalkOptions
from alipes.cli.terminal.commands import Clerk
from alipes.cli.terminal.key_bindings import Halt, Typed, Word
from alipes.cli.terminal.terminal import Terminal
from alipes.cli.terminal.view import Show
from alipes.config.settings import Settings
from alipes.kernel.errors import NotTaken
from alipes.kernel.turns import Address, Answer, Event, Inbound, Reply, Said, Stop, TurnEnded
from alipes.sessions import commands
from alipes.sessions.event_stream import Watch
from alipes.sessions.subagents.text import interrupted

COURSE = frozenset({"new", "resume", "branch", "undo", "retry"})
"""Commands that decide which conversation a message reaches: one typed after them must not overtake them."""
FAREWELL = 2.0
"""Seconds that a stop may still take when the person has left."""


async def serve(terminal: Terminal, settings: Settings, options: TalkOptions, left: asyncio.Event) -> None:
    """Serve the person at the terminal until they have `left`."""
    async with open_app(settings, interactive=True) as app:
        orphans = await app.store.turns.orphans()  # before the lobby takes them up
        talk = Talk(terminal, app, options, await _place(options, app))
        async with asyncio.TaskGroup() as group:
            works = (talk.introduce(orphans), talk.watch(), talk.submit(), talk.read())
            tasks = [group.create_task(work) for work in works]
            await left.wait()
            await talk.part()
            for task in tasks:
                task.cancel()


async def _place(options: TalkOptions, app: App) -> Address:
    """Where the conversation takes place: where it was interrupted, unless another is asked for."""
    if not options.where.name and not options.where.latest:
        latest = await app.store.archive.latest(PLATFORM)
        if latest is not None and latest.unfinished:
            holder = await app.store.turns.holder(latest.key)
            if holder in (None, app.store.host):
                return latest.address
    return await find_place(options.where, app.store.archive)


class Talk:
    """One conversation. Its works run side by side until they are cancelled."""

    def __init__(self, terminal: Terminal, app: App, options: TalkOptions, place: Address) -> None:
        self._terminal, self._app, self._place = terminal, app, place
        self._inbound = Inbound(
            id="",
            address=place,
            sender="owner",
            text="",
            model=options.model,
            workdir=app.settings.workdir or os.getcwd(),
            trusted=options.trusted,
        )
        self._show = Show(terminal, thinking=app.settings.terminal.thinking)
        self._clerk = Clerk(terminal, app, self._show)
        self._outgoing: asyncio.Queue[Typed] = asyncio.Queue()
        self._models: asyncio.Queue[str] = asyncio.Queue()
        self._halted = False

    async def introduce(self, orphans: tuple[str, ...]) -> None:
        """Which model answers and why, and what else a person should know at the start."""
        app, show = self._app, self._show
        if self._inbound.model:
            model = (await app.models.open(self._inbound.model)).name
            self._inbound = structs.replace(self._inbound, model=model)
            show.note(f"{model} answers, as asked with --model.")
        else:
            choice = await app.choice()
            model = choice.model
            show.note(f"{model} answers. {choice.why}")
        for note in (*app.notes, common.tell_once(app.settings.home)):
            if note:
                show.note(note)
        if elsewhere := [key for key in orphans if key != self._place.key]:
            show.note(f"taking up what was interrupted elsewhere: {interrupted(elsewhere)}")
        standing = await app.store.sessions.standing(self._place.key)
        if standing is not None and not await app.store.sessions.unfinished(self._place.key):
            await self._clerk.recall(standing.session)
        await self._clerk.stand(self._place.key)
        if self._inbound.model:
            await self._clerk.answered_by(model)
        if show.status.doing == "starting":
            show.status.doing = ""
        show.update()
        while True:
            await self._clerk.answered_by(await self._models.get())

    async def watch(self) -> None:
        watch = Watch(self._place.key, self._app.lobby, self._app.store, self._tell)
        await watch.run(self._show.waits)

    async def read(self) -> None:
        """Pass on what was typed; what takes time does not keep the next letter waiting."""
        lobby, key = self._app.lobby, self._place.key
        async with asyncio.TaskGroup() as group:
            while True:
                match await self._terminal.letters.get():
                    case Typed() as typed:
                        self._take(typed, group)
                    case Halt():
                        group.create_task(self._halt())
                    case Word(ask, choice):
                        group.create_task(lobby.post(key, Answer(ask, choice, "terminal")))

    async def submit(self) -> None:
        """Hand over in the order typed: messages, and what decides which conversation they reach."""
        while True:
            typed = await self._outgoing.get()
            inbound = self._as_inbound(typed)
            if (parsed := commands.parse(typed.text, self._app.offers)) is not None:
                await self._clerk.run(parsed, typed, inbound)
            else:
                self._show.sending(typed.text, typed.shown)
                try:
                    turn = await self._app.lobby.submit(inbound)
                except NotTaken as refused:
                    turn = None
                    self._show.note(str(refused), bad=not refused.by_choice)
                self._show.sent(typed.id, typed.shown, *([turn] if turn else []))
            self._outgoing.task_done()

    async def part(self) -> None:
        """The person left: a stop that they asked for is waited for, so that it is kept."""
        if self._halted:
            with suppress(TimeoutError):
                async with asyncio.timeout(FAREWELL):
                    await self._show.rested.wait()
        if self._show.living:
            self._terminal.parting = "· what was being done is taken up at the next start"

    async def _halt(self) -> None:
        """Stop the turn that lives, else the one that is about to. The screen may be behind the store."""
        turn, key = self._show.living, self._place.key
        self._halted = True
        if not turn:
            await self._outgoing.join()
        unfinished = [each.id for each in await self._app.store.sessions.unfinished(key)]
        if turn not in unfinished:
            turn = unfinished[0] if unfinished else ""
        if turn:
            await self._app.lobby.post(key, Stop("user_stop", "session_interrupt", turn))
        else:
            self._halted, self._show.status.doing = False, ""
            self._show.update()

    def _take(self, typed: Typed, group: asyncio.TaskGroup) -> None:
        parsed = commands.parse(typed.text, self._app.offers)
        asked = self._show.asked
        if parsed is None and asked is not None:
            self._show.answered(typed.id)
            reply = Reply(asked.ask, asked.meant(typed.text), "terminal")
            group.create_task(self._app.lobby.post(self._place.key, reply))
            return
        if parsed is None or parsed.command.name in COURSE:
            self._outgoing.put_nowait(typed)
            return
        if parsed.command.name == "model" and parsed.args:  # this goes over what was asked with --model
            self._inbound = structs.replace(self._inbound, model="")
        group.create_task(self._clerk.run(parsed, typed, self._as_inbound(typed)))

    def _as_inbound(self, typed: Typed) -> Inbound:
        return structs.replace(self._inbound, id=new_id(), text=typed.text)

    def _tell(self, turn: str, event: Event) -> None:
        if isinstance(event, Said) and event.model and event.model != self._show.status.model:
            self._models.put_nowait(event.model)
        if isinstance(event, TurnEnded):
            self._halted = False
        self._show.tell(turn, event)
