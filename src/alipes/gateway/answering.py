"""What a person says to an open question in a chat: it is kept as an answer, and given. It asks none."""

from collections.abc import Awaitable, Callable
from functools import partial

from alipes.gateway import replying
from alipes.gateway.delivery import Delivery
from alipes.gateway.inquiries import Inquiries
from alipes.gateway.questions import BUTTON, WORDS, Questions
from alipes.kernel.platforms import Arrival
from alipes.kernel.turns import Consent
from alipes.runtime.groups import to_the_end
from alipes.store.arrivals import SqliteArrivals
from alipes.store.people import Role


class Answering:
    def __init__(
        self, arrivals: SqliteArrivals, questions: Questions, inquiries: Inquiries, delivery: Delivery
    ) -> None:
        self._arrivals, self._delivery = arrivals, delivery
        self._questions, self._inquiries = questions, inquiries

    async def take(self, arrival: Arrival, role: Role) -> bool:
        """Was it an answer, by a button or in words? Then it is given, unless it is a second copy."""
        give = self._consent(arrival, role) or self._reply(arrival)
        if give is None and _word(arrival) and await self._questions.standing.again(arrival.address.key):
            give = self._consent(arrival, role)  # it was said to what is asked anew only now
        if give is None:
            return False
        # who broke off here, and was brought the same again, would take it for a copy that was given
        await to_the_end(partial(self._give, arrival, give))
        return True

    def _consent(self, arrival: Arrival, role: Role) -> Callable[[], Awaitable[str | None]] | None:
        """A word on a question before a dangerous call."""
        key, platform, sender = arrival.address.key, arrival.address.platform, arrival.sender
        choice = _word(arrival)
        if choice and self._questions.waits(key, sender, role):
            return partial(self._questions.answer, key, choice, sender)
        if arrival.pressed.startswith(f"{BUTTON}:"):
            return partial(self._questions.pressed, arrival.pressed, sender, platform)
        return None

    def _reply(self, arrival: Arrival) -> Callable[[], Awaitable[str | None]] | None:
        """An answer to a question of the model's."""
        concerned = self._inquiries.concern(arrival)
        return partial(self._inquiries.answered, arrival) if concerned else None

    async def _give(self, arrival: Arrival, give: Callable[[], Awaitable[str | None]]) -> None:
        """It is kept, then given, then its giver told. If we die in between it is asked anew: what was an
        answer once never becomes a message."""
        if await self._arrivals.answered(arrival.address.platform, arrival.id) and (told := await give()):
            await self._delivery.owe(replying.note(arrival, replying.as_it_is(told)))


def _word(arrival: Arrival) -> Consent | None:
    """What it says to a question before a dangerous call, if it is nothing but a word on one."""
    alone = not (arrival.images or arrival.files or arrival.edits)
    return WORDS.get(arrival.text.strip().rstrip(".!").lower()) if alone else None
