"""Interrupted turns of other folders: found at the start, named, and resumed only after a yes."""

from typing import TYPE_CHECKING

from msgspec import Struct

from alipes.console.inbound import PLATFORM, format_folder
from alipes.kernel.formatting import format_excerpt

if TYPE_CHECKING:
    from alipes.core.app import App

YES, NO = ("y", "yes"), ("n", "no")


class InterruptedTurn(Struct, frozen=True):
    key: str
    folder: str
    text: str
    """The message."""

    def __str__(self) -> str:
        return f"{format_folder(self.folder)}: {format_excerpt(self.text)}"


async def find_interrupted(app: "App", workdir: str) -> tuple[InterruptedTurn, ...]:
    """Turns of conversations at a terminal in other folders than `workdir` that no process runs."""
    store, found = app.store, []
    here = await store.turns.list_orphans(0, workdir)
    for key in await store.turns.list_orphans():
        facts = None if key in here else await store.archive.current(key)
        if facts is None or facts.address.platform != PLATFORM:
            continue
        if waiting := await store.sessions.unfinished(key):
            found.append(InterruptedTurn(key, facts.workdir, waiting[0].text))
    return tuple(found)


def format_offer(turns: tuple[InterruptedTurn, ...]) -> str:
    """The turns, and how to have them resumed."""
    if len(turns) == 1:
        return f"Interrupted in {turns[0]}. Type y to resume it now, or n to leave it."
    listed = "\n".join(f"  {turn}" for turn in turns)
    return f"Interrupted in other folders:\n{listed}\nType y to resume them now, or n to leave them."


def format_left(turns: tuple[InterruptedTurn, ...]) -> str:
    """How to resume them later."""
    folders = ", ".join(dict.fromkeys(format_folder(turn.folder) for turn in turns))
    return f"Left as it is. Start alipes in {folders} to resume."
