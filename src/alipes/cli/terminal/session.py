"""A conversation in the terminal: sends typed messages to the session and shows its events.

Loaded after the prompt is visible, because its imports are slow.
"""

import asyncio
import base64
import os
import re
from contextlib import suppress

from msgspec import structs

from alipes.app import App, open_app
from alipes.cli.common import missing_programs_note
from alipes.cli.inbound import PLATFORM, find_conversation, new_id
from alipes.cli.options import TalkOptions
from alipes.cli.render import format_choice, sanitize, to_one_line, truncate
from alipes.cli.terminal.key_bindings import ApprovalKey, StopRequest, TypedText
from alipes.cli.terminal.styles import apply_style, wrap_text
from alipes.cli.terminal.terminal import TerminalApp
from alipes.cli.terminal.view import SessionView
from alipes.config.settings import Settings
from alipes.kernel.errors import ConfigError, MessageRejected
from alipes.kernel.turns import Address, AnswerApproval, AnswerQuestion, Event, Inbound, Said, Stop, TurnEnded
from alipes.sessions.commands import registry as commands
from alipes.sessions.commands.approvals import to_events
from alipes.sessions.commands.context import CommandReply, CopyText, Quit, ShowConversation
from alipes.sessions.commands.status import plugin_words
from alipes.sessions.event_stream import SessionFollower
from alipes.sessions.permissions import MODES
from alipes.sessions.subagents.text import describe_interrupted

MAX_COPY_BYTES = 74_000
"""Maximum bytes, before encoding, that terminals accept for the clipboard."""
_COLUMN = re.compile(r"\s*\S+(?: \S+)*  +(?=\S)")
RECENT_MESSAGES = 4
"""Messages shown of a resumed conversation."""
RECENT_DECISIONS = 3
"""Approvals shown of a resumed conversation."""


class TerminalCommands:
    def __init__(self, terminal: TerminalApp, app: App, view: SessionView) -> None:
        self._terminal, self._app, self._view = terminal, app, view
        self._update_completions()
        terminal.completer.arguments |= {
            "/model": lambda: ("default", *app.models.names()),
            "/busy": lambda: ("interrupt", "queue", "steer"),
            "/help": lambda: [one.name for one in commands.known_commands(app.contributions)],
            "/plugins": lambda: plugin_words(app.plugins),
            "/mode": lambda: tuple(MODES),
        }

    def _update_completions(self) -> None:
        """Update the completions, because plugins may change."""
        known = commands.known_commands(self._app.contributions)
        self._terminal.completer.commands = [(f"/{one.name}", one.help) for one in known]

    async def run(self, parsed: commands.Parsed, typed: TypedText, inbound: Inbound) -> None:
        """Run the command now, even during a turn."""
        app, view = self._app, self._view
        label = typed.shown.partition(" ")[2].strip()
        view.send_started(parsed.args, label)
        reply = await commands.run(app.context(inbound), parsed)
        self._show_reply(typed, reply)
        view.send_finished(typed.id, label or to_one_line(reply.text), *reply.turns)
        match reply.action:
            case Quit():
                self._terminal.quit()
            case CopyText(text):
                self._copy(text)
            case ShowConversation(session):
                await self.show_recent(session)
        self._update_completions()
        await self.refresh_status(inbound.address.key)

    async def refresh_status(self, key: str) -> None:
        """Update the model, context use and cost in the status line."""
        store, status = self._app.store, self._view.status
        standing = await store.sessions.active(key)
        mode = await self._app.sessions.permissions.of_key(key)
        status.mode = "" if mode == "ask" else mode
        if standing is not None:
            spent = await store.archive.usage(session=standing.session)
            status.context_tokens = await store.archive.context_tokens(standing.session) or 0
            status.cost = None if spent.unpriced else spent.usage.cost or 0.0
        chosen = standing.model if standing else ""
        await self.set_model(chosen or (await self._app.choice()).model)

    async def set_model(self, model: str) -> None:
        status = self._view.status
        status.model, status.window = model, None
        with suppress(ConfigError):  # the model may be gone; asking it reports that
            status.window = (await self._app.models.open(model)).facts.window
        self._terminal.refresh()

    async def show_recent(self, session: str) -> None:
        """Show the last messages of a resumed conversation."""
        messages = await self._app.store.archive.messages(session)
        spoken = [one for one in messages if one.role in ("user", "assistant") and one.text.strip()]
        for message in spoken[-RECENT_MESSAGES:]:
            if message.role == "user":
                self._view.transcript.add_user_message(message.text)
            else:
                self._view.transcript.handle_event(Said(message))
        for approval in await self._app.store.approvals.list_decided(session, RECENT_DECISIONS):
            self._view.transcript.add_decision(*to_events(approval))
        self._view.update()

    def _show_reply(self, typed: TypedText, reply: CommandReply) -> None:
        style, columns = self._terminal.bottom.style, self._terminal.columns
        said = truncate(to_one_line(typed.shown), columns - 2, style.more)
        rows = [apply_style(f"{style.prompt} {said}", style.faint)]
        sgr = style.bad if reply.failed else ""
        for line in sanitize(reply.text).split("\n") if reply.text else ():
            head, text = _split_column(line, columns)
            rest = " " * (len(head) if head.strip() else len(head) + 2)
            rows += wrap_text(text, columns, sgr, apply_style(head, sgr), rest)
        self._view.transcript.add_block(rows)

    def _copy(self, text: str) -> None:
        """Copy to the clipboard of the terminal (OSC 52), which may be on another machine."""
        data = text.encode("utf-8", "replace")
        if len(data) > MAX_COPY_BYTES:
            self._view.note(f"too long to copy ({len(data):,} bytes); use /export", bad=True)
            return
        self._terminal.write(f"\x1b]52;c;{base64.b64encode(data).decode()}\x07")
        self._view.note("Copied (if your terminal supports OSC 52)")


def _split_column(line: str, columns: int) -> tuple[str, str]:
    """Split a line of a reply into its indented first column, which is not wrapped, and the rest."""
    found = _COLUMN.match(line)
    end = found.end() if found and found.end() < columns // 2 else len(line) - len(line.lstrip())
    return "  " + line[:end], line[end:].rstrip()


ORDERED_COMMANDS = frozenset({"new", "resume", "branch", "undo", "retry"})
"""Commands that change the conversation of later messages, so they run in the order typed."""
STOP_TIMEOUT_S = 2.0
"""How long a requested stop may take after the user quit."""


async def run_session(terminal: TerminalApp, settings: Settings, options: TalkOptions, left: asyncio.Event) -> None:
    """Run the session until the user has `left`."""
    async with open_app(settings, interactive=True) as app:
        orphans = await app.store.turns.list_orphans()  # before the sessions resume them
        session = TerminalSession(terminal, app, options, await _choose_conversation(options, app))
        async with asyncio.TaskGroup() as group:
            works = (session.show_start_notes(orphans), session.follow_events(), session.submit(), session.read())
            tasks = [group.create_task(work) for work in works]
            await left.wait()
            await session.finish()
            for task in tasks:
                task.cancel()


async def _choose_conversation(options: TalkOptions, app: App) -> Address:
    """The conversation to open: an interrupted one, unless the options choose another."""
    if not options.conversation.name and not options.conversation.latest:
        latest = await app.store.archive.latest(PLATFORM)
        if latest is not None and latest.unfinished:
            holder = await app.store.turns.holder(latest.key)
            if holder in (None, app.store.host):
                return latest.address
    return await find_conversation(options.conversation, app.store.archive)


class TerminalSession:
    """One conversation. Its coroutines run concurrently until they are cancelled."""

    def __init__(self, terminal: TerminalApp, app: App, options: TalkOptions, place: Address) -> None:
        self._terminal, self._app, self._address = terminal, app, place
        workdir = app.settings.workdir or os.getcwd()
        self._inbound = Inbound("", place, "owner", "", model=options.model, workdir=workdir, trusted=options.trusted)
        self._mode = options.mode
        self._view = SessionView(terminal, thinking=app.settings.terminal.thinking)
        self._commands = TerminalCommands(terminal, app, self._view)
        self._outgoing: asyncio.Queue[TypedText] = asyncio.Queue()
        self._models: asyncio.Queue[str] = asyncio.Queue()
        self._stopping = False

    async def show_start_notes(self, orphans: tuple[str, ...]) -> None:
        """Show the model and other notes, then follow changes of the model."""
        app, view = self._app, self._view
        if self._mode:
            await app.sessions.permissions.choose(self._address, self._mode)
        if self._inbound.model:
            model = (await app.models.open(self._inbound.model)).name
            self._inbound = structs.replace(self._inbound, model=model)
            view.note(f"Using {model} (from --model).")
        else:
            choice = await app.choice()
            model = choice.model
            view.note(format_choice(choice))
        for note in (*await app.notes(), missing_programs_note(app.settings.home)):
            if note:
                view.note(note)
        if elsewhere := [key for key in orphans if key != self._address.key]:
            view.note(f"resuming interrupted conversations: {describe_interrupted(elsewhere)}")
        standing = await app.store.sessions.active(self._address.key)
        if standing is not None and not await app.store.sessions.unfinished(self._address.key):
            await self._commands.show_recent(standing.session)
        await self._commands.refresh_status(self._address.key)
        if self._inbound.model:
            await self._commands.set_model(model)
        if view.status.activity == "starting":
            view.status.activity = ""
        view.update()
        while True:
            await self._commands.set_model(await self._models.get())

    async def follow_events(self) -> None:
        watch = SessionFollower(self._address.key, self._app.sessions, self._app.store, self._on_event)
        await watch.run(self._view.add_queued)

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

    async def submit(self) -> None:
        """Send messages, and the commands that affect them, in the order typed."""
        while True:
            typed = await self._outgoing.get()
            inbound = self._as_inbound(typed)
            if (parsed := commands.parse(typed.text, self._app.contributions)) is not None:
                await self._commands.run(parsed, typed, inbound)
            else:
                self._view.send_started(typed.text, typed.shown)
                try:
                    turn = await self._app.sessions.submit(inbound)
                except MessageRejected as refused:
                    turn = None
                    self._view.note(str(refused), bad=not refused.by_choice)
                self._view.send_finished(typed.id, typed.shown, *([turn] if turn else []))
            self._outgoing.task_done()

    async def finish(self) -> None:
        """The user quit: wait a moment for a requested stop."""
        if self._stopping:
            with suppress(TimeoutError):
                async with asyncio.timeout(STOP_TIMEOUT_S):
                    await self._view.idle.wait()
        if self._view.running_turn:
            self._terminal.exit_note = "· unfinished work resumes at the next start"

    async def _stop_turn(self) -> None:
        """Stop the running turn, or the next one. The screen may be behind the store."""
        turn, key = self._view.running_turn, self._address.key
        self._stopping = True
        if not turn:
            await self._outgoing.join()
        unfinished = [each.id for each in await self._app.store.sessions.unfinished(key)]
        if turn not in unfinished:
            turn = unfinished[0] if unfinished else ""
        if turn:
            await self._app.sessions.post(key, Stop("user_stop", "session_interrupt", turn))
        else:
            self._stopping, self._view.status.activity = False, ""
            self._view.update()

    def _handle_typed(self, typed: TypedText, group: asyncio.TaskGroup) -> None:
        parsed = commands.parse(typed.text, self._app.contributions)
        asked = self._view.question
        if parsed is None and asked is not None:
            self._view.question_answered(typed.id)
            reply = AnswerQuestion(asked.ask, asked.interpret(typed.text), "terminal")
            group.create_task(self._app.sessions.post(self._address.key, reply))
            return
        if parsed is None or parsed.command.name in ORDERED_COMMANDS:
            self._outgoing.put_nowait(typed)
            return
        if parsed.command.name == "model" and parsed.args:  # overrides --model
            self._inbound = structs.replace(self._inbound, model="")
        group.create_task(self._commands.run(parsed, typed, self._as_inbound(typed)))

    def _as_inbound(self, typed: TypedText) -> Inbound:
        return structs.replace(self._inbound, id=new_id(), text=typed.text)

    def _on_event(self, turn: str, event: Event) -> None:
        if isinstance(event, Said) and event.model and event.model != self._view.status.model:
            self._models.put_nowait(event.model)
        if isinstance(event, TurnEnded):
            self._stopping = False
        self._view.handle_event(turn, event)
