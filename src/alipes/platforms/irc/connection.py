"""One connection to an IRC server that let us in: read, answered, kept alive, asked. It knows no gateway."""

import asyncio
import itertools
import logging
import re
from collections.abc import Callable
from contextlib import suppress
from typing import TypeAlias

from msgspec import Struct

from alipes.kernel.errors import DeliveryError
from alipes.platforms.irc.protocol import Line, fold, parse_line, written

log = logging.getLogger(__name__)
Hear: TypeAlias = Callable[[Line], None]

TRUSTED = 30.0
"""Seconds that somebody is taken for who they were when we last heard."""
_REFUSALS = re.compile(r"40[1345678]|41[1234]|437|442|477|48[69]|49[24]|531|71[67]")
_UNJOINABLE = re.compile(r"40[357]|437|47[134567]|489|520")
_UNKNOWN = "x" * 63
"""As long as a host can be."""


class Met(Struct, frozen=True):
    """What the server says of a person."""

    source: str = ""
    """`nick!user@host`; empty: there is nobody of that name."""
    account: str = ""


class Refused(Exception):
    """The server does not pass on what we said; its words."""


class Session:
    """`serve` reads until the connection ends; meanwhile others ask and speak."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, nick: str) -> None:
        self._reader, self._writer = reader, writer
        self.nick = nick
        self.source = f"{nick}!~alipes@{_UNKNOWN}"
        """How the server shows us to others; a guess on the long side until it was told."""
        self._shown = asyncio.Event()
        self.features: set[str] = set()
        """What the server granted us of its capabilities."""
        self.joined: set[str] = set()
        self.hear: Hear = lambda _line: None
        self.left: Callable[[str], None] = lambda _nick: None
        """Called when somebody is not there any more, or not under this name."""
        self.ended = ""
        """Why the connection is over; empty: it is not."""
        self._loop = asyncio.get_running_loop()
        self._heard = self._loop.time()
        self._numbers = itertools.count(1)
        self._pongs: dict[str, asyncio.Event] = {}
        self._whois: dict[str, tuple[list[Met], asyncio.Event]] = {}
        self._refusal: tuple[str, list[Line]] = ("", [])
        self._told: set[str] = set()
        """Why we are not let in somewhere; it is tried again and again, and said once."""

    def write(self, command: str, *params: str) -> None:
        if not self.ended:
            self._writer.write(written(command, *params))

    async def next(self) -> Line:
        """The next line; questions whether we live are answered on the way."""
        while True:
            try:
                raw = await self._reader.readuntil(b"\n")
            except asyncio.LimitOverrunError as long:
                await self._reader.readexactly(long.consumed)
                continue
            except (asyncio.IncompleteReadError, OSError) as broken:
                raise DeliveryError(f"The connection to the IRC server broke ({_why(broken)}).") from broken
            self._heard = self._loop.time()
            line = parse_line(raw)
            if line.command == "PING":
                self.write("PONG", line.last)
            elif line.command == "ERROR":
                raise DeliveryError(f"The IRC server ended the connection: {line.last}.")
            elif line.command:
                return line

    async def serve(self, tell: Callable[[], None]) -> None:
        """Returns by raising alone. `tell` is called with each sign of life."""
        try:
            while True:
                line = await self.next()
                tell()
                self._take(line)
        except DeliveryError as error:
            self.ended = str(error)
            raise
        finally:
            self.ended = self.ended or "We left."
            for event in (self._shown, *self._pongs.values(), *(told for _, told in self._whois.values())):
                event.set()

    async def live(self, quiet: float, mend: Callable[[], None]) -> None:
        """Ask whether the server lives whenever it was quiet; raise when it does not answer."""
        while True:
            await asyncio.sleep(quiet)
            silent = self._loop.time() - self._heard
            if silent >= 1.9 * quiet:
                self._writer.transport.abort()
                raise DeliveryError(f"Nothing was heard from the IRC server for {silent:.0f} s.")
            self.write("PING", "alive")
            mend()

    async def introduced(self, within: float) -> None:
        """Return when the server said how it shows us to others, or after a while: it was asked."""
        with suppress(TimeoutError):
            async with asyncio.timeout(within):
                await self._shown.wait()
        self._shown.set()

    async def passed(self, target: str, lines: list[str], within: float) -> None:
        """Say `lines` to `target`; returns once the server took them. One caller at a time.

        Nothing confirms a line on IRC, but servers do one thing after the other: what we asked
        behind it is answered after it was passed on or refused. Raises `Refused`, DeliveryError.
        """
        if self.ended:
            raise DeliveryError(f"IRC is not connected: {self.ended}")
        token = f"said-{next(self._numbers)}"
        answered = self._pongs[token] = asyncio.Event()
        refused: list[Line] = []
        self._refusal = (fold(target), refused)
        try:
            for line in lines:
                self.write("PRIVMSG", target, line)
            self.write("PING", token)
            async with asyncio.timeout(within):
                await self._writer.drain()
                await answered.wait()
        except (TimeoutError, OSError) as lost:
            raise DeliveryError("The IRC server does not say whether it took it.", uncertain=True) from lost
        finally:
            del self._pongs[token]
            self._refusal = ("", [])
        if refused:
            raise Refused(f"{refused[0].command} {refused[0].last}")
        if self.ended:
            raise DeliveryError(
                f"The connection to the IRC server ended meanwhile: {self.ended}", uncertain=True
            )

    async def whois(self, nick: str, within: float) -> Met:
        """Who bears the name now. Raises DeliveryError."""
        name = fold(nick)
        if name not in self._whois:
            self._whois[name] = ([Met()], asyncio.Event())
            self.write("WHOIS", nick)
        found, told = self._whois[name]
        try:
            async with asyncio.timeout(within):
                await told.wait()
        except TimeoutError as late:
            raise DeliveryError(f"The IRC server does not say who {nick} is.") from late
        finally:
            self._whois.pop(name, None)
        if self.ended:
            raise DeliveryError(f"IRC is not connected: {self.ended}")
        return found[0]

    def _take(self, line: Line) -> None:
        match line.command:
            case "PONG":
                if (event := self._pongs.get(line.last)) is not None:
                    event.set()
            case "311" | "318" | "330" if len(line.params) > 2:
                self._introduce(line)
            case "302" | "396":
                self._seen_as(line)
            case "NICK" | "JOIN" | "PART" | "KICK" | "QUIT":
                self._moved(line)
            case command if _REFUSALS.fullmatch(command) or _UNJOINABLE.fullmatch(command):
                self._refused(line)
            case "PRIVMSG":
                self.hear(line)

    def _refused(self, line: Line) -> None:
        about, refused = self._refusal
        if about and len(line.params) > 1 and fold(line.params[1]) == about:
            refused.append(line)
        elif _UNJOINABLE.fullmatch(line.command) and (why := " ".join(line.params[1:])) not in self._told:
            self._told.add(why)
            log.warning("the IRC server does not let us in there: %s", why)

    def _introduce(self, line: Line) -> None:
        """Parts of an answer to WHOIS."""
        about = self._whois.get(fold(line.params[1]))
        if about is None:
            return
        found, told = about
        match line.command, line.params:
            case "311", (_, nick, user, host, *_):
                found[0] = Met(f"{nick}!{user}@{host}", found[0].account)
            case "330", (_, _, account, *_):
                found[0] = Met(found[0].source, account)
            case "318", _:
                told.set()

    def _seen_as(self, line: Line) -> None:
        """`302`: what USERHOST says of us; `396`: the server hides our host from now on."""
        host = line.last.strip().partition("=")[2].lstrip("+-")
        if line.command == "302":
            self.source = f"{self.nick}!{host}" if "@" in host else self.source
            self._shown.set()
        elif line.command == "396" and len(line.params) > 1:
            user = self.source.partition("!")[2].partition("@")[0]
            shown = line.params[1] if "@" in line.params[1] else f"{user}@{line.params[1]}"
            self.source = f"{self.nick}!{shown}"

    def _moved(self, line: Line) -> None:
        mine = fold(line.nick) == fold(self.nick)
        if line.command in ("NICK", "QUIT") and not mine:
            self.left(line.nick)
        where = fold(line.params[0]) if line.params else ""
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
            case "KICK" if len(line.params) > 1 and fold(line.params[1]) == fold(self.nick):
                self.joined.discard(where)
                log.warning("we were sent out of %s by %s: %s", where, line.nick, line.last)


def _why(broken: Exception) -> str:
    return "it was closed" if isinstance(broken, asyncio.IncompleteReadError) else str(broken)
