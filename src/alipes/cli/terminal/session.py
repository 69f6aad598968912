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
from alipes.cli.setup.command import run_inside
from alipes.cli.terminal.key_bindings import ApprovalKey, StopRequest, TypedText
from alipes.cli.terminal.shell_command import ShellCommands, is_shell_command
from alipes.cli.terminal.styles import TerminalStyle, apply_style, wrap_text
from alipes.cli.terminal.terminal import TerminalApp
from alipes.cli.terminal.view import SessionView
from alipes.cli.width import display_width
from alipes.config.loader import build_settings, with_plugins
from alipes.config.reader import read_config
from alipes.config.settings import Settings
from alipes.kernel.errors import ConfigError, MessageRejected
from alipes.kernel.turns import Address, AnswerApproval, AnswerQuestion, Event, Inbound, Said, Stop, TurnEnded
from alipes.sessions.commands import registry as commands
from alipes.sessions.commands.context import CommandReply, CopyText, PutText, Quit, RunSetup, ShowConversation
from alipes.sessions.commands.status import plugin_words
from alipes.sessions.event_stream import SessionFollower
from alipes.sessions.subagents.text import describe_interrupted

MAX_COPY_BYTES = 74_000
"""Maximum bytes, before encoding, that terminals accept for the clipboard."""
_COLUMN = re.compile(r"\s*\S+(?: \S+)*  +(?=\S)")
RECENT_MESSAGES = 4
"""Messages shown of a resumed conversation."""


class TerminalCommands:
    def __init__(self, terminal: TerminalApp, app: App, view: SessionView, reload: asyncio.Event) -> None:
        """`reload` is set when the settings have changed."""
        self._terminal, self._app, self._view, self._reload = terminal, app, view, reload
        self._update_completions()
        terminal.completer.arguments |= {
            "/model": lambda: ("default", *app.models.names()),
            "/busy": lambda: ("interrupt", "queue", "steer"),
            "/effort": lambda: ("low", "medium", "high", "default"),
            "/help": lambda: [one.name for one in commands.known_commands(app.contributions)],
            "/plugins": lambda: plugin_words(app.plugins),
        }

    def _update_completions(self) -> None:
        """Update the completions, because plugins may change."""
        known = commands.known_commands(self._app.contributions)
        self._terminal.completer.commands = [(f"/{one.name}", one.help) for one in known]

    async def run(self, parsed: commands.Parsed, typed: TypedText, inbound: Inbound) -> None:
        """Run the command now, even during a turn."""
        app, view = self._app, self._view
        label, made = typed.shown.partition(" ")[2].strip(), False

        def label_made_message(text: str) -> None:
            nonlocal label, made
            label, made = typed.shown.strip(), True
            view.label_message(text, label)

        view.send_started(parsed.args, label)
        context = structs.replace(app.context(inbound), on_submit=label_made_message)
        reply = await commands.run(context, parsed)
        if reply.text or (not made and not isinstance(reply.action, RunSetup)):  # else the message shows what was typed
            self._show_reply(typed, reply)
        view.send_finished(typed.id, label or to_one_line(reply.text), *reply.turns)
        await self._carry_out(reply)
        self._update_completions()
        await self.refresh_status(inbound.address.key)

    async def _carry_out(self, reply: CommandReply) -> None:
        match reply.action:
            case Quit():
                self._terminal.quit()
            case CopyText(text):
                self._copy(text)
            case ShowConversation(session):
                await self.show_recent(session)
            case PutText(text):
                self._terminal.put_text(text)
            case RunSetup():
                await self._run_setup()

    async def _run_setup(self) -> None:
        """Run the wizard in the terminal; afterwards the session starts again with the new settings."""
        if await self._terminal.run_in_foreground(run_inside) == 0:
            self._reload.set()

    async def refresh_status(self, key: str) -> None:
        """Update the model, context use and cost in the status line."""
        store, status = self._app.store, self._view.status
        standing = await store.sessions.active(key)
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
        self._view.update()

    def _show_reply(self, typed: TypedText, reply: CommandReply) -> None:
        style, columns = self._terminal.bottom.style, self._terminal.columns
        said = truncate(to_one_line(typed.shown), columns - 2, style.more)
        rows = [apply_style(f"{style.prompt} {said}", style.faint)]
        sgr = style.bad if reply.failed else ""
        for line in sanitize(reply.text).split("\n") if reply.text else ():
            if reply.diff:
                rows += _format_diff_line(line, columns, style)
            else:
                rows += format_reply_line(line, columns, sgr)
        self._view.transcript.add_block(rows)

    def _copy(self, text: str) -> None:
        """Copy to the clipboard of the terminal (OSC 52), which may be on another machine."""
        data = text.encode("utf-8", "replace")
        if len(data) > MAX_COPY_BYTES:
            self._view.note(f"too long to copy ({len(data):,} bytes); use /export", bad=True)
            return
        self._terminal.write(f"\x1b]52;c;{base64.b64encode(data).decode()}\x07")
        self._view.note("Copied (if your terminal supports OSC 52)")


def format_reply_line(line: str, columns: int, sgr: str = "") -> list[str]:
    """A line of a reply, indented. The second of two columns is wrapped beside the first, or below it if there is no
    room; so is a line that is indented."""
    line = "  " + line.rstrip()
    indent = len(line) - len(line.lstrip())
    found = _COLUMN.match(line)
    if found and found.end() <= columns // 2:
        head = line[: found.end()]
        return wrap_text(line[found.end() :], columns, sgr, apply_style(head, sgr), " " * len(head))
    if found and display_width(line) > columns:
        name, text = line[: found.end()].strip(), line[found.end() :]
        below = " " * min(indent + 4, columns // 4)
        return [
            *format_reply_line(" " * (indent - 2) + name, columns, sgr),
            *wrap_text(text, columns, sgr, below, below),
        ]
    margin = " " * (indent if indent <= columns // 2 else 8)
    return wrap_text(line.lstrip(), columns, sgr, margin, margin)


def _format_diff_line(line: str, columns: int, style: TerminalStyle) -> list[str]:
    line = line.expandtabs(4).rstrip()
    margin = "  " + " " * min(len(line) - len(line.lstrip()), columns // 2)
    return wrap_text(line.lstrip(), columns, _diff_style(line, style), margin, margin)


def _diff_style(line: str, style: TerminalStyle) -> str:
    if line.startswith(("diff ", "--- ", "+++ ", "new file: ")):
        return style.strong
    return {"+": style.good, "-": style.bad, "@": style.accent}.get(line[:1], "")


ORDERED_COMMANDS = frozenset({"new", "resume", "continue", "branch", "undo", "redo", "rewind", "retry"})
"""Commands that change the conversation of later messages, so they run in the order typed."""
STOP_TIMEOUT_S = 2.0
"""How long a requested stop may take after the user quit."""


async def run_session(terminal: TerminalApp, settings: Settings, options: TalkOptions, left: asyncio.Event) -> None:
    """Run the session until the user has `left`; again with new settings after `/setup`."""
    place = await _run_once(terminal, settings, options, left)
    while not left.is_set():
        settings = with_plugins(build_settings(read_config()), not options.safe)
        place = await _run_once(terminal, settings, options, left, place)


async def _run_once(
    terminal: TerminalApp, settings: Settings, options: TalkOptions, left: asyncio.Event, place: Address | None = None
) -> Address:
    """Run until the user has `left` or the settings have changed; returns the conversation."""
    async with open_app(settings, interactive=True) as app:
        orphans = await app.store.turns.list_orphans()  # before the sessions resume them
        again, place = place is not None, place or await _choose_conversation(options, app)
        session = TerminalSession(terminal, app, options, place)
        async with asyncio.TaskGroup() as group:
            notes = session.show_start_notes(() if again else orphans, again=again)
            works = (notes, session.follow_events(), session.submit(), session.read(), _set_after(left, session.ended))
            tasks = [group.create_task(work) for work in works]
            await session.ended.wait()
            if left.is_set():
                await session.finish()
            for task in tasks:
                task.cancel()
    return place


async def _set_after(first: asyncio.Event, then: asyncio.Event) -> None:
    await first.wait()
    then.set()


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
        self._view = SessionView(terminal, thinking=app.settings.terminal.thinking)
        self.ended = asyncio.Event()
        """Set when the user has left, or the settings have changed."""
        self._commands = TerminalCommands(terminal, app, self._view, self.ended)
        self._shell = ShellCommands(terminal, app, self._view)
        terminal.bottom.tail = lambda: [*self._view.transcript.tail(), *self._shell.tail()]
        self._outgoing: asyncio.Queue[TypedText] = asyncio.Queue()
        self._models: asyncio.Queue[str] = asyncio.Queue()
        self._stopping = False

    async def show_start_notes(self, orphans: tuple[str, ...], *, again: bool = False) -> None:
        """Show the model and other notes, then follow changes of the model. `again`: the settings were changed."""
        app, view = self._app, self._view
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
        if standing is not None and not again and not await app.store.sessions.unfinished(self._address.key):
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
                    case ApprovalKey(ask, choice):
                        group.create_task(sessions.post(key, AnswerApproval(ask, choice, "terminal")))

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
        if not turn and self._shell.stop():
            return
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
        if parsed is None and asked is not None and not is_shell_command(typed.text):
            self._view.question_answered(typed.id)
            reply = AnswerQuestion(asked.ask, asked.interpret(typed.text), "terminal")
            group.create_task(self._app.sessions.post(self._address.key, reply))
            return
        if parsed is None or parsed.command.name in ORDERED_COMMANDS or parsed.command.sends:
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
