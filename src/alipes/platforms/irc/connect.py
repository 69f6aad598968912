"""Entering an IRC network: connecting, capabilities, logging in, a free name; then it is a session."""

import asyncio
import base64
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING

from alipes.kernel.errors import ConfigError, DeliveryError
from alipes.platforms.irc.connection import Session
from alipes.platforms.irc.protocol import Line
from alipes.runtime.http.proxies import Trust

if TYPE_CHECKING:
    from alipes.platforms.irc.platform import IrcSettings

log = logging.getLogger(__name__)

WANTED = ("message-tags", "account-tag", "server-time")
CHUNK = 400
"""Letters of one line of AUTHENTICATE."""
LIMIT = 1 << 16
GOODBYE = 1.0
_TAKEN = ("433", "436", "437")
_LOGIN_FAILED = ("902", "904", "905", "906", "908")


@asynccontextmanager
async def open_session(settings: "IrcSettings") -> AsyncIterator[Session]:
    """A session that is welcome. Raises ConfigError for what the operator must mend, else DeliveryError."""
    tls = Trust(settings.ca_file or None).tls if settings.tls else None
    try:
        async with asyncio.timeout(settings.patience):
            reader, writer = await asyncio.open_connection(settings.host, settings.port, ssl=tls, limit=LIMIT)
    except (OSError, TimeoutError) as error:
        where = f"{settings.host}:{settings.port}"
        raise DeliveryError(f"The IRC server {where} cannot be reached ({error or 'no answer'}).") from error
    session = Session(reader, writer, settings.nick)
    try:
        await _enter(session, settings)
        yield session
    finally:
        session.write("QUIT", "bye")
        writer.close()
        with suppress(OSError, TimeoutError):
            async with asyncio.timeout(GOODBYE):
                await writer.wait_closed()


async def _enter(session: Session, settings: "IrcSettings") -> None:
    try:
        async with asyncio.timeout(settings.patience):
            await _Entering(session, settings).enter()
    except TimeoutError as error:
        raise DeliveryError(f"The IRC server did not let us in within {settings.patience:.0f} s.") from error


class _Entering:
    """The talk at the door, line by line."""

    def __init__(self, session: Session, settings: "IrcSettings") -> None:
        self._session, self._settings = session, settings
        self._offered: dict[str, str] = {}
        self._tries = 0

    async def enter(self) -> None:
        session, settings = self._session, self._settings
        password = settings.password.reveal()
        session.write("CAP", "LS", "302")
        knows = await self._capabilities()
        login = bool(password) and "sasl" in self._offered
        if password and not login:
            session.write("PASS", password)
        session.write("NICK", session.nick)
        session.write("USER", "alipes", "0", "*", "alipes")
        if knows:
            await self._ask_for([*WANTED, *(["sasl"] if login else [])])
            if login:
                await self._log_in(settings.nick, password)
            session.write("CAP", "END")
        while (line := await session.next()).command != "001":
            self._heed(line)
        session.nick = line.params[0] if line.params else session.nick
        session.source = f"{session.nick}!{session.source.partition('!')[2]}"
        session.write("USERHOST", session.nick)

    async def _capabilities(self) -> bool:
        """Does it know the word?"""
        try:
            async with asyncio.timeout(self._settings.patience / 3):
                while True:
                    line = await self._session.next()
                    match line.command, line.params:
                        case "CAP", (_, "LS", *more, last):
                            pairs = (each.partition("=") for each in last.split())
                            self._offered |= {name.lower(): value for name, _, value in pairs}
                            if "*" not in more:
                                return True
                        case (("421" | "451" | "462"), _):
                            return False
                        case _:
                            self._heed(line)
        except TimeoutError:
            return False  # it may wait for our name first

    async def _ask_for(self, wanted: list[str]) -> None:
        for name in wanted:
            if name in self._offered:
                self._session.write("CAP", "REQ", name)
                line = await self._until("CAP")
                if line.params[1:2] == ("ACK",):
                    self._session.features.add(name)

    async def _log_in(self, account: str, password: str) -> None:
        mechanisms = self._offered["sasl"].upper().split(",")
        if mechanisms != [""] and "PLAIN" not in mechanisms:
            raise ConfigError(
                f"The IRC server lets nobody log in with a password ({', '.join(mechanisms)} only)."
            )
        if "sasl" not in self._session.features:
            raise DeliveryError("The IRC server does not let us log in at the moment.")
        self._session.write("AUTHENTICATE", "PLAIN")
        await self._until("AUTHENTICATE")
        secret = base64.b64encode(f"{account}\0{account}\0{password}".encode()).decode()
        for at in range(0, len(secret), CHUNK):
            self._session.write("AUTHENTICATE", secret[at : at + CHUNK])
        if len(secret) % CHUNK == 0:
            self._session.write("AUTHENTICATE", "+")
        await self._until("903")

    async def _until(self, command: str) -> Line:
        while (line := await self._session.next()).command != command:
            self._heed(line)
        return line

    def _heed(self, line: Line) -> None:
        session, settings = self._session, self._settings
        if line.command in _TAKEN:
            self._tries += 1
            session.nick = f"{settings.nick}{'_' * self._tries}"
            if self._tries > 3:
                session.nick = f"{settings.nick[:20]}{self._tries}"
            log.info("the name %s is taken; we try %s", line.params[1:2], session.nick)
            session.write("NICK", session.nick)
        elif line.command in ("431", "432"):
            raise ConfigError(f"The IRC server does not take the nick {settings.nick!r}: {line.last}.")
        elif line.command in _LOGIN_FAILED:
            raise ConfigError(
                f"The IRC server does not accept our password for {settings.nick!r}: {line.last}."
            )
        elif line.command == "464":
            raise ConfigError(f"The IRC server does not accept the password, or wants one: {line.last}.")
        elif line.command == "465":
            raise ConfigError(f"The IRC server does not want us: {line.last}.")
