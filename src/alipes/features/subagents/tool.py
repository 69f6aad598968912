"""`delegate_task`: gives tasks to subagents, which the `Delegator` runs."""

from collections.abc import Mapping, Sequence
from typing import Protocol

from msgspec import Struct

from alipes.kernel.errors import ToolError
from alipes.kernel.messages import Json
from alipes.kernel.ports import ToolContext, ToolSpec
from alipes.tools.common import make_schema

MAX_TASKS = 16


class SubagentTask(Struct, frozen=True):
    goal: str
    context: str = ""


class DelegationRequest(Struct, frozen=True):
    tasks: tuple[SubagentTask, ...]
    model: str = ""
    """Empty: the model of the caller."""
    tools: tuple[str, ...] | None = None
    """None: the tools of the caller."""
    background: bool = False


class Delegator(Protocol):
    async def delegate(self, request: DelegationRequest, act: ToolContext) -> str:
        """Run the tasks and return their reports. Raises `ToolError` if none could be run.

        Cancelled, it stops all subagents that are not in the background. Called again for the
        same call id, it continues with the subagents of the first time.
        """
        ...


class DelegateTask:
    spec = ToolSpec(
        name="delegate_task",
        description="Give tasks to parallel subagents. Each sees only its goal and context and returns a report.",
        schema=make_schema(
            "",
            goal="string: the task, or the common goal of tasks",
            context="string: all they need to know",
            tasks={
                "type": "array",
                "description": "for several tasks",
                "items": make_schema("goal", goal="string", context="string"),
            },
            model="string",
            tools="strings: a subset of yours",
            background="boolean: do not wait; reports arrive as notices",
        ),
        # parallel with other calls, and repeated after a crash: it then finds the subagents it started
        effect="read",
    )

    def __init__(self, delegates: Delegator) -> None:
        self._delegates = delegates

    async def run(self, args: Mapping[str, Json], act: ToolContext) -> str:
        tools = args.get("tools")
        request = DelegationRequest(
            _parse_tasks(args),
            model=str(args.get("model") or ""),
            tools=tuple(str(each) for each in tools) if isinstance(tools, list) else None,
            background=args.get("background") is True,
        )
        return await self._delegates.delegate(request, act)


def _parse_tasks(args: Mapping[str, Json]) -> tuple[SubagentTask, ...]:
    goal, context = str(args.get("goal") or "").strip(), str(args.get("context") or "").strip()
    tasks = args.get("tasks")
    if not isinstance(tasks, list) or not tasks:
        if not goal:
            raise ToolError("no goal given: set goal, or tasks with a goal each")
        return (SubagentTask(goal, context),)
    if len(tasks) > MAX_TASKS:
        raise ToolError(f"{len(tasks)} tasks given, the maximum is {MAX_TASKS}; make several calls")
    shared = "\n\n".join(filter(None, (goal and f"This is part of: {goal}", context)))
    parsed = tuple(_parse_task(task, shared) for task in tasks)
    if not all(task.goal for task in parsed):
        raise ToolError("every task needs a goal")
    return parsed


def _parse_task(task: Json, shared: str) -> SubagentTask:
    own = task if isinstance(task, dict) else {"goal": task}
    context = "\n\n".join(filter(None, (str(own.get("context") or "").strip(), shared)))
    return SubagentTask(str(own.get("goal") or "").strip(), context)


MAX_MODELS = 8


class ModelMixer(Protocol):
    async def mix(self, prompt: str, models: Sequence[str], aggregator: str) -> str:
        """Ask the models and return the combined answer. Raises `ToolError` if no model answered."""
        ...


class MixtureOfAgents:
    spec = ToolSpec(
        name="mixture_of_agents",
        description="Ask several models a hard question in parallel; an aggregator combines their answers.",
        schema=make_schema("prompt", prompt="string: with all context needed", models="strings", aggregator="string"),
        effect="read",
    )

    def __init__(self, mixer: ModelMixer) -> None:
        self._mixer = mixer

    async def run(self, args: Mapping[str, Json], act: ToolContext) -> str:
        prompt, models = str(args["prompt"]).strip(), args.get("models")
        names = [str(each) for each in models] if isinstance(models, list) else []
        if not prompt:
            raise ToolError("prompt is empty")
        if len(names) > MAX_MODELS:
            raise ToolError(f"{len(names)} models given, the maximum is {MAX_MODELS}")
        return await self._mixer.mix(prompt, tuple(dict.fromkeys(names)), str(args.get("aggregator") or ""))
