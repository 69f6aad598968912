"""The way in: who speaks, whether it is a command, an answer or a message. It is kept before we return."""

import asyncio
import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import Protocol
from weakref import WeakValueDictionary

from msgspec import Struct, structs

from alipes.gateway.access import Access
from alipes.gateway.commands import OWNERS, ChatCommands
from alipes.gateway.inbound.batching import Anteroom, is_voice
from alipes.gateway.inbound.transcription import Transcribe, in_words
from alipes.gateway.live.view import Stage
from alipes.gateway.outbound import replies
from alipes.gateway.outbound.delivery import Delivery
from alipes.gateway.policy import Counts, Group, Rules
from alipes.gateway.questions import APPROVAL_BUTTON, Answering, Inquiries, Questions
from alipes.gateway.questions import CLARIFY_BUTTON as REPLY
from alipes.kernel.errors import NotTaken
from alipes.kernel.platform import Arrival, Filed
from alipes.kernel.turns import Inbound
from alipes.plugins.dispatch import Hooks
from alipes.plugins.registry import Offers
from alipes.runtime.tasks import to_the_end
from alipes.sessions.commands import BY_NAME, Context, Parsed, Reply, run
from alipes.sessions.sessions import Lobby, admissible
from alipes.store.people import Role
from alipes.store.store import Store


def inbound(arrivals: Sequence[Arrival], *, workdir: str = "", edited: bool = False) -> Inbound:
    """Several are one message: those of an album, or of a burst of pictures."""
    first = arrivals[0]
    words = "\n".join(each.text for each in arrivals if each.text)
    files = [file for each in arrivals for file in each.files]
    images = tuple(image for each in arrivals for image in each.images)
    quoted = next((each.quoted for each in arrivals if each.quoted), "")
    return Inbound(
        first.id,
        first.address,
        first.sender,
        _text(first, f"edited: {words}" if edited else words, quoted, files),
        attachments=images,
        workdir=workdir,
        reply_to=first.message if first.group else "",
    )


def raw(arrival: Arrival) -> Inbound:
    """What plugins rule on: the person's own words and nothing around them."""
    return Inbound(arrival.id, arrival.address, arrival.sender, arrival.text, attachments=arrival.images)


def _text(arrival: Arrival, words: str, quoted: str, files: Sequence[Filed]) -> str:
    parts = [_quotation(quoted)] if quoted else []
    if words:
        parts.append(f"{_speaker(arrival)}{words}")
    parts += [_file(file) for file in files]
    return "\n\n".join(parts)


def _speaker(arrival: Arrival) -> str:
    """In a conversation that several people share, each message says whose it is."""
    shared = arrival.group and not arrival.address.user
    return f"{arrival.name or arrival.sender}: " if shared else ""


def _quotation(text: str) -> str:
    lines = "\n".join(f"> {line}" for line in text.splitlines())
    return f"[quoted, in the words of others:]\n{lines}"


def _file(file: Filed) -> str:
    about = ", ".join(each for each in (file.mime, f"{file.size:,} bytes" if file.size else "") if each)
    named = f" {file.name}" if file.name else ""
    return f"[{file.kind}{named}{f' ({about})' if about else ''} saved at {file.path}]"


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
            words = (
                "" if arrival.pressed.startswith((f"{APPROVAL_BUTTON}:", f"{REPLY}:")) else arrival.pressed
            )
            return structs.replace(arrival, text=words)
        before = raw(arrival)
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
            self._staff.delivery.nudge(platform, replies.note(arrival, "").lane)

    async def _settle(self, arrival: Arrival, text: str) -> None:
        """It is dealt with, and this is said about it, if anything."""
        owed = (replies.note(arrival, replies.as_it_is(text)),) if text else ()
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
        context = self._house.context(inbound([arrival], workdir=self._rules.workdir), files=False)
        usual = self._rules.of(arrival.address.platform).busy
        reply: Reply = await run(structs.replace(context, usual=usual), parsed)
        owed = await replies.owed(arrival, reply, self._rules.outgoing)
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
            await self._submit(inbound([arrival], workdir=self._rules.workdir))

    async def _edited(self, edit: Arrival) -> None:
        if await self._anteroom.amend(edit):
            return
        changed = inbound([edit], workdir=self._rules.workdir)
        became = await self._arrivals.amend(edit.id, edit.edits, changed)
        if became in ("unknown", "late"):
            edited = became == "late"
            await self._submit(inbound([edit], workdir=self._rules.workdir, edited=edited))

    async def _become(self, arrivals: Sequence[Arrival]) -> None:
        """What waited in the anteroom is whole now."""
        said = []
        for arrival in arrivals:
            try:
                said.append(await in_words(arrival, self._staff.transcribe) if is_voice(arrival) else arrival)
            except NotTaken as error:
                await self._staff.delivery.owe(replies.note(arrival, str(error), kind="voice"))
                said += [arrival] if arrival.text else []
        if said:
            await self._submit(inbound(said, workdir=self._rules.workdir))

    async def _submit(self, inbound: Inbound) -> None:
        self._staff.stage.watch(inbound.address)
        usual = self._rules.of(inbound.address.platform).busy
        await self._house.lobby.submit(inbound, usual=usual, ruled=True, unhurried=UNHURRIED)


def _meant(arrival: Arrival, rules: Rules) -> bool:
    """Is it said to us?"""
    listens = rules.of(arrival.address.platform).group == "all"
    return listens or arrival.addressed or not arrival.group
