"""Give work to subagents. What they are and where they live is known to whoever is handed in."""

from collections.abc import Mapping
from typing import Protocol

from msgspec import Struct

from alipes.kernel.errors import ToolError
from alipes.kernel.messages import Json
from alipes.kernel.ports import Act, ToolSpec

MOST = 16
"""Tasks of one call."""


class Errand(Struct, frozen=True):
    """One task for one subagent."""

    goal: str
    context: str = ""


class Order(Struct, frozen=True):
    """What one call asks for."""

    errands: tuple[Errand, ...]
    model: str = ""
    """Empty: the one that asks."""
    tools: tuple[str, ...] | None = None
    """None: those of who asks."""
    background: bool = False


class Delegates(Protocol):
    async def delegate(self, order: Order, act: Act) -> str:
        """Have it done; what came of it, for the model. Raises `ToolError` where nothing did.

        Cancelled, it leaves nothing at work that was not sent into the background. Asked a second
        time for the same call, it finds what it began the first time.
        """
        ...


class Delegate:
    """The `delegate_task` tool."""

    spec = ToolSpec(
        name="delegate_task",
        description="Give tasks to subagents that work side by side. Each sees only its goal and context, "
        "and answers with a report.",
        schema={
            "type": "object",
            "properties": {
                "goal": {"type": "string", "description": "the task, or what all tasks serve"},
                "context": {"type": "string", "description": "all that they must know"},
                "tasks": {
                    "type": "array",
                    "description": "several tasks",
                    "items": {
                        "type": "object",
                        "properties": {"goal": {"type": "string"}, "context": {"type": "string"}},
                        "required": ["goal"],
                    },
                },
                "model": {"type": "string"},
                "tools": {"type": "array", "items": {"type": "string"}, "description": "of yours"},
                "background": {"type": "boolean", "description": "do not wait; reports come as notices"},
            },
        },
        # it runs beside others, and again after a crash: then it finds the subagents that it had begun
        effect="read",
    )

    def __init__(self, delegates: Delegates) -> None:
        self._delegates = delegates

    async def run(self, args: Mapping[str, Json], act: Act) -> str:
        tools = args.get("tools")
        order = Order(
            _errands(args),
            model=str(args.get("model") or ""),
            tools=tuple(str(each) for each in tools) if isinstance(tools, list) else None,
            background=args.get("background") is True,
        )
        return await self._delegates.delegate(order, act)


def _errands(args: Mapping[str, Json]) -> tuple[Errand, ...]:
    goal, context = str(args.get("goal") or "").strip(), str(args.get("context") or "").strip()
    tasks = args.get("tasks")
    if not isinstance(tasks, list) or not tasks:
        if not goal:
            raise ToolError("what is to be done? Give a goal, or tasks with one each")
        return (Errand(goal, context),)
    if len(tasks) > MOST:
        raise ToolError(f"these are {len(tasks)} tasks, and one call takes {MOST}; make several calls")
    shared = "\n\n".join(filter(None, (goal and f"This is part of: {goal}", context)))
    errands = tuple(_errand(task, shared) for task in tasks)
    if not all(errand.goal for errand in errands):
        raise ToolError("a task has no goal; say of each what is to be done")
    return errands


def _errand(task: Json, shared: str) -> Errand:
    own = task if isinstance(task, dict) else {"goal": task}
    context = "\n\n".join(filter(None, (str(own.get("context") or "").strip(), shared)))
    return Errand(str(own.get("goal") or "").strip(), context)
