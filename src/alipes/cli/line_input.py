"""Input line by line: the lines of a pipe, file or terminal, and questions that are answered by a line."""

import asyncio
import os
import sys
from typing import TYPE_CHECKING, TextIO

from alipes.cli.render import sanitize
from alipes.cli.stdio import StandardStreams, is_terminal
from alipes.kernel.approvals import describe_call, reveal
from alipes.kernel.turns import AnswerApproval, AnswerQuestion, ApprovalAsked, QuestionAsked

if TYPE_CHECKING:
    from alipes.kernel.turns import ApprovalChoice

READ_SIZE = 65_536
BY = "terminal"
_CHOICES: "dict[str, ApprovalChoice]" = {
    **dict.fromkeys(("y", "yes", "o", "once"), "once"),
    **dict.fromkeys(("s", "session"), "session"),
    **dict.fromkeys(("a", "always"), "always"),
    **dict.fromkeys(("n", "no"), "no"),
}
_KEYS = "[y] once  [s] this session  [a] always  [n] no: "


class LineReader:
    """Reads the lines of a pipe, file or terminal as they arrive."""

    def __init__(self, stream: TextIO | None) -> None:
        self._fd = None if stream is None else stream.fileno()
        self._pending = b""
        self._ended = stream is None

    async def next(self) -> str | None:
        """The next line without its line break; None at the end."""
        while b"\n" not in self._pending and not self._ended:
            piece = await self._read()
            self._ended = not piece
            self._pending += piece
        line, found, rest = self._pending.partition(b"\n")
        self._pending = rest
        return line.decode("utf-8", "replace") if line or found else None

    async def _read(self) -> bytes:
        assert self._fd is not None
        loop, ready = asyncio.get_running_loop(), asyncio.Event()
        try:
            loop.add_reader(self._fd, ready.set)
        except PermissionError:  # a regular file cannot be watched and is always ready
            return os.read(self._fd, READ_SIZE)
        try:
            await ready.wait()
        finally:
            loop.remove_reader(self._fd)
        return os.read(self._fd, READ_SIZE)


class LineQuestions:
    """Asks for approval, and the questions of the model, with a line of text and a line as the answer."""

    def __init__(self, lines: LineReader, streams: StandardStreams) -> None:
        self._lines, self._streams = lines, streams

    async def ask(self, asked: ApprovalAsked | QuestionAsked) -> AnswerApproval | AnswerQuestion:
        """The answer of the person; the end of the input means no."""
        try:
            return await self._ask(asked)
        except asyncio.CancelledError:  # leave the line of the question
            self._streams.prompt("\n")
            raise

    async def _ask(self, asked: ApprovalAsked | QuestionAsked) -> AnswerApproval | AnswerQuestion:
        if isinstance(asked, ApprovalAsked):
            return AnswerApproval(asked.ask, await self._ask_approval(asked), BY)
        self._streams.note(f"? {sanitize(asked.question)}")
        for number, choice in enumerate(asked.choices, 1):
            self._streams.note(f"  {number}. {sanitize(choice)}")
        self._streams.prompt("Type a number, or your own text: " if asked.choices else "Type your answer: ")
        return AnswerQuestion(asked.ask, asked.interpret(await self._lines.next() or ""), BY)

    async def _ask_approval(self, asked: ApprovalAsked) -> "ApprovalChoice":
        shown = describe_call(asked.call, asked.workdir)
        self._streams.note(f"? {shown.title}")
        for line in shown.text.expandtabs(4).split("\n") if shown.text else ():
            self._streams.note(f"    {line}")
        self._streams.note(f"  Why: {reveal(asked.reason).rstrip('.')}")
        while True:
            self._streams.prompt(_KEYS)
            answer = await self._lines.next()
            if answer is None:
                return "no"
            if (choice := _CHOICES.get(answer.strip().lower())) is not None:
                return choice
            self._streams.note("Type y, s, a or n.")


def open_keyboard() -> TextIO | None:
    """Where a person types, if one is there: standard input, or the terminal if that is a pipe."""
    if not is_terminal(sys.stderr):
        return None
    if is_terminal(sys.stdin):
        return sys.stdin
    try:
        return open("/dev/tty", encoding="utf-8")
    except OSError:
        return None
