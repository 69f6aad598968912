"""What a living turn has said so far. It grows by saying, and in no other way; it decides nothing."""

from collections.abc import Callable

from alipes.agent.mending import distinct
from alipes.kernel.messages import Message
from alipes.kernel.ports import Emit
from alipes.kernel.turns import Said, Turn, Usage


class Transcript:
    def __init__(self, turn: Turn, emit: Emit, billed: Callable[[], None] = lambda: None) -> None:
        """`billed` is called when all that was used so far is on the bill."""
        self.history: tuple[Message, ...] = (*turn.history, *turn.said)
        """All that a model is shown: the session before this turn, and the turn."""
        self.said: tuple[Message, ...] = turn.said
        """The turn alone."""
        self._emit, self._billed = emit, billed
        self._ids = {call.id for message in self.history for call in message.calls}
        self.owed: Usage | None = None
        """What was used and is on no bill yet."""

    @property
    def steps(self) -> int:
        """How many answers of a model this turn has had."""
        return sum(message.role == "assistant" for message in self.said)

    async def say(self, message: Message, model: str = "", usage: Usage | None = None) -> None:
        """Tell it and keep it. A call whose id was used before gets another."""
        if message.calls:
            message = distinct(message, self._ids)
            self._ids.update(call.id for call in message.calls)
        if usage is not None:
            self.owe(usage)
            usage, self.owed = self.owed, None
        await self._emit(Said(message, model, usage))
        if usage is not None:
            self._billed()
        self.history = (*self.history, message)
        self.said = (*self.said, message)

    def take_in(self, messages: tuple[Message, ...]) -> None:
        """Messages that were said in this turn by someone else, and are kept already."""
        self.history = (*self.history, *messages)
        self.said = (*self.said, *messages)

    def owe(self, usage: Usage) -> None:
        """Tokens of an answer that is not said: they are on the bill of the next one that is."""
        self.owed = usage if self.owed is None else self.owed + usage
