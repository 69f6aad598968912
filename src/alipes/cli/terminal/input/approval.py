"""The approval prompt and the questions of the model."""

import time
from collections.abc import Callable
from typing import Literal, TypeAlias

from alipes.agent.approval.patterns import find_problem
from alipes.console.diff_view import DiffLine, DrawContext, UnifiedDiff, is_diff
from alipes.console.render import sanitize, to_one_line
from alipes.console.screen_diff import visible_width
from alipes.console.styles import TerminalStyle, apply_style, wrap_text
from alipes.kernel.approvals import NETWORK, answers_to, describe_call, describe_question, list_reasons, reveal
from alipes.kernel.messages import ToolCall
from alipes.kernel.tool_labels import describe_tool
from alipes.kernel.turns import ApprovalAnswered, ApprovalAsked, ApprovalChoice, QuestionAsked

ApprovalEntry: TypeAlias = Literal["pattern", "note"]
"""Text that is typed as a part of the answer: a pattern to allow, or why not."""

KEY_PAUSE_S = 0.5
"""A key counts as an answer only after this pause, so that typing does not answer by accident."""
ANSWER_DELAY_S = 0.25
"""If another character follows a key within this time, both are text and not an answer."""
MAX_COMMAND_ROWS = 12
"""Maximum rows of a long call in the prompt: its start and its end. The transcript shows all of it."""
MAX_DIFF_ROWS = 16
"""A question with a longer diff shows it in the transcript only."""
MIN_COMMAND_ROWS = 4
"""Rows of a call on a screen that has no room for more."""
MAX_SHORT_CHARS = 720
"""A call with more characters, or more lines than the maximum, is long."""
KEYS: dict[str, ApprovalChoice | ApprovalEntry] = {
    **{"o": "once", "y": "once", "s": "session", "a": "always", "p": "pattern", "n": "no", "e": "note"}
}
_CHOICES = (
    *(("y", "once"), ("s", "session"), ("a", "always"), ("p", "pattern"), ("n", "no"), ("e", "no, because ...")),
)
_ENTRY_HELP: dict[ApprovalEntry, str] = {
    "pattern": "Edit the pattern: * matches any words. It is allowed in this folder until you revoke it. "
    "Enter saves, Esc goes back.",
    "note": "Say why not; the model gets your reason. Enter sends, Esc goes back.",
}
_DECISIONS: dict[ApprovalChoice, str] = {
    "once": "approved once",
    "session": "approved for this session",
    "always": "always allowed",
    "no": "denied",
}


class ApprovalPrompt:
    """The open approval questions, oldest first."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._questions: list[ApprovalAsked] = []
        self._turns: dict[str, str] = {}
        self._last_key = 0.0
        self._chosen = 0
        """Number of the answer that Enter gives."""
        self._moved = False
        """The key that is being handled chose an answer: it needs no pause after it."""
        self.entry: ApprovalEntry | Literal[""] = ""
        """What is being typed for the current question."""
        self._problem = ""

    @property
    def current(self) -> ApprovalAsked | None:
        return self._questions[0] if self._questions else None

    def ask(self, asked: ApprovalAsked, turn: str = "") -> None:
        if all(one.ask != asked.ask for one in self._questions):
            self._questions.append(asked)
            self._turns[asked.ask] = turn
            self._last_key = self._clock()

    def close(self, ask: str) -> None:
        """The question was answered, here or elsewhere."""
        if self.current is not None and self.current.ask == ask:
            self._last_key = self._clock()  # a key for this question must not answer the next
            self._chosen = 0
            self.leave_entry()
        self._questions = [one for one in self._questions if one.ask != ask]
        self._turns.pop(ask, None)

    def clear(self, turn: str = "") -> None:
        """The turn ended: remove its questions, but not those of background tasks."""
        for ask in [each for each, asker in self._turns.items() if asker == turn]:
            self.close(ask)

    def begin_entry(self, kind: ApprovalEntry) -> str:
        """Let the person type a pattern or a reason; returns the text to start with."""
        asked = self.current
        if asked is None or (kind == "pattern" and not asked.pattern):
            self._problem = "A pattern can't allow this one." if asked is not None else ""
            return ""
        self.entry, self._problem = kind, ""
        return asked.pattern if kind == "pattern" else ""

    def end_entry(self, text: str) -> tuple[str, ApprovalChoice, str, str] | None:
        """The answer with the typed text: question, choice, pattern and reason; None if it is not valid yet."""
        asked, kind = self.current, self.entry
        self._problem = ""
        if asked is None or not kind:
            return None
        if kind == "note":
            self.leave_entry()
            return asked.ask, "no", "", text.strip()
        self._problem = find_problem(text, asked.call)
        if self._problem:
            return None
        self.leave_entry()
        return asked.ask, "always", text.strip(), ""

    def leave_entry(self) -> None:
        self.entry, self._problem = "", ""

    @property
    def keys(self) -> list[str]:
        """The keys of the answers, in the order shown; a digit is the number of one."""
        return [key for key, _ in _list_answers(self.current)] if self.current is not None else []

    @property
    def chosen(self) -> str:
        """The key of the answer that Enter gives; empty without a question."""
        return self.keys[self._chosen] if self.current is not None else ""

    def move(self, step: int) -> None:
        """Choose the next (1) or previous (-1) answer; the ends are connected."""
        if keys := self.keys:
            self._chosen, self._moved = (self._chosen + step) % len(keys), True

    def key_pressed(self) -> None:
        """A key was handled: the next one counts after a pause."""
        if not self._moved:
            self._last_key = self._clock()
        self._moved = False

    @property
    def accepts_keys(self) -> bool:
        """True if a key pressed now is an answer."""
        return self.current is not None and self._clock() - self._last_key >= KEY_PAUSE_S

    def rows(self, columns: int, style: TerminalStyle, *, typing: bool, room: int = 1000) -> list[str]:
        """The rows of the question, with the middle of the call left out if there is not enough `room`.

        `typing`: the input is not empty and receives the keys.
        """
        asked = self.current
        if asked is None:
            return []
        mark = f"{apply_style('?', style.warn)} "
        title = wrap_text(describe_question(asked).title, columns, style.strong, mark, "  ")
        below = [*_format_reasons(asked, columns), *self._format_answers(asked, columns, style, typing=typing)]
        call, long = _format_prompt_rows(asked, columns, style), is_long(asked)
        limit = max(MIN_COMMAND_ROWS, min(MAX_COMMAND_ROWS if long else len(call), room - len(title) - len(below)))
        return [*title, *_shorten_rows(call, limit, style, shown_above=long), *below]

    def _format_answers(self, asked: ApprovalAsked, columns: int, style: TerminalStyle, *, typing: bool) -> list[str]:
        """How to answer."""
        rows = wrap_text(self._problem, columns, style.bad, "  ", "  ") if self._problem else []
        if self.entry:
            return [*rows, *wrap_text(_ENTRY_HELP[self.entry], columns, style.accent, "  ", "  ")]
        if typing:
            rows += wrap_text("Press Esc to clear your text first, then press a key.", columns, style.warn, "  ", "  ")
        rows += _format_keys(asked, columns, style, -1 if typing else self._chosen)
        if len(self._questions) > 1:
            rows += [apply_style(f"  ({len(self._questions) - 1} more)", style.faint)]
        return rows


def _format_reasons(asked: ApprovalAsked, columns: int) -> list[str]:
    """All reasons, each on a row of its own."""
    rows: list[str] = []
    for each in list_reasons(asked):
        rows += wrap_text(each, columns, "", "       " if rows else "  Why: ", "       ")
    return rows


def _list_answers(asked: ApprovalAsked) -> list[tuple[str, str]]:
    """The keys that can be pressed, and what they mean."""
    offered = answers_to(asked)
    return [
        (key, meaning)
        for key, meaning in _CHOICES
        if (key != "p" or asked.pattern) and (key not in "sa" or KEYS[key] in offered)
    ]


def _format_keys(asked: ApprovalAsked, columns: int, style: TerminalStyle, chosen: int) -> list[str]:
    """The answers with their keys, on as many rows as they need. `chosen`: the number of the marked one."""
    rows: list[str] = []
    for number, (key, meaning) in enumerate(_list_answers(asked)):
        is_chosen = number == chosen
        mark = apply_style(style.chosen, style.accent) if is_chosen else " "
        shown = apply_style(meaning, style.accent if is_chosen else "")
        item = f" {mark}{apply_style(str(number + 1), style.faint)} {apply_style(f'[{key}]', style.accent)} {shown}"
        if rows and visible_width(rows[-1]) + visible_width(item) <= columns:
            rows[-1] += item
        else:
            rows.append(item)
    return rows


def format_question(asked: QuestionAsked, columns: int, style: TerminalStyle) -> list[str]:
    """A question of the model and how to answer it."""
    mark = apply_style("?", style.warn) + " "
    rows = wrap_text(sanitize(asked.question), columns, style.strong, mark, "  ")
    for number, choice in enumerate(asked.choices, 1):
        rows += wrap_text(f"{number}. {sanitize(choice)}", columns, "", "    ", "       ")
    how = "a number, or your own text" if asked.choices else "your answer"
    return rows + wrap_text(f"Type {how}.", columns, style.faint, "  ", "  ")


def is_long(asked: ApprovalAsked) -> bool:
    """True if the prompt may not have room for the call, so that the transcript has to show it."""
    text = describe_question(asked).text
    if asked.diff:
        return text.count("\n") >= MAX_DIFF_ROWS
    return text.count("\n") >= MAX_COMMAND_ROWS or len(text) > MAX_SHORT_CHARS


def _format_prompt_rows(asked: ApprovalAsked, columns: int, style: TerminalStyle) -> list[str]:
    """The call as the prompt shows it: a long diff is shown above only, the hosts of a group on request."""
    if asked.diff and is_long(asked):
        summary = UnifiedDiff.read(asked.diff).summary
        return wrap_text(f"{describe_tool(asked.call).text}  {summary}, shown above", columns, "", "    ", "    ")
    rows = format_call_rows(asked, columns, style)
    if describe_question(asked).more:
        rows += wrap_text(
            f"{style.expand_key} lists the hosts that a yes allows.", columns, style.faint, "    ", "    "
        )
    return rows


def format_call_rows(asked: ApprovalAsked, columns: int, style: TerminalStyle) -> list[str]:
    """The whole call, wrapped, so that nothing is hidden at the end of a long line."""
    shown = describe_question(asked)
    if asked.diff and is_diff(shown.body):
        draw = DrawContext(max(1, columns - 2), style)
        rows = [f"  {row}" for row in UnifiedDiff.read(shown.body).rows(draw, whole=True, named=True)[0]]
    else:
        rows = []
        for line in shown.body.expandtabs(4).split("\n") if shown.body else ():
            rows += wrap_text(line, columns, style.strong, "    ", "    ")
    for detail in shown.details:
        for line in detail.expandtabs(4).split("\n"):
            rows += wrap_text(line, columns, style.faint, "    ", "    ")
    return rows


def format_decision(
    asked: ApprovalAsked | None, answered: ApprovalAnswered, columns: int, style: TerminalStyle, *, shown: bool = False
) -> list[str]:
    """What was decided, and about which call: all of it, unless it was `shown` when it was asked about."""
    if answered.by == "stop" or (asked is None and answered.choice == "no"):
        return []
    head = _DECISIONS[answered.choice]
    text = "" if asked is None else _format_decided(asked, columns)
    if answered.pattern:
        text = f"{reveal(answered.pattern)} (now: {text})"
    lines = text.expandtabs(4).split("\n") if text else []
    first = ": ".join([head, *lines]) if len(lines) < 2 else f"{head}:"
    rows = wrap_text(first, columns, style.faint, f"{apply_style(style.note, style.faint)} ", "  ")
    for line in lines if len(lines) > 1 else []:
        rows += wrap_text(line, columns, style.faint, "    ", "    ")
    if answered.note:
        rows += wrap_text(f"because: {sanitize(answered.note)}", columns, style.faint, "  ", "  ")
    if asked is not None and asked.diff and answered.choice == "no" and not shown:  # an approved change shows its own
        rows += UnifiedDiff.read(asked.diff).rows(DrawContext(columns, style), whole=True)[0]
    return rows


def _format_decided(asked: ApprovalAsked, columns: int) -> str:
    call = asked.call
    if call.name == NETWORK:
        return describe_call(call).title.removeprefix("Allow ").partition("?")[0]
    if asked.diff or isinstance(call.args.get("path"), str):
        return reveal(describe_tool(call).text)
    described = describe_call(call)
    text = described.body or described.title.removeprefix("Allow ").rstrip("?")
    return f"{to_one_line(text, max(20, columns - 30))} (shown above)" if is_long(asked) else text


def _shorten_rows(rows: list[str], limit: int, style: TerminalStyle, *, shown_above: bool) -> list[str]:
    """At most `limit` rows: the first and the last ones. `shown_above`: the transcript has all of them."""
    if len(rows) <= limit:
        return rows
    left = len(rows) - limit + 1
    where = "all shown above" if shown_above else f"{style.expand_key} shows all"
    middle = "    " + apply_style(f"{style.more} {left} more lines, {where} {style.more}", style.warn)
    last = (limit - 1) // 2
    return [*rows[: limit - 1 - last], middle, *rows[len(rows) - last :]]


class QuestionRows:
    """What approvals and questions leave in the transcript besides the decision."""

    def __init__(self) -> None:
        self._asked: dict[str, ApprovalAsked] = {}
        self._expanded: set[str] = set()
        """Questions whose call was printed whole."""
        self._diffs: list[tuple[DiffLine, ...]] = []
        """Diffs that were printed with their question; the call does not repeat them."""
        self._denied: list[ToolCall] = []
        """Calls whose denial was printed; their result does not repeat it."""
        self._question: QuestionAsked | None = None
        """The open question with choices, which is shown above the input."""

    def ask(self, asked: ApprovalAsked | QuestionAsked, columns: int, style: TerminalStyle) -> list[str]:
        """The rows to print now: a call that is too long for the prompt, or a question without choices."""
        if isinstance(asked, ApprovalAsked):
            is_new = asked.ask not in self._asked
            self._asked[asked.ask] = asked
            if not is_new or not is_long(asked):
                return []
            return self._expand(asked, columns, style)
        if asked.choices:
            self._question = asked
            return []
        return format_question(asked, columns, style)

    def expand(self, columns: int, style: TerminalStyle) -> list[str]:
        """The whole calls of the open questions that were not printed yet."""
        rows: list[str] = []
        for ask, asked in self._asked.items():
            if ask not in self._expanded:
                rows += self._expand(asked, columns, style)
        return rows

    def _expand(self, asked: ApprovalAsked, columns: int, style: TerminalStyle) -> list[str]:
        self._expanded.add(asked.ask)
        if asked.diff:
            self._diffs.append(UnifiedDiff.read(asked.diff).lines)
        more = describe_question(asked).more.replace("\n", ", ")
        rows = wrap_text(more, columns, style.faint, "    ", "    ") if more else []
        return [*format_call_rows(asked, columns, style), *rows]

    def decide(
        self, asked: ApprovalAsked | None, answered: ApprovalAnswered, columns: int, style: TerminalStyle
    ) -> list[str]:
        """The rows of a decision."""
        asked = self._asked.pop(answered.ask, None) or asked
        rows = format_decision(asked, answered, columns, style, shown=answered.ask in self._expanded)
        self._expanded.discard(answered.ask)
        if asked is not None and answered.choice == "no" and rows:
            self._denied.append(asked.call)
        return rows

    def take_denied(self, call: ToolCall) -> bool:
        """True once for each denied call whose decision was printed."""
        found = next((one for one in self._denied if (one.name, one.args) == (call.name, call.args)), None)
        if found is not None:
            self._denied.remove(found)
        return found is not None

    def take_diff(self, diff: UnifiedDiff) -> bool:
        """True once for each diff that was printed with its question."""
        shown = diff.lines in self._diffs
        if shown:
            self._diffs.remove(diff.lines)
        return shown

    def clear(self) -> None:
        """Another turn starts."""
        self._diffs.clear()
        self._denied.clear()

    def close(self, columns: int, style: TerminalStyle) -> list[str]:
        """The rows of the question with choices, which is no longer shown above the input."""
        asked, self._question = self._question, None
        return [] if asked is None else format_question(asked, columns, style)[:-1]
