"""Subagents as turns of their own: asked for by the one door, waited for, stopped with who asked."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from weakref import WeakValueDictionary

from msgspec import structs

from alipes.agent.model_call import Opens
from alipes.config.settings_parts import DelegationSettings
from alipes.kernel.errors import ConfigError, ToolError
from alipes.kernel.formatting import brief
from alipes.kernel.ports import Act
from alipes.kernel.turns import Address, Event, Inbound, Origin, ToolStarted, Turn, TurnEnded
from alipes.plugins.attribution import TURN
from alipes.runtime.tasks import ungrouped
from alipes.sessions.event_stream import Following
from alipes.sessions.plugin_host import by_itself
from alipes.sessions.sessions import Lobby
from alipes.sessions.subagents.running import Child
from alipes.sessions.subagents.text import INSTRUCTIONS, outcome, prompt, reports, started
from alipes.store.export import TurnFacts
from alipes.store.store import Store
from alipes.store.subagents import PLATFORM
from alipes.tools.delegate import Errand, Order

TOOL = "delegate_task"
NEED_A_PERSON = ("clarify",)
"""Tools of no use where nobody reads along."""
FAREWELL = 1.0
"""Seconds that a stopped call waits for its subagents to end; less than its own turn is given."""


class Delegation:
    """See `tools.delegate.Delegates`, whose words these are."""

    def __init__(
        self,
        lobby: Lobby,
        store: Store,
        limits: DelegationSettings,
        *,
        models: Opens,
        tools: Callable[[Turn], Awaitable[tuple[str, ...]]],
        lasting: bool = True,
    ) -> None:
        """`tools(turn)`: the names of those that the turn may use itself. `lasting`: we are still there
        when its turn is over; else nothing is sent into the background, but waited for."""
        self._lobby, self._store, self._limits = lobby, store, limits
        self._models, self._tools, self._lasting = models, tools, lasting
        self._slots: WeakValueDictionary[str, asyncio.Semaphore] = WeakValueDictionary()

    async def delegate(self, order: Order, act: Act) -> str:
        parent = TURN.get()
        if parent is None:
            raise ToolError("subagents work for a conversation, and this call belongs to none")
        if parent.inbound.depth >= self._limits.depth:
            raise ToolError("do it yourself: subagents are not nested deeper than this")
        order = structs.replace(order, background=order.background and self._lasting)
        children = await self._children(order, parent, act.call_id)
        if order.background:
            return await self._detach(children, parent)
        slots = self._slots.setdefault(parent.id, asyncio.Semaphore(self._limits.parallel))
        with ungrouped():
            async with asyncio.TaskGroup() as group:
                lived = [
                    group.create_task(self._live(child, parent, act, slots), name=f"subagent {child.id}")
                    for child in children
                ]
        found = [task.result() for task in lived]
        told = reports([errand.goal for errand in order.errands], found)
        if not any(facts is not None and facts.ending == "answered" for facts in found):
            raise ToolError(told)
        return told

    async def begin(self, inbound: Inbound) -> str | None:
        """Ask for a turn that works beside a conversation; its id, or None if it was asked for before."""
        with by_itself():
            return await self._lobby.submit(inbound, "queue", ruled=True)

    async def _children(self, order: Order, parent: Turn, call: str) -> list[Inbound]:
        model = order.model or parent.inbound.model or parent.model
        if order.model:
            try:
                model = (await self._models.open(order.model)).name
            except ConfigError as error:
                raise ToolError(str(error)) from error
        tools = await self._allowed(order, parent)
        return [
            _inbound(errand, parent, f"{parent.id}:{call}:{n}", model=model, only=tools, order=order)
            for n, errand in enumerate(order.errands, 1)
        ]

    async def _allowed(self, order: Order, parent: Turn) -> tuple[str, ...]:
        """Never more than the parent has itself."""
        own = [name for name in await self._tools(parent) if name not in NEED_A_PERSON]
        if order.tools is not None and (unknown := [name for name in order.tools if name not in own]):
            raise ToolError(
                f"subagents can be given {', '.join(own) or 'no tools'}; not {', '.join(unknown)}"
            )
        wanted = own if order.tools is None else [name for name in own if name in order.tools]
        deeper = parent.inbound.depth + 1 < self._limits.depth
        return tuple(name for name in wanted if deeper or name != TOOL)

    async def _detach(self, children: list[Inbound], parent: Turn) -> str:
        origin = children[0].origin
        assert origin is not None
        before = await self._store.subagents.unfinished(place=origin.address.key)
        ids = {child.id for child in children}
        living = [each for each in before if _detached(each.inbound) and each.inbound.id not in ids]
        if len(living) + len(children) > self._limits.parallel:
            raise ToolError(
                f"{len(living)} are at work in the background already, and {self._limits.parallel} may be: "
                "wait for a report, or do it without background"
            )
        begun = []
        for child in children:
            expected = self._lobby.delegated.expect(child, parent)
            turn = await self.begin(child)
            if turn is None:  # begun before the process died: whoever lives it now keeps it in mind
                self._lobby.delegated.over(child)
                turn = await self._store.subagents.find(child.id)
            expected.turn = turn or ""
            begun.append((expected.turn, child.origin.goal if child.origin else ""))
        return started(begun)

    async def _live(
        self, inbound: Inbound, parent: Turn, act: Act, slots: asyncio.Semaphore
    ) -> TurnFacts | None:
        """One subagent from its beginning, or from where it is found, to its end."""
        async with slots:
            child, over = self._lobby.delegated.expect(inbound, parent), False
            try:
                async with Following(inbound.address.key, self._store) as following:
                    try:
                        child.turn = await self._join(following, inbound)
                        async for event in following:
                            over = isinstance(event, TurnEnded)
                            await _tell(act, inbound, event)
                    except asyncio.CancelledError:
                        await self._part(child, following)
                        raise
            finally:
                if over or not child.turn:  # else the end of its parent ends it
                    self._lobby.delegated.over(inbound)
            return await self._store.archive.turn(child.turn)

    async def _join(self, following: Following, inbound: Inbound) -> str:
        turn = await self.begin(inbound)
        if turn is not None:
            following.turn = turn
            return turn
        turn = await self._store.subagents.find(inbound.id)  # begun before the process died
        if turn is None:
            raise ToolError("the subagent is gone: its conversation was deleted")
        await following.join(turn)
        return turn

    async def _part(self, child: Child, following: Following) -> None:
        """We are cancelled. If by a stop, so is the subagent, and we do not go before it has; if by the end
        of the process, it goes on at the next start as we do."""
        if child.stop is None:
            return
        if not child.turn:
            child.turn = following.turn = await self._store.subagents.find(child.inbound.id) or ""
            await self._lobby.delegated.end(child)
        if child.turn:
            with suppress(TimeoutError):
                async with asyncio.timeout(FAREWELL):
                    async for _ in following:
                        pass


def beside(inbound: Inbound, session: str) -> Inbound:
    """What a person wants done beside their conversation: a turn of its own, told of when it is over."""
    id = f"background:{inbound.address.platform}:{inbound.id}"
    origin = Origin(inbound.address, session, "", inbound.text, "kept", inbound.model, inbound.only)
    return Inbound(
        id,
        Address(PLATFORM, id),
        inbound.sender,
        inbound.text,
        attachments=inbound.attachments,
        model=inbound.model,
        workdir=inbound.workdir,
        trusted=inbound.trusted,
        only=inbound.only,
        origin=origin,
    )


def _inbound(
    errand: Errand, parent: Turn, id: str, *, model: str, only: tuple[str, ...], order: Order
) -> Inbound:
    asker = parent.inbound
    above = asker.origin or Origin(
        asker.address, parent.session, parent.id, model=asker.model, only=asker.only
    )
    origin = Origin(
        above.address,
        above.session,
        above.turn,
        errand.goal,
        "answered" if order.background else "",
        model=above.model,
        only=above.only,
    )
    return Inbound(
        id,
        Address(PLATFORM, id),
        asker.sender,
        prompt(errand.goal, errand.context),
        model=model,
        workdir=asker.workdir,
        trusted=asker.trusted,
        instructions=INSTRUCTIONS,
        only=only,
        parent=parent.id,
        depth=asker.depth + 1,
        origin=origin,
    )


def _detached(inbound: Inbound) -> bool:
    return inbound.origin is not None and bool(inbound.origin.reports)


async def _tell(act: Act, inbound: Inbound, event: Event) -> None:
    """What whoever watches the call sees of the subagent."""
    name = f"{inbound.id.rpartition(':')[2]}. {brief(inbound.origin.goal if inbound.origin else '', 30)}"
    match event:
        case ToolStarted(call):
            await act.progress(f"{name}: {call.name}\n")
        case TurnEnded(_, ending, detail):
            await act.progress(f"{name}: {outcome(ending, detail)}\n")
