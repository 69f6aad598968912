"""What a command gives back, as something owed to the chat. It runs no command and sends nothing."""

import asyncio
import os
from contextlib import suppress
from pathlib import Path

from alipes.gateway.bubble import escaped
from alipes.kernel.delivery import Media, Outbound
from alipes.kernel.platforms import Arrival
from alipes.sessions.commands import Copy, Document, Quit, Reply


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
