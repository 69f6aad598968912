"""`delegate_task`: gives tasks to subagents, which `Delegation` runs."""

from collections.abc import Mapping

from alipes.features.subagents.delegation import Delegation, DelegationRequest, SubagentTask
from alipes.features.subagents.feature import SubagentsFeature
from alipes.kernel.errors import ToolError
from alipes.kernel.messages import Json
from alipes.kernel.ports import ToolContext, ToolSpec
from alipes.tools.common import make_schema

MAX_TASKS = 16


class DelegateTask:
    spec = ToolSpec(
        name="delegate_task",
        description="Give tasks to parallel subagents. Each sees only its goal and context, and reports.",
        schema=make_schema(
            "",
            goal="string: the task, or that of all tasks",
            context="string: all they need",
            tasks={"type": "array", "items": make_schema("goal", goal="string", context="string")},
            model="string",
            tools="strings",
            background="boolean: reports come as notices",
        ),
        # parallel with other calls, and repeated after a crash: it then finds the subagents it started
        effect="read",
    )

    def __init__(self, delegation: Delegation) -> None:
        self._delegation = delegation

    async def run(self, args: Mapping[str, Json], act: ToolContext) -> str:
        tools = args.get("tools")
        request = DelegationRequest(
            _parse_tasks(args),
            model=str(args.get("model") or ""),
            tools=tuple(str(each) for each in tools) if isinstance(tools, list) else None,
            background=args.get("background") is True,
        )
        return await self._delegation.delegate(request, act)


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


def tools(feature: SubagentsFeature) -> tuple[DelegateTask, ...]:
    return (DelegateTask(feature.delegation),) if feature.app.settings.delegation.depth else ()
