"""The way in: who speaks, whether it is a command, an answer or a message. It is kept before we return."""

import asyncio
import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import Protocol
from weakref import WeakValueDictionary

from msgspec import Struct, structs

from alipes.gateway import composing, replying
from alipes.gateway.access import Access
from alipes.gateway.answering import Answering
from alipes.gateway.anteroom import Anteroom, is_voice
from alipes.gateway.commands import OWNERS, ChatCommands
from alipes.gateway.counts import Counts
from alipes.gateway.delivery import Delivery
from alipes.gateway.group import Group
from alipes.gateway.hearing import Transcribe, in_words
from alipes.gateway.inquiries import BUTTON as REPLY
from alipes.gateway.inquiries import Inquiries
from alipes.gateway.manners import Rules
from alipes.gateway.questions import BUTTON, Questions
from alipes.gateway.stage import Stage
from alipes.hooks.offers import Offers
from alipes.hooks.relay import Hooks
from alipes.kernel.errors import NotTaken
from alipes.kernel.platforms import Arrival
from alipes.kernel.turns import Inbound
from alipes.runtime.groups import to_the_end
from alipes.sessions.commands import BY_NAME, Context, Parsed, Reply, run
from alipes.sessions.lobby import Lobby, admissible
from alipes.store.opening import Store
from alipes.store.people import Role

log = logging.getLogger(__name__)
UNHURRIED = 0.005
"""Seconds that a messenger may wait to hear that we have a message: its turn goes first."""
_STOPS = frozenset({"stop", "new"})
"""Commands that end what runs: nothing more is shown of it from that moment on."""
STRANGERS = 1000
"""Who was turned away is told to the log once; after so many, again."""

_ONCE = frozenset({"undo", "retry"})
"""Commands that would do more when they are given a second time."""


class House(Protocol):
    """What of an app the gateway needs."""

    @property
    def lobby(self) -> Lobby: ...

    @property
    def store(self) -> Store: ...

    @property
    def hooks(self) -> Hooks: ...

    @property
    def offers(self) -> Offers: ...

    def context(self, inbound: Inbound, *, files: bool = True) -> Context: ...


class Staff(Struct, frozen=True):
    """Who does what behind the reception."""

    access: Access
    commands: ChatCommands
    questions: Questions
    inquiries: Inquiries
    delivery: Delivery
    stage: Stage
    counts: Counts
    group: Group
    restart: Callable[[], None]
    transcribe: Transcribe | None = None


class Reception:
    """One conversation is served in the order of what was said in it; different ones side by side."""

    def __init__(self, house: House, rules: Rules, staff: Staff) -> None:
        self._house, self._rules, self._staff = house, rules, staff
        self._arrivals = house.store.arrivals
        self._answering = Answering(self._arrivals, staff.questions, staff.inquiries, staff.delivery)
        self._anteroom = Anteroom(self._arrivals, self._become, burst=rules.burst, group=staff.group)
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._strangers: set[tuple[str, str]] = set()

    async def recall(self, platforms: Sequence[str]) -> None:
        """Go on with what an earlier process took in and did not bring to its end."""
        await self._anteroom.recall(platforms)

    async def take(self, arrival: Arrival) -> None:
        """It is dealt with or kept once this returns; a second copy changes nothing."""
        self._staff.counts.arrived[arrival.address.platform] += 1
        if arrival.text.startswith("/"):
            self._staff.questions.standing.give_up(arrival.address.key)
        async with self._locks.setdefault(arrival.address.key, asyncio.Lock()):
            await self._take(arrival)

    async def _take(self, arrival: Arrival) -> None:
        try:
            arrival, refused = await self._ruled(arrival), ""
        except NotTaken as error:
            if error.by_choice:
                return
            refused = str(error)
        role = await self._staff.access.role(arrival.address.platform, arrival.sender)
        if role is None:
            await self._turn_away(arrival)
        elif refused:
            await self._settle(arrival, refused)
        elif await self._answering.take(arrival, role):
            return
        elif _meant(arrival, self._rules):
            parsed = self._staff.commands.parse(arrival.text, self._house.offers)
            await (self._obey(arrival, parsed, role) if parsed else self._message(arrival))

    async def _ruled(self, arrival: Arrival) -> Arrival:
        """As plugins let it pass; they are asked before anyone asks who is speaking."""
        if arrival.pressed:
            words = "" if arrival.pressed.startswith((f"{BUTTON}:", f"{REPLY}:")) else arrival.pressed
            return structs.replace(arrival, text=words)
        before = composing.raw(arrival)
        after = await admissible(before, self._house.hooks.relay)
        return arrival if after is before else structs.replace(arrival, text=after.text)

    async def _turn_away(self, arrival: Arrival) -> None:
        platform, person = arrival.address.platform, arrival.sender
        self._staff.counts.strangers[platform] += 1
        if (platform, person) not in self._strangers:
            if len(self._strangers) >= STRANGERS:
                self._strangers.clear()
            self._strangers.add((platform, person))
            log.warning("%s may not speak on %s; they are in neither allow list nor paired", person, platform)
        if await self._staff.access.show_code(arrival):
            self._staff.delivery.nudge(platform, replying.note(arrival, "").lane)

    async def _settle(self, arrival: Arrival, text: str) -> None:
        """It is dealt with, and this is said about it, if anything."""
        owed = (replying.note(arrival, replying.as_it_is(text)),) if text else ()
        await self._arrivals.settle(arrival.address.platform, arrival.id, owed=owed)
        for each in owed:
            self._staff.delivery.nudge(arrival.address.platform, each.lane)

    async def _obey(self, arrival: Arrival, parsed: Parsed, role: Role) -> None:
        platform, name = arrival.address.platform, parsed.command.name
        if await self._arrivals.known(platform, arrival.id):
            return
        if name in OWNERS and role != "owner":
            await self._settle(arrival, f"/{name} is for owners.")
            return
        self._staff.stage.watch(arrival.address)
        if name in _STOPS:
            self._staff.stage.hush(arrival.address.key)
        ours = name in BY_NAME or name in {each.name for each in self._staff.commands.known()}
        if name in _ONCE:
            await to_the_end(partial(self._run_once, arrival, parsed))
        elif ours:
            await self._run(arrival, parsed)
        else:  # a plugin's may take its time, and nobody's /stop waits for it
            await self._arrivals.settle(platform, arrival.id)
            self._staff.group.start(self._run(arrival, parsed), f"/{name} {arrival.id}")

    async def _run_once(self, arrival: Arrival, parsed: Parsed) -> None:
        """Rather not at all, if we die in between, than a second time when it is brought again."""
        await self._arrivals.settle(arrival.address.platform, arrival.id)
        await self._run(arrival, parsed)

    async def _run(self, arrival: Arrival, parsed: Parsed) -> None:
        context = self._house.context(composing.inbound([arrival], workdir=self._rules.workdir), files=False)
        usual = self._rules.of(arrival.address.platform).busy
        reply: Reply = await run(structs.replace(context, usual=usual), parsed)
        owed = await replying.owed(arrival, reply, self._rules.outgoing)
        await self._arrivals.settle(arrival.address.platform, arrival.id, owed=owed)
        for each in owed:
            self._staff.delivery.nudge(arrival.address.platform, each.lane)
        if parsed.command.name == "restart" and not reply.trouble:
            self._staff.restart()

    async def _message(self, arrival: Arrival) -> None:
        if not (arrival.text.strip() or arrival.quoted or arrival.images or arrival.files):
            return
        if arrival.edits:
            await self._edited(arrival)
        elif self._anteroom.wanted(arrival):
            await self._anteroom.take(arrival)
        else:
            await self._submit(composing.inbound([arrival], workdir=self._rules.workdir))

    async def _edited(self, edit: Arrival) -> None:
        if await self._anteroom.amend(edit):
            return
        changed = composing.inbound([edit], workdir=self._rules.workdir)
        became = await self._arrivals.amend(edit.id, edit.edits, changed)
        if became in ("unknown", "late"):
            edited = became == "late"
            await self._submit(composing.inbound([edit], workdir=self._rules.workdir, edited=edited))

    async def _become(self, arrivals: Sequence[Arrival]) -> None:
        """What waited in the anteroom is whole now."""
        said = []
        for arrival in arrivals:
            try:
                said.append(await in_words(arrival, self._staff.transcribe) if is_voice(arrival) else arrival)
            except NotTaken as error:
                await self._staff.delivery.owe(replying.note(arrival, str(error), kind="voice"))
                said += [arrival] if arrival.text else []
        if said:
            await self._submit(composing.inbound(said, workdir=self._rules.workdir))

    async def _submit(self, inbound: Inbound) -> None:
        self._staff.stage.watch(inbound.address)
        usual = self._rules.of(inbound.address.platform).busy
        await self._house.lobby.submit(inbound, usual=usual, ruled=True, unhurried=UNHURRIED)


def _meant(arrival: Arrival, rules: Rules) -> bool:
    """Is it said to us?"""
    listens = rules.of(arrival.address.platform).group == "all"
    return listens or arrival.addressed or not arrival.group
