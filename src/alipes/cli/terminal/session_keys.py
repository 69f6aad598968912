"""Keys that act on the conversation: go back, take back, held messages, permission mode, expand."""

from collections.abc import Awaitable, Callable

from alipes.cli.terminal.commands import TerminalCommands
from alipes.cli.terminal.pager import show_transcript
from alipes.cli.terminal.pickers.rewind_picker import rewind
from alipes.cli.terminal.terminal import TerminalApp
from alipes.cli.terminal.view import SessionView
from alipes.core.app import App
from alipes.kernel.attachments import without_attachments
from alipes.kernel.errors import ToolError
from alipes.kernel.formatting import format_count
from alipes.kernel.turns import Inbound
from alipes.sessions.permissions import MODES, cycle_mode

KEY_COMMANDS = {"pick_model": "/model", "pick_conversation": "/resume"}
"""Keys that mean the same as a command."""


class SessionKeys:
    """What each key does in one conversation."""

    def __init__(
        self, terminal: TerminalApp, app: App, view: SessionView, commands: TerminalCommands, inbound: Inbound
    ) -> None:
        """`inbound`: a message of this conversation."""
        self._terminal, self._app, self._view, self._commands = terminal, app, view, commands
        self._inbound, self._key = inbound, inbound.address.key
        self._actions: dict[str, Callable[[], Awaitable[object]]] = {
            "rewind": self._rewind,
            "take_back": self._take_back,
            "take_back_all": self._take_back_all,
            "cycle_mode": self._cycle_mode,
            "background": self._move_to_background,
            "send_held": lambda: app.sessions.release(self._key),
            "drop_held": self._drop_held,
            "expand": self._expand,
        }

    async def run(self, name: str) -> None:
        """Do what the key means; unknown names are ignored."""
        if name == "leave_job":
            self._commands.leave_job()
        elif (act := self._actions.get(name)) is not None:
            await act()

    async def _cycle_mode(self) -> None:
        mode = await cycle_mode(self._app.store, self._key, self._app.settings.approvals.mode)
        self._terminal.hint(f"Permission mode: {mode} ({MODES[mode]})")

    async def _drop_held(self) -> None:
        dropped = await self._app.sessions.drop(self._key)
        self._view.note(f"Discarded {format_count(len(dropped), 'message')}")

    async def _expand(self) -> None:
        if self._view.transcript.expand_last():
            self._view.update()
        else:
            await show_transcript(self._terminal, self._view)

    async def _move_to_background(self) -> None:
        """Send the running command to the background."""
        standing = await self._app.store.sessions.active(self._key)
        try:
            moved = standing is not None and self._app.background.move_to_background(standing.session)
        except ToolError as error:
            self._view.note(str(error), bad=True)
            return
        if not moved:
            self._terminal.hint("No command is running")

    async def _rewind(self) -> None:
        """Let the user go back to a message."""
        if self._view.running_turn:
            self._terminal.hint("Stop the turn first")
        else:
            await rewind(self._terminal, self._app, self._inbound, self._commands.run_text)

    async def _take_back(self) -> None:
        """Take the newest queued message back into the input."""
        taken = await self._app.sessions.take_back(self._key)
        if taken is not None:
            standing = await self._app.store.sessions.active(self._key)
            usual = (standing.busy if standing else "") or self._app.sessions.defaults.busy
            again = f"/{taken.busy} " if taken.busy != usual and taken.busy in ("queue", "steer") else ""
            self._terminal.put_text(again + without_attachments(taken.text))
        else:
            self._terminal.hint("The message has started already")

    async def _take_back_all(self) -> None:
        """Take all queued messages back into the input, in their order."""
        texts: list[str] = []
        while (taken := await self._app.sessions.take_back(self._key)) is not None:
            texts.insert(0, without_attachments(taken.text))
        if texts:
            self._terminal.put_text("\n\n".join(texts))
