"""Keys that act on the conversation: go back, take back, held messages, permission mode, expand."""

from alipes.cli.terminal.commands import TerminalCommands
from alipes.cli.terminal.pager import show_transcript
from alipes.cli.terminal.pickers.rewind_picker import rewind
from alipes.cli.terminal.terminal import TerminalApp
from alipes.cli.terminal.view import SessionView
from alipes.core.app import App
from alipes.kernel.attachments import without_attachments
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

    async def run(self, name: str) -> None:
        """Do what the key means; unknown names are ignored."""
        match name:
            case "rewind":
                await self._rewind()
            case "take_back":
                await self._take_back()
            case "cycle_mode":
                mode = await cycle_mode(self._app.store, self._key, self._app.settings.approvals.mode)
                self._terminal.hint(f"Permission mode: {mode} ({MODES[mode]})")
            case "send_held":
                await self._app.sessions.release(self._key)
            case "drop_held":
                dropped = await self._app.sessions.drop(self._key)
                self._view.note(f"Discarded {format_count(len(dropped), 'message')}")
            case "leave_job":
                self._commands.leave_job()
            case "expand":
                if self._view.transcript.expand_last():
                    self._view.update()
                else:
                    await show_transcript(self._terminal, self._view)

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
            self._terminal.put_text(without_attachments(taken.text))
        else:
            self._terminal.hint("The message has started already")
