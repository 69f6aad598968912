"""Mail as a surface: a real dovecot, an SMTP server that records mails, and `alipes serve`."""

import itertools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from email.message import EmailMessage
from pathlib import Path
from typing import ClassVar

from tests.conformance.no_edits import NO_DRAFTS, NoEditsMessenger, NoEditsRoom
from tests.conformance.surface import File
from tests.world.mail_server import OURS, SERVER, Dovecot, Smarthost, Writer

GUESTS = 120
PASSWORD = "open-sesame-7"


class Email(NoEditsMessenger):
    name = platform = "email"
    longest = 0
    remembers = False
    cannot: ClassVar = {
        "drafts": NO_DRAFTS,
        "groups": "a mail is answered only to its sender",
        "threads": "a thread is one person's conversation, not a group's (tests/unit/platforms/email/test_email.py)",
        "edits": "a sent mail cannot be changed",
        "menus": "there are none; /help lists the commands",
        "limits": "an SMTP server names no time to wait; rejections: tests/unit/platforms/email/test_send.py",
    }

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._guests = itertools.count(0)

    @asynccontextmanager
    async def world(self) -> AsyncIterator[None]:
        async with Dovecot(PASSWORD) as self.dovecot, Smarthost(password=PASSWORD) as self.smarthost:
            yield

    def settings(self) -> list[str]:
        (self.home.path / ".env").write_text(f"EMAIL_PASSWORD={PASSWORD}\n")
        (self.home.path / ".env").chmod(0o600)
        allowed = [f"guest{number}@example.org" for number in range(GUESTS)]
        return [
            "[email]",
            f'address = "{OURS}"',
            'imap_host = "127.0.0.1"',
            f"imap_port = {self.dovecot.imap}",
            'imap_security = "none"',
            f"smtp_port = {self.smarthost.port}",
            'smtp_security = "none"',
            f'authserv = "{SERVER}"',
            f"allow = {allowed}",
        ]

    async def room(self) -> "Correspondence":
        return Correspondence(self, f"guest{next(self._guests)}@example.org")

    async def stranger(self) -> "Correspondence":
        return Correspondence(self, f"stranger{next(self._guests)}@example.org")

    def asked(self, command: str) -> list[str]:
        why = "Approve? Why: a force-push can overwrite work on the remote."
        return [f"{why}\n\nterminal: {command}\nfolder: {self.workdir}\n\nAnswer yes (once), session or no, or always."]


class Correspondence(NoEditsRoom):
    """One thread with one person, who quotes nothing and signs with `-- `."""

    def __init__(self, surface: Email, address: str) -> None:
        self._surface, self.fake_model = surface, surface.fake_model
        self._writer = Writer(surface.dovecot, address)
        self._sent: dict[str, EmailMessage] = {}

    async def say(self, text: str, *, who: str = "", file: File | None = None) -> str:
        """As a reply to our last mail, or to their own first one."""
        mails = self._mails()
        first = next(iter(self._sent.values()), None)
        message = self._writer.compose(f"{text}\n-- \nYours", to=mails[-1] if mails else first)
        if file is not None:
            major, _, minor = file.mime.partition("/")
            message.add_attachment(file.data, maintype=major, subtype=minor, filename=file.name)
        self._sent[str(message["Message-ID"])] = message
        await self._writer.send(message)
        return str(message["Message-ID"])

    def _mails(self) -> list[EmailMessage]:
        return [mail for mail in self._surface.smarthost.sent if mail["To"] == self._writer.address]

    def seen(self) -> list[str]:
        bodies = [mail.get_body(("plain",)) for mail in self._mails()]
        texts = [body.get_content().replace("\r\n", "\n").strip() for body in bodies if body is not None]
        return [text for text in texts if text]

    async def repeat(self, message: str) -> None:
        await self._writer.send(self._sent[message])

    def files(self) -> list[tuple[str, bytes]]:
        attached = [part for mail in self._mails() for part in mail.iter_attachments()]
        return [(part.get_filename() or "", part.get_payload(decode=True)) for part in attached]  # type: ignore[misc]
