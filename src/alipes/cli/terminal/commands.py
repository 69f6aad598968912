"""Commands typed at the terminal: run, and their replies shown and obeyed. What they do is not known here."""

import base64
import re
from contextlib import suppress

from alipes.app import App
from alipes.cli.render import harmless, one_line
from alipes.cli.terminal.key_bindings import Typed
from alipes.cli.terminal.styles import shortened, styled, wrapped
from alipes.cli.terminal.terminal import Terminal
from alipes.cli.terminal.view import Show
from alipes.kernel.errors import ConfigError
from alipes.kernel.messages import Message
from alipes.kernel.turns import Inbound, Said
from alipes.sessions import commands

COPIED = 74_000
"""Bytes that terminals take for their clipboard at once, before they are encoded."""
_COLUMN = re.compile(r"\s*\S+(?: \S+)*  +(?=\S)")
RECALLED = 4
"""Messages that are shown of an older conversation."""


class Clerk:
    """Runs commands, and knows how the conversation stands."""

    def __init__(self, terminal: Terminal, app: App, show: Show) -> None:
        self._terminal, self._app, self._show = terminal, app, show
        self._learn()
        terminal.words.arguments |= {
            "/model": lambda: ("default", *app.models.names()),
            "/busy": lambda: ("interrupt", "queue", "steer"),
            "/help": lambda: [one.name for one in commands.known_commands(app.offers)],
            "/plugins": lambda: commands.plugin_words(app.plugins),
        }

    def _learn(self) -> None:
        """What can be completed: plugins come and go."""
        known = commands.known_commands(self._app.offers)
        self._terminal.words.commands = [(f"/{one.name}", one.help) for one in known]

    async def run(self, parsed: commands.Parsed, typed: Typed, inbound: Inbound) -> None:
        """Do it at once, whatever else goes on."""
        app, show = self._app, self._show
        label = typed.shown.partition(" ")[2].strip()
        show.sending(parsed.args, label)
        reply = await commands.run(app.context(inbound), parsed)
        self._tell(typed, reply)
        show.sent(typed.id, label or one_line(reply.text), *reply.turns)
        match reply.action:
            case commands.Quit():
                self._terminal.leave()
            case commands.Copy(text):
                self._copy(text)
            case commands.Show(session):
                await self.recall(session)
        self._learn()
        await self.stand(inbound.address.key)

    async def stand(self, key: str) -> None:
        """Read how things stand: which model answers, how full and how dear the conversation is."""
        store, status = self._app.store, self._show.status
        standing = await store.sessions.standing(key)
        if standing is not None:
            spent = await store.archive.usage(session=standing.session)
            status.used = await store.archive.context(standing.session) or 0
            status.cost = None if spent.unpriced else spent.usage.cost or 0.0
        chosen = standing.model if standing else ""
        await self.answered_by(chosen or (await self._app.choice()).model)

    async def answered_by(self, model: str) -> None:
        status = self._show.status
        status.model, status.window = model, None
        with suppress(ConfigError):  # it may not be there any more; whoever asks it is told
            status.window = (await self._app.models.open(model)).facts.window
        self._terminal.refresh()

    async def recall(self, session: str) -> None:
        """Show what was said last in an older conversation."""
        messages = await self._app.store.archive.messages(session)
        spoken = [one for one in messages if one.role in ("user", "assistant") and one.text.strip()]
        for message in spoken[-RECALLED:]:
            self._say(message)
        self._show.update()

    def _say(self, message: Message) -> None:
        if message.role == "user":
            self._show.account.say(message.text)
        else:
            self._show.account.tell(Said(message))

    def _tell(self, typed: Typed, reply: commands.Reply) -> None:
        look, columns = self._terminal.bottom.look, self._terminal.columns
        said = shortened(one_line(typed.shown), columns - 2, look.more)
        rows = [styled(f"{look.prompt} {said}", look.faint)]
        style = look.bad if reply.trouble else ""
        for line in harmless(reply.text).split("\n") if reply.text else ():
            indent, hanging = _indents(line, columns)
            rows += wrapped(line.strip(), columns, style, indent, hanging)
        self._show.account.show(rows)

    def _copy(self, text: str) -> None:
        """By way of the terminal, which may be on another machine than we are."""
        data = text.encode("utf-8", "replace")
        if len(data) > COPIED:
            self._show.note(f"too long to copy ({len(data):,} bytes); /export writes a file", bad=True)
            return
        self._terminal.write(f"\x1b]52;c;{base64.b64encode(data).decode()}\x07")
        self._show.note(f"copied {len(text):,} characters, if this terminal allows it")


def _indents(line: str, columns: int) -> tuple[str, str]:
    """What a line of a reply begins with, and what its next row does: in a table, the second column."""
    indent = 2 + len(line) - len(line.lstrip())
    found = _COLUMN.match(line)
    hanging = 2 + found.end() if found and found.end() < columns // 2 else indent + 2
    return " " * indent, " " * hanging
