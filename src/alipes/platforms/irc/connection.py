"""Connection to an IRC server: logs in, reads lines, answers pings, sends messages, asks WHOIS."""

import asyncio
import base64
import itertools
import logging
import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import TypeAlias

from msgspec import Struct

from alipes.kernel.errors import ConfigError, DeliveryError
from alipes.platforms.irc.protocol import IrcLine, encode_line, fold_name, parse_line
from alipes.platforms.irc.settings import IrcConfig
from alipes.runtime.http.proxies import TlsTrust

log = logging.getLogger(__name__)
OnLine: TypeAlias = Callable[[IrcLine], None]

IDENTITY_TTL = 30.0
"""Seconds that an identity is trusted without another check."""
_REFUSALS = re.compile(r"40[1345678]|41[1234]|437|442|477|48[69]|49[24]|531|71[67]")
_UNJOINABLE = re.compile(r"40[357]|437|47[134567]|489|520")
_UNKNOWN = "x" * 63
"""As long as a host can be."""


class WhoisResult(Struct, frozen=True):
    """What the server says about a person."""

    source: str = ""
    """`nick!user@host`; empty: nobody has this nick."""
    account: str = ""


class IrcRefused(Exception):
    """The server rejected a message; its words."""


class IrcConnection:
    """`serve` reads until the connection ends; meanwhile others send."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, nick: str) -> None:
        self._reader, self._writer = reader, writer
        self.nick = nick
        self.source = f"{nick}!~alipes@{_UNKNOWN}"
        """How the server shows us to others; a long guess until we know."""
        self._introduced = asyncio.Event()
        self.features: set[str] = set()
        """Capabilities that the server granted."""
        self.joined: set[str] = set()
        self.on_line: OnLine = lambda _line: None
        self.on_left: Callable[[str], None] = lambda _nick: None
        """Called with a nick that left or changed."""
        self.ended = ""
        """Why the connection ended; empty while it is open."""
        self._loop = asyncio.get_running_loop()
        self._last_line_at = self._loop.time()
        self._numbers = itertools.count(1)
        self._pongs: dict[str, asyncio.Event] = {}
        self._whois: dict[str, tuple[list[WhoisResult], asyncio.Event]] = {}
        self._refusal: tuple[str, list[IrcLine]] = ("", [])
        self._logged: set[str] = set()
        """Reasons for failed joins that were logged already."""

    def write(self, command: str, *params: str) -> None:
        if not self.ended:
            self._writer.write(encode_line(command, *params))

    async def next(self) -> IrcLine:
        """The next line. Pings are answered on the way."""
        while True:
            try:
                raw = await self._reader.readuntil(b"\n")
            except asyncio.LimitOverrunError as long:
                await self._reader.readexactly(long.consumed)
                continue
            except (asyncio.IncompleteReadError, OSError) as broken:
                why = "it was closed" if isinstance(broken, asyncio.IncompleteReadError) else broken
                raise DeliveryError(f"The connection to the IRC server broke ({why}).") from broken
            self._last_line_at = self._loop.time()
            line = parse_line(raw)
            if line.command == "PING":
                self.write("PONG", line.last)
            elif line.command == "ERROR":
                raise DeliveryError(f"The IRC server ended the connection: {line.last}.")
            elif line.command:
                return line

    async def serve(self, report_ready: Callable[[], None]) -> None:
        """Read until the connection ends, then raise why. `report_ready` is called for each line."""
        try:
            while True:
                line = await self.next()
                report_ready()
                self._handle_line(line)
        except DeliveryError as error:
            self.ended = str(error)
            raise
        finally:
            self.ended = self.ended or "We left."
            for event in (self._introduced, *self._pongs.values(), *(done for _, done in self._whois.values())):
                event.set()

    async def keep_alive(self, quiet: float, restore: Callable[[], None]) -> None:
        """Ping the server when it is silent; raise if it does not answer."""
        while True:
            await asyncio.sleep(quiet)
            silent = self._loop.time() - self._last_line_at
            if silent >= 1.9 * quiet:
                self._writer.transport.abort()
                raise DeliveryError(f"No data from the IRC server for {silent:.0f} s.")
            self.write("PING", "alive")
            restore()

    async def wait_introduced(self, within: float) -> None:
        """Wait shortly until the server reported how it shows us to others."""
        with suppress(TimeoutError):
            async with asyncio.timeout(within):
                await self._introduced.wait()
        self._introduced.set()

    async def send_lines(self, target: str, lines: list[str], within: float) -> None:
        """Send `lines` to `target`; returns once the server accepted them. One caller at a time.

        IRC confirms nothing, but servers answer in order: a ping sent after the lines is answered after
        they were accepted or rejected. Raises `IrcRefused` and DeliveryError.
        """
        if self.ended:
            raise DeliveryError(f"IRC is not connected: {self.ended}")
        token = f"said-{next(self._numbers)}"
        answered = self._pongs[token] = asyncio.Event()
        refused: list[IrcLine] = []
        self._refusal = (fold_name(target), refused)
        try:
            for line in lines:
                self.write("PRIVMSG", target, line)
            self.write("PING", token)
            async with asyncio.timeout(within):
                await self._writer.drain()
                await answered.wait()
        except (TimeoutError, OSError) as lost:
            raise DeliveryError("The IRC server did not confirm the message.", uncertain=True) from lost
        finally:
            del self._pongs[token]
            self._refusal = ("", [])
        if refused:
            raise IrcRefused(f"{refused[0].command} {refused[0].last}")
        if self.ended:
            raise DeliveryError(f"The connection to the IRC server ended: {self.ended}", uncertain=True)

    async def whois(self, nick: str, within: float) -> WhoisResult:
        """Who has a nick now. Raises DeliveryError."""
        name = fold_name(nick)
        if name not in self._whois:
            self._whois[name] = ([WhoisResult()], asyncio.Event())
            self.write("WHOIS", nick)
        found, done = self._whois[name]
        try:
            async with asyncio.timeout(within):
                await done.wait()
        except TimeoutError as late:
            raise DeliveryError(f"The IRC server did not answer a WHOIS for {nick}.") from late
        finally:
            self._whois.pop(name, None)
        if self.ended:
            raise DeliveryError(f"IRC is not connected: {self.ended}")
        return found[0]

    def _handle_line(self, line: IrcLine) -> None:
        match line.command:
            case "PONG":
                if (event := self._pongs.get(line.last)) is not None:
                    event.set()
            case "311" | "318" | "330" if len(line.params) > 2:
                self._on_whois(line)
            case "302" | "396":
                self._on_own_host(line)
            case "NICK" | "JOIN" | "PART" | "KICK" | "QUIT":
                self._on_membership(line)
            case command if _REFUSALS.fullmatch(command) or _UNJOINABLE.fullmatch(command):
                self._on_refused(line)
            case "PRIVMSG":
                self.on_line(line)

    def _on_refused(self, line: IrcLine) -> None:
        about, refused = self._refusal
        if about and len(line.params) > 1 and fold_name(line.params[1]) == about:
            refused.append(line)
        elif _UNJOINABLE.fullmatch(line.command) and (why := " ".join(line.params[1:])) not in self._logged:
            self._logged.add(why)
            log.warning("the IRC server rejected a join: %s", why)

    def _on_whois(self, line: IrcLine) -> None:
        about = self._whois.get(fold_name(line.params[1]))
        if about is None:
            return
        found, done = about
        match line.command, line.params:
            case "311", (_, nick, user, host, *_):
                found[0] = WhoisResult(f"{nick}!{user}@{host}", found[0].account)
            case "330", (_, _, account, *_):
                found[0] = WhoisResult(found[0].source, account)
            case "318", _:
                done.set()

    def _on_own_host(self, line: IrcLine) -> None:
        """`302`: answer to USERHOST; `396`: the server hides our host."""
        host = line.last.strip().partition("=")[2].lstrip("+-")
        if line.command == "302":
            self.source = f"{self.nick}!{host}" if "@" in host else self.source
            self._introduced.set()
        elif line.command == "396" and len(line.params) > 1:
            user = self.source.partition("!")[2].partition("@")[0]
            shown = line.params[1] if "@" in line.params[1] else f"{user}@{line.params[1]}"
            self.source = f"{self.nick}!{shown}"

    def _on_membership(self, line: IrcLine) -> None:
        mine = fold_name(line.nick) == fold_name(self.nick)
        if line.command in ("NICK", "QUIT") and not mine:
            self.on_left(line.nick)
        where = fold_name(line.params[0]) if line.params else ""
        match line.command:
            case "NICK" if mine:
                self.nick = line.last
                self.source = f"{self.nick}!{self.source.partition('!')[2]}"
            case "JOIN" if mine:
                self.joined.add(where)
                if "@" in line.source:
                    self.source = line.source
            case "PART" if mine:
                self.joined.discard(where)
            case "KICK" if len(line.params) > 1 and fold_name(line.params[1]) == fold_name(self.nick):
                self.joined.discard(where)
                log.warning("we were kicked from %s by %s: %s", where, line.nick, line.last)


REQUESTED_CAPABILITIES = ("message-tags", "account-tag", "server-time")
CHUNK = 400
"""Characters of one AUTHENTICATE line."""
LIMIT = 1 << 16
CLOSE_TIMEOUT = 1.0
_TAKEN = ("433", "436", "437")
_LOGIN_FAILED = ("902", "904", "905", "906", "908")


@asynccontextmanager
async def open_irc_connection(settings: IrcConfig) -> AsyncIterator[IrcConnection]:
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
        try:
            async with asyncio.timeout(settings.patience):
                await _Registration(connection, settings).run()
        except TimeoutError as error:
            raise DeliveryError(f"The IRC server did not accept the login within {settings.patience:.0f} s.") from error
        yield connection
    finally:
        connection.write("QUIT", "bye")
        writer.close()
        with suppress(OSError, TimeoutError):
            async with asyncio.timeout(CLOSE_TIMEOUT):
                await writer.wait_closed()


class _Registration:
    def __init__(self, connection: IrcConnection, settings: IrcConfig) -> None:
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
