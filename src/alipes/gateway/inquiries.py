"""Questions that the model puts to a chat, and the answers: a button, or the next words of who was asked."""

from collections.abc import Mapping

from alipes.gateway.access import Access
from alipes.gateway.bubble import escaped
from alipes.gateway.channels import Channel
from alipes.gateway.delivery import Delivery
from alipes.gateway.posing import NOT_THEIRS, OVER, Posed, Posing
from alipes.kernel.delivery import Button
from alipes.kernel.platforms import Arrival
from alipes.kernel.turns import Address, Asked, Heard, Reply
from alipes.sessions.lobby import Lobby
from alipes.store.opening import Store

BUTTON = "reply"


class Inquiries:
    """Those that are open."""

    def __init__(self, store: Store, lobby: Lobby, access: Access, delivery: Delivery) -> None:
        self._lobby = lobby
        self._posing: Posing[Asked] = Posing(_named, store, lobby, access, delivery)

    async def put(self, address: Address, turn: str, asked: Asked) -> None:
        """Ask it in the chat."""
        inquiry = await self._posing.prepared(address, turn, asked)
        buttons = tuple(
            Button(choice, f"{BUTTON}:{asked.ask}:{number}") for number, choice in enumerate(asked.choices)
        )
        await self._posing.show(inquiry, f"{_shown(asked)}{_listed(asked)}", buttons)

    async def close(self, heard: Heard, channels: Mapping[str, Channel]) -> None:
        """It is answered, or given up: one that has buttons says so in the chat, and has none any more."""
        over = f"_{escaped(heard.text)}_" if heard.text else "_No answer came._"
        await self._posing.close(
            heard.ask, channels, lambda asked: f"{_shown(asked)}{over}" if asked.choices else ""
        )

    async def review(self) -> None:
        """Whoever waits for the answer to one that is not sent any more is told that nobody was asked."""
        await self._posing.review(_given_up)

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
        inquiry = self._posing.find(ask, arrival.address.platform)
        if inquiry is None or not number.isdecimal():
            return OVER
        chosen = inquiry.asked.choices[int(number) : int(number) + 1]
        return await self._pass_on(inquiry, chosen[0], arrival) if chosen else OVER

    def _meant(self, arrival: Arrival) -> Posed[Asked] | None:
        """The question of this conversation that these words of who was asked answer."""
        words = arrival.text.strip()
        more = arrival.pressed or arrival.edits or arrival.files or arrival.images
        if not words or words.startswith("/") or more:
            return None
        here = self._posing.of(arrival.address.key)
        return next((each for each in here if arrival.sender == each.asker), None)

    async def _pass_on(self, inquiry: Posed[Asked], text: str, arrival: Arrival) -> str:
        if await self._posing.role(inquiry, arrival.sender) is None:
            return NOT_THEIRS
        await self._lobby.post(inquiry.address.key, Reply(inquiry.asked.ask, text, arrival.sender))
        return ""


def _named(_turn: str, ask: str) -> str:
    return f"inquiry:{ask}"


def _given_up(asked: Asked, why: str) -> tuple[Reply, str]:
    return Reply(asked.ask, "", unasked=why), f"so I go on without an answer:\n\n{_shown(asked)}"


def _shown(asked: Asked) -> str:
    return f"**{escaped(asked.question.strip())}**\n\n"


def _listed(asked: Asked) -> str:
    lines = "".join(f"{number}. {escaped(choice)}\n" for number, choice in enumerate(asked.choices, 1))
    return f"{lines}\nAnswer with a number, or in your own words." if lines else "_Answer in your own words._"
