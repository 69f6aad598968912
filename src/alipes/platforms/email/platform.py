"""The messenger port on mail: one connection to the mailbox per `listen`, one to the smarthost per mail."""

import asyncio

from alipes.kernel.errors import DeliveryError
from alipes.kernel.platform import Piece, Take, Talents, Tell, Welcome
from alipes.kernel.turns import Address
from alipes.platforms.email import send
from alipes.platforms.email.imap import open_imap
from alipes.platforms.email.parse import NAME
from alipes.platforms.email.receive import Listening
from alipes.platforms.email.send import Post
from alipes.platforms.email.settings import EmailSettings
from alipes.platforms.email.threads import Threads
from alipes.platforms.files import anyone
from alipes.runtime.http.proxies import Trust


class Email:
    """Mail can be sent also while the mailbox cannot be read."""

    name = NAME
    talents = Talents(longest=send.LONGEST, media=("image", "audio", "voice", "video", "file"))

    def __init__(self, settings: EmailSettings) -> None:
        self._settings = settings
        self._login = (settings.user, settings.password.reveal())
        protected = {settings.imap[2], settings.smtp[2]} != {"none"}
        self._trust = Trust(settings.ca_file or None).tls if protected else None
        self._post = Post(settings.smtp, self._login, self._trust)
        self._threads = Threads(settings.folder / "threads")
        self._welcome: Welcome = anyone
        self._commands: frozenset[str] = frozenset()

    def fetch_only_for(self, welcome: Welcome) -> None:
        """Of mail from others only the head is fetched."""
        self._welcome = welcome

    async def listen(self, take: Take, tell: Tell) -> None:
        settings = self._settings
        async with open_imap(settings.imap, self._login, self._trust, within=settings.patience) as imap:
            listening = Listening(imap, settings.folder, self._threads, settings.address)
            listening.authenticated, listening.server = settings.trust == "authenticated", settings.authserv
            listening.welcome, listening.commands = self._welcome, lambda: self._commands
            await listening.run(settings.mailbox, take, lambda: tell("ready", ""), renew=settings.renew)

    def pieces(self, text: str) -> tuple[Piece, ...]:
        return send.pieces(text)

    async def send(self, address: Address, piece: Piece) -> str:
        ours = self._settings.address
        thread = await asyncio.to_thread(self._threads.find, address.chat, address.thread)
        mail = await asyncio.to_thread(send.mail, ours, address, thread, piece)
        return await self._post.send(ours, address.chat, mail)

    async def edit(self, address: Address, message: str, piece: Piece) -> None:
        raise DeliveryError("A mail that was sent stays as it is.")

    async def delete(self, address: Address, message: str) -> None:
        raise DeliveryError("A mail that was sent cannot be taken back.")

    async def typing(self, address: Address) -> None:
        """Mail shows nobody who types."""

    async def menu(self, commands: tuple[tuple[str, str], ...]) -> None:
        self._commands = frozenset(name for name, _ in commands)
