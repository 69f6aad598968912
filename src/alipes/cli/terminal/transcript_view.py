"""The events of a conversation as rows: final ones for the scrollback, and a tail that may change."""

import time
from collections.abc import Callable

from alipes.cli.markdown.stream import MarkdownStream
from alipes.cli.render import format_ending, sanitize, to_one_line, truncate
from alipes.cli.terminal.approval import format_call_rows, format_decision, format_question, is_long
from alipes.cli.terminal.styles import TerminalStyle, apply_style, wrap_text
from alipes.cli.terminal.tool_view import RunningCall, render_finished
from alipes.cli.theme import Theme
from alipes.kernel import turns
from alipes.kernel.attachments import collapse_attachments

THINKING_ROWS = 3
"""Rows of thinking shown while it streams; one row remains afterwards."""


class MessageView:
    """The message being streamed; reusable after `finish` or `drop`."""

    def __init__(self, theme: Theme, style: TerminalStyle, columns: int, *, thinking: bool) -> None:
        """`thinking`: show the thinking of the model."""
        self._theme, self._style, self._columns, self._show_thinking = theme, style, columns, thinking
        self._thinking: list[str] = []
        self._parts: list[str] = []
        self._stream: MarkdownStream | None = None
        self.has_final_rows = False
        """Some rows are final and cannot be removed."""

    @property
    def text(self) -> str:
        return "".join(self._parts)

    def think(self, text: str) -> None:
        self._thinking.append(text)

    def write(self, text: str) -> list[str]:
        """Add text; returns the rows that became final."""
        self._parts.append(text)
        if self._stream is None:
            text = text.lstrip("\n")
            if not text.strip():
                return []
            self._stream = MarkdownStream(self._theme, self._columns)
        rows = self._stream.feed(text)
        self.has_final_rows = self.has_final_rows or bool(rows)
        return rows

    def finish_thinking(self) -> list[str]:
        """End the thinking; returns the row that remains of it."""
        thought = to_one_line("".join(self._thinking))
        self._thinking.clear()
        if not thought or not self._show_thinking:
            return []
        text = truncate(thought, self._columns - 2, self._style.more)
        return [apply_style(f"{self._style.thinking} {text}", self._style.thought)]

    def finish(self) -> list[str]:
        """End the text; returns the remaining rows."""
        rows = self._stream.finish() if self._stream is not None else []
        while rows and not rows[-1]:
            rows.pop()
        self.drop()
        return rows

    def drop(self) -> None:
        """Discard everything that is not final."""
        self._thinking.clear()
        self._parts.clear()
        self._stream, self.has_final_rows = None, False

    def tail(self) -> list[str]:
        """The rows that may still change."""
        if self._stream is not None:
            return self._stream.tail()
        if not self._thinking or not self._show_thinking:
            return []
        recent = "".join(self._thinking[-300:])[-self._columns * THINKING_ROWS :]
        rows = wrap_text(to_one_line(recent), self._columns, self._style.thought, "  ", "  ")[-THINKING_ROWS:]
        return [apply_style(self._style.thinking, self._style.thought) + rows[0][1:], *rows[1:]]

    def resize(self, columns: int) -> list[str]:
        """Change the width; returns the rows that became final."""
        self._columns = columns
        if self._stream is None:
            return []
        self._stream.resize(columns)
        return self.write("")

    def restyle(self, theme: Theme, style: TerminalStyle) -> None:
        """Use another theme from the next message."""
        self._theme, self._style = theme, style


MAX_MESSAGE_ROWS = 10


class TranscriptView:
    """Turns the events of a session into rows, with a blank row between blocks of different kinds."""

    def __init__(
        self,
        theme: Theme,
        style: TerminalStyle,
        columns: int,
        *,
        thinking: bool = True,
        begun: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`begun`: a note was printed already."""
        self._style, self._columns, self._clock = style, columns, clock
        self._message = MessageView(theme, style, columns, thinking=thinking)
        self._running: dict[str, RunningCall] = {}
        self._asked: dict[str, turns.ApprovalAsked] = {}
        self._final: list[str] = []
        self._kind = "note" if begun else ""

    def take_final(self) -> list[str]:
        """The rows that became final since the last call."""
        final, self._final = self._final, []
        return final

    def tail(self) -> list[str]:
        """The rows that may still change."""
        rows = self._message.tail()
        apart = bool(self._kind) and not (self._message.has_final_rows if rows else self._kind == "tool")
        for running in self._running.values():
            rows += running.rows(self._columns, self._style, self._clock())
        return ["", *rows] if rows and apart else rows

    def resize(self, columns: int) -> None:
        self._columns = columns
        begins = not self._message.has_final_rows
        self._add_rows("text", self._message.resize(columns), apart=begins)

    def restyle(self, theme: Theme, style: TerminalStyle) -> None:
        """Use another theme for new rows."""
        self._style = style
        self._message.restyle(theme, style)

    def handle_event(self, event: turns.Event, shown_as: str = "") -> None:
        """Add an event. `shown_as`: the label for a user message with long pastes."""
        match event:
            case turns.ThinkingDelta(text):
                self._message.think(text)
            case turns.TextDelta(text):
                self._write(text)
            case turns.Said(message):
                if message.role == "assistant":
                    self._complete(message.text)
            case turns.ToolStarted(call):
                self._add_rows("thought", self._message.finish_thinking())
                self._running[call.id] = RunningCall(call, self._clock())
            case turns.ToolProgress(call_id, text):
                if call_id in self._running:
                    self._running[call_id].progress(text)
            case turns.ToolFinished(call, result, seconds):
                running = self._running.pop(call.id, None)
                rows = render_finished(call, result, seconds, running, columns=self._columns, style=self._style)
                self._add_rows("tool", rows)
            case _:
                self._handle_turn_event(event, shown_as)

    def add_user_message(self, text: str) -> None:
        lines = sanitize(collapse_attachments(text)).strip("\n").expandtabs(4).split("\n")
        rows: list[str] = []
        for line in lines[: MAX_MESSAGE_ROWS + 1]:
            mark = "  " if rows else apply_style(self._style.prompt, self._style.accent) + " "
            rows += wrap_text(line, self._columns, self._style.strong, mark, "  ")
        if len(lines) > MAX_MESSAGE_ROWS + 1 or len(rows) > MAX_MESSAGE_ROWS + 1:
            left = len(lines) - MAX_MESSAGE_ROWS
            more = f"{left:,} more lines" if left > 1 else "and more"
            rows[MAX_MESSAGE_ROWS:] = ["  " + apply_style(f"{self._style.more} {more}", self._style.faint)]
        self._add_rows("person", rows, apart=True)

    def add_note(self, text: str, *, bad: bool = False) -> None:
        """Add a note of alipes itself."""
        style = self._style.bad if bad else self._style.faint
        rows: list[str] = []
        for line in sanitize(text).split("\n"):
            mark = "  " if rows else apply_style(self._style.note, style) + " "
            rows += wrap_text(line, self._columns, style, mark, "  ")
        self._add_rows("note", rows)

    def add_block(self, rows: list[str]) -> None:
        """Add finished rows as a separate block."""
        self._add_rows("shown", rows, apart=True)

    def _handle_turn_event(self, event: turns.Event, shown_as: str) -> None:
        match event:
            case turns.TurnStarted(text=text, attempt=attempt):
                if words := shown_as or text:
                    self.add_user_message(words)
                if attempt > 1:
                    self.add_note("resuming an interrupted turn")
            case turns.Retracted(reason):
                shown = self._message.has_final_rows
                self._message.drop()
                lost = "connection lost; ignore the partial answer above" if shown else "connection lost"
                self.add_note(f"{lost} ({to_one_line(reason)}). Retrying")
            case turns.Notice(text):
                self.add_note(text)
            case turns.ApprovalAsked() | turns.ApprovalAnswered():
                self._handle_approval(event)
            case turns.QuestionAsked():
                self.add_block(format_question(event, self._columns, self._style))
            case turns.QuestionAnswered(text=text):
                self.add_note(f"answered: {to_one_line(text)}" if text else "no answer")
            case turns.TurnEnded():
                self._end(event)

    def _handle_approval(self, event: turns.ApprovalAsked | turns.ApprovalAnswered) -> None:
        if isinstance(event, turns.ApprovalAsked):
            if event.ask not in self._asked and is_long(event):  # the prompt has no room for all of it
                self.add_block(format_call_rows(event, self._columns, self._style))
            self._asked[event.ask] = event
            return
        self.add_decision(self._asked.pop(event.ask, None), event)

    def add_decision(self, asked: turns.ApprovalAsked | None, answered: turns.ApprovalAnswered) -> None:
        """Keep what was approved or denied, whole."""
        self._add_rows("note", format_decision(asked, answered, self._columns, self._style))

    def _write(self, text: str) -> None:
        self._add_rows("thought", self._message.finish_thinking())
        begins = not self._message.has_final_rows
        self._add_rows("text", self._message.write(text), apart=begins)

    def _complete(self, text: str) -> None:
        """The message is complete: add the part that was missing from the stream."""
        received = self._message.text
        if text.startswith(received):
            self._write(text[len(received) :])
        elif text.strip() != received.strip():
            self._finish()
            self.add_note("part of the stream was lost; here is the whole answer:")
            self._write(text)
        self._finish()

    def _finish(self) -> None:
        self._add_rows("thought", self._message.finish_thinking())
        begins = not self._message.has_final_rows
        self._add_rows("text", self._message.finish(), apart=begins)

    def _end(self, end: turns.TurnEnded) -> None:
        if end.ending == "steered":  # a queued message was added to the running turn
            return
        self._finish()
        for running in self._running.values():
            self._add_rows("tool", running.render_cancelled(self._columns, self._style, self._clock()))
        self._running.clear()
        if end.ending == "stopped" and end.detail == "superseded":
            self.add_note("interrupted by your next message")
        elif line := format_ending(end):
            self.add_note(line, bad=end.ending == "failed")

    def _add_rows(self, kind: str, rows: list[str], *, apart: bool = False) -> None:
        if not rows:
            return
        if self._kind and (apart or kind != self._kind):
            self._final.append("")
        self._kind = kind
        self._final += rows
