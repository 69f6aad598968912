"""Questions at a terminal without a screen of its own: printed as lines, answered with a line."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeAlias

from alipes.agent.approval.patterns import find_problem
from alipes.console.render import sanitize
from alipes.kernel.approvals import answers_to, describe_question, list_reasons
from alipes.kernel.lazy import lazy_pattern
from alipes.kernel.turns import AnswerApproval, AnswerQuestion, ApprovalAsked, ApprovalChoice, QuestionAsked

ReadLine: TypeAlias = Callable[[], Awaitable[str | None]]
"""The next line that is typed; None at the end of the input."""
_CHOICES: dict[str, ApprovalChoice] = {
    **dict.fromkeys(("y", "yes", "o", "once"), "once"),
    **dict.fromkeys(("s", "session"), "session"),
    **dict.fromkeys(("a", "always"), "always"),
    **dict.fromkeys(("n", "no"), "no"),
}
_PATTERN = lazy_pattern(r"(?is)p(?:attern)?(?:\s+(\S.*))?")
_BECAUSE = lazy_pattern(r"(?is)(?:e|no?[,:]?\s+because|no[,:])\s+(\S.*)")
_BY = "terminal"


class LineQuestions:
    """Asks the person who types; the end of the input is a no."""

    def __init__(self, read: ReadLine, show: Callable[[str], None], prompt: Callable[[str], None]) -> None:
        """`show` prints lines; `prompt` prints text and leaves the cursor behind it."""
        self._read, self._show, self._prompt = read, show, prompt

    async def ask(self, asked: ApprovalAsked | QuestionAsked) -> AnswerApproval | AnswerQuestion:
        """Show the question and wait for a valid answer."""
        try:
            return await self._ask(asked)
        except asyncio.CancelledError:  # answered elsewhere, or stopped: leave the line of the question
            self._prompt("\n")
            raise

    async def _ask(self, asked: ApprovalAsked | QuestionAsked) -> AnswerApproval | AnswerQuestion:
        if isinstance(asked, QuestionAsked):
            return await self._ask_question(asked)
        call = describe_question(asked)
        body = [f"    {line}" for line in call.text.expandtabs(4).split("\n") if call.text]
        why = [f"  Why: {each}" for each in list_reasons(asked)]
        self._show("\n".join([f"? {call.title}", *body, *why]))
        pattern = "  [p] pattern" if asked.pattern else ""
        longer = "" if asked.once else f"  [s] session  [a] always{pattern}"
        while True:
            self._prompt(f"  [y] once{longer}  [n] no  [e] no, because ...: ")
            if (answer := await self._read_approval(asked)) is not None:
                return answer

    async def _read_approval(self, asked: ApprovalAsked) -> AnswerApproval | None:
        """The answer in the next line; None if it is not one."""
        line = await self._read()
        text = "no" if line is None else line.strip()
        if (choice := _CHOICES.get(text.rstrip(".!").lower())) in answers_to(asked):
            return AnswerApproval(asked.ask, choice, _BY)
        if text.lower() == "e":
            self._prompt("  Why not? ")
            return AnswerApproval(asked.ask, "no", _BY, note=(await self._read() or "").strip())
        if found := _BECAUSE.fullmatch(text):
            return AnswerApproval(asked.ask, "no", _BY, note=found[1].strip())
        if asked.pattern and (found := _PATTERN.fullmatch(text)):
            return await self._read_pattern(asked, (found[1] or "").strip())
        self._show("  Type one of the letters and Enter.")
        return None

    async def _read_pattern(self, asked: ApprovalAsked, pattern: str) -> AnswerApproval | None:
        """Allow `pattern`; if it is empty, ask for it."""
        if not pattern:
            self._prompt(f"  Pattern to allow in this folder (Enter: {asked.pattern}): ")
            pattern = (await self._read() or "").strip() or asked.pattern
        if problem := find_problem(pattern, asked.call):
            self._show(f"  {problem}")
            return None
        return AnswerApproval(asked.ask, "always", _BY, pattern=pattern)

    async def _ask_question(self, asked: QuestionAsked) -> AnswerQuestion:
        choices = [f"    {number}. {sanitize(choice)}" for number, choice in enumerate(asked.choices, 1)]
        how = "a number, or your own text" if choices else "your answer"
        self._show("\n".join([f"? {sanitize(asked.question)}", *choices]))
        self._prompt(f"  Type {how}: ")
        line = await self._read()
        return AnswerQuestion(asked.ask, asked.interpret(line or ""), _BY)
