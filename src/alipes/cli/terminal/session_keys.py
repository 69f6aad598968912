"""Keys that act on the conversation: edit again, take back, held messages, permission mode, expand."""

from collections.abc import Callable

from alipes.cli.terminal.pager import show_turn
from alipes.cli.terminal.terminal import TerminalApp
from alipes.cli.terminal.view import SessionView
from alipes.core.app import App
from alipes.kernel.attachments import without_attachments
from alipes.kernel.formatting import format_count
from alipes.sessions.permissions import MODES, cycle_mode

KEY_COMMANDS = {"pick_model": "/model", "pick_conversation": "/resume"}
"""Keys that mean the same as a command."""


class SessionKeys:
    """What each key does in one conversation."""

    def __init__(
        self, terminal: TerminalApp, app: App, view: SessionView, key: str, *, leave_job: Callable[[], None]
    ) -> None:
        """`key`: the session key of the conversation. `leave_job`: stop following a background process."""
        self._terminal, self._app, self._view, self._key = terminal, app, view, key
        self._leave_job = leave_job

    async def run(self, name: str) -> None:
        """Do what the key means; unknown names are ignored."""
        match name:
            case "rewind":
                await self._rewind()
            case "take_back":
                await self._take_back()
            case "take_back_all":
                await self._take_back_all()
            case "cycle_mode":
                mode = await cycle_mode(self._app.store, self._key, self._app.settings.approvals.mode)
                self._terminal.hint(f"Permission mode: {mode} ({MODES[mode]})")
            case "send_held":
                await self._app.sessions.release(self._key)
            case "drop_held":
                dropped = await self._app.sessions.drop(self._key)
                self._view.note(f"Discarded {format_count(len(dropped), 'message')}")
            case "leave_job":
                self._leave_job()
            case "expand":
                if self._view.transcript.expand_last():
                    self._view.update()
                else:
                    await show_turn(self._terminal, self._view)

    async def _rewind(self) -> None:
        """Put the last message back into the input; sending it undoes its turn."""
        standing = await self._app.store.sessions.active(self._key)
        messages = await self._app.store.archive.messages(standing.session) if standing else ()
        last = next((one.text for one in reversed(messages) if one.role == "user" and one.text.strip()), "")
        if last and not self._view.running_turn:
            self._terminal.put_text(without_attachments(last), rewinds=True)
        else:
            self._terminal.hint("There is no message to edit")

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
