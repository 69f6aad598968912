"""What happens in a conversation, as rows: those that are final, and those that may still change.

It folds events and writes nothing; whoever paints takes what is final and asks for the tail.
"""

import time
from collections.abc import Callable

from alipes.cli.markdown.stream import Stream
from alipes.cli.render import ending_line, harmless, one_line
from alipes.cli.terminal.approval import question
from alipes.cli.terminal.styles import Look, shortened, styled, wrapped
from alipes.cli.terminal.tool_view import Running, finished
from alipes.cli.theme import Theme
from alipes.kernel.turns import (
    ApprovalAnswered,
    Asked,
    Event,
    Heard,
    Noted,
    Retracted,
    Said,
    TextDelta,
    ThinkingDelta,
    ToolFinished,
    ToolProgress,
    ToolStarted,
    TurnEnded,
    TurnStarted,
)

MUSING = 3
"""Rows of thinking that are shown while it lasts; one stays."""


class Speech:
    """One message at a time; after `finish` or `drop` it is ready for the next."""

    def __init__(self, theme: Theme, look: Look, columns: int, *, thinking: bool) -> None:
        """`thinking`: show it."""
        self._theme, self._look, self._columns, self._musing = theme, look, columns, thinking
        self._thought: list[str] = []
        self._told: list[str] = []
        self._stream: Stream | None = None
        self.shown = False
        """Some of the text is final, so it cannot be taken back any more."""

    @property
    def told(self) -> str:
        """The text as far as it came."""
        return "".join(self._told)

    def think(self, text: str) -> None:
        self._thought.append(text)

    def write(self, text: str) -> list[str]:
        """More of the text; the rows that are final now."""
        self._told.append(text)
        if self._stream is None:
            text = text.lstrip("\n")
            if not text.strip():
                return []
            self._stream = Stream(self._theme, self._columns)
        rows = self._stream.feed(text)
        self.shown = self.shown or bool(rows)
        return rows

    def thought(self) -> list[str]:
        """The thinking is over; what stays of it."""
        thought = one_line("".join(self._thought))
        self._thought.clear()
        if not thought or not self._musing:
            return []
        text = shortened(thought, self._columns - 2, self._look.more)
        return [styled(f"{self._look.thinking} {text}", self._look.thought)]

    def finish(self) -> list[str]:
        """The text is over; the rows that were not final yet."""
        rows = self._stream.finish() if self._stream is not None else []
        while rows and not rows[-1]:
            rows.pop()
        self.drop()
        return rows

    def drop(self) -> None:
        """Forget what is not final."""
        self._thought.clear()
        self._told.clear()
        self._stream, self.shown = None, False

    def tail(self) -> list[str]:
        """What may still change, as it looks now."""
        if self._stream is not None:
            return self._stream.tail()
        if not self._thought or not self._musing:
            return []
        recent = "".join(self._thought[-300:])[-self._columns * MUSING :]
        rows = wrapped(one_line(recent), self._columns, self._look.thought, "  ", "  ")[-MUSING:]
        return [styled(self._look.thinking, self._look.thought) + rows[0][1:], *rows[1:]]

    def resize(self, columns: int) -> list[str]:
        """The screen has another width; the rows that are final for that."""
        self._columns = columns
        if self._stream is None:
            return []
        self._stream.resize(columns)
        return self.write("")

    def restyle(self, theme: Theme, look: Look) -> None:
        """From the next message on it looks like this."""
        self._theme, self._look = theme, look


LONGEST = 10
"""Rows of a person's message that are shown."""
_CONSENT = {
    "once": "allowed this once",
    "session": "allowed in this conversation",
    "always": "allowed from now on",
}
"""A refusal shows in the line of the call."""


class Account:
    """Tell it every event of the session in order. Blocks of different kinds are set apart by a blank row."""

    def __init__(
        self,
        theme: Theme,
        look: Look,
        columns: int,
        *,
        thinking: bool = True,
        begun: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`begun`: a word of the house stands above already."""
        self._look, self._columns, self._clock = look, columns, clock
        self._speech = Speech(theme, look, columns, thinking=thinking)
        self._running: dict[str, Running] = {}
        self._final: list[str] = []
        self._kind = "note" if begun else ""
        """Of the last block."""

    def take(self) -> list[str]:
        """The rows that became final since the last time."""
        final, self._final = self._final, []
        return final

    def tail(self) -> list[str]:
        """The rows that may still change."""
        rows = self._speech.tail()
        apart = bool(self._kind) and not (self._speech.shown if rows else self._kind == "tool")
        for running in self._running.values():
            rows += running.rows(self._columns, self._look, self._clock())
        return ["", *rows] if rows and apart else rows

    def resize(self, columns: int) -> None:
        self._columns = columns
        begins = not self._speech.shown
        self._put("text", self._speech.resize(columns), apart=begins)

    def restyle(self, theme: Theme, look: Look) -> None:
        """What comes from now on looks like this."""
        self._look = look
        self._speech.restyle(theme, look)

    def tell(self, event: Event, shown_as: str = "") -> None:
        """Fold the event in. `shown_as`: how the person's message reads, where that is not its whole text."""
        match event:
            case ThinkingDelta(text):
                self._speech.think(text)
            case TextDelta(text):
                self._write(text)
            case Said(message):
                if message.role == "assistant":
                    self._complete(message.text)
            case ToolStarted(call):
                self._put("thought", self._speech.thought())
                self._running[call.id] = Running(call, self._clock())
            case ToolProgress(call_id, text):
                if call_id in self._running:
                    self._running[call_id].progress(text)
            case ToolFinished(call, result, seconds):
                running = self._running.pop(call.id, None)
                rows = finished(call, result, seconds, running, columns=self._columns, look=self._look)
                self._put("tool", rows)
            case _:
                self._tell_of_the_turn(event, shown_as)

    def say(self, text: str) -> None:
        """A message of the person."""
        lines = harmless(text).strip("\n").expandtabs(4).split("\n")
        rows: list[str] = []
        for line in lines[: LONGEST + 1]:
            mark = "  " if rows else styled(self._look.prompt, self._look.accent) + " "
            rows += wrapped(line, self._columns, self._look.strong, mark, "  ")
        if len(lines) > LONGEST + 1 or len(rows) > LONGEST + 1:
            left = len(lines) - LONGEST
            more = f"{left:,} more lines" if left > 1 else "and more"
            rows[LONGEST:] = ["  " + styled(f"{self._look.more} {more}", self._look.faint)]
        self._put("person", rows, apart=True)

    def note(self, text: str, *, bad: bool = False) -> None:
        """A word of the house."""
        style = self._look.bad if bad else self._look.faint
        rows: list[str] = []
        for line in harmless(text).split("\n"):
            mark = "  " if rows else styled(self._look.note, style) + " "
            rows += wrapped(line, self._columns, style, mark, "  ")
        self._put("note", rows)

    def show(self, rows: list[str]) -> None:
        """Rows that are ready, as a block of their own."""
        self._put("shown", rows, apart=True)

    def _tell_of_the_turn(self, event: Event, shown_as: str) -> None:
        match event:
            case TurnStarted(text=text, attempt=attempt):
                if words := shown_as or text:
                    self.say(words)
                if attempt > 1:
                    self.note("this was interrupted, and is taken up again")
            case Retracted(reason):
                shown = self._speech.shown
                self._speech.drop()
                what = "what stands above broke off and is void" if shown else "the answer broke off"
                self.note(f"{what} ({one_line(reason)}); asking again")
            case Noted(text):
                self.note(text)
            case ApprovalAnswered(_, choice) if choice in _CONSENT:
                self.note(_CONSENT[choice])
            case Asked():
                self.show(question(event, self._columns, self._look))
            case Heard(text=text):
                self.note(f"answered: {one_line(text)}" if text else "no answer came")
            case TurnEnded():
                self._end(event)

    def _write(self, text: str) -> None:
        self._put("thought", self._speech.thought())
        begins = not self._speech.shown
        self._put("text", self._speech.write(text), apart=begins)

    def _complete(self, text: str) -> None:
        """The message is whole: what was not told yet is told, as when part of the stream was missed."""
        told = self._speech.told
        if text.startswith(told):
            self._write(text[len(told) :])
        elif text.strip() != told.strip():
            self._finish()
            self.note("part of the stream was missed; the whole answer again:")
            self._write(text)
        self._finish()

    def _finish(self) -> None:
        self._put("thought", self._speech.thought())
        begins = not self._speech.shown
        self._put("text", self._speech.finish(), apart=begins)

    def _end(self, end: TurnEnded) -> None:
        if end.ending == "steered":  # a message that waited was taken in by the turn that goes on
            return
        self._finish()
        for running in self._running.values():
            self._put("tool", running.abandoned(self._columns, self._look, self._clock()))
        self._running.clear()
        if end.ending == "stopped" and end.detail == "superseded":
            self.note("stopped for what comes next")
        elif line := ending_line(end):
            self.note(line, bad=end.ending == "failed")

    def _put(self, kind: str, rows: list[str], *, apart: bool = False) -> None:
        if not rows:
            return
        if self._kind and (apart or kind != self._kind):
            self._final.append("")
        self._kind = kind
        self._final += rows
