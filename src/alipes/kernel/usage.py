"""Beside the answers: the bill of model calls, and what stands for much that was said. Values and ports."""

from typing import Protocol

from msgspec import Struct

from alipes.kernel.turns import Digest, Turn, Usage


class Billed(Struct, frozen=True):
    """One model call that no transcript tells of."""

    turn: Turn
    task: str
    model: str
    usage: Usage
    tool: str = ""
    """The tool that asked; empty: none did."""


class Sum(Struct, frozen=True):
    """What was used, by whatever it is asked for."""

    dollars: float = 0.0
    tokens: int = 0
    unpriced: int = 0
    """Calls of unknown price, which are not in `dollars`."""


class Tries(Struct, frozen=True):
    """How often in a row summing up did not help, and why it last did not."""

    count: int = 0
    why: str = ""


class Bill(Protocol):
    """Every model call of a home."""

    async def add(self, entry: Billed) -> None: ...

    async def root(self, turn: Turn) -> Turn:
        """The turn at whose request it is lived in the end: a person's; itself, if nobody else's."""
        ...

    async def turn(self, root: Turn) -> Sum:
        """What it used, with all that was lived for it."""
        ...

    async def session(self, session: str) -> Sum:
        """What its turns used, with all that was lived for them."""
        ...

    async def since(self, moment: float) -> Sum: ...


class Digests(Protocol):
    """What stands for the beginning of conversations. Each is added, none is changed; nothing said is."""

    async def keep(self, turn: Turn, digest: Digest, *, living: int = 0, helped: bool = True) -> bool:
        """From now on it stands for what it covers; `helped`: earlier tries that did not are forgotten.

        `living`: in the name of a turn that is ours and knows of so many messages; raises `Fenced` like
        `record`. Else it is kept for the conversation as it was when `turn` was looked at. False is given,
        and nothing kept, where some of what was said was taken back since.
        """
        ...

    async def latest(self, session: str) -> Turn | None:
        """The conversation as it stands now, as the history of its last turn; None where nothing was said."""
        ...

    async def size(self, session: str) -> int:
        """The tokens of its last call, in and out; zero where none was counted since it was shortened."""
        ...

    async def tries(self, session: str) -> Tries: ...

    async def failed(self, session: str, why: str) -> None:
        """One more try that did not help."""
        ...

    async def forgive(self, session: str) -> None:
        """A person wants it to be tried again."""
        ...
