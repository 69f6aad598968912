"""What tools do, as the lines of one message. Pure."""

import msgspec

from alipes.kernel.messages import ToolCall, ToolResult
from alipes.store.people import Progress

SHOWN = 12
"""Lines of a full bubble; of more, the last."""
WIDTH = 70
_MARKS = {"ok": "✓", "failed": "✗", "denied": "✗", "cancelled": "–", "unknown": "?"}
_TELLING = ("command", "path", "pattern", "query", "url", "name")
"""Arguments that say most of what a call is about, the first that is there."""


class Bubble:
    """Folded from what a turn tells."""

    def __init__(self) -> None:
        self._calls: dict[str, tuple[str, str]] = {}
        self._note = ""

    def started(self, call: ToolCall) -> None:
        self._calls[call.id] = ("…", _what(call))
        self._note = ""

    def progressed(self, call_id: str, text: str) -> None:
        if call_id in self._calls:
            self._note = _short(text.strip().rpartition("\n")[2])

    def finished(self, call: ToolCall, result: ToolResult) -> None:
        self._calls[call.id] = (_MARKS[result.outcome], _what(call))
        self._note = ""

    def noted(self, text: str) -> None:
        self._note = _short(text)

    def text(self, progress: Progress) -> str:
        """Markdown; empty when there is nothing to show."""
        if progress == "off":
            return ""
        lines = [f"{mark} {what}" for mark, what in self._calls.values()]
        if progress == "short":
            count = f" ({len(lines)} steps)" if len(lines) > 1 else ""
            lines = [f"{line}{count}" for line in lines[-1:]]
        elif len(lines) > SHOWN:
            lines = [f"({len(lines) - SHOWN} before)", *lines[-SHOWN:]]
        note = [self._note] if self._note and (progress == "full" or not lines) else []
        return "  \n".join(lines + [f"_{escaped(each)}_" for each in note])


def _what(call: ToolCall) -> str:
    value = next((call.args[name] for name in _TELLING if call.args.get(name)), None)
    if value is None and call.args:
        value = msgspec.json.encode(call.args).decode()
    told = _short(str(value)) if value is not None else ""
    return f"**{escaped(call.name)}** {code(told)}".rstrip()


def _short(text: str) -> str:
    words = " ".join(text.split())
    return words if len(words) <= WIDTH else words[: WIDTH - 1].rstrip() + "…"


def code(text: str) -> str:
    """`text` as code within a line, whatever it holds."""
    if not text:
        return ""
    fence = "`"
    while fence in text:
        fence += "`"
    pad = " " if text[0] == "`" or text[-1] == "`" else ""
    return f"{fence}{pad}{text}{pad}{fence}"


def escaped(text: str) -> str:
    """`text` as Markdown that shows it as it is."""
    return "".join(f"\\{letter}" if letter in "\\`*_[]<>#|~" else letter for letter in text)
