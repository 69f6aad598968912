"""Replies to commands and notices about resumed turns, as outbox messages."""

import asyncio
import os
import time
from collections.abc import Collection, Iterable
from contextlib import suppress
from pathlib import Path

from alipes.kernel.formatting import escape_markdown, format_excerpt
from alipes.kernel.outbox import Media, Outbound
from alipes.kernel.platform import IncomingMessage
from alipes.kernel.turns import Address
from alipes.sessions.commands.context import CommandReply, CopyText, PutText, Quit, RunSetup, SendFile
from alipes.store.sql.store import Store


async def to_outbound(message: IncomingMessage, reply: CommandReply, outgoing: str) -> tuple[Outbound, ...]:
    """The reply to a command. Its id depends on the message, so that a second copy is not answered again."""
    text, media = escape_lines(reply.text), tuple[Media, ...]()
    if reply.diff:
        shown = reply.text.replace("```", "` ` `")
        text = f"```diff\n{shown}\n```"
    match reply.action:
        case CopyText(words):
            text = words
        case PutText(words):
            text = f"{text}\n\n{escape_lines(words)}"
        case RunSetup():
            text = "Run `alipes setup` on the computer where alipes runs."
        case Quit():
            text = "There is nothing to quit here; just stop writing."
        case SendFile(name, words) if outgoing:
            path = await asyncio.to_thread(write_file, outgoing, message.id, name, words)
            media = (Media(path, "file", Path(name).name),)
        case SendFile(_, words):
            text = words
    return (make_note(message, text, media=media),) if text or media else ()


def make_note(message: IncomingMessage, text: str, *, kind: str = "reply", media: tuple[Media, ...] = ()) -> Outbound:
    """A Markdown reply to an incoming message."""
    reply_to = message.message if message.group else ""
    id = f"{kind}:{message.address.platform}:{message.id}"
    return Outbound(id, message.address, text, media=media, reply_to=reply_to)


def escape_lines(text: str) -> str:
    """Markdown that shows plain lines literally."""
    lines = [escape_markdown(line.strip()) for line in text.splitlines()]
    return "\n".join(f"{line}  " if line else "" for line in lines).strip()


def write_file(folder: str, id: str, name: str, text: str) -> str:
    """Write a file to send; returns its path. `id` makes it unique."""
    safe = "".join(char if char.isalnum() or char in "-_" else "-" for char in id)
    directory = Path(folder, safe)
    directory.mkdir(parents=True, exist_ok=True, mode=0o700)
    path = directory / Path(name).name
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as file:
        file.write(text)
    return str(path)


def delete_old_files(folder: str, before: float) -> int:
    """Delete files in `folder` older than `before`, and empty folders. Returns the number of files."""
    deleted = 0
    for directory, folders, names in os.walk(folder, topdown=False) if folder else ():
        for name in names:
            path = os.path.join(directory, name)
            with suppress(FileNotFoundError):  # another worker was faster
                if os.lstat(path).st_mtime < before:
                    os.unlink(path)
                    deleted += 1
        for name in folders:
            with suppress(OSError):  # not empty, or a link
                os.rmdir(os.path.join(directory, name))
    return deleted


class ResumeNotices:
    """Informs chats of `platforms` that a turn of an earlier process continues."""

    def __init__(self, store: Store, platforms: Collection[str]) -> None:
        self._store, self._platforms, self._started = store, platforms, time.time()
        self._cleared = False
        self._lock = asyncio.Lock()

    async def send(self, keys: Iterable[str]) -> None:
        """Queue a notice for each session, once however often this is called. To appear before the turn's
        own messages, it must be called before the turn is resumed."""
        async with self._lock:
            if not self._cleared:  # once: drop messages that are only valid while their process lives
                self._cleared = True
                for name in self._platforms:
                    await self._store.outbox.expire_fleeting(name)
            notices = [notice for key in keys if (notice := await self._notice(key)) is not None]
            if notices:
                await self._store.outbox.enqueue(*notices)

    async def _notice(self, key: str) -> Outbound | None:
        if (address := await self.address(key)) is None:
            return None
        for turn in (await self._store.sessions.unfinished(key))[:1]:
            earlier = turn.started_at is not None and turn.started_at < self._started
            if earlier and not await self._is_answered(turn.id):
                id = f"resumed:{turn.id}:{self._store.host}"
                text = f"I was restarted. Continuing with {format_excerpt(turn.text)}."
                return Outbound(id, address, text, notice=True, fleeting=True)
        return None

    async def address(self, key: str) -> Address | None:
        """Address of a session, if it is in one of our chats."""
        session = await self._store.sessions.active(key)
        if session is None or session.address.platform not in self._platforms:
            return None
        return session.address

    async def _is_answered(self, turn: str) -> bool:
        """True if the answer is complete and only the end of the turn was not written."""
        facts = await self._store.archive.turn(turn)
        last = facts.said[-1] if facts is not None and facts.said else None
        return last is not None and last.role == "assistant" and not last.calls
