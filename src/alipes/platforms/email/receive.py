"""Receives mail: each mail once, in order; the position moves after a mail was delivered."""

import asyncio
import logging
import time

from msgspec import Struct, structs

from alipes.kernel.platform import IncomingMessage, OnMessage, OnStatus
from alipes.platforms.email import parse
from alipes.platforms.email.imap import FetchedMail, ImapClient
from alipes.platforms.email.threads import MailThreads
from alipes.platforms.messenger import Messenger
from alipes.platforms.settings import EmailSettings
from alipes.platforms.state_files import StateFile

log = logging.getLogger(__name__)

HEAD_BYTES = 64_000
"""Bytes of a head, and of a mail that is too large: enough for its text."""
MAX_MAIL_BYTES = 30_000_000
"""Of larger mails only the text is downloaded."""
MAX_AGE = 3 * 86_400.0
"""Seconds: after the server renumbered its mail, older mail counts as read."""


class MailPosition(Struct, frozen=True):
    """Read position. An old one is harmless, since the store ignores mail that it already has."""

    validity: int = 0
    uid: int = 0


class EmailReceiver:
    """Reads one mailbox through one connection."""

    def __init__(self, messenger: Messenger[EmailSettings], imap: ImapClient, threads: MailThreads) -> None:
        self._messenger, self._settings, self._imap, self._threads = messenger, messenger.settings, imap, threads
        self._file = StateFile(self._settings.data_folder / "seen.json", MailPosition)
        self._position = self._file.read()

    async def run(self, on_message: OnMessage, on_status: OnStatus) -> None:
        """Serve until cancelled. Raises DeliveryError when the connection ends."""
        validity, following = await self._imap.select(self._settings.folder)
        if self._position.validity != validity:
            await self._on_renumbered(validity, following, on_message)
        while True:
            on_status("ready", "")
            for uid in await self._imap.search(f"UID {self._position.uid + 1}:*"):
                if uid > self._position.uid:  # a server always returns the last one
                    await self._deliver(uid, on_message)
                    self._save_position(MailPosition(validity, uid))
            on_status("ready", "")
            await self._imap.wait_for_mail(self._settings.renew)

    async def _on_renumbered(self, validity: int, following: int, on_message: OnMessage) -> None:
        """At the first start existing mail is ignored; later, recent mail is read again."""
        if self._position.validity:
            log.warning("the mail server renumbered its mail; reading recent mail again")
            day = time.strftime("%d-%b-%Y", time.gmtime(time.time() - MAX_AGE))
            for uid in await self._imap.search(f"SINCE {day}"):
                if uid < following:
                    await self._deliver(uid, on_message)
        self._save_position(MailPosition(validity, following - 1))

    def _save_position(self, mark: MailPosition) -> None:
        self._position = mark
        self._file.write(mark)

    async def _deliver(self, uid: int, on_message: OnMessage) -> None:
        head = await self._imap.fetch(uid, f"BODY.PEEK[HEADER]<0.{HEAD_BYTES}>")
        try:
            parsed, may_fetch = await self._read(head) if head is not None else (None, False)
        except parse.UnreadableMail as error:
            log.warning("skipped an unreadable mail: %s", error)
            return
        if parsed is not None:
            await on_message(parsed)
        if may_fetch:
            await self._imap.mark_seen(uid)

    async def _read(self, head: FetchedMail) -> tuple[IncomingMessage | None, bool]:
        """The message, and whether its sender has access."""
        settings, authenticated = self._settings, self._settings.trust == "authenticated"
        why, parsed = await asyncio.to_thread(
            parse.parse_head, head.content, settings.address, authenticated=authenticated, server=settings.authserv
        )
        if parsed is None:
            log.info("skipped a mail: %s", why)
            return None, False
        who, thread = parsed.incoming.sender, parsed.incoming.address.thread
        if not await self._messenger.may_fetch(parsed.incoming):
            self._threads.remember_stranger(who, thread, parsed.thread)
            return parsed.incoming, False
        whole = head.size <= MAX_MAIL_BYTES
        mail = await self._imap.fetch(head.uid, "BODY.PEEK[]" if whole else f"BODY.PEEK[]<0.{HEAD_BYTES}>")
        if mail is None:
            return None, False
        folder = settings.data_folder / "files" if whole else None
        parsed = await asyncio.to_thread(parse.parse_mail, mail.content, folder, self._messenger.commands)
        await asyncio.to_thread(self._threads.save, who, thread, parsed.thread)
        if whole:
            return parsed.incoming, True
        note = f"[The mail has {head.size / 1e6:.0f} MB; its attachments were not downloaded.]"
        text = "\n\n".join(filter(None, (parsed.incoming.text, note)))
        return structs.replace(parsed.incoming, text=text), True
