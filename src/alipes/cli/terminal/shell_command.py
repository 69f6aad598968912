"""`!command` in the terminal: runs it, shows its output live, and gives the output along with the next message."""

import asyncio
import time

from alipes.cli.terminal.input.key_bindings import TypedText
from alipes.cli.terminal.terminal import TerminalApp
from alipes.cli.terminal.view import SessionView
from alipes.console.render import sanitize, to_one_line, truncate
from alipes.console.styles import apply_style, wrap_text
from alipes.core.app import App
from alipes.kernel.messages import ToolResult
from alipes.kernel.turns import Inbound
from alipes.sessions.user_shell import MARK, parse_command, split_status, to_notice

LIVE_ROWS = 6
MAX_ROWS = 200
"""Rows of output that are printed."""


class ShellCommands:
    """Runs one command at a time; a message that is typed meanwhile waits for it."""

    def __init__(self, terminal: TerminalApp, app: App, view: SessionView) -> None:
        self._terminal, self._app, self._view = terminal, app, view
        self._task: asyncio.Task[ToolResult] | None = None
        self._command, self._output, self._began = "", "", 0.0

    async def run(self, typed: TypedText, inbound: Inbound) -> None:
        """Run the command to its end, show its output, and record it for the model."""
        command = parse_command(typed.text)
        self._view.send_started(typed.text, typed.shown)
        self._view.send_finished(typed.id, typed.shown)
        self._command, self._output, self._began = command, "", time.monotonic()
        status = self._view.status
        status.command_started("running a command")
        self._terminal.refresh_now()
        result = await self._run_to_end(command, inbound)
        self._command = ""
        if not self._view.running_turn:
            status.command_ended()
        self._show(command, result)
        await self._record(command, result, inbound)

    def stop(self) -> bool:
        """Stop the command; False if none runs."""
        if self._task is None or self._task.done():
            return False
        self._task.cancel()
        return True

    def tail(self) -> list[str]:
        """The rows of the running command."""
        if not self._command:
            return []
        columns, style = self._terminal.columns, self._terminal.bottom.style
        lines = [line.rsplit("\r", 1)[-1] for line in self._output.replace("\r\n", "\n").rstrip().split("\n")]
        shown = [truncate(sanitize(line).expandtabs(4), columns - 2, style.more) for line in lines[-LIVE_ROWS:]]
        rows = [apply_style(f"  {line}", style.faint) for line in shown if line]
        return ["", self._head_row(self._command), *rows]

    async def _run_to_end(self, command: str, inbound: Inbound) -> ToolResult:
        async with asyncio.TaskGroup() as group:
            run = self._app.user_shell.run(command, inbound, self._show_output)
            self._task = group.create_task(run, name=f"!{command}")
        if self._task.cancelled():
            return ToolResult("", f"{self._output.rstrip()}\n[killed by the user]")
        return self._task.result()

    async def _show_output(self, text: str) -> None:
        self._output = (self._output + text)[-20_000:]
        self._terminal.refresh()

    def _head_row(self, command: str) -> str:
        style, columns = self._terminal.bottom.style, self._terminal.columns
        mark = apply_style(MARK, style.accent)
        return f"{mark} {apply_style(truncate(to_one_line(command), columns - 2, style.more), style.strong)}"

    def _show(self, command: str, result: ToolResult) -> None:
        style, columns = self._terminal.bottom.style, self._terminal.columns
        text, status = split_status(result)
        rows = [self._head_row(command)]
        lines = sanitize(text).expandtabs(4).split("\n") if text else []
        for line in lines[:MAX_ROWS]:
            rows += wrap_text(line, columns, "", "  ", "  ")
        if (left := len(lines) - MAX_ROWS) > 0:
            rows.append(apply_style(f"  {style.more} {left:,} more lines", style.faint))
        if status:
            seconds = time.monotonic() - self._began
            rows.append(apply_style(f"  {status} · {seconds:.1f} s", style.bad))
        self._view.transcript.add_block(rows)
        self._view.update()

    async def _record(self, command: str, result: ToolResult, inbound: Inbound) -> None:
        """Keep the output for the model; nothing is answered."""
        if (notice := to_notice(command, result, inbound)) is not None:
            await self._app.sessions.submit(notice, "steer", ruled=True)
