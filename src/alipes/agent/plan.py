"""Plan mode: the model may only read, and its turn ends with a plan that the person accepts or not."""

from collections.abc import Mapping
from typing import Protocol

from msgspec import Struct

from alipes.agent.approval.approval import is_allowed_in_plan
from alipes.kernel.lazy import lazy_pattern
from alipes.kernel.messages import Message, notice
from alipes.kernel.ports import Tool
from alipes.kernel.turns import Turn

PLAN_PROMPT = (
    "\n\nPlan mode is on: you can only use tools that read, and nothing may be changed. Find out what you must know. "
    "If the user wants something changed, answer with a plan under the heading `## Plan`: numbered steps, the files to "
    "change, and how the result is checked. The user is then asked to accept it. Other questions you just answer."
)
ACCEPTED = notice("The user accepted the plan. Plan mode is off. Carry out the plan now.")
_HEADING = lazy_pattern(r"(?im)^\s{0,3}(?:#+\s.{0,80}\bplan\b|\*{0,2}(?:the )?plan\b)")
_STEP = lazy_pattern(r"(?m)^\s{0,3}\d{1,2}[.)]\s+\S")


class PlanAnswer(Struct, frozen=True):
    """What a person said to a plan."""

    accepted: bool = False
    wish: str = ""
    """What to change in the plan."""


class PlanMode(Protocol):
    async def is_on(self, turn: Turn, *, since_claim: bool = False) -> bool:
        """`since_claim`: the turn has just been claimed, so what was read with it holds."""

    async def ask_to_accept(self, turn: Turn) -> PlanAnswer | None:
        """Ask the person; None if nobody can be asked or nobody answers."""


def is_plan(text: str) -> bool:
    """True if an answer is a plan rather than an answer to a question: it has the heading, or numbered steps."""
    return _HEADING.search(text) is not None or len(_STEP.findall(text)) > 1


def tools_for_plan(tools: Mapping[str, Tool]) -> dict[str, Tool]:
    """The tools that plan mode offers."""
    return {name: tool for name, tool in tools.items() if is_allowed_in_plan(name, tool.spec.effect)}


async def review_plan(plan: PlanMode | None, turn: Turn, text: str) -> Message | None:
    """The message with which the turn continues after the model's plan; None if it ends."""
    if plan is None or turn.inbound.origin is not None or not is_plan(text) or not await plan.is_on(turn):
        return None
    answer = await plan.ask_to_accept(turn)
    if answer is None or not (answer.accepted or answer.wish):
        return None
    return ACCEPTED if answer.accepted else notice(f"The user did not accept the plan, and says: {answer.wish}")
