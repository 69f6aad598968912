"""`clarify`: the model asks the user a question and waits for the answer."""

from collections.abc import Awaitable, Callable, Mapping
from typing import TypeAlias

from alipes.kernel.errors import ToolError
from alipes.kernel.messages import Json
from alipes.kernel.ports import ToolContext, ToolSpec
from alipes.tools.common import make_schema

MAX_CHOICES, MAX_CHOICE_CHARS = 6, 80
AskUser: TypeAlias = Callable[[str, tuple[str, ...]], Awaitable[str | None]]
"""Asks a question with proposed answers; returns the answer, or None if none came."""


class Clarify:
    spec = ToolSpec(
        name="clarify",
        description="Ask the user what only they can answer.",
        schema=make_schema("question", question="string", choices="strings: a few, short"),
        effect="read",  # asked again after a crash
    )

    def __init__(self, ask: AskUser) -> None:
        self._ask = ask

    async def run(self, args: Mapping[str, Json], act: ToolContext) -> str:
        question, given = str(args["question"]).strip(), args.get("choices")
        if not question:
            raise ToolError("question is empty")
        choices = tuple(str(each).strip() for each in given) if isinstance(given, list) else ()
        if len(choices) > MAX_CHOICES or any(not 0 < len(each) <= MAX_CHOICE_CHARS for each in choices):
            raise ToolError(f"give at most {MAX_CHOICES} choices of at most {MAX_CHOICE_CHARS} characters each")
        answer = await self._ask(question, choices)
        if answer is None:
            return "No answer. Continue with your best judgement and state your assumptions."
        return f"The user answered: {answer}"
