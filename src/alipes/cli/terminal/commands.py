"""The commands of the terminal: completions, running a command, and carrying out its reply."""

import asyncio
import base64
import re
from contextlib import suppress
from functools import partial

from msgspec import structs

from alipes.cli.setup.command import run_inside
from alipes.cli.terminal.input.completion import ArgumentChoice, CommandEntry
from alipes.cli.terminal.input.file_index import FileIndex
from alipes.cli.terminal.input.key_bindings import TypedText
from alipes.cli.terminal.pickers.conversation_picker import conversation_choices, pick_conversation
from alipes.cli.terminal.pickers.model_picker import describe_model, pick_model
from alipes.cli.terminal.pickers.settings_picker import THEMES, choose_theme, edit_settings, use_theme
from alipes.cli.terminal.terminal import TerminalApp
from alipes.cli.terminal.view import JobView, SessionView
from alipes.console.inbound import new_id
from alipes.console.render import sanitize, to_one_line, truncate
from alipes.console.screen_diff import ERASE_REST, visible_width
from alipes.console.styles import TerminalStyle, apply_style, wrap_text
from alipes.console.width import display_width
from alipes.core.app import App
from alipes.kernel.errors import ConfigError
from alipes.kernel.turns import EFFORT_LEVELS, Inbound
from alipes.runtime.program_name import name_program
from alipes.sessions.commands import registry as commands
from alipes.sessions.commands.context import (
    CommandReply,
    CopyText,
    FollowJob,
    PutText,
    Quit,
    RunSetup,
    ShowConversation,
)
from alipes.sessions.commands.status import plugin_words
from alipes.sessions.commands.tools import tool_words
from alipes.sessions.permissions import MODES

MAX_COPY_BYTES = 74_000
"""Maximum bytes, before encoding, that terminals accept for the clipboard."""
_COLUMN = re.compile(r"\s*\S+(?: \S+)*  +(?=\S)")
HELD_HINT = "Enter to send, Esc to discard"
"""For messages that a stop kept back."""


class TerminalCommands:
    def __init__(
        self, terminal: TerminalApp, app: App, view: SessionView, workdir: str, *, reload: asyncio.Event
    ) -> None:
        """`reload` is set when the settings have changed."""
        self._terminal, self._app, self._view, self._reload = terminal, app, view, reload
        self._jobs = JobView(app.background, view)
        self.leave_job = self._jobs.leave
        self._update_completions()
        self._workdir, self._files = workdir, app.files
        terminal.completer.files = FileIndex(workdir)
        terminal.completer.loaded_arguments |= {
            "/model": self._model_choices,
            "/resume": lambda: conversation_choices(app, workdir),
        }
        terminal.completer.arguments |= {
            "/busy": lambda: ("interrupt", "queue", "steer"),
            "/effort": lambda: (*EFFORT_LEVELS, "default"),
            "/help": lambda: [one.name for one in commands.known_commands(app.contributions)],
            "/plugins": lambda: plugin_words(app.plugins),
            "/mode": lambda: tuple(MODES),
            "/theme": lambda: tuple(THEMES),
            "/tools": lambda: tool_words(app.contributions.groups()),
        }
        terminal.completer.arguments |= {
            f"/{one.name}": partial(one.complete, app.features, workdir)
            for one in commands.known_commands(app.contributions)
            if one.complete is not None
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

    async def choose_argument(self, command: commands.Command, key: str) -> None:
        """Let the user choose from a list, then run the command with the choice."""
        chosen: str | None = None
        match command.name:
            case "model":
                chosen = await pick_model(self._terminal, self._app, key)
            case "resume":
                active = await self._app.store.sessions.active(key)
                current = active.session if active else ""
                chosen = await pick_conversation(self._terminal, self._app, self._workdir, current)
            case "theme":
                chosen = await choose_theme(self._terminal)
            case "config":
                self._note_changes(await edit_settings(self._terminal))
        if chosen is not None:
            text = f"/{command.name} {chosen}"
            self._terminal.input_events.put_nowait(TypedText(new_id(), text, text))

    def _note_changes(self, names: list[str]) -> None:
        """Say what was changed, and use it if nothing is running."""
        if not names:
            return
        idle = not self._view.running_turn and not self._view.status.jobs
        of_terminal = all(name.startswith(("keys.", "terminal.")) for name in names)
        later = "" if idle and not of_terminal else " It takes effect at the next start."
        self._view.note(f"Changed: {', '.join(names)}.{later}")
        if not later:
            self._reload.set()

    async def _use_theme(self, name: str) -> CommandReply:
        try:
            return CommandReply(await use_theme(self._terminal, name.strip().lower()))
        except ConfigError as error:
            return CommandReply(str(error), failed=True)

    async def _model_choices(self) -> list[ArgumentChoice]:
        names = ("default", *await self._app.models.list_names())
        return [ArgumentChoice(name, "", describe_model(self._app.settings, name)) for name in names]

    async def run_text(self, text: str, inbound: Inbound) -> CommandReply:
        """Run the command in `text` as if it had been typed."""
        parsed = commands.parse(text, self._app.contributions)
        assert parsed is not None, text
        return await self.run(parsed, TypedText(new_id(), text, text), structs.replace(inbound, id=new_id(), text=text))

    async def run(self, parsed: commands.Parsed, typed: TypedText, inbound: Inbound) -> CommandReply:
        """Run the command now, even during a turn."""
        if parsed.command.takes_message:
            inbound, shown = await self.attach(structs.replace(inbound, text=parsed.args), typed.shown)
            parsed, typed = structs.replace(parsed, args=inbound.text), structs.replace(typed, shown=shown)
        app, view = self._app, self._view
        by_key = not typed.shown.startswith("/")
        label, made = (typed.shown if by_key else typed.shown.partition(" ")[2]).strip(), False

        def label_made_message(text: str) -> None:
            nonlocal label, made
            label, made = typed.shown.strip(), True
            view.label_message(text, label)

        view.send_started(parsed.args, label)
        context = structs.replace(app.context(inbound), on_submit=label_made_message, queue_hint=HELD_HINT)
        if parsed.command.name == "theme" and parsed.args:
            reply = await self._use_theme(parsed.args)
        else:
            reply = await commands.run(context, parsed)
        queued = by_key and reply.turns and not reply.failed
        if not queued and (reply.text or (not made and not isinstance(reply.action, RunSetup))):
            self._show_reply(typed, reply)  # else the message shows what was typed
        if reply.turns:
            view.set_modes(await app.store.sessions.unfinished(inbound.address.key))
        view.send_finished(typed.id, label or to_one_line(reply.text), *reply.turns)
        await self._carry_out(reply)
        self._update_completions()
        await self.refresh_status(inbound.address.key, inbound.model)
        if isinstance(reply.action, FollowJob) and reply.action.name:
            await self._jobs.follow(reply.action.session, reply.action.name)
        return reply

    async def _carry_out(self, reply: CommandReply) -> None:
        match reply.action:
            case Quit():
                self._terminal.quit()
            case CopyText(text):
                self._copy(text)
            case ShowConversation(session):
                await self._view.replay(self._app.store, session)
            case FollowJob(_, name) if not name:
                self._jobs.leave()
            case PutText(text):
                self._terminal.put_text(text)
            case RunSetup():
                await self._run_setup()

    async def _run_setup(self) -> None:
        """Run the wizard in the terminal; afterwards the session starts again with the new settings."""
        style = self._terminal.bottom.style
        self._view.transcript.add_block([apply_style(f"{style.prompt} /setup", style.faint), ""])
        self._view.update()
        self._terminal.refresh_now()
        if await self._terminal.run_in_foreground(run_inside) == 0:
            self._reload.set()

    async def refresh_status(self, key: str, model: str = "") -> None:
        """Update the model, context use and cost in the status line. `model`: the one from `--model`."""
        store, status = self._app.store, self._view.status
        standing = await store.sessions.active(key)
        mode = await self._app.sessions.permissions.of_key(key)
        status.mode = "" if mode == "ask" else mode
        if standing is not None:
            spent = await store.archive.usage(session=standing.session)
            status.context_tokens = await store.archive.context_tokens(standing.session) or 0
            status.cost = None if spent.unpriced else spent.usage.cost or 0.0
        chosen = standing.model if standing else ""
        await self.set_model(model or chosen or (await self._app.models.default()).model)

    async def set_model(self, model: str) -> None:
        status = self._view.status
        status.model, status.window = model, None
        with suppress(ConfigError):  # the model may be gone; asking it reports that
            status.window = (await self._app.models.open(model)).facts.window
            if status.window is None:
                await self._app.models.learn_window(model)
                status.window = (await self._app.models.open(model)).facts.window
        self._terminal.refresh()

    def _show_reply(self, typed: TypedText, reply: CommandReply) -> None:
        style, columns = self._terminal.bottom.style, self._terminal.columns
        said = truncate(to_one_line(typed.shown), columns - 2, style.more)
        rows = [apply_style(f"{style.prompt} {said}", style.faint)]
        sgr = style.bad if reply.failed else ""
        for line in name_program(sanitize(reply.text)).split("\n") if reply.text else ():
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
    sgr = _diff_style(line, style)
    rows = wrap_text(line.lstrip(), columns, sgr, margin, margin)
    if sgr not in (style.added, style.removed):
        return rows
    return [row + apply_style(ERASE_REST, sgr) if sgr and visible_width(row) < columns else row for row in rows]


def _diff_style(line: str, style: TerminalStyle) -> str:
    if line.startswith(("diff ", "--- ", "+++ ", "new file: ")):
        return style.strong
    return {"+": style.added, "-": style.removed, "@": style.accent}.get(line[:1], "")


def _menu_entry(command: commands.Command) -> CommandEntry:
    needs_argument = bool(command.hint) and not command.hint.startswith("[") and not command.opens_list
    aliases = tuple(f"/{alias}" for alias in command.aliases)
    return CommandEntry(f"/{command.name}", command.help, needs_argument, aliases)
