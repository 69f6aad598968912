"""Connects to an IRC server: TLS, capabilities, SASL login and a free nick."""

import asyncio
import base64
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from alipes.kernel.errors import ConfigError, DeliveryError
from alipes.platforms.irc.connection import IrcConnection
from alipes.platforms.irc.protocol import IrcLine
from alipes.platforms.settings import IrcSettings
from alipes.runtime.http.proxies import TlsTrust

log = logging.getLogger(__name__)

REQUESTED_CAPABILITIES = ("message-tags", "account-tag", "server-time")
CHUNK = 400
"""Characters of one AUTHENTICATE line."""
LIMIT = 1 << 16
CLOSE_TIMEOUT = 1.0
_TAKEN = ("433", "436", "437")
_LOGIN_FAILED = ("902", "904", "905", "906", "908")


@asynccontextmanager
async def open_irc_connection(settings: IrcSettings) -> AsyncIterator[IrcConnection]:
    """A connection that is logged in. Raises ConfigError for wrong settings, otherwise DeliveryError."""
    tls = TlsTrust(settings.ca_file or None).tls if settings.tls else None
    try:
        async with asyncio.timeout(settings.patience):
            reader, writer = await asyncio.open_connection(settings.host, settings.port, ssl=tls, limit=LIMIT)
    except (OSError, TimeoutError) as error:
        where = f"{settings.host}:{settings.port}"
        raise DeliveryError(f"The IRC server {where} cannot be reached ({error or 'no answer'}).") from error
    connection = IrcConnection(reader, writer, settings.nick)
    try:
        await _enter(connection, settings)
        yield connection
    finally:
        connection.write("QUIT", "bye")
        writer.close()
        with suppress(OSError, TimeoutError):
            async with asyncio.timeout(CLOSE_TIMEOUT):
                await writer.wait_closed()


async def _enter(connection: IrcConnection, settings: IrcSettings) -> None:
    try:
        async with asyncio.timeout(settings.patience):
            await _Registration(connection, settings).run()
    except TimeoutError as error:
        raise DeliveryError(f"The IRC server did not accept the login within {settings.patience:.0f} s.") from error


class _Registration:
    """The registration handshake."""

    def __init__(self, connection: IrcConnection, settings: IrcSettings) -> None:
        self._session, self._settings = connection, settings
        self._offered: dict[str, str] = {}
        self._tries = 0

    async def run(self) -> None:
        connection, settings = self._session, self._settings
        password = settings.password.reveal()
        connection.write("CAP", "LS", "302")
        knows = await self._list_capabilities()
        login = bool(password) and "sasl" in self._offered
        if password and not login:
            connection.write("PASS", password)
        connection.write("NICK", connection.nick)
        connection.write("USER", "alipes", "0", "*", "alipes")
        if knows:
            await self._request([*REQUESTED_CAPABILITIES, *(["sasl"] if login else [])])
            if login:
                await self._log_in(settings.nick, password)
            connection.write("CAP", "END")
        while (line := await connection.next()).command != "001":
            self._handle(line)
        connection.nick = line.params[0] if line.params else connection.nick
        connection.source = f"{connection.nick}!{connection.source.partition('!')[2]}"
        connection.write("USERHOST", connection.nick)

    async def _list_capabilities(self) -> bool:
        """Request the capabilities. Returns False if the server does not know CAP."""
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
                            self._handle(line)
        except TimeoutError:
            return False  # it may wait for our nick first

    async def _request(self, wanted: list[str]) -> None:
        for name in wanted:
            if name in self._offered:
                self._session.write("CAP", "REQ", name)
                line = await self._until("CAP")
                if line.params[1:2] == ("ACK",):
                    self._session.features.add(name)

    async def _log_in(self, account: str, password: str) -> None:
        mechanisms = self._offered["sasl"].upper().split(",")
        if mechanisms != [""] and "PLAIN" not in mechanisms:
            raise ConfigError(f"The IRC server does not support password logins (only {', '.join(mechanisms)}).")
        if "sasl" not in self._session.features:
            raise DeliveryError("The IRC server does not accept logins at the moment.")
        self._session.write("AUTHENTICATE", "PLAIN")
        await self._until("AUTHENTICATE")
        secret = base64.b64encode(f"{account}\0{account}\0{password}".encode()).decode()
        for at in range(0, len(secret), CHUNK):
            self._session.write("AUTHENTICATE", secret[at : at + CHUNK])
        if len(secret) % CHUNK == 0:
            self._session.write("AUTHENTICATE", "+")
        await self._until("903")

    async def _until(self, command: str) -> IrcLine:
        while (line := await self._session.next()).command != command:
            self._handle(line)
        return line

    def _handle(self, line: IrcLine) -> None:
        connection, settings = self._session, self._settings
        if line.command in _TAKEN:
            self._tries += 1
            connection.nick = f"{settings.nick}{'_' * self._tries}"
            if self._tries > 3:
                connection.nick = f"{settings.nick[:20]}{self._tries}"
            log.info("the nick %s is taken; trying %s", line.params[1:2], connection.nick)
            connection.write("NICK", connection.nick)
        elif line.command in ("431", "432"):
            raise ConfigError(f"The IRC server rejects the nick {settings.nick!r}: {line.last}.")
        elif line.command in _LOGIN_FAILED:
            raise ConfigError(f"The IRC server does not accept our password for {settings.nick!r}: {line.last}.")
        elif line.command == "464":
            raise ConfigError(f"The IRC server requires another password: {line.last}.")
        elif line.command == "465":
            raise ConfigError(f"The IRC server has banned us: {line.last}.")
