"""`clarify`: the model asks the person, and waits for the answer. How they are asked is not known here."""

from collections.abc import Awaitable, Callable, Mapping
from typing import TypeAlias

from alipes.kernel.errors import ToolError
from alipes.kernel.messages import Json
from alipes.kernel.ports import Act, ToolSpec

CHOICES, LONGEST = 6, 80
Ask: TypeAlias = Callable[[str, tuple[str, ...]], Awaitable[str | None]]
"""A question and what is proposed, to the person's answer; None where none came."""


class Clarify:
    """The `clarify` tool."""

    spec = ToolSpec(
        name="clarify",
        description="Ask the person something that only they can decide, and wait for the answer.",
        schema={
            "type": "object",
            "properties": {
                "question": {"type": "string"},
                "choices": {"type": "array", "items": {"type": "string"}, "description": "a few, short"},
            },
            "required": ["question"],
        },
        effect="read",  # after a crash it is asked again
    )

    def __init__(self, ask: Ask) -> None:
        self._ask = ask

    async def run(self, args: Mapping[str, Json], act: Act) -> str:
        question, given = str(args["question"]).strip(), args.get("choices")
        if not question:
            raise ToolError("say what is asked")
        choices = tuple(str(each).strip() for each in given) if isinstance(given, list) else ()
        if len(choices) > CHOICES or any(not 0 < len(each) <= LONGEST for each in choices):
            raise ToolError(f"propose at most {CHOICES} answers, each of at most {LONGEST} characters")
        answer = await self._ask(question, choices)
        if answer is None:
            return "No answer came. Go on with what you think is best, and say what you assumed."
        return f"The person answers: {answer}"
