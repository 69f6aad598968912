"""The events of a conversation as rows: final ones for the scrollback, and a tail that may change."""

import time
from collections import deque
from collections.abc import Callable
from typing import Literal, TypeAlias

from msgspec import Struct

from alipes.cli.terminal.input.approval import QuestionRows
from alipes.cli.terminal.transcript.todo_view import TodoView
from alipes.cli.terminal.transcript.tool_view import KEPT_LINES, CallRecord, RunningCall, render_finished, render_whole
from alipes.console.diff_view import DrawContext
from alipes.console.markdown.stream import MarkdownStream
from alipes.console.render import format_ending, format_resumption, format_retraction, sanitize, to_one_line, truncate
from alipes.console.screen_diff import strip_escapes
from alipes.console.styles import TerminalStyle, apply_style, wrap_text
from alipes.console.theme import Theme
from alipes.kernel import turns
from alipes.kernel.attachments import collapse_attachments
from alipes.kernel.messages import Message, ToolCall, ToolResult
from alipes.runtime.program_name import name_program

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

    @property
    def thought(self) -> str:
        """The thinking so far; empty if it is not shown."""
        return "".join(self._thinking).strip() if self._show_thinking else ""

    def finish_thinking(self) -> list[str]:
        """End the thinking; returns the row that remains of it."""
        thought = to_one_line(self.thought)
        self._thinking.clear()
        if not thought:
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
MAX_KEPT_CHARS = 4_000_000
"""Text that is kept for the pager."""
RETRY_HINT = "/retry tries again, /model chooses another model, /setup connects one."
_SHOWN_OTHERWISE = frozenset(("todo", "clarify"))
"""Tools whose running calls have their own rows: the plan and the question."""


class RecordedText(Struct, frozen=True):
    kind: Literal["user", "thought", "answer", "note"]
    text: str

    @property
    def size(self) -> int:
        return len(self.text)


TranscriptItem: TypeAlias = RecordedText | CallRecord


class TranscriptItems:
    """Everything that was shown, in order; the oldest items give way."""

    def __init__(self) -> None:
        self._items: deque[TranscriptItem] = deque()
        self._chars = self._left_out = 0
        self._shortened: TranscriptItem | None = None

    def add(self, item: TranscriptItem, *, shortened: bool = False) -> None:
        """`shortened`: the screen does not show all of it."""
        self._items.append(item)
        self._chars += item.size
        while self._chars > MAX_KEPT_CHARS and len(self._items) > 1:
            self._chars -= self._items.popleft().size
            self._left_out += 1
        if shortened:
            self._shortened = item

    def take_shortened(self) -> TranscriptItem | None:
        """The last item that was shown shortened; each is returned once."""
        item, self._shortened = self._shortened, None
        return item

    def rows(self, theme: Theme, draw: DrawContext, *unfinished: RecordedText) -> list[str]:
        """All items and the texts that are not finished, with a blank row between them."""
        rows: list[str] = []
        if self._left_out:
            rows = [
                apply_style(f"{draw.style.more} {self._left_out:,} older entries; /export has all", draw.style.faint)
            ]
        for item in (*self._items, *(each for each in unfinished if each.text.strip())):
            rows += ["", *render_item(item, theme, draw)] if rows else render_item(item, theme, draw)
        return rows


def render_item(item: TranscriptItem, theme: Theme, draw: DrawContext) -> list[str]:
    """The whole item as rows."""
    style = draw.style
    if isinstance(item, CallRecord):
        return render_whole(item, draw)
    if item.kind == "answer":
        stream = MarkdownStream(theme, draw.columns)
        return [*stream.feed(item.text.strip("\n")), *stream.finish()]
    mark, sgr = {
        "user": (style.prompt, style.strong),
        "thought": (style.thinking, style.thought),
        "note": (style.note, style.faint),
    }[item.kind]
    rows: list[str] = []
    for line in sanitize(item.text).strip("\n").expandtabs(4).split("\n"):
        rows += wrap_text(line, draw.columns, sgr, "  " if rows else apply_style(mark, sgr) + " ", "  ")
    return rows


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
        self._theme, self._style, self._columns, self._clock = theme, style, columns, clock
        self.draw = DrawContext(columns, style, theme.tokens)
        self._message = MessageView(theme, style, columns, thinking=thinking)
        self._running: dict[str, RunningCall] = {}
        self._questions = QuestionRows()
        self._final: list[str] = []
        self._kind = "note" if begun else ""
        self._plan = TodoView()
        self._in_turn = False
        self._answered = False
        """A question of this turn was answered, and its call has not ended yet."""
        self._live_note = ""
        """What is happening now, in a row that the next event replaces."""
        self._record = TranscriptItems()
        self._calls: dict[str, ToolCall] = {}
        """Calls of the last turn whose result was not shown."""

    def take_final(self) -> list[str]:
        """The rows that became final since the last call."""
        final, self._final = self._final, []
        return final

    def tail(self) -> list[str]:
        """The rows that may still change."""
        rows = self._message.tail() or (self._format_note(self._live_note) if self._live_note else [])
        apart = bool(self._kind) and not (self._message.has_final_rows if rows else self._kind == "tool")
        for running in self._running.values():
            if running.call.name not in _SHOWN_OTHERWISE:
                rows += running.rows(self.draw, self._clock())
        if plan := self._plan.live_rows(self._columns, self._style) if self._in_turn else []:
            rows += ["", *plan] if rows else plan
        return ["", *rows] if rows and apart else rows

    def expand_last(self) -> bool:
        """Show the call that is asked about, or the last shortened output, thinking or call. False if there is none."""
        if asked := self._questions.expand(self._columns, self._style):
            self.add_block(asked)
            return True
        item = self._record.take_shortened()
        if item is None:
            return False
        self.add_block(render_item(item, self._theme, self.draw))
        return True

    def render_whole(self) -> list[str]:
        """The whole transcript as rows: messages, thinking, calls with their output."""
        unfinished = RecordedText("thought", self._message.thought), RecordedText("answer", self._message.text)
        rows = self._record.rows(self._theme, self.draw, *unfinished)
        for running in self._running.values():
            rows += ["", *running.rows(self.draw, self._clock(), lines=KEPT_LINES)]
        return rows

    def resize(self, columns: int) -> None:
        self._columns = columns
        self.draw = DrawContext(columns, self._style, self._theme.tokens)
        begins = not self._message.has_final_rows
        self._add_rows("text", self._message.resize(columns), apart=begins)

    def restyle(self, theme: Theme, style: TerminalStyle) -> None:
        """Use another theme for new rows."""
        self._theme, self._style = theme, style
        self.draw = DrawContext(self._columns, style, theme.tokens)
        self._message.restyle(theme, style)

    def handle_event(self, event: turns.Event, shown_as: str = "") -> None:
        """Add an event. `shown_as`: the label for a user message with long pastes."""
        self._live_note = event.text if isinstance(event, turns.Notice) and event.live else ""
        match event:
            case turns.ThinkingDelta(text):
                self._message.think(text)
            case turns.TextDelta(text):
                self._write(text)
            case turns.Said(message):
                self._handle_message(message)
            case turns.ToolStarted(call):
                self._finish_thinking()
                self._running[call.id] = RunningCall(call, self._clock())
            case turns.ToolProgress(call_id, text):
                if call_id in self._running:
                    self._running[call_id].progress(text, self._clock())
            case turns.ToolFinished(call, result, seconds):
                running = self._running.pop(call.id, None) or RunningCall(call, self._clock())
                self._add_call(running.finish(result, seconds))
            case _:
                self._handle_turn_event(event, shown_as)

    def add_user_message(self, text: str) -> None:
        lines = sanitize(collapse_attachments(text)).strip("\n").expandtabs(4).split("\n")
        rows: list[str] = []
        for line in lines[: MAX_MESSAGE_ROWS + 1]:
            mark = "  " if rows else apply_style(self._style.prompt, self._style.accent) + " "
            rows += wrap_text(line, self._columns, self._style.strong, mark, "  ")
        shortened = len(lines) > MAX_MESSAGE_ROWS + 1 or len(rows) > MAX_MESSAGE_ROWS + 1
        if shortened:
            left = len(lines) - MAX_MESSAGE_ROWS
            more = f"{left:,} more lines" if left > 1 else "and more"
            hint = f"{self._style.more} {more} ({self._style.expand_key})"
            rows[MAX_MESSAGE_ROWS:] = ["  " + apply_style(hint, self._style.faint)]
        self._record.add(RecordedText("user", text), shortened=shortened)
        self._add_rows("person", rows, apart=True)

    def add_note(self, text: str, *, bad: bool = False) -> None:
        """Add a note of alipes itself."""
        self._record.add(RecordedText("note", text))
        self._add_rows("note", self._format_note(text, bad=bad))

    def _format_note(self, text: str, *, bad: bool = False) -> list[str]:
        style = self._style.bad if bad else self._style.faint
        rows: list[str] = []
        for line in name_program(sanitize(text)).split("\n"):
            mark = "  " if rows else apply_style(self._style.note, style) + " "
            rows += wrap_text(line, self._columns, style, mark, "  ")
        return rows

    def add_block(self, rows: list[str]) -> None:
        """Add finished rows as a separate block."""
        self._add_rows("shown", rows, apart=True)

    def _handle_turn_event(self, event: turns.Event, shown_as: str) -> None:
        match event:
            case turns.TurnStarted(text=text):
                self._questions.clear()
                self._calls.clear()
                self._in_turn, self._answered = True, False
                if words := shown_as or text:
                    self.add_user_message(words)
                if note := format_resumption(event):
                    self.add_note(note)
            case turns.Retracted(reason):
                self._retract(reason)
            case turns.Notice(text, live=False) | turns.TurnParked(text=text):
                self.add_note(text)
            case turns.ApprovalAsked() | turns.QuestionAsked():
                self.add_block(self._questions.ask(event, self._columns, self._style))
            case turns.ApprovalAnswered():
                self.add_decision(None, event)
            case turns.QuestionAnswered(text=text):
                self.add_block(self._questions.close(self._columns, self._style))
                self.add_note(f"answered: {to_one_line(text)}" if text else "no answer")
                self._answered = True
            case turns.TurnEnded():
                self._end(event)

    def _retract(self, reason: str) -> None:
        shown = self._message.has_final_rows
        self._message.drop()
        if shown:
            self.add_note(format_retraction(reason))

    def add_decision(self, asked: turns.ApprovalAsked | None, answered: turns.ApprovalAnswered) -> None:
        """Keep what was approved or denied, whole. `asked`: the question, if it was not shown here."""
        rows = self._questions.decide(asked, answered, self._columns, self._style)
        if rows:
            text = "\n".join(strip_escapes(row) for row in rows).removeprefix(self._style.note).strip()
            self._record.add(RecordedText("note", text))
        self._add_rows("note", rows)

    def _handle_message(self, message: Message) -> None:
        """A message of the transcript. Results of calls are shown unless events showed them or will show them."""
        if message.role == "assistant":
            self._complete(message.text)
            self._calls.update((call.id, call) for call in message.calls)
        for part in message.parts:
            if isinstance(part, ToolResult) and part.call_id in self._calls and part.call_id not in self._running:
                self._add_call(CallRecord(self._calls[part.call_id], part))

    def _add_call(self, record: CallRecord) -> None:
        self._calls.pop(record.call.id, None)
        if record.result.outcome == "denied" and self._questions.take_denied(record.call):
            self._record.add(record)
            return
        repeats = record.diff is not None and record.result.outcome == "ok" and self._questions.take_diff(record.diff)
        rows, shortened = render_finished(record, self.draw, diff_shown=repeats)
        self._record.add(record, shortened=shortened)
        if record.call.name == "todo" and record.result.outcome == "ok":
            self._plan.update(record.result.text)
            if self._plan.is_final:
                self._add_rows("plan", self._plan.print_rows(self._columns, self._style))
            return
        if record.call.name == "clarify" and self._answered:  # the question and the answer are shown
            self._answered = False
            return
        self._add_rows("tool", rows)

    def _finish_thinking(self) -> None:
        thought = self._message.thought
        rows = self._message.finish_thinking()
        if rows:
            cut = strip_escapes(rows[0]).endswith(self._style.more)
            self._record.add(RecordedText("thought", thought), shortened=cut)
        self._add_rows("thought", rows)

    def _write(self, text: str) -> None:
        self._finish_thinking()
        begins = not self._message.has_final_rows
        self._add_rows("text", self._message.write(text), apart=begins)

    def _complete(self, text: str) -> None:
        """The message is complete: add the part that was missing from the stream."""
        if text.strip():
            self._finish_thinking()
            self._record.add(RecordedText("answer", text))
        received = self._message.text
        if text.startswith(received):
            self._write(text[len(received) :])
        elif text.strip() != received.strip():
            self._finish()
            self.add_note("part of the stream was lost; here is the whole answer:")
            self._write(text)
        self._finish()

    def _finish(self) -> None:
        self._finish_thinking()
        begins = not self._message.has_final_rows
        self._add_rows("text", self._message.finish(), apart=begins)

    def _end(self, end: turns.TurnEnded) -> None:
        if end.ending == "steered":  # a queued message was added to the running turn
            return
        self._finish()
        for running in self._running.values():
            self._add_call(running.finish_stopped(self._clock()))
        self._running.clear()
        self._add_rows("plan", self._plan.print_rows(self._columns, self._style))
        self._in_turn = False
        self.add_block(self._questions.close(self._columns, self._style))
        if end.ending == "stopped" and end.detail == "superseded":
            self.add_note("interrupted by your next message")
        elif line := format_ending(end):
            failed = end.ending in ("failed", "gave_up")
            self.add_note(f"{line.rstrip('.')}. {RETRY_HINT}" if failed else line, bad=failed)

    def _add_rows(self, kind: str, rows: list[str], *, apart: bool = False) -> None:
        if not rows:
            return
        if self._kind and (apart or kind != self._kind):
            self._final.append("")
        self._kind = kind
        self._final += rows
