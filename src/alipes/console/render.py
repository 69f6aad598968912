"""Formats values as text: tables, sizes, costs, tool calls and the events of a turn."""

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from msgspec import structs

from alipes.kernel import formatting, turns
from alipes.kernel.lazy import lazy_pattern
from alipes.kernel.messages import ToolCall, ToolResult

if TYPE_CHECKING:
    from alipes.providers.registry import ModelChoice

Write = Callable[[str], None]
DIM, RED, PLAIN = "\033[2m", "\033[31m", "\033[0m"
_DELETED = dict.fromkeys([*range(0x20), *range(0x7F, 0xA0)])
_UNSAFE = {code: None for code in _DELETED if chr(code) not in "\n\t"}
_EXIT_STATUS = lazy_pattern(r"\[(exit code -?[1-9]\d*|ended by \w+|timed out[^\]]*)[^\]]*\]\s*\Z")
_RETRY_COUNT = lazy_pattern(r"(?: in \d+ s)? \(\d+/\d+\)$")
_ENDINGS = {
    "stopped": "stopped",
    "steered": "added to the running turn",
    "failed": "failed",
    "out_of_steps": "stopped at the step limit",
    "gave_up": "gave up",
}


def sanitize(text: str) -> str:
    return text.translate(_UNSAFE)


def to_one_line(text: str, width: int = 0) -> str:
    """The text on one line, without control characters, truncated to `width` columns if given."""
    line = " ".join(sanitize(text).split())
    return truncate(line, width) if width else line


def text_width(text: str) -> int:
    """The number of terminal columns that the text takes."""
    if text.isascii():
        return len(text)
    from alipes.console import width  # noqa: PLC0415

    return width.display_width(text)


def truncate(text: str, columns: int, mark: str = "…") -> str:
    """The text without styles, cut with a mark at its end if it takes more than `columns`."""
    if text_width(text) <= columns:
        return text
    room = columns - len(mark)
    if room <= 0:
        return mark[: max(0, columns)]
    if text.isascii():
        return text[:room].rstrip() + mark
    from alipes.console import width  # noqa: PLC0415

    head, _ = width.split_at_width(text, room)
    return (head.rstrip() if text_width(head) <= room else "") + mark


def pad(text: str, width: int) -> str:
    return text + " " * (width - text_width(text))


def format_table(rows: Iterable[Sequence[str]], gap: str = "  ") -> list[str]:
    """The rows as lines with aligned columns; the last column is not padded."""
    rows = list(rows)
    widths = [max(text_width(cell) for cell in column) for column in zip(*rows, strict=True)]
    return [gap.join(pad(c, w) for c, w in zip(row[:-1], widths, strict=False)) + gap + row[-1] for row in rows]


def format_cost(cost: float | None) -> str:
    return "price unknown" if cost is None else formatting.format_money(cost)


def format_choice(choice: "ModelChoice", *, setup: str = "`alipes setup`") -> str:
    """The model in use and why it was chosen. `setup`: how to start the setup here."""
    if choice.why.endswith("."):
        return choice.why.replace("`alipes setup`", setup)
    return f"Model: {choice.model} ({choice.why})"


def format_usage(usage: turns.Usage, model: str = "") -> str:
    return " · ".join(filter(None, (model, formatting.format_usage(usage), format_cost(usage.cost))))


def format_call(call: ToolCall, width: int = 100) -> str:
    """A tool call on one line, in plain words."""
    from alipes.kernel.tool_labels import describe_tool  # noqa: PLC0415

    return to_one_line(describe_tool(call).text, width)


def format_activity(call: ToolCall) -> str:
    """What happens while the call runs."""
    from alipes.kernel.tool_labels import describe_activity  # noqa: PLC0415

    return describe_activity(call)


def format_result(call: ToolCall, result: ToolResult, seconds: float, width: int = 100) -> str:
    """The outcome and the duration of a call; if it failed, also its text."""
    from alipes.kernel.tool_labels import describe_outcome, problem_of  # noqa: PLC0415

    took = f"{seconds:.1f} s" if seconds >= 0.1 and result.outcome != "denied" else ""
    line = ", ".join(word for word in (describe_outcome(call, result), took) if word)
    problem = "" if result.outcome == "ok" else problem_of(result)
    whole = "`alipes install " in problem  # the command is at its end
    return to_one_line(f"{line}: {problem}" if problem else line, 0 if whole else width)


def format_resumption(started: turns.TurnStarted) -> str:
    """One line about a turn that continues after the process ended; empty for a new turn."""
    if started.attempt < 2:
        return ""
    if not started.calls:
        return "Resuming the interrupted turn"
    if started.calls_done < started.calls:
        return f"Resumed. Step {started.calls_done + 1} was cut off."
    return f"Resumed after step {started.calls}."


def format_retraction(reason: str) -> str:
    """One line about a part of an answer that was shown and failed."""
    return f"Ignore the partial answer above: {to_one_line(reason)}."


def format_ending(end: turns.TurnEnded) -> str:
    """One line about how a turn ended; empty if it was answered."""
    if end.ending == "answered":
        return ""
    detail = end.detail if end.ending in ("failed", "gave_up") else ""
    return _ENDINGS[end.ending] + (f": {sanitize(detail)}" if detail else "")


class TurnPrinter:
    """Prints a turn: the answer to `answer` as it streams, other lines to `remark`.

    Output cannot be retracted, so a retracted answer is followed by a remark and restarts on a
    new line. The answer ends with exactly one line break.
    """

    def __init__(
        self,
        answer: Write,
        remark: Write,
        *,
        verbose: bool = False,
        quiet: bool = False,
        end_line: Callable[[], None] | None = None,
    ) -> None:
        """`end_line`: called after a message, instead of a line break."""
        self._answer, self._remark, self._end_line = answer, remark, end_line or (lambda: answer("\n"))
        self._verbose, self._quiet = verbose, quiet
        self._written: list[str] = []
        """The text of the current message that was written so far."""
        self._thinking: list[str] = []
        self._held_breaks = 0
        """Trailing line breaks, held back because they may end the answer."""
        self._retrying = False
        """That the call is retried was printed."""
        self._was_retracted = False
        """A part of this message was printed in vain: the next attempt is printed when it is complete."""
        self._line_open = False
        """The last line has no line break yet."""
        self._model = ""
        self._last_call = ""

    def show_event(self, event: turns.Event) -> None:
        match event:
            case turns.TextDelta(text):
                self._print_text(text)
            case turns.ThinkingDelta(text):
                self._thinking.append(text)
            case turns.Said(message, model) if message.role == "assistant":
                self._model = model or self._model
                self._retrying = self._was_retracted = False
                self._complete(message.text)
            case turns.ToolStarted(call):
                self._print_thinking()
                self._print_call(call)
            case turns.ToolFinished(call, result, seconds):
                self._print_call(call)
                self._print_result(call, result, seconds)
            case turns.Retracted(reason):
                self._retract(reason)
            case turns.Notice():
                self._print_notice(event)
            case turns.TurnParked(text=text):
                self._print_notice(turns.Notice(text))
            case turns.TurnEnded():
                self._end(event)

    def _print_text(self, text: str) -> None:
        self._print_thinking()
        if not self._was_retracted:
            self._written.append(text)
            self._write(text)

    def _print_notice(self, notice: turns.Notice) -> None:
        """Print it; the retries of a call once, since the line cannot be updated."""
        if not (notice.live and self._retrying):
            text = sanitize(notice.text)
            self._note(f"· {_RETRY_COUNT.sub('', text) if notice.live else text}")
        self._retrying = notice.live

    def _write(self, text: str) -> None:
        body = text.rstrip("\n")
        if body:
            held = "\n" * self._held_breaks if self._line_open else ""
            self._answer(held + (body if self._line_open else body.lstrip("\n")))
            self._line_open, self._held_breaks = True, 0
        self._held_breaks += len(text) - len(body)

    def _complete(self, text: str) -> None:
        """The message is complete: print the part that was missing from the stream."""
        written = "".join(self._written)
        self._written.clear()
        self._print_thinking()
        if text.startswith(written):
            self._write(text[len(written) :])
        elif text.strip() != written.strip():
            self._finish_line()
            self._remark("· part of the stream was lost; here is the whole answer:")
            self._write(text)
        self._finish_line()

    def _retract(self, reason: str) -> None:
        partial = bool(self._written)
        self._was_retracted = self._was_retracted or partial
        self._written.clear()
        self._thinking.clear()
        self._finish_line()
        if partial:
            self._remark(f"· {format_retraction(reason)}")

    def _end(self, end: turns.TurnEnded) -> None:
        self._written.clear()
        self._retrying = self._was_retracted = False
        self._print_thinking()
        self._finish_line()
        if line := format_ending(end):
            self._remark(f"{'·' if end.ending in ('stopped', 'steered') else 'alipes:'} {line}")
        if self._verbose and end.usage is not None:
            self._remark(f"· {format_usage(end.usage, self._model)}")

    def _print_result(self, call: ToolCall, result: ToolResult, seconds: float) -> None:
        """Print the outcome: a denial with its advice, a plan with its items."""
        from alipes.kernel.tool_labels import plan_items  # noqa: PLC0415

        self._note(f"  {format_result(call, result, seconds, 0 if result.outcome == 'denied' else 100)}")
        for state, item in plan_items(result.text) if call.name == "todo" else ():
            self._note(f"  [{state}] {to_one_line(item)}")

    def _print_call(self, call: ToolCall) -> None:
        """Print the call unless it was printed last."""
        if call.id != self._last_call:
            self._note(f"· {format_call(call)}")
        self._last_call = call.id

    def _note(self, line: str) -> None:
        if not self._quiet:
            self._finish_line()
            self._remark(line)

    def _print_thinking(self) -> None:
        if not self._thinking:
            return
        thought = "".join(self._thinking).strip()
        self._thinking.clear()
        if self._verbose:
            for line in sanitize(thought).splitlines():
                self._note(f"  {line}".rstrip())

    def _finish_line(self) -> None:
        if self._line_open:
            self._end_line()
        self._line_open, self._held_breaks = False, 0


class DocumentPrinter(TurnPrinter):
    """Prints nothing of the answer but the document that the turn ends with."""

    _document = ""

    def show_event(self, event: turns.Event) -> None:
        match event:
            case turns.TextDelta() | turns.Retracted():
                return
            case turns.Said(message) if message.role == "assistant":
                self._document = message.text
                event = structs.replace(event, message=structs.replace(message, parts=()))
            case turns.TurnEnded(_, "answered"):
                self._complete(self._document)
        super().show_event(event)
