"""Runs subagents as turns of their own: submits them, waits for them, and stops them with their parent."""

import asyncio
import os
from collections.abc import Awaitable, Callable
from contextlib import suppress
from weakref import WeakValueDictionary

from msgspec import Struct, structs

from alipes.agent.auxiliary import current_turn
from alipes.agent.model_call import ModelOpener
from alipes.config.settings import AGENT_PREFIX, DelegationConfig
from alipes.kernel.errors import ConfigError, ToolError
from alipes.kernel.formatting import format_excerpt
from alipes.kernel.messages import Json
from alipes.kernel.ports import ToolContext
from alipes.kernel.turns import Address, Event, Inbound, Origin, Turn, TurnEnded
from alipes.runtime.sandbox.policy import is_inside
from alipes.runtime.tasks import unwrap_error_group
from alipes.sessions.event_stream import TurnFollower
from alipes.sessions.plugin_host import detached_context
from alipes.sessions.sessions import Sessions
from alipes.sessions.subagents.registry import SubagentRun
from alipes.sessions.subagents.text import INSTRUCTIONS, describe_started, describe_step, format_reports, task_prompt
from alipes.sessions.tool_access import INTERACTIVE_TOOLS
from alipes.store.ports.archive import TurnFacts
from alipes.store.sql.store import Store
from alipes.store.sql.subagents import PLATFORM

TOOL = "delegate_task"
STOP_GRACE = 1.0
"""Seconds that a stopped call waits for its subagents to end; less than the grace of its own turn."""


class SubagentTask(Struct, frozen=True):
    goal: str
    context: str = ""
    agent: str = ""
    """Another agent that does it; empty: a model."""
    folder: str = ""
    """Where it works, below the folder of the caller; empty: there."""


class DelegationRequest(Struct, frozen=True):
    tasks: tuple[SubagentTask, ...]
    model: str = ""
    """Empty: the model of the caller."""
    tools: tuple[str, ...] | None = None
    """None: the tools of the caller."""
    background: bool = False
    schema: dict[str, Json] = {}
    """What each report must match; empty: any text."""


class Delegation:
    def __init__(
        self,
        sessions: Sessions,
        store: Store,
        limits: DelegationConfig,
        *,
        models: ModelOpener,
        tools: Callable[[Turn], Awaitable[tuple[str, ...]]],
        allow_background: bool = True,
    ) -> None:
        """`tools(turn)`: the names of the tools the turn itself may use. `allow_background`: the process
        outlives the turn; otherwise background tasks are waited for."""
        self._sessions, self._store, self._limits = sessions, store, limits
        self._models, self._tools, self._lasting = models, tools, allow_background
        self._slots: WeakValueDictionary[str, asyncio.Semaphore] = WeakValueDictionary()

    async def delegate(self, order: DelegationRequest, act: ToolContext) -> str:
        """Run the tasks and return their reports. Raises `ToolError` if none could be run.

        Cancelled, it stops all subagents that are not in the background. Called again for the
        same call id, it continues with the subagents of the first time.
        """
        parent = current_turn("delegate_task works only inside a conversation")
        if parent.inbound.depth >= self._limits.depth:
            raise ToolError("subagents cannot be nested deeper; do it yourself")
        order = structs.replace(order, background=order.background and self._lasting)
        children = await self._children(order, parent, act.call_id)
        if order.background:
            return await self._detach(children, parent)
        slots = self._slots.setdefault(parent.id, asyncio.Semaphore(self._limits.parallel))
        with unwrap_error_group():
            async with asyncio.TaskGroup() as group:
                lived = [
                    group.create_task(self._live(child, parent, act, slots), name=f"subagent {child.id}")
                    for child in children
                ]
        found = [task.result() for task in lived]
        text = format_reports([errand.goal for errand in order.tasks], found)
        if not any(facts is not None and facts.ending == "answered" for facts in found):
            raise ToolError(text)
        return text

    async def begin(self, inbound: Inbound) -> str | None:
        """Submit a turn that works for a conversation; its id, or None if it was submitted before."""
        with detached_context():
            return await self._sessions.submit(inbound, "queue", ruled=True)

    async def _children(self, order: DelegationRequest, parent: Turn, call: str) -> list[Inbound]:
        model = order.model or parent.inbound.model or parent.model
        if order.model:
            try:
                model = (await self._models.open(order.model)).name
            except ConfigError as error:
                raise ToolError(str(error)) from error
        tools = await self._allowed(order, parent)
        children = []
        for n, errand in enumerate(order.tasks, 1):
            named = f"{AGENT_PREFIX}/{errand.agent}" if errand.agent else model
            child = _inbound(errand, parent, f"{parent.id}:{call}:{n}", model=named, only=tools, order=order)
            children.append(structs.replace(child, workdir=find_folder(child.workdir, errand.folder)))
        return children

    async def _allowed(self, order: DelegationRequest, parent: Turn) -> tuple[str, ...]:
        """Never more than the parent's own tools."""
        own = [name for name in await self._tools(parent) if name not in INTERACTIVE_TOOLS]
        if order.tools is not None and (unknown := [name for name in order.tools if name not in own]):
            raise ToolError(f"unknown tools: {', '.join(unknown)}; subagents can use: {', '.join(own) or 'none'}")
        wanted = own if order.tools is None else [name for name in own if name in order.tools]
        deeper = parent.inbound.depth + 1 < self._limits.depth
        return tuple(name for name in wanted if deeper or name != TOOL)

    async def _detach(self, children: list[Inbound], parent: Turn) -> str:
        origin = children[0].origin
        assert origin is not None
        before = await self._store.subagents.unfinished(place=origin.address.key)
        ids = {child.id for child in children}
        origins = [each.inbound.origin for each in before if each.inbound.id not in ids]
        living = [each for each in origins if each is not None and each.reports]
        if len(living) + len(children) > self._limits.parallel:
            raise ToolError(
                f"{len(living)} background subagents are running; the limit is {self._limits.parallel}: "
                "wait for a report, or run it without background"
            )
        begun = []
        for child in children:
            expected = self._sessions.subagents.expect(child, parent)
            turn = await self.begin(child)
            if turn is None:  # submitted before the process died: the session that runs it knows it
                self._sessions.subagents.forget(child)
                turn = await self._store.subagents.find(child.id)
            begun.append((expected.accept(turn), child.origin.goal if child.origin else ""))
        return describe_started(begun)

    async def _live(
        self, inbound: Inbound, parent: Turn, act: ToolContext, slots: asyncio.Semaphore
    ) -> TurnFacts | None:
        """Run one subagent, or join a running one, to its end."""
        async with slots:
            child, over = self._sessions.subagents.expect(inbound, parent), False
            try:
                async with TurnFollower(inbound.address.key, self._store) as following:
                    try:
                        child.accept(await self._join(following, inbound))
                        async for event in following:
                            over = isinstance(event, TurnEnded)
                            await _show_progress(act, inbound, event)
                    except asyncio.CancelledError:
                        await self._part(child, following)
                        raise
            finally:
                if over or not child.turn:  # otherwise it ends with its parent
                    self._sessions.subagents.forget(inbound)
            return await self._store.archive.turn(child.turn)

    async def _join(self, following: TurnFollower, inbound: Inbound) -> str:
        turn = await self.begin(inbound)
        if turn is not None:
            following.expect(turn)
            return turn
        turn = await self._store.subagents.find(inbound.id)  # submitted before the process died
        if turn is None:
            raise ToolError("the subagent's conversation was deleted")
        await following.join(turn)
        return turn

    async def _part(self, child: SubagentRun, following: TurnFollower) -> None:
        """We are cancelled. If by a stop, the subagent is stopped too and we wait for it; if by shutdown,
        both resume at the next start."""
        if child.stop is None:
            return
        if not child.turn:
            following.expect(child.accept(await self._store.subagents.find(child.inbound.id)))
            await self._sessions.subagents.send_stop(child)
        if child.turn:
            with suppress(TimeoutError):
                async with asyncio.timeout(STOP_GRACE):
                    async for _ in following:
                        pass


def find_folder(workdir: str, folder: str) -> str:
    """A folder inside that of the caller. Raises `ToolError`."""
    if not folder:
        return workdir
    root = os.path.realpath(workdir or os.getcwd())
    found = os.path.realpath(os.path.join(root, os.path.expanduser(folder)))
    if not is_inside(found, root):
        raise ToolError(f"{folder} is not inside {root}")
    if not os.path.isdir(found):
        raise ToolError(f"{folder} does not exist: make it first, for example with git worktree")
    return found


def _inbound(
    errand: SubagentTask, parent: Turn, id: str, *, model: str, only: tuple[str, ...], order: DelegationRequest
) -> Inbound:
    asker = parent.inbound
    above = asker.origin or Origin(asker.address, parent.session, parent.id, model=asker.model, only=asker.only)
    origin = structs.replace(above, goal=errand.goal, reports="answered" if order.background else "")
    return Inbound(
        id,
        Address(PLATFORM, id),
        asker.sender,
        task_prompt(errand.goal, errand.context),
        model=model,
        workdir=asker.workdir,
        trusted=asker.trusted,
        instructions=INSTRUCTIONS,
        only=only,
        parent=parent.id,
        depth=asker.depth + 1,
        origin=origin,
        owner=asker.owner,
        output_schema=order.schema,
    )


async def _show_progress(act: ToolContext, inbound: Inbound, event: Event) -> None:
    """What people who watch the call see of the subagent."""
    if step := describe_step(event):
        goal = inbound.origin.goal if inbound.origin else ""
        await act.progress(f"{inbound.id.rpartition(':')[2]}. {format_excerpt(goal, 30)}: {step}\n")
