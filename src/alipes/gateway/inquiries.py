"""Questions that the model puts to a chat, and the answers: a button, or the next words of who was asked."""

from collections.abc import Mapping

from msgspec import Struct

from alipes.gateway.access import Access
from alipes.gateway.bubble import escaped
from alipes.gateway.channels import Channel
from alipes.gateway.delivery import Delivery
from alipes.gateway.posing import UNREACHED, posed, undelivered
from alipes.kernel.delivery import Button, Outbound, lane
from alipes.kernel.errors import DeliveryError
from alipes.kernel.platforms import Arrival
from alipes.kernel.turns import Address, Asked, Heard, Reply
from alipes.sessions.lobby import Lobby
from alipes.store.opening import Store

BUTTON = "reply"
OVER = "That question is not open any more."


class Inquiry(Struct, frozen=True):
    asked: Asked
    address: Address
    asker: str
    """Whose message led to it: the one person who may answer, beside owners."""


class Inquiries:
    """Those that are open. They are asked again by a turn that is resumed, so that none is kept."""

    def __init__(self, store: Store, lobby: Lobby, access: Access, delivery: Delivery) -> None:
        self._store, self._lobby, self._access, self._delivery = store, lobby, access, delivery
        self._open: dict[str, Inquiry] = {}

    async def put(self, address: Address, turn: str, asked: Asked) -> None:
        """Ask it in the chat."""
        facts = await self._store.archive.turn(turn)
        asker = facts.inbound.sender if facts is not None else ""
        self._open[asked.ask] = Inquiry(asked, address, asker)
        buttons = tuple(
            Button(choice, f"{BUTTON}:{asked.ask}:{number}") for number, choice in enumerate(asked.choices)
        )
        reply_to = facts.inbound.reply_to if facts is not None else ""
        text = f"{_shown(asked)}{_listed(asked)}"
        await self._delivery.owe(posed(_id(asked.ask), address, text, buttons=buttons, reply_to=reply_to))

    async def close(self, heard: Heard, channels: Mapping[str, Channel]) -> None:
        """It is answered, or given up: the question in the chat says so, and has no buttons any more."""
        inquiry = self._open.pop(heard.ask, None)
        if inquiry is None:
            return
        channel = channels[inquiry.address.platform]
        async with self._delivery.lock(lane(inquiry.address)):
            debt = await self._store.outbox.find(_id(heard.ask))
            if debt is None:
                return
            if debt.state == "owed":
                await self._store.outbox.give_up(debt, "expired", "it was over before it was asked")
            elif debt.paid and channel.talents.edits and inquiry.asked.choices:
                over = f"_{escaped(heard.text)}_" if heard.text else "_No answer came._"
                try:
                    pieces = await channel.pieces(f"{_shown(inquiry.asked)}{over}")
                    if pieces:
                        await channel.edit(inquiry.address, debt.paid[-1], pieces[-1])
                except DeliveryError:
                    return  # a button that is pressed later is told that it is over

    async def review(self) -> None:
        """Whoever waits for the answer to one that is not sent any more is told that nobody was asked."""
        for ask, inquiry in tuple(self._open.items()):
            if why := await undelivered(self._store.outbox, _id(ask)):
                self._open.pop(ask, None)
                await self._lobby.post(inquiry.address.key, Reply(ask, "", unasked=why))
                text = f"{UNREACHED}, so I go on without an answer:\n\n{_shown(inquiry.asked)}"
                await self._delivery.owe(Outbound(f"unasked:{ask}", inquiry.address, text, notice=True))

    def concern(self, arrival: Arrival) -> bool:
        """Is it an answer to a question, open or not any more?"""
        return arrival.pressed.startswith(f"{BUTTON}:") or self._meant(arrival) is not None

    async def answered(self, arrival: Arrival) -> str:
        """What to tell who sent this, empty for nothing: the question itself shows the answer."""
        if not arrival.pressed:
            inquiry = self._meant(arrival)
            return (
                OVER
                if inquiry is None
                else await self._pass_on(inquiry, inquiry.asked.meant(arrival.text), arrival)
            )
        _, ask, number = (*arrival.pressed.split(":"), "", "")[:3]
        inquiry = self._open.get(ask)
        if inquiry is None or inquiry.address.platform != arrival.address.platform or not number.isdecimal():
            return OVER
        chosen = inquiry.asked.choices[int(number) : int(number) + 1]
        return await self._pass_on(inquiry, chosen[0], arrival) if chosen else OVER

    def _meant(self, arrival: Arrival) -> Inquiry | None:
        """The question of this conversation that these words of who was asked answer."""
        words = arrival.text.strip()
        more = arrival.pressed or arrival.edits or arrival.files or arrival.images
        if not self._open or not words or words.startswith("/") or more:
            return None
        here = [each for each in self._open.values() if each.address.key == arrival.address.key]
        return next((each for each in here if arrival.sender == each.asker), None)

    async def _pass_on(self, inquiry: Inquiry, text: str, arrival: Arrival) -> str:
        person = arrival.sender
        role = await self._access.role(inquiry.address.platform, person)
        if role is None or (role != "owner" and person != inquiry.asker):
            return "Only who asked for it, or an owner, can answer that."
        await self._lobby.post(inquiry.address.key, Reply(inquiry.asked.ask, text, person))
        return ""


def _id(ask: str) -> str:
    return f"inquiry:{ask}"


def _shown(asked: Asked) -> str:
    return f"**{escaped(asked.question.strip())}**\n\n"


def _listed(asked: Asked) -> str:
    lines = "".join(f"{number}. {escaped(choice)}\n" for number, choice in enumerate(asked.choices, 1))
    return f"{lines}\nAnswer with a number, or in your own words." if lines else "_Answer in your own words._"
