"""Values in, text out: how events, times, money and titles read. It writes to no screen."""

from collections.abc import Callable, Iterable, Sequence

from alipes.kernel import formatting
from alipes.kernel.messages import Json, ToolCall, ToolResult
from alipes.kernel.turns import (
    Event,
    Noted,
    Retracted,
    Said,
    TextDelta,
    ThinkingDelta,
    ToolFinished,
    ToolStarted,
    TurnEnded,
    Usage,
)

Write = Callable[[str], None]
DIM, RED, PLAIN = "\033[2m", "\033[31m", "\033[0m"
_DELETED = dict.fromkeys([*range(0x20), *range(0x7F, 0xA0)])
_UNSAFE = {code: None for code in _DELETED if chr(code) not in "\n\t"}
_ENDINGS = {
    "stopped": "stopped",
    "steered": "taken in by the turn that was at work",
    "failed": "failed",
    "out_of_steps": "out of steps: this is as far as it came",
}


def harmless(text: str) -> str:
    """The text without the control characters that a terminal would obey."""
    return text.translate(_UNSAFE)


def one_line(text: str, width: int = 0) -> str:
    """The text with runs of blanks made one, safe for a terminal, cut to `width` columns if given."""
    return cut(" ".join(harmless(text).split()), width) if width else " ".join(harmless(text).split())


def columns(text: str) -> int:
    """How many terminal columns the text takes: wide characters two, combining ones none."""
    if text.isascii():
        return len(text)
    from alipes.cli import width  # noqa: PLC0415

    return width.width(text)


def cut(text: str, room: int) -> str:
    """The text, shortened with an ellipsis where it takes more columns than `room`."""
    if columns(text) <= room:
        return text
    if text.isascii():
        return text[: max(0, room - 1)].rstrip() + "…"
    from alipes.cli import width  # noqa: PLC0415

    head, _ = width.cut(text, room - 1)
    return (head.rstrip() if columns(head) < room else "") + "…"


def pad(text: str, width: int) -> str:
    return text + " " * (width - columns(text))


def table(rows: Iterable[Sequence[str]], gap: str = "  ") -> list[str]:
    """The rows as lines with aligned columns; the last column is not padded."""
    rows = list(rows)
    widths = [max(columns(cell) for cell in column) for column in zip(*rows, strict=True)]
    return [
        gap.join(pad(c, w) for c, w in zip(row[:-1], widths, strict=False)) + gap + row[-1] for row in rows
    ]


def size(count: int) -> str:
    """A number of bytes in the unit that fits it."""
    amount = float(count)
    for unit in ("bytes", "KB", "MB"):
        if amount < 1000:
            return f"{amount:.0f} {unit}" if unit == "bytes" or amount >= 10 else f"{amount:.1f} {unit}"
        amount /= 1000
    return f"{amount:.1f} GB"


def money(cost: float | None) -> str:
    return "price unknown" if cost is None else formatting.money(cost)


def usage_line(usage: Usage, model: str = "") -> str:
    return " · ".join(filter(None, (model, formatting.tokens(usage), money(usage.cost))))


def call_line(call: ToolCall, width: int = 100) -> str:
    """A tool call as one line: its name and its most telling argument."""
    return one_line(f"{call.name} {_argument(call.args)}" if call.args else call.name, width)


def result_line(result: ToolResult, seconds: float, width: int = 100) -> str:
    """How a call went; its text only where something went wrong."""
    took = f"{seconds:.1f} s" if seconds >= 0.1 else ""
    if result.outcome == "ok":
        return took
    return one_line(", ".join(word for word in (result.outcome, took) if word) + f": {result.text}", width)


def ending_line(end: TurnEnded) -> str:
    """What is to be said of an ending; nothing of an answered turn."""
    if end.ending == "answered":
        return ""
    told = end.detail if end.ending == "failed" else ""
    return _ENDINGS[end.ending] + (f": {harmless(told)}" if told else "")


class Telling:
    """A turn as it reads: the answer to `answer` as it comes, the rest as whole lines to `remark`.

    What was written is never taken back, so a retracted answer is followed by a remark and
    starts anew on its own line. The answer as a whole ends with exactly one line break.
    """

    def __init__(self, answer: Write, remark: Write, *, verbose: bool = False, quiet: bool = False) -> None:
        self._answer, self._remark = answer, remark
        self._verbose, self._quiet = verbose, quiet
        self._told: list[str] = []
        """The text of the message being said, as far as it was told."""
        self._thought: list[str] = []
        self._breaks = 0
        """Line breaks held back, because they might be the last thing said."""
        self._open = False
        """The last line told is not finished."""
        self._model = ""
        self._named = ""
        """The id of the call named last."""
        self.begun = False
        """Something was told."""

    def tell(self, event: Event) -> None:
        self.begun = True
        match event:
            case TextDelta(text):
                self._tell_thought()
                self._told.append(text)
                self._write(text)
            case ThinkingDelta(text):
                self._thought.append(text)
            case Said(message, model) if message.role == "assistant":
                self._model = model or self._model
                self._complete(message.text)
            case ToolStarted(call):
                self._tell_thought()
                self._name(call)
            case ToolFinished(call, result, seconds):
                if line := result_line(result, seconds):
                    self._name(call)
                    self._note(f"  {line}")
            case Retracted(reason):
                self._retract(reason)
            case Noted(text):
                self._note(f"· {harmless(text)}")
            case TurnEnded():
                self._end(event)

    def _write(self, text: str) -> None:
        body = text.rstrip("\n")
        if body:
            held = "\n" * self._breaks if self._open else ""
            self._answer(held + (body if self._open else body.lstrip("\n")))
            self._open, self._breaks = True, 0
        self._breaks += len(text) - len(body)

    def _complete(self, text: str) -> None:
        """A message is whole: tell what was not told yet, as when part of the stream was missed."""
        told = "".join(self._told)
        self._told.clear()
        self._tell_thought()
        if text.startswith(told):
            self._write(text[len(told) :])
        elif text.strip() != told.strip():
            self._finish_line()
            self._remark("· part of the stream was missed; the whole answer again:")
            self._write(text)
        self._finish_line()

    def _retract(self, reason: str) -> None:
        begun = bool(self._told)
        self._told.clear()
        self._thought.clear()
        self._finish_line()
        what = "what stands above broke off and is void" if begun else "the answer broke off"
        self._remark(f"· {what} ({one_line(reason)}); asking again")

    def _end(self, end: TurnEnded) -> None:
        self._told.clear()
        self._tell_thought()
        self._finish_line()
        if line := ending_line(end):
            self._remark(f"{'·' if end.ending in ('stopped', 'steered') else 'alipes:'} {line}")
        if self._verbose and end.usage is not None:
            self._remark(f"· {usage_line(end.usage, self._model)}")

    def _name(self, call: ToolCall) -> None:
        """Say which call is meant, unless it is the one named last."""
        if call.id != self._named:
            self._note(f"· {call_line(call)}")
        self._named = call.id

    def _note(self, line: str) -> None:
        if not self._quiet:
            self._finish_line()
            self._remark(line)

    def _tell_thought(self) -> None:
        if not self._thought:
            return
        thought = "".join(self._thought).strip()
        self._thought.clear()
        if self._verbose:
            for line in harmless(thought).splitlines():
                self._note(f"  {line}".rstrip())

    def _finish_line(self) -> None:
        if self._open:
            self._answer("\n")
        self._open, self._breaks = False, 0


def _argument(args: dict[str, Json]) -> str:
    for name in ("command", "path", "pattern", "query", "url", "question", "goal"):
        if isinstance(value := args.get(name), str):
            return value
    return ", ".join(f"{name}={value}" for name, value in args.items())
