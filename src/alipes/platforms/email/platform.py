"""Mail as a platform: receives each mail once and in order over IMAP, sends over SMTP."""

import asyncio
import logging
import time

from msgspec import Struct, structs

from alipes.kernel.errors import ConfigError, DeliveryError
from alipes.kernel.platform import Capabilities, IncomingMessage, MessagePart, OnMessage, OnStatus, Platform
from alipes.kernel.turns import Address
from alipes.platforms.connection import optional_library
from alipes.platforms.email import parse
from alipes.platforms.email.imap import FetchedMail, ImapClient, open_imap
from alipes.platforms.email.parse import NAME
from alipes.platforms.email.settings import EmailConfig
from alipes.platforms.email.threads import MailThreads
from alipes.platforms.messenger import ALL_MEDIA, Messenger
from alipes.platforms.state_files import StateFile
from alipes.runtime.http.clients import ClientScope
from alipes.runtime.http.proxies import TlsTrust, is_loopback

with optional_library("Mail", "aiosmtplib", "email"):
    from alipes.platforms.email import send
    from alipes.platforms.email.send import EmailSender

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

    def __init__(self, messenger: Messenger[EmailConfig], imap: ImapClient, threads: MailThreads) -> None:
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


class EmailPlatform(Messenger[EmailConfig]):
    """Sends mail also while the mailbox cannot be read. Only the head of other people's mail is downloaded."""

    name, title = NAME, "Mail"
    capabilities = Capabilities(send.LONGEST, media=ALL_MEDIA)
    format_message = staticmethod(send.format_markdown)

    def __init__(self, settings: EmailConfig) -> None:
        super().__init__(settings)
        self._login = (settings.user or settings.address, settings.password.reveal())
        protected = {settings.imap[2], settings.smtp[2]} != {"none"}
        self._trust = TlsTrust(settings.ca_file or None).tls if protected else None
        self._sender = EmailSender(settings.smtp, self._login, self._trust)
        self._threads = MailThreads(settings.data_folder / "threads")

    async def listen(self, on_message: OnMessage, on_status: OnStatus) -> None:
        settings = self.settings
        async with open_imap(settings.imap, self._login, self._trust, within=settings.patience) as imap:
            receiver = EmailReceiver(self, imap, self._threads)
            await receiver.run(on_message, on_status)

    async def send(self, address: Address, part: MessagePart) -> str:
        ours = self.settings.address
        thread = await asyncio.to_thread(self._threads.find, address.chat, address.thread)
        mail = await asyncio.to_thread(send.build_mail, ours, address, thread, part)
        return await self._sender.send(ours, address.chat, mail)

    async def edit(self, address: Address, message: str, part: MessagePart) -> None:
        raise DeliveryError("Sent mail cannot be edited.")

    async def delete(self, address: Address, message: str) -> None:
        raise DeliveryError("Sent mail cannot be deleted.")

    async def typing(self, address: Address) -> None:
        """Mail has no typing indicator."""


def open_platform(settings: EmailConfig, scope: ClientScope) -> Platform:
    name, _, domain = settings.address.partition("@")
    if not name or not domain or not settings.address.isprintable() or " " in settings.address:
        raise ConfigError(f"email.address: {settings.address!r} is not a mail address.")
    for key, (host, _, security) in (("imap", settings.imap), ("smtp", settings.smtp)):
        if security == "none" and not is_loopback(host):
            raise ConfigError(
                f"email.{key}_security: `none` would send the password to {host} unencrypted; it is only "
                "allowed for servers on this machine."
            )
    return EmailPlatform(settings)
