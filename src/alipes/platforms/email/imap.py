"""A small IMAP client: log in, search, fetch, and wait for new mail."""

import asyncio
import base64
import itertools
import re
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from msgspec import Struct

from alipes.kernel.errors import ConfigError, DeliveryError
from alipes.platforms.email.settings import Security

MAX_LINE_BYTES = 1 << 20
CLOSE_TIMEOUT = 1.0
_MORE = re.compile(r"\* \d+ (?:EXISTS|RECENT)\b", re.IGNORECASE)
_LITERAL = re.compile(rb"\{(\d+)\}\r\n\Z")


class ImapReply(Struct, frozen=True):
    """One line of the server: its text and the literals in it."""

    text: str
    blocks: tuple[bytes, ...] = ()


class FetchedMail(Struct, frozen=True):
    uid: int
    size: int
    content: bytes


class ImapClient:
    """Runs one command at a time. Raises DeliveryError when the connection is broken."""

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, within: float, largest: int
    ) -> None:
        self._reader, self._writer = reader, writer
        self._within, self._largest = within, largest
        self._numbers = itertools.count(1)
        self.capabilities: frozenset[str] = frozenset()
        self._has_news = False
        """True if the server announced mail since the last search."""

    async def log_in(self, user: str, password: str, *, tls: tuple[ssl.SSLContext, str] | None) -> None:
        """Read the greeting, start TLS if wanted (`tls`: context and host name), and log in."""
        greeting = await self._next_reply()
        if not greeting.text.startswith(("* OK", "* PREAUTH")):
            raise DeliveryError(f"The mail server refused the connection: {greeting.text}")
        if tls is not None:
            await self.run_command("STARTTLS")
            await self._writer.start_tls(tls[0], server_hostname=tls[1])
        await self._ask_capabilities()
        if "LOGINDISABLED" in self.capabilities:
            raise ConfigError("The mail server refuses logins without TLS: set email.imap_security.")
        if "AUTH=PLAIN" in self.capabilities:
            secret = base64.b64encode(f"\0{user}\0{password}".encode()).decode()
            status, _ = await self._run("AUTHENTICATE PLAIN", more=secret)
        else:
            status, _ = await self._run(f"LOGIN {_quoted(user)} {_quoted(password)}")
        if status.startswith("NO") and "[UNAVAILABLE]" not in status.upper():
            raise ConfigError(f"The mail server does not accept our password for {user} ({status[3:]}).")
        if not status.startswith("OK"):
            raise DeliveryError(f"The mail server rejected the login: {status}")
        await self._ask_capabilities()

    async def select(self, mailbox: str) -> tuple[int, int]:
        """UIDVALIDITY of a mailbox, and the UID of its next mail."""
        status, replies = await self._run(f"SELECT {_quoted(_utf7(mailbox))}")
        if not status.startswith("OK"):
            raise ConfigError(f"There is no folder {mailbox!r} in the mailbox (email.folder): {status}")
        text = "\n".join(each.text for each in replies)
        validity, following = re.search(r"\[UIDVALIDITY (\d+)\]", text), re.search(r"\[UIDNEXT (\d+)\]", text)
        if following:
            return int(validity[1]) if validity else 0, int(following[1])
        every = await self.search("ALL")
        return int(validity[1]) if validity else 0, max(every, default=0) + 1

    async def search(self, what: str) -> list[int]:
        """UIDs, oldest first."""
        self._has_news = False
        replies = await self.run_command(f"UID SEARCH {what}")
        found = [each.text.split()[2:] for each in replies if each.text.upper().startswith("* SEARCH")]
        return sorted({int(uid) for uids in found for uid in uids if uid.isdigit()})

    async def fetch(self, uid: int, part: str) -> FetchedMail | None:
        """`part`, such as `BODY.PEEK[HEADER]`; None: the mail no longer exists."""
        replies = await self.run_command(f"UID FETCH {uid} (UID RFC822.SIZE {part})")
        for reply in replies:
            its = re.search(r"\bUID (\d+)", reply.text)
            size = re.search(r"\bRFC822\.SIZE (\d+)", reply.text)
            if its and int(its[1]) == uid and size:
                return FetchedMail(uid, int(size[1]), reply.blocks[0] if reply.blocks else b"")
        return None

    async def mark_seen(self, uid: int) -> None:
        """Mark a mail as seen, for people who look into the mailbox; the server may refuse."""
        await self._run(f"UID STORE {uid} +FLAGS.SILENT (\\Seen)")

    async def wait_for_mail(self, seconds: float) -> None:
        """Return when there may be new mail, or after `seconds`; the connection was checked by then."""
        if self._has_news:  # announced during another command, and not announced again
            return
        if "IDLE" not in self.capabilities:
            await asyncio.sleep(seconds)
            await self.run_command("NOOP")
            return
        tag = self._write("IDLE")
        while not (said := (await self._next_reply()).text).startswith("+"):
            if said.startswith(tag):
                raise DeliveryError(f"The mail server does not announce new mail: {said}")
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while not self._has_news:
                    await self._next_reply(limit=False)
        self._writer.write(b"DONE\r\n")
        await self._read_until(tag)

    async def run_command(self, command: str) -> list[ImapReply]:
        status, replies = await self._run(command)
        if not status.startswith("OK"):
            raise DeliveryError(f"The mail server rejected {command.split()[0]}: {status}")
        return replies

    async def _ask_capabilities(self) -> None:
        replies = await self.run_command("CAPABILITY")
        words = [each.text.upper().split()[2:] for each in replies if each.text.upper().startswith("* CAPABILITY")]
        self.capabilities = frozenset(word for each in words for word in each)

    async def _run(self, command: str, more: str = "") -> tuple[str, list[ImapReply]]:
        """Final status and the lines before it. `more` is sent when the server asks to continue."""
        return await self._read_until(self._write(command), more)

    def _write(self, command: str) -> str:
        tag = f"a{next(self._numbers)}"
        self._writer.write(f"{tag} {command}\r\n".encode())
        return tag

    async def _read_until(self, tag: str, more: str = "") -> tuple[str, list[ImapReply]]:
        replies: list[ImapReply] = []
        while True:
            reply = await self._next_reply()
            if reply.text.startswith(f"{tag} "):
                return reply.text.removeprefix(f"{tag} "), replies
            if reply.text.startswith("+"):
                self._writer.write(more.encode() + b"\r\n")
                more = "*"
            replies.append(reply)

    async def _next_reply(self, *, limit: bool = True) -> ImapReply:
        try:
            async with asyncio.timeout(self._within if limit else None):
                reply = await self._read()
        except TimeoutError as late:
            if not limit:
                raise  # the caller's timeout
            raise DeliveryError(f"The mail server sent nothing for {self._within:.0f} s.") from late
        except (OSError, EOFError, asyncio.LimitOverrunError) as broken:
            why = "it was closed" if isinstance(broken, EOFError) else str(broken)
            raise DeliveryError(f"The connection to the mail server broke ({why}).") from broken
        self._has_news = self._has_news or bool(_MORE.match(reply.text))
        if reply.text.upper().startswith("* BYE"):
            raise DeliveryError(f"The mail server ended the connection: {reply.text[6:]}")
        return reply

    async def _read(self) -> ImapReply:
        text, blocks = b"", list[bytes]()
        while True:
            line = await self._reader.readuntil(b"\r\n")
            announced = _LITERAL.search(line)
            text += line[: announced.start()] if announced else line
            if announced is None:
                return ImapReply(text.decode("utf-8", "replace").strip(), tuple(blocks))
            size = int(announced[1])
            if size > self._largest:
                raise DeliveryError(f"The mail server sends too much at once ({size:,} bytes).")
            blocks.append(await self._reader.readexactly(size))


def _quoted(text: str) -> str:
    clean = re.sub(r"[\r\n\0]", "", text).replace("\\", "\\\\").replace('"', '\\"')
    return f'"{clean}"'


def _utf7(name: str) -> str:
    """Encode a folder name in IMAP's UTF-7."""

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
) -> AsyncIterator[ImapClient]:
    """A connection that is logged in with name and password. Raises ConfigError and DeliveryError."""
    host, port, security = where
    straight = trust if security == "tls" else None
    try:
        async with asyncio.timeout(within):
            reader, writer = await asyncio.open_connection(host, port, ssl=straight, limit=MAX_LINE_BYTES)
    except (OSError, TimeoutError) as error:
        why = error or "no answer"
        raise DeliveryError(f"The mail server {host}:{port} cannot be reached ({why}).") from error
    try:
        imap = ImapClient(reader, writer, within=within, largest=largest)
        later = (trust, host) if security == "starttls" and trust is not None else None
        try:
            await imap.log_in(*login, tls=later)
        except (OSError, EOFError) as error:  # such as an untrusted certificate
            raise DeliveryError(f"TLS with {host}:{port} failed ({error}).") from error
        yield imap
    finally:
        with suppress(OSError, TimeoutError):
            writer.write(b"z LOGOUT\r\n")
            writer.close()
            async with asyncio.timeout(CLOSE_TIMEOUT):
                await writer.wait_closed()
