"""Who may speak, and as what. Nobody may, unless the operator or an owner said so."""

import time
from collections.abc import Callable

from alipes.gateway.policy import Rules
from alipes.kernel.outbox import Outbound
from alipes.kernel.platform import Arrival
from alipes.store.people import VALID, Applicant, Person, Role, SqlitePeople

EVERYONE = "*"
PATIENCE = 30.0
"""Seconds in which the same stranger is not even looked up again."""
REMEMBERED = 1000


class Access:
    """The configuration comes first, then whoever was paired."""

    def __init__(self, people: SqlitePeople, rules: Rules, *, clock: Callable[[], float] = time.time) -> None:
        self._people, self._rules, self._clock = people, rules, clock
        self._asked: dict[tuple[str, str], float] = {}
        """When strangers were last shown a code or refused one: who insists costs us nothing."""

    async def role(self, platform: str, person: str) -> Role | None:
        """None: a stranger."""
        manners = self._rules.of(platform)
        if not person:
            return None
        if person in manners.owners:
            return "owner"
        if person in manners.allow and person != EVERYONE:
            return "user" if manners.owners else "owner"
        if paired := await self._people.role(platform, person):
            return paired
        if known := manners.knows(person):
            return "user" if manners.owners else known
        return "user" if EVERYONE in manners.allow else None

    async def welcome(self, arrival: Arrival) -> bool:
        """Is what they send worth fetching?"""
        return await self.role(arrival.address.platform, arrival.sender) is not None

    async def show_code(self, arrival: Arrival) -> bool:
        """Owe a stranger a code to be let in by; False where they are to hear nothing.

        Not in a group, where the code would be everyone's; not twice within a while.
        """
        now, where = self._clock(), arrival.address
        who = (where.platform, arrival.sender)
        if not self._rules.pairing or arrival.group or now - self._asked.get(who, now - PATIENCE) < PATIENCE:
            return False
        while len(self._asked) >= REMEMBERED:
            del self._asked[next(iter(self._asked))]
        self._asked[who] = now

        def told(code: str) -> Outbound:
            text = (
                f"I do not know you yet. Your code is `{code}`, valid for an hour. Give it to my owner, "
                f"who lets you in with `alipes pair {code}`, or by writing `/pair {code}` to me."
            )
            id = f"code:{where.platform}:{arrival.id}"
            return Outbound(id, where, text, reply_to="", expires=now + VALID, notice=True)

        applicant = Applicant(where.platform, arrival.sender, arrival.name, where)
        return await self._people.apply(applicant, told)

    async def approve(self, code: str, role: Role = "user") -> Person:
        """Let in whoever was shown the code, and tell them. Raises `NotTaken`."""
        return await approve(self._people, code, role)


async def approve(people: SqlitePeople, code: str, role: Role = "user") -> Person:
    """The same for who has no gateway, such as the terminal."""

    def welcome(who: Applicant) -> Outbound:
        id = f"welcome:{who.platform}:{who.person}:{who.created}"
        return Outbound(id, who.address, "You were let in: write to me. /help shows what I understand.")

    return await people.approve(code, role, welcome)
