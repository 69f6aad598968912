"""Runs slash commands in the terminal and shows their replies."""

import base64
import re
from contextlib import suppress

from alipes.app import App
from alipes.cli.render import sanitize, to_one_line
from alipes.cli.terminal.key_bindings import TypedText
from alipes.cli.terminal.styles import apply_style, shorten, wrap_text
from alipes.cli.terminal.terminal import TerminalApp
from alipes.cli.terminal.view import SessionView
from alipes.kernel.errors import ConfigError
from alipes.kernel.messages import Message
from alipes.kernel.turns import Inbound, Said
from alipes.sessions import commands

MAX_COPY_BYTES = 74_000
"""Maximum bytes, before encoding, that terminals accept for the clipboard."""
_COLUMN = re.compile(r"\s*\S+(?: \S+)*  +(?=\S)")
RECENT_MESSAGES = 4
"""Messages shown of a resumed conversation."""


class TerminalCommands:
    """Runs commands and updates the status line."""

    def __init__(self, terminal: TerminalApp, app: App, view: SessionView) -> None:
        self._terminal, self._app, self._view = terminal, app, view
        self._update_completions()
        terminal.completer.arguments |= {
            "/model": lambda: ("default", *app.models.names()),
            "/busy": lambda: ("interrupt", "queue", "steer"),
            "/help": lambda: [one.name for one in commands.known_commands(app.contributions)],
            "/plugins": lambda: commands.plugin_words(app.plugins),
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
            case commands.Quit():
                self._terminal.quit()
            case commands.CopyText(text):
                self._copy(text)
            case commands.ShowConversation(session):
                await self.show_recent(session)
        self._update_completions()
        await self.refresh_status(inbound.address.key)

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
            self._show_message(message)
        self._view.update()

    def _show_message(self, message: Message) -> None:
        if message.role == "user":
            self._view.transcript.add_user_message(message.text)
        else:
            self._view.transcript.handle_event(Said(message))

    def _show_reply(self, typed: TypedText, reply: commands.CommandReply) -> None:
        style, columns = self._terminal.bottom.style, self._terminal.columns
        said = shorten(to_one_line(typed.shown), columns - 2, style.more)
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
