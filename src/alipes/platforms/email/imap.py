"""A mailbox over IMAP: so much of the protocol as it takes to fetch mail and to be told of more."""

import asyncio
import base64
import itertools
import re
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Literal, TypeAlias

from msgspec import Struct

from alipes.kernel.errors import ConfigError, DeliveryError

Security: TypeAlias = Literal["tls", "starttls", "none"]
LINE = 1 << 20
GOODBYE = 1.0
_MORE = re.compile(r"\* \d+ (?:EXISTS|RECENT)\b", re.IGNORECASE)
_LITERAL = re.compile(rb"\{(\d+)\}\r\n\Z")


class Reply(Struct, frozen=True):
    """One answer of the server: its text, and what it sent as a block inside it."""

    text: str
    blocks: tuple[bytes, ...] = ()


class Mail(Struct, frozen=True):
    uid: int
    size: int
    content: bytes


class Imap:
    """One command at a time. Raises DeliveryError when the connection is no good any more."""

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, within: float, largest: int
    ) -> None:
        self._reader, self._writer = reader, writer
        self._within, self._largest = within, largest
        self._numbers = itertools.count(1)
        self.capabilities: frozenset[str] = frozenset()
        self._more = False
        """We were told of mail since we last looked for some."""

    async def enter(self, user: str, password: str, *, tls: tuple[ssl.SSLContext, str] | None) -> None:
        """Past the greeting, protected by `tls` (a context, and the name it must prove) if wanted."""
        greeting = await self._reply()
        if not greeting.text.startswith(("* OK", "* PREAUTH")):
            raise DeliveryError(f"The mail server does not let us in: {greeting.text}")
        if tls is not None:
            await self.do("STARTTLS")
            await self._writer.start_tls(tls[0], server_hostname=tls[1])
        await self._ask_capabilities()
        if "LOGINDISABLED" in self.capabilities:
            raise ConfigError("The mail server wants no password on an unprotected way: email.imap_security.")
        if "AUTH=PLAIN" in self.capabilities:
            secret = base64.b64encode(f"\0{user}\0{password}".encode()).decode()
            status, _ = await self._ask("AUTHENTICATE PLAIN", more=secret)
        else:
            status, _ = await self._ask(f"LOGIN {_quoted(user)} {_quoted(password)}")
        if status.startswith("NO") and "[UNAVAILABLE]" not in status.upper():
            raise ConfigError(f"The mail server does not accept our password for {user} ({status[3:]}).")
        if not status.startswith("OK"):
            raise DeliveryError(f"The mail server does not let us log in: {status}")
        await self._ask_capabilities()

    async def select(self, mailbox: str) -> tuple[int, int]:
        """Its UIDVALIDITY, and the UID that the next mail will have."""
        status, told = await self._ask(f"SELECT {_quoted(_utf7(mailbox))}")
        if not status.startswith("OK"):
            raise ConfigError(f"There is no folder {mailbox!r} in the mailbox (email.folder): {status}")
        text = "\n".join(each.text for each in told)
        validity, following = re.search(r"\[UIDVALIDITY (\d+)\]", text), re.search(r"\[UIDNEXT (\d+)\]", text)
        if following:
            return int(validity[1]) if validity else 0, int(following[1])
        every = await self.search("ALL")
        return int(validity[1]) if validity else 0, max(every, default=0) + 1

    async def search(self, what: str) -> list[int]:
        """UIDs, the oldest first."""
        self._more = False
        told = await self.do(f"UID SEARCH {what}")
        found = [each.text.split()[2:] for each in told if each.text.upper().startswith("* SEARCH")]
        return sorted({int(uid) for uids in found for uid in uids if uid.isdigit()})

    async def fetch(self, uid: int, part: str) -> Mail | None:
        """`part`, as in `BODY.PEEK[HEADER]`; None: it is not there any more."""
        told = await self.do(f"UID FETCH {uid} (UID RFC822.SIZE {part})")
        for reply in told:
            its = re.search(r"\bUID (\d+)", reply.text)
            size = re.search(r"\bRFC822\.SIZE (\d+)", reply.text)
            if its and int(its[1]) == uid and size:
                return Mail(uid, int(size[1]), reply.blocks[0] if reply.blocks else b"")
        return None

    async def mark_seen(self, uid: int) -> None:
        """A sign for people who look into the mailbox; a server that does not want it may refuse."""
        await self._ask(f"UID STORE {uid} +FLAGS.SILENT (\\Seen)")

    async def news(self, seconds: float) -> None:
        """Return when there may be something new, or after so many seconds; the server answered by then."""
        if self._more:  # it said so while it answered something else, and does not say it again
            return
        if "IDLE" not in self.capabilities:
            await asyncio.sleep(seconds)
            await self.do("NOOP")
            return
        tag = self._say("IDLE")
        while not (said := (await self._reply()).text).startswith("+"):
            if said.startswith(tag):
                raise DeliveryError(f"The mail server does not tell of new mail: {said}")
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while not self._more:
                    await self._reply(limit=False)
        self._writer.write(b"DONE\r\n")
        await self._until(tag)

    async def do(self, command: str) -> list[Reply]:
        status, told = await self._ask(command)
        if not status.startswith("OK"):
            raise DeliveryError(f"The mail server refuses {command.split()[0]}: {status}")
        return told

    async def _ask_capabilities(self) -> None:
        told = await self.do("CAPABILITY")
        words = [
            each.text.upper().split()[2:] for each in told if each.text.upper().startswith("* CAPABILITY")
        ]
        self.capabilities = frozenset(word for each in words for word in each)

    async def _ask(self, command: str, more: str = "") -> tuple[str, list[Reply]]:
        """How it ended, and what was told before. `more` is said when the server asks for it."""
        return await self._until(self._say(command), more)

    def _say(self, command: str) -> str:
        tag = f"a{next(self._numbers)}"
        self._writer.write(f"{tag} {command}\r\n".encode())
        return tag

    async def _until(self, tag: str, more: str = "") -> tuple[str, list[Reply]]:
        told: list[Reply] = []
        while True:
            reply = await self._reply()
            if reply.text.startswith(f"{tag} "):
                return reply.text.removeprefix(f"{tag} "), told
            if reply.text.startswith("+"):
                self._writer.write(more.encode() + b"\r\n")
                more = "*"
            told.append(reply)

    async def _reply(self, *, limit: bool = True) -> Reply:
        try:
            async with asyncio.timeout(self._within if limit else None):
                reply = await self._read()
        except TimeoutError as late:
            if not limit:
                raise  # it is another's
            raise DeliveryError(f"The mail server said nothing for {self._within:.0f} s.") from late
        except (OSError, EOFError, asyncio.LimitOverrunError) as broken:
            why = "it was closed" if isinstance(broken, EOFError) else str(broken)
            raise DeliveryError(f"The connection to the mail server broke ({why}).") from broken
        self._more = self._more or bool(_MORE.match(reply.text))
        if reply.text.upper().startswith("* BYE"):
            raise DeliveryError(f"The mail server ended the connection: {reply.text[6:]}")
        return reply

    async def _read(self) -> Reply:
        text, blocks = b"", list[bytes]()
        while True:
            line = await self._reader.readuntil(b"\r\n")
            announced = _LITERAL.search(line)
            text += line[: announced.start()] if announced else line
            if announced is None:
                return Reply(text.decode("utf-8", "replace").strip(), tuple(blocks))
            size = int(announced[1])
            if size > self._largest:
                raise DeliveryError(f"The mail server wants to send {size:,} bytes at once.")
            blocks.append(await self._reader.readexactly(size))


def _quoted(text: str) -> str:
    clean = re.sub(r"[\r\n\0]", "", text).replace("\\", "\\\\").replace('"', '\\"')
    return f'"{clean}"'


def _utf7(name: str) -> str:
    """As IMAP writes the names of folders."""

    def shifted(match: re.Match[str]) -> str:
        raw = base64.b64encode(match[0].encode("utf-16-be")).decode().rstrip("=")
        return f"&{raw.replace('/', ',')}-"

    return re.sub(r"[^\x20-\x7e]+", shifted, name.replace("&", "&-"))


@asynccontextmanager
async def open_imap(
    where: tuple[str, int, Security],
    login: tuple[str, str],
    trust: ssl.SSLContext | None,
    *,
    within: float = 30.0,
    largest: int = 60_000_000,
) -> AsyncIterator[Imap]:
    """A mailbox that we are logged in to (name and password). Raises ConfigError, DeliveryError."""
    host, port, security = where
    straight = trust if security == "tls" else None
    try:
        async with asyncio.timeout(within):
            reader, writer = await asyncio.open_connection(host, port, ssl=straight, limit=LINE)
    except (OSError, TimeoutError) as error:
        why = error or "no answer"
        raise DeliveryError(f"The mail server {host}:{port} cannot be reached ({why}).") from error
    try:
        imap = Imap(reader, writer, within=within, largest=largest)
        later = (trust, host) if security == "starttls" and trust is not None else None
        try:
            await imap.enter(*login, tls=later)
        except (OSError, EOFError) as error:  # a certificate that is not believed
            raise DeliveryError(f"The way to {host}:{port} cannot be protected ({error}).") from error
        yield imap
    finally:
        with suppress(OSError, TimeoutError):
            writer.write(b"z LOGOUT\r\n")
            writer.close()
            async with asyncio.timeout(GOODBYE):
                await writer.wait_closed()
