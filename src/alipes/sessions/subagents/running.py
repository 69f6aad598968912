"""Turns that work for others, while they live here: whose they are, what a stop ends, who is told."""

import time
from collections.abc import Awaitable, Callable
from typing import Protocol

from alipes.kernel.turns import Answer, Busy, Ending, Inbound, Op, Stop, Turn
from alipes.sessions.subagents.text import in_background, report_of
from alipes.sessions.turn_state import Living
from alipes.store.store import Store
from alipes.store.subagents import PREFIX

FORSAKEN = "parent_ended"
"""The reason to stop what works for a turn that is over."""


class Submit(Protocol):
    def __call__(self, inbound: Inbound, busy: Busy, *, ruled: bool) -> Awaitable[str | None]: ...


class Child:
    """One, from the moment it is asked for until it is over."""

    def __init__(self, inbound: Inbound, parent: Turn | None = None) -> None:
        self.inbound, self.parent = inbound, parent
        self.turn = ""
        """Known once it is accepted."""
        self.stop: Stop | None = None
        """It ends with who asked for it."""
        self.posted = False
        """It was told so."""
        self.since = time.monotonic()


class Delegated:
    """All that a session has to know of the turns that it lives for others, and of those beneath its own."""

    def __init__(
        self,
        store: Store,
        submit: Submit,
        post: Callable[[str, Op], Awaitable[None]],
        *,
        keeps: Callable[[str], str] = lambda _session: "",
        longest: float = 0.0,
    ) -> None:
        """`keeps`: what else goes on for a session. `longest`: seconds that one may take; zero: any time."""
        self._store, self._submit, self._post = store, submit, post
        self._keeps, self._longest = keeps, longest
        self._children: dict[str, Child] = {}
        self._parents: dict[str, Stop | None] = {}
        """Turns that live here and asked for some; and the stop of one that was stopped."""

    def expect(self, inbound: Inbound, parent: Turn) -> Child:
        """One is about to be asked for."""
        child = self._children.setdefault(inbound.id, Child(inbound, parent))
        child.stop = self._parents.setdefault(parent.id, None)
        return child

    def began(self, turn: Turn) -> None:
        """A turn begins here; only those that work for others are kept in mind."""
        if turn.inbound.origin is not None:
            child = self._children.setdefault(turn.inbound.id, Child(turn.inbound))
            child.turn = turn.id

    def over(self, inbound: Inbound) -> None:
        self._children.pop(inbound.id, None)

    def longest(self, turn: Turn) -> float:
        """Seconds that the turn may take; zero: as long as it likes."""
        return self._longest if turn.inbound.parent else 0.0

    def detached(self, session: str) -> tuple[tuple[str, str], ...]:
        """Those that work in the background for a conversation: id and goal of each."""
        origins = ((child.turn, child.inbound.origin) for child in self._children.values())
        return tuple(
            (turn, origin.goal)
            for turn, origin in origins
            if turn and origin is not None and origin.reports and origin.session == session
        )

    def going(self, session: str) -> str:
        """What goes on for a conversation between its turns, in a few words; empty when nothing does."""
        return " and ".join(filter(None, (self._keeps(session), in_background(self.detached(session)))))

    async def stop(self, parent: Turn, stop: Stop) -> None:
        """The turn was stopped: so is what works for it, unless it was detached. All are marked first."""
        self._parents[parent.id] = stop  # some may be asked for just now
        mine = [
            child
            for child in self._children.values()
            if child.stop is None and _ends_with(child.inbound, parent)
        ]
        for child in mine:
            child.stop = stop
        for child in mine:
            await self.end(child)

    async def end(self, child: Child) -> None:
        """Pass the stop on, if it is known where to."""
        if child.turn and child.stop is not None:
            child.posted = True
            stop = Stop(child.stop.reason, child.stop.invalidation_reason, child.turn)
            await self._post(child.inbound.address.key, stop)

    async def answer(self, key: str, answer: Answer) -> None:
        """A word given in a conversation where nothing lives: what works for it elsewhere may have asked."""
        for each in await self._store.subagents.unfinished(place=key):
            if each.inbound.id not in self._children:
                await self._post(each.key, answer)

    async def leave(self, parent: Turn) -> None:
        """The turn is over: nothing that was to end with it goes on. An earlier process may have begun
        some; and some may have been accepted just when nobody waited for that any more."""
        if parent.attempt == 1 and parent.id not in self._parents:
            return
        stop = self._parents.get(parent.id) or Stop(FORSAKEN, FORSAKEN)
        for each in await self._store.subagents.unfinished(parent=parent.id):
            child = self._children.get(each.inbound.id)
            cut_off = child is not None and not child.turn  # detached or not, it never came to begin
            if cut_off or (_ends_with(each.inbound, parent) and (child is None or not child.posted)):
                await self._post(each.key, Stop(stop.reason, stop.invalidation_reason, each.id))
        self._parents.pop(parent.id, None)
        for child in [each for each in self._children.values() if each.parent is parent and not each.turn]:
            self.over(child.inbound)

    async def forsaken(self, turn: Turn) -> str:
        """Why the turn must not begin: the reason for which the one it works for is over; or empty."""
        inbound = turn.inbound
        if not inbound.parent or inbound.origin is None or inbound.origin.reports:
            return ""
        child = self._children.get(inbound.id)
        if child is not None and child.stop is not None:
            return child.stop.reason
        return FORSAKEN if await self._store.subagents.over(inbound.parent) else ""

    async def report(self, living: Living, ending: Ending, detail: str) -> str:
        """Tell the conversation of a detached turn how that went, by a turn of its own there, or as part
        of one that lives. What is to be shown to the person besides; mostly empty."""
        origin, inbound = living.turn.inbound.origin, living.turn.inbound
        if origin is None or not origin.reports:
            return ""
        told = report_of(living.turn.id, origin, living.said, ending=ending, detail=detail)
        report = Inbound(
            f"report:{living.turn.id}",
            origin.address,
            inbound.sender,
            told.notice,
            model=origin.model,
            workdir=inbound.workdir,
            trusted=inbound.trusted,
            only=origin.only,
            notice=origin.reports,
        )
        if origin.reports == "kept":  # no turn is made to speak of it
            await self._submit(report, "queue", ruled=True)
            return told.shown
        await self._submit(report, "steer", ruled=True)
        return ""

    async def parent_of(self, turn: Turn) -> Turn | None:
        """The turn that it works for; None where a person asked for it, or that turn is gone."""
        child = self._children.get(turn.inbound.id)
        if child is not None and child.parent is not None:
            return child.parent
        facts = await self._store.archive.turn(turn.inbound.parent) if turn.inbound.parent else None
        return None if facts is None else Turn(facts.id, facts.session, facts.inbound)


def short_lived(key: str) -> bool:
    """Is it the key of a session that is over when its turn is?"""
    return key.startswith(PREFIX)


def _ends_with(inbound: Inbound, parent: Turn) -> bool:
    return inbound.parent == parent.id and inbound.origin is not None and not inbound.origin.reports
