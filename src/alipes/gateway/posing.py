"""Questions put to a chat, of any kind: how they get there, what becomes of them, and who may answer."""

from collections.abc import Callable, Mapping
from typing import Generic, TypeAlias, TypeVar

from msgspec import Struct, structs

from alipes.gateway.access import Access
from alipes.gateway.channels import Channel
from alipes.gateway.delivery import Delivery
from alipes.kernel.delivery import Button, Outbound, lane
from alipes.kernel.errors import DeliveryError
from alipes.kernel.turns import Address, Answer, ApprovalAsked, Asked, Reply
from alipes.sessions.lobby import Lobby
from alipes.store.asked import answered
from alipes.store.opening import Store
from alipes.store.people import Role

A = TypeVar("A", ApprovalAsked, Asked)
Named: TypeAlias = Callable[[str, str], str]
"""The id under which the question of a turn is owed."""

OVER = "That question is not open any more."
NOT_THEIRS = "Only who asked for it, or an owner, can answer that."
_UNREACHED = "I cannot tell whether this question of mine reached you"


class Posed(Struct, Generic[A], frozen=True):
    asked: A
    address: Address
    asker: str
    """Whose message led to it: the one person who may answer, beside owners."""
    id: str
    """Under which it is owed to the chat."""
    reply_to: str = ""


class Posing(Generic[A]):
    """The open ones of one kind. They are asked again by a turn that is resumed, so that none is kept."""

    def __init__(self, named: Named, store: Store, lobby: Lobby, access: Access, delivery: Delivery) -> None:
        self._named, self._store, self._lobby = named, store, lobby
        self._access, self._delivery = access, delivery
        self._open: dict[str, Posed[A]] = {}

    async def prepared(self, address: Address, turn: str, asked: A) -> Posed[A]:
        """One that can be shown."""
        facts = await self._store.archive.turn(turn)
        asker, reply_to = ("", "") if facts is None else (facts.inbound.sender, facts.inbound.reply_to)
        return Posed(asked, address, asker, self._named(turn, asked.ask), reply_to)

    async def show(self, question: Posed[A], text: str, buttons: tuple[Button, ...]) -> None:
        """Open it, and owe it to the chat for as long as the turn waits that asks."""
        self._open[question.asked.ask] = question
        told = Outbound(question.id, question.address, text, buttons=buttons, reply_to=question.reply_to)
        await self._delivery.owe(structs.replace(told, notice=True, fleeting=True))

    async def close(self, ask: str, channels: Mapping[str, Channel], over: Callable[[A], str]) -> None:
        """It is answered, or given up: the question in the chat says so as `over` words it, if it does, and
        has no buttons any more."""
        question = self._open.pop(ask, None)
        if question is None:
            return
        channel = channels[question.address.platform]
        async with self._delivery.lock(lane(question.address)):
            await answered(self._store.database, question.id)  # also if that was said elsewhere
            debt = await self._store.outbox.find(question.id)
            if debt is None:
                return
            if debt.state == "owed":
                await self._store.outbox.give_up(debt, "expired", "it was over before it was asked")
            elif debt.paid and channel.talents.edits and (text := over(question.asked)):
                try:
                    if pieces := await channel.pieces(text):
                        await channel.edit(question.address, debt.paid[-1], pieces[-1])
                except DeliveryError:
                    return  # a button that is pressed later is told that it is over

    async def review(self, give_up: Callable[[A, str], tuple[Answer | Reply, str]]) -> None:
        """Whoever waits for the answer to one that is not sent any more is told that nobody was asked, and
        the chat what follows from that: both as `give_up` words it."""
        for ask, question in tuple(self._open.items()):
            debt = await self._store.outbox.find(question.id)
            if debt is None or debt.state not in ("dead", "expired"):
                continue
            self._open.pop(ask, None)
            why = f"the question was not delivered: {debt.why.rstrip('.')}"
            op, text = give_up(question.asked, why)
            await self._lobby.post(question.address.key, op)
            told = Outbound(f"unasked:{ask}", question.address, f"{_UNREACHED}, {text}", notice=True)
            await self._delivery.owe(told)

    def find(self, ask: str, platform: str) -> Posed[A] | None:
        """The open one of this name, if it was asked on that platform."""
        question = self._open.get(ask)
        return question if question is not None and question.address.platform == platform else None

    def of(self, key: str) -> list[Posed[A]]:
        """Those of a conversation, the oldest first."""
        return [each for each in self._open.values() if each.address.key == key]

    async def role(self, question: Posed[A], person: str) -> Role | None:
        """Of one who may answer it; else None."""
        role = await self._access.role(question.address.platform, person)
        return role if role == "owner" or person == question.asker else None
