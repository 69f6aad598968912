"""Speaking on IRC: to whom, in lines that fit, no faster than is borne. Raises `DeliveryError` kinds only."""

import asyncio
from collections.abc import Collection

from alipes.kernel.errors import DeliveryError, Gone
from alipes.kernel.platform import Piece
from alipes.kernel.turns import Address
from alipes.platforms.irc.connection import TRUSTED, Refused, Session
from alipes.platforms.irc.parse import who
from alipes.platforms.irc.protocol import fold, is_channel, lines, person, room, unadorned
from alipes.platforms.state_files import put

BURST = 5
TOGETHER = 4
"""Lines that are on their way at most: servers throw out who sends more than they have read."""
QUEUE = 60.0
"""Seconds that a message waits for others to be said first."""
ANSWER = 40.0
"""Seconds in which the server must say that it took something."""
SOON = 2.0
REMEMBERED = 1000
_ABSENT = ("401", "406")


class Pace:
    """So many lines at once, then one every `seconds`."""

    def __init__(self, seconds: float) -> None:
        self._seconds, self._due = seconds, 0.0

    def spend(self, lines: int = 1) -> float:
        """Count these lines; how long to wait before they are sent."""
        now = asyncio.get_running_loop().time()
        self._due = max(self._due, now) + lines * self._seconds
        return max(0.0, self._due - now - BURST * self._seconds)


class Speaker:
    """One voice for a session."""

    def __init__(self, session: Session, pace: float, channels: Collection[str]) -> None:
        self._session, self._pace = session, Pace(pace)
        self._channels = {fold(each) for each in channels}
        self._turn = asyncio.Lock()
        self._met: dict[str, tuple[str, str, float]] = {}
        """By nick: who bears it, under which mask, and when we last knew."""
        self._left: dict[str, int] = {}
        """By nick: how many had left when they did."""
        self.leavings = 0
        self._clock = asyncio.get_running_loop().time

    def meet(self, source: str, sender: str, leavings: int) -> None:
        """`leavings`, when it was said who they are: they may have left since."""
        nick = fold(source.partition("!")[0])
        self._met.pop(nick, None)
        if self._left.get(nick, 0) > leavings:
            return
        put(self._met, nick, (sender, person(source), self._clock()), REMEMBERED)

    def known(self, source: str) -> str:
        """Who they are, if that was found out lately under the same mask."""
        sender, mask, when = self._met.get(fold(source.partition("!")[0]), ("", "", 0.0))
        return sender if mask == person(source) and self._clock() - when < TRUSTED else ""

    def forget(self, nick: str) -> None:
        self._met.pop(fold(nick), None)
        self.leavings += 1
        put(self._left, fold(nick), self.leavings, REMEMBERED)

    def spare(self) -> bool:
        """May something be said that nobody waits for?"""
        return self._pace.spend(0) == 0.0 and self._pace.spend() == 0.0

    async def say(self, address: Address, piece: Piece) -> None:
        target = address.chat
        if not target or any(letter in target for letter in " ,:\r\n\0"):
            raise Gone(f"There is no place on IRC that is called {target!r}.")
        try:
            async with asyncio.timeout(QUEUE):
                await self._turn.acquire()
        except TimeoutError as late:
            raise DeliveryError("Much is being said on IRC before it.", retry_after=5.0) from late
        try:
            await self._said(address, target, piece)
        finally:
            self._turn.release()

    async def _said(self, address: Address, target: str, piece: Piece) -> None:
        if not is_channel(target) and address.user:
            await self._same(target, address.user)
        text = piece.text or piece.plain
        called = f"{piece.reply_to.partition(' ')[0]}: " if piece.reply_to and is_channel(target) else ""
        try:
            await self._pass(target, called + text)
        except Refused as refused:
            if str(refused)[:3] in ("404", "408") and unadorned(text) != text:
                await self._plainly(target, called + unadorned(text))
            else:
                raise self._ours(refused, target) from refused

    async def _plainly(self, target: str, text: str) -> None:
        """There are channels that take nothing bold."""
        try:
            await self._pass(target, text)
        except Refused as refused:
            raise self._ours(refused, target) from refused

    async def _pass(self, target: str, text: str) -> None:
        await self._session.introduced(SOON)
        cut = lines(text, room(self._session.source, target))
        for at in range(0, len(cut), TOGETHER):
            some = cut[at : at + TOGETHER]
            await asyncio.sleep(self._pace.spend(len(some)))
            try:
                await self._session.passed(target, some, ANSWER)
            except DeliveryError as error:
                if at and not error.uncertain:  # some of it is there
                    raise DeliveryError(str(error), uncertain=True) from error
                raise

    async def _same(self, nick: str, sender: str) -> None:
        """What is meant for one person is not said to who bears their name meanwhile."""
        met, _, when = self._met.get(fold(nick), ("", "", 0.0))
        if met == sender and self._clock() - when < TRUSTED:
            return
        self._pace.spend()
        leavings = self.leavings
        found = await self._session.whois(nick, ANSWER)
        if not found.source:
            raise DeliveryError(f"{nick} is not on IRC at the moment.")
        if who(found.source, found.account) != sender:
            raise Gone(f"Somebody else is called {nick} on IRC now.")
        self.meet(found.source, sender, leavings)

    def _ours(self, refused: Refused, target: str) -> DeliveryError:
        name = fold(target)
        if str(refused)[:3] in _ABSENT and not is_channel(target):
            self.forget(target)
            return DeliveryError(f"{target} is not on IRC at the moment.")
        if name in self._channels and name not in self._session.joined:
            return DeliveryError(f"We are not in {target} at the moment ({refused}).")
        return Gone(f"The IRC server does not pass it on to {target} ({refused}).")
