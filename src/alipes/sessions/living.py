"""The turn that lives in a session: what it has said and done, folded from its events. It decides nothing."""

import asyncio

from msgspec import Struct

from alipes.kernel.messages import Message, ToolResult
from alipes.kernel.turns import Ending, Recorded, Said, Stop, ToolFinished, ToolStarted, Turn, Usage


class Over(Struct, frozen=True):
    """A turn's task is done; its parent writes what follows."""

    living: "Living"
    ending: Ending | None
    """None: fenced, so the ending is somebody else's to write."""
    detail: str = ""


class Boundary(Struct, frozen=True):
    """The turn stands between two steps and waits for what was said to it meanwhile."""

    living: "Living"
    heard: "asyncio.Future[tuple[Message, ...]]"


class Living:
    def __init__(self, turn: Turn) -> None:
        self.turn = turn
        self.said: tuple[Message, ...] = turn.said
        self.acts: dict[str, ToolResult | None] = dict(turn.acts)
        self.usage: Usage | None = None
        self.stop: Stop | None = None
        self.task: asyncio.Task[Over] | None = None
        self.held: ToolFinished | None = None
        """The last result before all are said together: shown once that is kept."""
        self.started = False
        """It is set up, and has told so."""
        self.steered = True
        """Messages may wait to be taken in; at the beginning nobody knows, so that it is worth a look."""

    def fold(self, event: Recorded) -> None:
        match event:
            case Said(message, _, usage):
                self.said = (*self.said, message)
                if usage is not None:
                    self.usage = usage if self.usage is None else self.usage + usage
            case ToolStarted(call):
                self.acts[call.id] = None
            case ToolFinished(call, result):
                self.acts[call.id] = result

    def all_answered(self) -> bool:
        """Has every call of the last message a result by now?"""
        return all(self.acts.get(call.id) is not None for call in self.said[-1].calls)

    def unheld(self) -> tuple[ToolFinished, ...]:
        """What was held back, once."""
        held, self.held = self.held, None
        return () if held is None else (held,)
