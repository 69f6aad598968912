"""Replays the turns that a skill came from, with the skill, and shows what changed. No tool is run.

A call that was made then gets the result of then. Other calls are answered with a sentence that says so.
"""

import difflib
from collections.abc import Mapping, Sequence

from msgspec import Struct

from alipes.agent.budget import SpendingLimits
from alipes.agent.loop import Agent, call_identity, run_turn
from alipes.agent.model_call import ModelOpener, RetryPolicy
from alipes.kernel.messages import Json, Message, ToolCall, ToolResult
from alipes.kernel.ports import Tool, ToolContext, ToolSpec
from alipes.kernel.turns import Ending, Event, Inbound, Said, Turn
from alipes.store.sql.usage import UsageRecord

MAX_STEPS = 40
TASK = "skill test"
"""The task under which its model calls are recorded."""
NOT_RECORDED = (
    "(This is a test with recorded results: this call was not made then, and is not run. Continue as if it had worked, "
    "or make a call that was made then.)"
)


class RecordedTurn(Struct, frozen=True):
    """A turn as it was."""

    turn: Turn
    said: tuple[Message, ...]


class ReplayResult(Struct, frozen=True):
    """One turn then and now."""

    recorded: RecordedTurn
    said: tuple[Message, ...]
    ending: Ending
    detail: str

    @property
    def calls(self) -> tuple[list[str], list[str]]:
        """The names of the tools then and now."""
        return _call_names(self.recorded.said), _call_names(self.said)

    @property
    def steps(self) -> tuple[int, int]:
        """The model calls then and now."""
        before, after = (sum(each.role == "assistant" for each in said) for said in (self.recorded.said, self.said))
        return before, after

    @property
    def diff(self) -> str:
        """The final answers as a unified diff; empty if they are equal."""
        before, after = (_answer(said).splitlines() for said in (self.recorded.said, self.said))
        return "\n".join(difflib.unified_diff(before, after, "then", "with the skill", lineterm=""))


class Replay(Struct, frozen=True):
    """What a replay uses."""

    models: ModelOpener
    model: str
    system: str
    """The system prompt, with the text of the skill."""
    specs: Mapping[str, ToolSpec]
    """The tools that the model sees."""
    spending: SpendingLimits | None = None
    retry: RetryPolicy = RetryPolicy()

    async def run(self, recorded: RecordedTurn) -> ReplayResult:
        """Raises `ConfigError` if the model is not configured."""
        results = _recorded_results(recorded.said)
        tools: dict[str, Tool] = {name: _RecordedTool(spec, results) for name, spec in self.specs.items()}
        said: list[Message] = []

        async def emit(event: Event) -> None:
            if not isinstance(event, Said):
                return
            said.append(event.message)
            if event.usage is not None and self.spending is not None:
                await self.spending.record(UsageRecord(recorded.turn, TASK, event.model, event.usage))

        agent = Agent(
            models=self.models,
            model=self.model,
            tools=tools,
            system=lambda _turn: self.system,
            max_steps=MAX_STEPS,
            spending=self.spending,
            retry=self.retry,
        )
        ending, detail = await run_turn(agent, _fresh(recorded.turn), emit)
        return ReplayResult(recorded, tuple(said), ending, detail)


class _RecordedTool:
    def __init__(self, spec: ToolSpec, results: Mapping[bytes, ToolResult]) -> None:
        self.spec, self._results = spec, results

    async def run(self, args: Mapping[str, Json], act: ToolContext) -> str:
        found = self._results.get(call_identity(ToolCall("", self.spec.name, dict(args))))
        return NOT_RECORDED if found is None else found.text


def history_before(messages: tuple[Message, ...], said: tuple[Message, ...]) -> tuple[Message, ...]:
    """The messages of a conversation before the turn that said this; none if they are no longer known."""
    starts = (place for place in range(len(messages)) if said and messages[place : place + len(said)] == said)
    return messages[: next(starts, 0)]


def _fresh(turn: Turn) -> Turn:
    """The same message again, in no conversation that is stored."""
    before = turn.inbound
    inbound = Inbound(
        before.id, before.address, before.sender, before.text, before.attachments, workdir=before.workdir, trusted=True
    )
    return Turn(turn.id, turn.session, inbound, history=turn.history)


def _recorded_results(said: Sequence[Message]) -> dict[bytes, ToolResult]:
    calls = {call.id: call for message in said for call in message.calls}
    results = (part for message in said for part in message.parts if isinstance(part, ToolResult))
    return {call_identity(calls[part.call_id]): part for part in results if part.call_id in calls}


def _call_names(said: Sequence[Message]) -> list[str]:
    return [call.name for message in said for call in message.calls]


def _answer(said: Sequence[Message]) -> str:
    return next((each.text for each in reversed(said) if each.role == "assistant" and not each.calls), "")
