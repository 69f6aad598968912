"""A conversation in the terminal: sends typed messages to the session and shows its events.

Loaded after the prompt is visible, because its imports are slow.
"""

import asyncio
import os
from contextlib import suppress
from pathlib import Path

from msgspec import structs

from alipes.app import open_app
from alipes.cli.terminal.commands import HELD_HINT, TerminalCommands
from alipes.cli.terminal.input.key_bindings import ApprovalKey, KeyAction, StopRequest, TypedText
from alipes.cli.terminal.pickers.conversation_picker import pick_conversation
from alipes.cli.terminal.screen.notifications import TerminalNotifier
from alipes.cli.terminal.screen.status_command import StatusCommand
from alipes.cli.terminal.session_keys import KEY_COMMANDS, SessionKeys
from alipes.cli.terminal.shell_command import ShellCommands
from alipes.cli.terminal.terminal import TerminalApp
from alipes.cli.terminal.view import SessionView
from alipes.config.environment import process_environment
from alipes.config.loader import build_settings, with_plugins
from alipes.config.reader import read_config
from alipes.config.settings import Settings
from alipes.console.common import missing_programs_note
from alipes.console.inbound import PLATFORM, ConversationPlace, describe_return, find_conversation, new_id
from alipes.console.interrupted import NO, YES, InterruptedTurn, find_interrupted, format_left, format_offer
from alipes.console.options import ConversationChoice, TalkOptions
from alipes.console.render import format_choice
from alipes.core.app import App
from alipes.kernel.errors import MessageRejected
from alipes.kernel.turns import (
    Address,
    AnswerApproval,
    AnswerQuestion,
    Event,
    Inbound,
    Said,
    SessionChanged,
    Stop,
    ToolFinished,
    TurnEnded,
)
from alipes.sessions.commands import registry as commands
from alipes.sessions.commands.conversation import describe_held
from alipes.sessions.commands.jobs import count_jobs
from alipes.sessions.event_stream import SessionFollower
from alipes.sessions.subagents.text import describe_interrupted
from alipes.sessions.user_shell import is_shell_command
from alipes.tools.common import child_environment

SEND_TIMEOUT_S = 0.3
"""How long a stop waits for messages that are being sent; a plugin may delay them."""
STOP_TIMEOUT_S = 2.0
"""How long a requested stop may take after the user quit."""


async def run_session(terminal: TerminalApp, settings: Settings, options: TalkOptions, left: asyncio.Event) -> None:
    """Run the session until the user has `left`; again with new settings after `/setup`."""
    place = await _run_once(terminal, settings, options, left)
    while not left.is_set():
        settings = with_plugins(build_settings(read_config()), not options.safe)
        place = await _run_once(terminal, settings, options, left, place=place)


async def _run_once(
    terminal: TerminalApp,
    settings: Settings,
    options: TalkOptions,
    left: asyncio.Event,
    *,
    place: Address | None = None,
) -> Address:
    """Run until the user has `left` or the settings have changed; returns the conversation."""
    workdir = settings.workdir or os.getcwd()
    async with open_app(settings, interactive=True, workdir=workdir) as app:
        orphans = await app.store.turns.list_orphans(0, workdir)  # before the sessions resume them
        again, chosen = place is not None, ConversationPlace(place) if place else None
        chosen = chosen or await _choose_conversation(terminal, app, options, workdir)
        session = TerminalSession(terminal, app, options, chosen.address)
        if not again:
            await session.offer_interrupted(chosen.note, await find_interrupted(app, workdir))
        async with asyncio.TaskGroup() as group:
            notes = session.show_start_notes(() if again else orphans, again=again)
            works = (notes, session.follow_events(), session.submit(), session.read(), _set_after(left, session.ended))
            beside = (session.status_command.run(), session.follow_jobs())
            tasks = [group.create_task(work) for work in (*works, *beside)]
            await session.ended.wait()
            if left.is_set():
                await session.finish()
            for task in tasks:
                task.cancel()
    return chosen.address


async def _set_after(first: asyncio.Event, then: asyncio.Event) -> None:
    await first.wait()
    then.set()


async def _choose_conversation(
    terminal: TerminalApp, app: App, options: TalkOptions, workdir: str
) -> ConversationPlace:
    """The conversation to open: an interrupted one of this folder, unless the options choose another."""
    if options.conversation.pick:
        chosen = await pick_conversation(terminal, app, workdir)
        return await find_conversation(ConversationChoice(resume=chosen or ""), app, workdir)
    if options.conversation == ConversationChoice():
        latest = await app.store.archive.latest(PLATFORM, workdir)
        if latest is not None and latest.unfinished:
            holder = await app.store.turns.holder(latest.key)
            if holder in (None, app.store.host):
                return ConversationPlace(latest.address)
    return await find_conversation(options.conversation, app, workdir)


class TerminalSession:
    """One conversation. Its coroutines run concurrently until they are cancelled."""

    def __init__(self, terminal: TerminalApp, app: App, options: TalkOptions, place: Address) -> None:
        self._terminal, self._app, self._address = terminal, app, place
        workdir = app.settings.workdir or os.getcwd()
        self._inbound = Inbound(
            "", place, "owner", "", model=options.model, workdir=workdir, trusted=options.trusted, owner=True
        )
        self._mode = options.mode
        self._view = SessionView(terminal, thinking=app.settings.terminal.thinking)
        self._view.hold_events()  # until the past is shown
        self._follower = SessionFollower(place.key, app.sessions, app.store, self._on_event)
        self.ended = asyncio.Event()
        """Set when the user has left, or the settings have changed."""
        self._commands = TerminalCommands(terminal, app, self._view, workdir, reload=self.ended)
        self._keys = SessionKeys(terminal, app, self._view, self._commands, self._inbound)
        self._shell = ShellCommands(terminal, app, self._view)
        shown = terminal.bottom.tail
        terminal.bottom.tail = lambda: [*shown(), *self._shell.tail()]
        self._view.status.set_folder(Path(workdir))
        self._notifier = TerminalNotifier(terminal.write, app.settings.terminal, terminal.features, Path(workdir))
        self.status_command = StatusCommand(
            app.settings.terminal.status_command,
            self._view.status,
            terminal.refresh,
            cwd=workdir,
            env=child_environment(process_environment(), app.settings.secrets()),
        )
        self._outgoing: asyncio.Queue[TypedText] = asyncio.Queue()
        self._models: asyncio.Queue[str] = asyncio.Queue()
        self._stopping = False
        self._kept = ""
        """What a stop kept, until it is shown."""
        self._jobs_changed = asyncio.Event()
        self._interrupted: tuple[InterruptedTurn, ...] = ()
        """Turns of other folders that the next line may resume."""

    async def offer_interrupted(self, note: str, turns: tuple[InterruptedTurn, ...]) -> None:
        """Resume the interrupted turn of this conversation, and ask about `turns` of other folders."""
        if note:
            self._view.note(note)
        if await self._app.store.turns.is_abandoned(self._address.key):
            await self._app.sessions.wake(self._address.key)
        self._interrupted = tuple(turn for turn in turns if turn.key != self._address.key)
        if self._interrupted:
            self._view.note(format_offer(self._interrupted))

    async def show_start_notes(self, orphans: tuple[str, ...], *, again: bool = False) -> None:
        """Show the model and other notes, then follow changes of the model. `again`: the settings were changed."""
        app, view, hint = self._app, self._view, ""
        if self._mode:
            await app.sessions.permissions.choose(self._address, self._mode)
        if self._inbound.model:
            model = (await app.models.open(self._inbound.model)).name
            self._inbound = structs.replace(self._inbound, model=model)
            view.note(f"Using {model} (from --model).")
        else:
            choice = await app.models.default()
            model = choice.model
            view.note(format_choice(choice, setup="/setup"))
            hint = choice.hint
        notes = await app.notes()
        for note in (hint, *notes, missing_programs_note(app.settings.home, " ".join(notes))):
            if note:
                view.note(note)
        if elsewhere := [key for key in orphans if key != self._address.key]:
            view.note(f"resuming interrupted conversations: {describe_interrupted(elsewhere)}")
        await self._show_past(again=again)
        await self._commands.refresh_status(self._address.key)
        if self._inbound.model:
            await self._commands.set_model(model)
        if view.status.activity == "starting":
            view.status.activity = ""
        view.update()
        while True:
            await self._commands.set_model(await self._models.get())

    async def _show_past(self, *, again: bool) -> None:
        """Show the turns that have ended before the events of the others."""
        try:
            await self._follower.caught_up.wait()
            standing = await self._app.store.sessions.active(self._address.key)
            if standing is not None and not again:
                await self._view.replay(self._app.store, standing.session)
        finally:
            self._view.release_events()

    async def follow_events(self) -> None:
        await self._follower.run(self._view.add_queued)

    async def follow_jobs(self) -> None:
        """Keep the number of background jobs in the status line."""
        with self._app.background.watch(self._jobs_changed):
            while True:
                await self._jobs_changed.wait()
                self._jobs_changed.clear()
                self._view.status.jobs = await count_jobs(self._app.context(self._inbound))
                self._terminal.refresh()

    async def read(self) -> None:
        """Handle input events; slow ones run in tasks of their own."""
        sessions, key = self._app.sessions, self._address.key
        async with asyncio.TaskGroup() as group:
            while True:
                match await self._terminal.input_events.get():
                    case TypedText() as typed:
                        self._handle_typed(typed, group)
                    case StopRequest():
                        group.create_task(self._stop_turn())
                    case ApprovalKey() as pressed:
                        answer = AnswerApproval(
                            pressed.ask, pressed.choice, "terminal", pattern=pressed.pattern, note=pressed.note
                        )
                        group.create_task(sessions.post(key, answer))
                    case KeyAction(name) if name in KEY_COMMANDS:
                        command = KEY_COMMANDS[name]
                        self._handle_typed(TypedText(f"key {name}", command, command), group)
                    case KeyAction(name):
                        group.create_task(self._keys.run(name))

    async def submit(self) -> None:
        """Send messages, and the commands that affect them, in the order typed."""
        while True:
            typed = await self._outgoing.get()
            inbound = self._as_inbound(typed)
            if is_shell_command(typed.text):
                await self._shell.run(typed, inbound)
            elif (parsed := commands.parse(typed.text, self._app.contributions)) is not None:
                await self._commands.run(parsed, typed, inbound)
            else:
                await self._send(typed, inbound)
            self._outgoing.task_done()

    async def _send(self, typed: TypedText, inbound: Inbound) -> None:
        """Send a message with the files it names."""
        inbound, shown = await self._commands.attach(inbound, typed.shown)
        self._view.send_started(inbound.text, shown)
        try:
            turn = await self._app.sessions.submit(inbound)
        except MessageRejected as refused:
            turn = None
            self._view.note(str(refused), bad=not refused.by_choice)
        if turn:
            self._view.set_modes(await self._app.store.sessions.unfinished(self._address.key))
        self._view.send_finished(typed.id, shown, *([turn] if turn else []))

    async def finish(self) -> None:
        """The user quit: wait a moment for a requested stop."""
        if self._stopping:
            with suppress(TimeoutError):
                async with asyncio.timeout(STOP_TIMEOUT_S):
                    await self._view.idle.wait()
        await self._set_exit_note()

    async def _set_exit_note(self) -> None:
        """Say how to come back to this conversation."""
        if note := await describe_return(self._app, self._address.key, self._inbound.workdir):
            resumes = "The running turn resumes at the next start. " if self._view.running_turn else ""
            self._terminal.exit_note = f"{resumes}{note}"

    async def _stop_turn(self) -> None:
        """Stop the running turn, or the next one. The screen may be behind the store."""
        key = self._address.key
        if not self._view.running_turn and self._shell.stop():
            return
        self._stopping = True
        await self._wait_until_sent(SEND_TIMEOUT_S if self._view.running_turn else None)
        stopped = await self._app.sessions.stop(key, Stop("user_stop", "session_interrupt"))
        self._kept = describe_held(len(stopped.held), HELD_HINT) if stopped.held else ""
        if not self._view.running_turn:
            self._show_kept()
        if not stopped.turn:
            self._stopping, self._view.status.activity = False, ""
            self._view.update()

    def _show_kept(self) -> None:
        """Say how many messages the stop kept, once the stopped turn has ended."""
        if self._kept:
            self._view.note(self._kept)
        self._kept = ""

    async def _wait_until_sent(self, seconds: float | None) -> None:
        """Messages typed before a stop are queued first, so that the stop keeps them."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._outgoing.join()

    def _handle_typed(self, typed: TypedText, group: asyncio.TaskGroup) -> None:
        offered, self._interrupted = self._interrupted, ()
        if offered and typed.text.strip().lower() in (*YES, *NO):
            group.create_task(self._resume_interrupted(typed, offered))
            return
        parsed = commands.parse(typed.text, self._app.contributions)
        asked = self._view.question
        if parsed is None and asked is not None and not is_shell_command(typed.text):
            self._view.question_answered(typed.id)
            reply = AnswerQuestion(asked.ask, asked.interpret(typed.text), "terminal")
            group.create_task(self._app.sessions.post(self._address.key, reply))
            return
        if parsed is not None and parsed.command.opens_list and not parsed.args:
            self._terminal.bottom.queued.pop(typed.id, None)
            group.create_task(self._commands.choose_argument(parsed.command, self._address.key))
            return
        if parsed is None or parsed.command.in_order:
            self._outgoing.put_nowait(typed)
            return
        if parsed.command.chooses_model and parsed.args:
            self._inbound = structs.replace(self._inbound, model="")
        group.create_task(self._run_command(parsed, typed))

    async def _run_command(self, parsed: commands.Parsed, typed: TypedText) -> None:
        if parsed.command.stops_turn:
            await self._wait_until_sent(SEND_TIMEOUT_S)
        await self._commands.run(parsed, typed, self._as_inbound(typed))

    async def _resume_interrupted(self, typed: TypedText, turns: tuple[InterruptedTurn, ...]) -> None:
        self._view.question_answered(typed.id)
        if typed.text.strip().lower() in NO:
            self._view.note(format_left(turns))
            return
        for turn in turns:
            await self._app.sessions.wake(turn.key)
            self._view.note(f"Resuming in {turn}")

    def _as_inbound(self, typed: TypedText) -> Inbound:
        return structs.replace(self._inbound, id=new_id(), text=typed.text)

    def _on_event(self, turn: str, event: Event) -> None:
        if isinstance(event, Said) and event.model and event.model != self._view.status.model:
            self._models.put_nowait(event.model)
        if isinstance(event, TurnEnded):
            self._stopping = False
        if isinstance(event, ToolFinished | TurnEnded | SessionChanged):
            self._jobs_changed.set()
        self._view.handle_event(turn, event)
        self._notifier.handle_event(event)
        self.status_command.handle_event(event)
        if not self._view.running_turn:
            self._show_kept()
