"""What a command gives back, as something owed to the chat. It runs no command and sends nothing."""

import asyncio
import os
import time
from collections.abc import Collection, Iterable
from contextlib import suppress
from pathlib import Path

from alipes.gateway.live.drafts import escaped
from alipes.kernel.formatting import brief
from alipes.kernel.outbox import Media, Outbound
from alipes.kernel.platform import Arrival
from alipes.kernel.turns import Address
from alipes.sessions.commands import Copy, Document, Quit, Reply
from alipes.store.store import Store


async def owed(arrival: Arrival, reply: Reply, outgoing: str) -> tuple[Outbound, ...]:
    """Debts with ids of their own for each arrival, so that a second copy is not answered again."""
    text, media = as_it_is(reply.text), tuple[Media, ...]()
    match reply.action:
        case Copy(words):
            text = words
        case Quit():
            text = "Here is nothing to leave: just write no more."
        case Document(name, words) if outgoing:
            path = await asyncio.to_thread(_write, outgoing, arrival.id, name, words)
            media = (Media(path, "file", Path(name).name),)
        case Document(_, words):
            text = words
    return (note(arrival, text, media=media),) if text or media else ()


def note(arrival: Arrival, text: str, *, kind: str = "reply", media: tuple[Media, ...] = ()) -> Outbound:
    """Something said about an arrival, in Markdown."""
    reply_to = arrival.message if arrival.group else ""
    id = f"{kind}:{arrival.address.platform}:{arrival.id}"
    return Outbound(id, arrival.address, text, media=media, reply_to=reply_to)


def as_it_is(text: str) -> str:
    """Plain lines as Markdown that shows them as they are."""
    lines = [escaped(line.strip()) for line in text.splitlines()]
    return "\n".join(f"{line}  " if line else "" for line in lines).strip()


def _write(folder: str, id: str, name: str, text: str) -> str:
    safe = "".join(letter if letter.isalnum() or letter in "-_" else "-" for letter in id)
    place = Path(folder, safe)
    place.mkdir(parents=True, exist_ok=True, mode=0o700)
    path = place / Path(name).name
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as file:
        file.write(text)
    return str(path)


def clear_out(folder: str, before: float) -> int:
    """Take away files that were written there before that time, and folders left empty; how many files."""
    gone = 0
    for place, folders, names in os.walk(folder, topdown=False) if folder else ():
        for name in names:
            path = os.path.join(place, name)
            if os.lstat(path).st_mtime < before:
                os.unlink(path)
                gone += 1
        for name in folders:
            with suppress(OSError):  # something is still in it, or it is a link
                os.rmdir(os.path.join(place, name))
    return gone


class Resuming:
    """Owes the chats of `platforms` a word for turns that an earlier process began."""

    def __init__(self, store: Store, platforms: Collection[str]) -> None:
        self._store, self._platforms, self._born = store, platforms, time.time()
        self._cleared = False
        self._one = asyncio.Lock()

    async def tell(self, keys: Iterable[str]) -> None:
        """Each is told once, however often this is called. To stand before whatever is said next, it must be
        owed before the turns are taken up."""
        async with self._one:
            await self._clear()
            owed = [word for key in keys if (word := await self._word(key)) is not None]
            if owed:
                await self._store.outbox.owe(*owed)

    async def _clear(self) -> None:
        """First: what an earlier process owed only as long as it lived is given up."""
        if not self._cleared:
            self._cleared = True
            for name in self._platforms:
                await self._store.outbox.withdraw(name)

    async def _word(self, key: str) -> Outbound | None:
        if (address := await self.address(key)) is None:
            return None
        for turn in (await self._store.sessions.unfinished(key))[:1]:
            before = turn.begun is not None and turn.begun < self._born
            if before and not await self._answered_already(turn.id):
                id = f"resumed:{turn.id}:{self._store.host}"
                text = f"I was started anew, and go on with {brief(turn.text)}."
                return Outbound(id, address, text, notice=True, fleeting=True)
        return None

    async def address(self, key: str) -> Address | None:
        """Where the session under `key` is, if that is one of our chats."""
        standing = await self._store.sessions.standing(key)
        if standing is None or standing.address.platform not in self._platforms:
            return None
        return standing.address

    async def _answered_already(self, turn: str) -> bool:
        """Was all said, and only its end not written any more?"""
        facts = await self._store.archive.turn(turn)
        last = facts.said[-1] if facts is not None and facts.said else None
        return last is not None and last.role == "assistant" and not last.calls
