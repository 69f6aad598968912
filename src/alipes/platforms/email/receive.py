"""Listening to a mailbox: each mail once, in order, marked as done only after it was handed over."""

import asyncio
import logging
import time
from collections.abc import Callable, Collection
from pathlib import Path

import msgspec
from msgspec import Struct, structs

from alipes.kernel.platform import Arrival, Take, Welcome
from alipes.platforms.email import parse
from alipes.platforms.email.imap import Imap, Mail
from alipes.platforms.email.threads import Threads
from alipes.platforms.state_files import read, write

log = logging.getLogger(__name__)

GLANCE = 64_000
"""Bytes of a head, and of a mail that is too large: enough for its words."""
OLDEST = 3 * 86_400.0
"""Seconds: when the server has numbered its mail anew, mail older than this is taken for done."""


class Mark(Struct, frozen=True):
    """How far we have read. Being behind is harmless, since the store refuses what it has already."""

    validity: int = 0
    uid: int = 0


class Listening:
    """One mailbox, read through one connection."""

    def __init__(self, imap: Imap, folder: Path, threads: Threads, ours: str) -> None:
        self._imap, self._folder, self._threads, self._ours = imap, folder, threads, ours
        self.authenticated, self.server = True, ""
        """Whether only those count for whom the receiving server vouches; its name, where it is known."""
        self.largest = 30_000_000
        self.welcome: Welcome = _nobody
        self.commands: Callable[[], Collection[str]] = tuple
        self._path = folder / "seen.json"
        self._mark = read(self._path, Mark)

    async def run(self, mailbox: str, take: Take, tell: Callable[[], None], *, renew: float) -> None:
        """Until cancelled. Raises DeliveryError when the connection is over. `renew`: seconds that we wait
        to be told of mail before we look ourselves."""
        validity, following = await self._imap.select(mailbox)
        if self._mark.validity != validity:
            await self._numbered_anew(validity, following, take)
        while True:
            tell()
            for uid in await self._imap.search(f"UID {self._mark.uid + 1}:*"):
                if uid > self._mark.uid:  # a server gives the last one, however small
                    await self._hand_over(uid, take)
                    self._move(Mark(validity, uid))
            tell()
            await self._imap.news(renew)

    async def _numbered_anew(self, validity: int, following: int, take: Take) -> None:
        """At the first start what is there is not ours to answer; later, recent mail is looked at again."""
        if self._mark.validity:
            log.warning(
                "the mail server has numbered its mail anew; what came lately is looked through again"
            )
            day = time.strftime("%d-%b-%Y", time.gmtime(time.time() - OLDEST))
            for uid in await self._imap.search(f"SINCE {day}"):
                if uid < following:
                    await self._hand_over(uid, take)
        self._move(Mark(validity, following - 1))

    def _move(self, mark: Mark) -> None:
        self._mark = mark
        write(self._path, msgspec.json.encode(mark))

    async def _hand_over(self, uid: int, take: Take) -> None:
        head = await self._imap.fetch(uid, f"BODY.PEEK[HEADER]<0.{GLANCE}>")
        try:
            told, welcome = await self._read(head) if head is not None else (None, False)
        except parse.Unreadable as error:
            log.warning("a mail could not be read, and is left out: %s", error)
            return
        if told is not None:
            await take(told)
        if welcome:
            await self._imap.mark_seen(uid)

    async def _read(self, head: Mail) -> tuple[Arrival | None, bool]:
        """What it says, and whether its sender may speak."""
        why, told = await asyncio.to_thread(
            parse.glance, head.content, self._ours, authenticated=self.authenticated, server=self.server
        )
        if told is None:
            log.info("a mail is left out: %s", why)
            return None, False
        who, thread = told.arrival.sender, told.arrival.address.thread
        if not await self.welcome(told.arrival):
            self._threads.note(who, thread, told.thread)
            return told.arrival, False
        whole = head.size <= self.largest
        mail = await self._imap.fetch(head.uid, "BODY.PEEK[]" if whole else f"BODY.PEEK[]<0.{GLANCE}>")
        if mail is None:
            return None, False
        folder = self._folder / "files" if whole else None
        told = await asyncio.to_thread(parse.opened, mail.content, folder, self.commands())
        await asyncio.to_thread(self._threads.keep, who, thread, told.thread)
        if whole:
            return told.arrival, True
        note = f"[The mail has {head.size / 1e6:.0f} MB; what is attached to it was not fetched.]"
        text = "\n\n".join(filter(None, (told.arrival.text, note)))
        return structs.replace(told.arrival, text=text), True


async def _nobody(_: Arrival) -> bool:
    return False
