"""A conversation in the terminal: sends typed messages to the session and shows its events.

Loaded after the prompt is visible, because its imports are slow.
"""

import asyncio
import base64
import os
import re
from contextlib import suppress
from pathlib import Path

from msgspec import structs

from alipes.agent.attachments import FileAttacher
from alipes.app import App, open_app
from alipes.cli.common import missing_programs_note
from alipes.cli.inbound import PLATFORM, ConversationPlace, find_conversation, new_id
from alipes.cli.interrupted import NO, YES, InterruptedTurn, find_interrupted, format_left, format_offer
from alipes.cli.options import ConversationChoice, TalkOptions
from alipes.cli.render import format_choice, sanitize, to_one_line, truncate
from alipes.cli.setup.command import run_inside
from alipes.cli.terminal.completion import ArgumentChoice, CommandEntry
from alipes.cli.terminal.conversation_picker import conversation_choices, pick_conversation
from alipes.cli.terminal.file_index import FileIndex
from alipes.cli.terminal.key_bindings import ApprovalKey, KeyAction, StopRequest, TypedText
from alipes.cli.terminal.model_picker import describe_model, pick_model
from alipes.cli.terminal.notifications import TerminalNotifier
from alipes.cli.terminal.pager import show_turn
from alipes.cli.terminal.shell_command import ShellCommands, is_shell_command
from alipes.cli.terminal.status_command import StatusCommand
from alipes.cli.terminal.styles import TerminalStyle, apply_style, wrap_text
from alipes.cli.terminal.terminal import TerminalApp
from alipes.cli.terminal.view import JobView, SessionView
from alipes.cli.width import display_width
from alipes.config.environment import process_environment
from alipes.config.loader import build_settings, with_plugins
from alipes.config.reader import read_config
from alipes.config.settings import Settings
from alipes.kernel.attachments import without_attachments
from alipes.kernel.errors import ConfigError, MessageRejected
from alipes.kernel.formatting import ID
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
from alipes.sessions.commands.approvals import to_events
from alipes.sessions.commands.context import (
    CommandReply,
    CopyText,
    FollowJob,
    PutText,
    Quit,
    RunSetup,
    ShowConversation,
)
from alipes.sessions.commands.conversation import describe_held
from alipes.sessions.commands.jobs import count_jobs
from alipes.sessions.commands.status import plugin_words
from alipes.sessions.event_stream import SessionFollower
from alipes.sessions.permissions import MODES, cycle_mode
from alipes.sessions.subagents.text import describe_interrupted
from alipes.tools.common import child_environment

MAX_COPY_BYTES = 74_000
"""Maximum bytes, before encoding, that terminals accept for the clipboard."""
_COLUMN = re.compile(r"\s*\S+(?: \S+)*  +(?=\S)")
HELD_HINT = "Enter to send, Esc to discard"
"""For messages that a stop kept back."""
RECENT_MESSAGES = 4
"""Messages shown of a resumed conversation."""
RECENT_WITH_CALLS = 20
"""The most messages shown if those with tool calls and results are counted too."""
RECENT_DECISIONS = 3
"""Approvals shown of a resumed conversation."""


class TerminalCommands:
    def __init__(
        self, terminal: TerminalApp, app: App, view: SessionView, workdir: str, *, reload: asyncio.Event
    ) -> None:
        """`reload` is set when the settings have changed."""
        self._terminal, self._app, self._view, self._reload = terminal, app, view, reload
        self._jobs = JobView(app.background, view)
        self._update_completions()
        self._workdir, self._files = workdir, FileAttacher(app.settings, mask=app.secrets)
        terminal.completer.files = FileIndex(workdir)
        terminal.completer.loaded_arguments |= {
            "/model": self._model_choices,
            "/resume": lambda: conversation_choices(app, workdir),
        }
        terminal.completer.arguments |= {
            "/busy": lambda: ("interrupt", "queue", "steer"),
            "/effort": lambda: ("low", "medium", "high", "default"),
            "/help": lambda: [one.name for one in commands.known_commands(app.contributions)],
            "/plugins": lambda: plugin_words(app.plugins),
            "/mode": lambda: tuple(MODES),
        }

    def _update_completions(self) -> None:
        """Update the completions, because plugins may change."""
        known = commands.known_commands(self._app.contributions)
        self._terminal.completer.commands = [_menu_entry(one) for one in known]

    async def attach(self, inbound: Inbound, shown: str) -> tuple[Inbound, str]:
        """The message with the files that it names, and its label."""
        inbound, found = await self._files.attach(inbound)
        for problem in found.problems:
            self._view.note(problem, bad=True)
        return inbound, shown + found.label

    async def choose_argument(self, command: str, key: str) -> None:
        """Let the user choose from a list, then run the command with the choice."""
        if command == "model":
            chosen = await pick_model(self._terminal, self._app, key)
        else:
            active = await self._app.store.sessions.active(key)
            chosen = await pick_conversation(self._terminal, self._app, self._workdir, active.session if active else "")
        if chosen is not None:
            text = f"/{command} {chosen}"
            self._terminal.input_events.put_nowait(TypedText(new_id(), text, text))

    async def _model_choices(self) -> list[ArgumentChoice]:
        names = ("default", *await self._app.models.list_names())
        return [ArgumentChoice(name, "", describe_model(self._app.settings, name)) for name in names]

    async def run(self, parsed: commands.Parsed, typed: TypedText, inbound: Inbound) -> None:
        """Run the command now, even during a turn."""
        if parsed.command.name in TEXT_COMMANDS:
            inbound, shown = await self.attach(structs.replace(inbound, text=parsed.args), typed.shown)
            parsed, typed = structs.replace(parsed, args=inbound.text), structs.replace(typed, shown=shown)
        app, view = self._app, self._view
        label, made = typed.shown.partition(" ")[2].strip(), False

        def label_made_message(text: str) -> None:
            nonlocal label, made
            label, made = typed.shown.strip(), True
            view.label_message(text, label)

        view.send_started(parsed.args, label)
        context = structs.replace(app.context(inbound), on_submit=label_made_message, queue_hint=HELD_HINT)
        reply = await commands.run(context, parsed)
        if reply.text or (not made and not isinstance(reply.action, RunSetup)):  # else the message shows what was typed
            self._show_reply(typed, reply)
        view.send_finished(typed.id, label or to_one_line(reply.text), *reply.turns)
        await self._carry_out(reply)
        self._update_completions()
        await self.refresh_status(inbound.address.key)
        if isinstance(reply.action, FollowJob) and reply.action.name:
            await self._jobs.follow(reply.action.session, reply.action.name)

    async def _carry_out(self, reply: CommandReply) -> None:
        match reply.action:
            case Quit():
                self._terminal.quit()
            case CopyText(text):
                self._copy(text)
            case ShowConversation(session):
                await self.show_recent(session)
            case FollowJob(_, name) if not name:
                self._jobs.leave()
            case PutText(text):
                self._terminal.put_text(text)
            case RunSetup():
                await self._run_setup()
            case FollowJob(_, name) if not name:
                self._jobs.leave()

    async def _run_setup(self) -> None:
        """Run the wizard in the terminal; afterwards the session starts again with the new settings."""
        if await self._terminal.run_in_foreground(run_inside) == 0:
            self._reload.set()

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
        """Show the last messages of a resumed conversation, with their tool calls."""
        messages = await self._app.store.archive.messages(session)
        spoken = [n for n, one in enumerate(messages) if one.role in ("user", "assistant") and one.text.strip()]
        first = spoken[-RECENT_MESSAGES:][0] if spoken else 0
        for message in messages[max(first, len(messages) - RECENT_WITH_CALLS) :]:
            if message.role == "user":
                self._view.transcript.add_user_message(message.text)
            elif message.role != "notice":
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


def _menu_entry(command: commands.Command) -> CommandEntry:
    """`/model` and `/resume` open a list if they have no argument; others need theirs."""
    needs_argument = bool(command.hint) and not command.hint.startswith("[") and command.name not in LISTS
    aliases = tuple(f"/{alias}" for alias in command.aliases)
    return CommandEntry(f"/{command.name}", command.help, needs_argument, aliases)


LISTS = ("model", "resume")
"""Commands that open a list in the terminal if they have no argument."""
TEXT_COMMANDS = frozenset({"queue", "steer", "background", "moa"})
"""Commands whose argument is a message, which may name files."""
ORDERED_COMMANDS = frozenset({"new", "resume", "continue", "branch", "undo", "redo", "rewind", "retry"})
"""Commands that change the conversation of later messages, so they run in the order typed."""
SEND_TIMEOUT_S = 0.3
"""How long a stop waits for messages that are being sent; a plugin may delay them."""
KEY_COMMANDS = {"pick_model": "/model", "pick_conversation": "/resume"}
"""Keys that mean the same as a command."""
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
        self._inbound = Inbound("", place, "owner", "", model=options.model, workdir=workdir, trusted=options.trusted)
        self._mode = options.mode
        self._view = SessionView(terminal, thinking=app.settings.terminal.thinking)
        self.ended = asyncio.Event()
        """Set when the user has left, or the settings have changed."""
        self._commands = TerminalCommands(terminal, app, self._view, workdir, reload=self.ended)
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
            view.note(format_choice(choice, setup="/setup"))
        for note in (*await app.notes(), missing_programs_note(app.settings.home)):
            if note:
                view.note(note)
        if elsewhere := [key for key in orphans if key != self._address.key]:
            view.note(f"resuming interrupted conversations: {describe_interrupted(elsewhere)}")
        standing = await app.store.sessions.active(self._address.key)
        if standing is not None and not again and not await app.sessions.unfinished(self._address.key):
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
                        group.create_task(self._run_key(name))

    async def _run_key(self, name: str) -> None:
        """Do what a key of the terminal means."""
        match name:
            case "rewind":
                await self._rewind()
            case "take_back":
                await self._take_back()
            case "cycle_mode":
                await self._cycle_mode()
            case "send_held":
                await self._app.sessions.release(self._address.key)
            case "drop_held":
                await self._app.sessions.drop(self._address.key)
            case "expand":
                await self._expand()

    async def _expand(self) -> None:
        """Print the last shortened output whole; if it was, open the whole turn in a pager."""
        if self._view.transcript.expand_last():
            self._view.update()
        else:
            await show_turn(self._terminal, self._view)

    async def _rewind(self) -> None:
        """Put the last message back into the input; sending it undoes its turn."""
        standing = await self._app.store.sessions.active(self._address.key)
        messages = await self._app.store.archive.messages(standing.session) if standing else ()
        last = next((one.text for one in reversed(messages) if one.role == "user" and one.text.strip()), "")
        if last and not self._view.running_turn:
            self._terminal.put_text(without_attachments(last), rewinds=True)
        else:
            self._terminal.hint("There is no message to edit")

    async def _take_back(self) -> None:
        """Take the newest queued message back into the input."""
        taken = await self._app.sessions.take_back(self._address.key)
        if taken is None:
            self._terminal.hint("The message has been sent already")
        else:
            self._terminal.put_text(without_attachments(taken.text))

    async def _cycle_mode(self) -> None:
        """Switch to the next permission mode."""
        await cycle_mode(self._app.store, self._address.key, self._app.settings.approvals.mode)

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
                if typed.rewinds:
                    await self._undo_last_turn(inbound)
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
        self._view.send_finished(typed.id, shown, *([turn] if turn else []))

    async def _undo_last_turn(self, inbound: Inbound) -> None:
        """Undo the turn whose message was edited, before the new message is sent."""
        undo = commands.Parsed(commands.BY_NAME["undo"], "")
        reply = await commands.run(self._app.context(inbound), undo)
        self._view.note(reply.text, bad=reply.failed)

    async def finish(self) -> None:
        """The user quit: wait a moment for a requested stop."""
        if self._stopping:
            with suppress(TimeoutError):
                async with asyncio.timeout(STOP_TIMEOUT_S):
                    await self._view.idle.wait()
        await self._set_exit_note()

    async def _set_exit_note(self) -> None:
        """Say how to come back to this conversation."""
        archive, key = self._app.store.archive, self._address.key
        facts = await archive.current(key)
        if facts is None or not facts.turns:
            return
        latest = await archive.latest(PLATFORM, self._inbound.workdir)
        name = "-c" if latest is not None and latest.key == key else f"-r {facts.id[:ID]}"
        resumes = "The running turn resumes at the next start. " if self._view.running_turn else ""
        self._terminal.exit_note = f"{resumes}Continue with: alipes {name}"

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
        if parsed is not None and parsed.command.name in LISTS and not parsed.args:
            self._terminal.bottom.queued.pop(typed.id, None)
            group.create_task(self._commands.choose_argument(parsed.command.name, self._address.key))
            return
        if parsed is None or parsed.command.name in ORDERED_COMMANDS or parsed.command.sends:
            self._outgoing.put_nowait(typed)
            return
        if parsed.command.name == "model" and parsed.args:  # overrides --model
            self._inbound = structs.replace(self._inbound, model="")
        group.create_task(self._run_command(parsed, typed))

    async def _run_command(self, parsed: commands.Parsed, typed: TypedText) -> None:
        if parsed.command.name == "stop":
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
