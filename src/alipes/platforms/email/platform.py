"""Mail as a platform: one IMAP connection per `listen`, one SMTP connection per mail."""

import asyncio

from alipes.kernel.errors import DeliveryError
from alipes.kernel.platform import Capabilities, MayFetch, MessagePart, OnMessage, OnStatus
from alipes.kernel.turns import Address
from alipes.platforms.email import send
from alipes.platforms.email.imap import open_imap
from alipes.platforms.email.parse import NAME
from alipes.platforms.email.receive import EmailReceiver
from alipes.platforms.email.send import EmailSender
from alipes.platforms.email.settings import EmailSettings
from alipes.platforms.email.threads import MailThreads
from alipes.platforms.files import fetch_for_anyone
from alipes.runtime.http.proxies import TlsTrust


class EmailPlatform:
    """Sends mail also while the mailbox cannot be read."""

    name = NAME
    capabilities = Capabilities(max_length=send.LONGEST, media=("image", "audio", "voice", "video", "file"))

    def __init__(self, settings: EmailSettings) -> None:
        self._settings = settings
        self._login = (settings.user, settings.password.reveal())
        protected = {settings.imap[2], settings.smtp[2]} != {"none"}
        self._trust = TlsTrust(settings.ca_file or None).tls if protected else None
        self._sender = EmailSender(settings.smtp, self._login, self._trust)
        self._threads = MailThreads(settings.folder / "threads")
        self._may_fetch: MayFetch = fetch_for_anyone
        self._commands: frozenset[str] = frozenset()

    def set_fetch_policy(self, may_fetch: MayFetch) -> None:
        """Only the head of other people's mail is downloaded."""
        self._may_fetch = may_fetch

    async def listen(self, on_message: OnMessage, on_status: OnStatus) -> None:
        settings = self._settings
        async with open_imap(settings.imap, self._login, self._trust, within=settings.patience) as imap:
            receiver = EmailReceiver(imap, settings.folder, self._threads, settings.address)
            receiver.authenticated, receiver.server = settings.trust == "authenticated", settings.authserv
            receiver.may_fetch, receiver.commands = self._may_fetch, lambda: self._commands
            await receiver.run(settings.mailbox, on_message, lambda: on_status("ready", ""), renew=settings.renew)

    def format_message(self, text: str) -> tuple[MessagePart, ...]:
        return send.format_markdown(text)

    async def send(self, address: Address, part: MessagePart) -> str:
        ours = self._settings.address
        thread = await asyncio.to_thread(self._threads.find, address.chat, address.thread)
        mail = await asyncio.to_thread(send.build_mail, ours, address, thread, part)
        return await self._sender.send(ours, address.chat, mail)

    async def edit(self, address: Address, message: str, part: MessagePart) -> None:
        raise DeliveryError("Sent mail cannot be edited.")

    async def delete(self, address: Address, message: str) -> None:
        raise DeliveryError("Sent mail cannot be deleted.")

    async def typing(self, address: Address) -> None:
        """Mail has no typing indicator."""

    async def set_commands(self, commands: tuple[tuple[str, str], ...]) -> None:
        self._commands = frozenset(name for name, _ in commands)
