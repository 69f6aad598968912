"""IRC, as the gateway sees it: one connection per `listen`, whose end is told. The gateway connects anew."""

import asyncio
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Literal

from msgspec import Struct

from alipes.kernel.errors import ConfigError, DeliveryError
from alipes.kernel.models import Secret
from alipes.kernel.platform import Arrival, Piece, Platform, Take, Talents, Tell, Welcome
from alipes.kernel.turns import Address
from alipes.platforms.connection import Lanes
from alipes.platforms.irc import parse, protocol
from alipes.platforms.irc.connect import open_session
from alipes.platforms.irc.connection import Session
from alipes.platforms.irc.protocol import CTCP, Line, fold, is_channel
from alipes.platforms.irc.send import ANSWER, Speaker
from alipes.runtime.tasks import first

ANSWERS = 10
"""Letters of a word that may be an answer to a question of ours."""


class IrcSettings(Struct, frozen=True, kw_only=True):
    folder: Path
    """Where files that people send are kept; on IRC none are."""
    host: str
    port: int = 6697
    tls: bool = True
    nick: str = "alipes"
    channels: tuple[str, ...] = ()
    password: Secret = Secret()
    group: Literal["mention", "all"] = "mention"
    per_user: bool = False
    ca_file: str = ""
    pace: float = 0.5
    """Seconds between two lines, after the first five."""
    quiet: float = 30.0
    """Seconds of silence after which the server is asked whether it lives; after twice that it does not."""
    patience: float = 30.0
    """Seconds in which the server must let us in."""


def open_irc(settings: IrcSettings) -> Platform:
    """Nothing is connected before `listen`. Raises ConfigError."""
    odd = [each for each in settings.channels if not is_channel(each) or any(sign in each for sign in " ,\a")]
    if odd:
        raise ConfigError(
            f"irc.channels: {odd[0]!r} is no name of a channel; they begin with #, as in #house."
        )
    if not settings.nick or any(sign in settings.nick for sign in " !@:,*\r\n\0"):
        raise ConfigError(f"irc.nick: {settings.nick!r} cannot be a name on IRC.")
    return Irc(settings)


class Irc:
    """Sends while `listen` runs and the server has let us in."""

    name = parse.NAME
    talents = Talents(longest=protocol.MAX_PART_CHARS)

    def __init__(self, settings: IrcSettings) -> None:
        self._settings = settings
        self._speaker: Speaker | None = None
        self._commands: frozenset[str] = frozenset()

    def fetch_only_for(self, welcome: Welcome) -> None:
        """IRC carries no files."""

    async def listen(self, take: Take, tell: Tell) -> None:
        settings = self._settings
        try:
            async with open_session(settings) as session, asyncio.TaskGroup() as takers:
                self._speaker = Speaker(session, settings.pace, settings.channels)
                listening = _Listening(session, settings, self._speaker, Lanes(takers), take)
                listening.commands = lambda: self._commands
                # What was read is handed over also when the connection breaks: nobody brings it again.
                trouble = await listening.run(lambda: tell("ready", ""))
        except BaseExceptionGroup as errors:
            raise first(errors) from None
        finally:
            self._speaker = None
        raise trouble

    def pieces(self, text: str) -> tuple[Piece, ...]:
        return protocol.pieces(text)

    async def send(self, address: Address, piece: Piece) -> str:
        """Nothing on IRC has an id: what we call it is its name."""
        if self._speaker is None:
            raise DeliveryError("IRC is not connected yet.")
        await self._speaker.say(address, piece)
        return piece.id or "said"

    async def edit(self, address: Address, message: str, piece: Piece) -> None:
        raise DeliveryError("What was said on IRC stays as it was said.")

    async def delete(self, address: Address, message: str) -> None:
        raise DeliveryError("What was said on IRC stays said.")

    async def typing(self, address: Address) -> None:
        """IRC shows nobody who types."""

    async def menu(self, commands: tuple[tuple[str, str], ...]) -> None:
        self._commands = frozenset(name for name, _ in commands)


class _Listening:
    """A session's ears: what is said is handed over, what programs ask answered, what was lost mended."""

    def __init__(
        self, session: Session, settings: IrcSettings, speaker: Speaker, lanes: Lanes, take: Take
    ) -> None:
        self._session, self._settings, self._speaker = session, settings, speaker
        self._lanes, self._take = lanes, take
        self.commands: Callable[[], frozenset[str]] = frozenset

    async def run(self, tell: Callable[[], None]) -> DeliveryError:
        """Until the connection is over; why."""
        self._session.hear, self._session.left = self._hear, self._speaker.forget
        self._mend()
        tell()
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._session.live(self._settings.quiet, self._mend))
                await self._session.serve(tell)
        except* DeliveryError as errors:
            error = first(errors)
            assert isinstance(error, DeliveryError)
            trouble = error
        return trouble

    def _mend(self) -> None:
        """Enter where we should be, under the name that we should have."""
        session, settings = self._session, self._settings
        for channel in settings.channels:
            if fold(channel) not in session.joined:
                session.write("JOIN", channel)
        if session.nick != settings.nick:
            session.write("NICK", settings.nick)

    def _hear(self, line: Line) -> None:
        if "!" not in line.source or fold(line.nick) == fold(self._session.nick) or len(line.params) < 2:
            return
        if (asked := parse.requested(line)) is not None:
            self._answer(line.nick, *asked)
            return
        if parse.stale(line, time.time()):
            return
        where = line.params[0] if is_channel(line.params[0]) else line.nick
        leavings = self._speaker.leavings
        self._lanes.put(fold(where), lambda: self._hand_over(line, leavings))

    def _answer(self, nick: str, kind: str, words: str) -> None:
        told = {"VERSION": "alipes", "PING": words[:64], "CLIENTINFO": "ACTION CLIENTINFO PING VERSION"}.get(
            kind
        )
        if told is not None and self._speaker.spare():
            self._session.write("NOTICE", nick, f"{CTCP}{kind} {told}{CTCP}")

    async def _hand_over(self, line: Line, leavings: int) -> None:
        nicks = {self._session.nick, self._settings.nick}
        made = partial(
            parse.arrival, line, nicks=nicks, commands=self.commands(), per_user=self._settings.per_user
        )
        told = made(parse.who(line.source, ""))
        if told is None:
            return
        matters = self._matters(told)
        sender = await self._sender(line, matters)
        if matters:  # else it is a guess
            self._speaker.meet(line.source, sender, leavings)
        if (told := made(sender)) is not None:
            await self._take(told)

    def _matters(self, told: Arrival) -> bool:
        """Is it worth a question who said it? In a busy channel nobody asks so much: a word that nobody was
        called by may be an answer to us, more is talk of others."""
        if told.addressed or self._settings.group == "all":
            return True
        return len(told.text) <= ANSWERS and self._speaker.spare()

    async def _sender(self, line: Line, matters: bool) -> str:
        """Whom the server says to be logged in, with the line or when asked; else their mask."""
        if "account-tag" in self._session.features:
            return parse.who(line.source, line.tags.get("account", ""))
        if (known := self._speaker.known(line.source)) or not matters:
            return known or parse.who(line.source, "")
        try:
            found = await self._session.whois(line.nick, ANSWER)
        except DeliveryError:
            return parse.who(line.source, "")
        same = fold(found.source) == fold(line.source)
        return parse.who(line.source, found.account if same else "")
