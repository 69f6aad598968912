"""`delegate_task`: gives tasks to subagents, which `Delegation` runs."""

from collections.abc import Mapping

from msgspec import structs

from alipes.features.subagents.delegation import Delegation, DelegationRequest, SubagentTask
from alipes.features.subagents.feature import SubagentsFeature
from alipes.kernel.errors import ConfigError, ToolError
from alipes.kernel.messages import Json
from alipes.kernel.ports import ToolContext, ToolSpec
from alipes.tools.common import make_schema

MAX_TASKS = 16


def _make_spec(agents: tuple[str, ...], *, schemas: bool) -> ToolSpec:
    """`agents`: other agents that can be given tasks; without any, the parameters for them are left out. `schemas`:
    reports may be JSON documents."""
    shape: dict[str, dict[str, Json]] = {}
    if schemas:
        shape = {"schema": {"type": "object", "description": "JSON schema of each report"}}
    own: dict[str, dict[str, Json]] = {}
    if agents:
        own = {"agent": {"type": "string", "enum": [*agents]}, "folder": {"type": "string"}}
    return ToolSpec(
        name="delegate_task",
        description="Give tasks to parallel subagents. Each sees only its goal and context, and reports.",
        schema=make_schema(
            "",
            goal="string: the task, or that of all tasks",
            context="string: all they need",
            tasks={"type": "array", "items": make_schema("goal", goal="string", context="string", **own)},
            model="string",
            tools="strings",
            background="boolean: reports come as notices",
            **own,
            **shape,
        ),
        # parallel with other calls, and repeated after a crash: it then finds the subagents it started
        effect="read",
    )


class DelegateTask:
    def __init__(self, delegation: Delegation, agents: tuple[str, ...] = (), *, schemas: bool = False) -> None:
        self._delegation, self._agents, self._schemas = delegation, agents, schemas
        self.spec = _make_spec(agents, schemas=schemas)

    async def run(self, args: Mapping[str, Json], act: ToolContext) -> str:
        tools = args.get("tools")
        request = DelegationRequest(
            tuple(self._with_agent(task, args) for task in _parse_tasks(args)),
            model=str(args.get("model") or ""),
            tools=tuple(str(each) for each in tools) if isinstance(tools, list) else None,
            background=args.get("background") is True,
            schema=_check_schema(args.get("schema")) if self._schemas else {},
        )
        return await self._delegation.delegate(request, act)

    def _with_agent(self, task: SubagentTask, args: Mapping[str, Json]) -> SubagentTask:
        """The agent and the folder of a task are those of the call, unless it has its own."""
        agent = task.agent or str(args.get("agent") or "")
        if agent and agent not in self._agents:
            raise ToolError(f"unknown agent {agent}; there is {', '.join(self._agents) or 'none'}")
        return structs.replace(task, agent=agent, folder=task.folder or str(args.get("folder") or ""))


def _check_schema(schema: Json) -> dict[str, Json]:
    """Raises `ToolError` for one that cannot be used."""
    if not schema:
        return {}
    from alipes.agent.answer_schema import check_schema

    try:
        return check_schema(schema)
    except ConfigError as error:
        raise ToolError(str(error)) from error


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
    goal, agent, folder = (str(own.get(name) or "").strip() for name in ("goal", "agent", "folder"))
    return SubagentTask(goal, context, agent, folder)


def tools(feature: SubagentsFeature) -> tuple[DelegateTask, ...]:
    settings = feature.app.settings
    limits, agents = settings.delegation, tuple(settings.agents)
    return (DelegateTask(feature.delegation, agents, schemas=limits.schemas),) if limits.depth else ()
