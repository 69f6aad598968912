"""Mail as a platform: one IMAP connection per `listen`, one SMTP connection per mail."""

import asyncio

from alipes.kernel.errors import DeliveryError
from alipes.kernel.platform import Capabilities, MessagePart, OnMessage, OnStatus
from alipes.kernel.turns import Address
from alipes.platforms.email import send
from alipes.platforms.email.imap import open_imap
from alipes.platforms.email.parse import NAME
from alipes.platforms.email.receive import EmailReceiver
from alipes.platforms.email.send import EmailSender
from alipes.platforms.email.threads import MailThreads
from alipes.platforms.messenger import ALL_MEDIA, Messenger
from alipes.platforms.settings import EmailSettings
from alipes.runtime.http.proxies import TlsTrust


class EmailPlatform(Messenger[EmailSettings]):
    """Sends mail also while the mailbox cannot be read. Only the head of other people's mail is
    downloaded."""

    name, title = NAME, "Mail"
    capabilities = Capabilities(send.LONGEST, media=ALL_MEDIA)
    format_message = staticmethod(send.format_markdown)

    def __init__(self, settings: EmailSettings) -> None:
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
