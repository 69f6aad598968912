"""Sends to IRC: checks the receiver, splits lines and keeps to the rate limit. Raises only `DeliveryError`."""

import asyncio
from collections.abc import Collection

from alipes.kernel.errors import DeliveryError, Undeliverable
from alipes.kernel.platform import MessagePart
from alipes.kernel.turns import Address
from alipes.platforms.irc.connection import IDENTITY_TTL, IrcConnection, IrcRefused
from alipes.platforms.irc.parse import person_id
from alipes.platforms.irc.protocol import (
    available_bytes,
    fold_name,
    is_channel,
    normalise_mask,
    split_lines,
    strip_formatting,
)
from alipes.platforms.state_files import put_bounded

BURST = 5
MAX_UNCONFIRMED_LINES = 4
"""Lines without confirmation at most: servers disconnect clients that send faster than they read."""
QUEUE_TIMEOUT = 60.0
"""Seconds that a message waits behind others."""
ANSWER_TIMEOUT = 40.0
"""Seconds until the server must have confirmed."""
INTRODUCTION_TIMEOUT = 2.0
MAX_PEOPLE = 1000
_ABSENT = ("401", "406")


class IrcRateLimit:
    """A burst of lines, then one every `seconds`."""

    def __init__(self, seconds: float) -> None:
        self._seconds, self._due = seconds, 0.0

    def reserve(self, lines: int = 1) -> float:
        """Count these lines and return the seconds to wait before sending them."""
        now = asyncio.get_running_loop().time()
        self._due = max(self._due, now) + lines * self._seconds
        return max(0.0, self._due - now - BURST * self._seconds)


class IrcSender:
    def __init__(self, connection: IrcConnection, pace: float, channels: Collection[str]) -> None:
        self._session, self._pace = connection, IrcRateLimit(pace)
        self._channels = {fold_name(each) for each in channels}
        self._lock = asyncio.Lock()
        self._people: dict[str, tuple[str, str, float]] = {}
        """By nick: person id, mask, and when it was checked."""
        self._departed: dict[str, int] = {}
        """By nick: the number of departures when they left."""
        self.departures = 0
        self._clock = asyncio.get_running_loop().time

    def remember(self, source: str, sender: str, leavings: int) -> None:
        """`departures`: its value when the identity was checked; the person may have left since."""
        nick = fold_name(source.partition("!")[0])
        self._people.pop(nick, None)
        if self._departed.get(nick, 0) > leavings:
            return
        put_bounded(self._people, nick, (sender, normalise_mask(source), self._clock()), MAX_PEOPLE)

    def known(self, source: str) -> str:
        """The person id, if it was checked lately for the same mask."""
        sender, mask, when = self._people.get(fold_name(source.partition("!")[0]), ("", "", 0.0))
        return sender if mask == normalise_mask(source) and self._clock() - when < IDENTITY_TTL else ""

    def forget(self, nick: str) -> None:
        self._people.pop(fold_name(nick), None)
        self.departures += 1
        put_bounded(self._departed, fold_name(nick), self.departures, MAX_PEOPLE)

    def may_send_extra(self) -> bool:
        """True if the rate limit has room for something that nobody waits for."""
        return self._pace.reserve(0) == 0.0 and self._pace.reserve() == 0.0

    async def send(self, address: Address, part: MessagePart) -> str:
        """IRC messages have no id, so ours is returned."""
        target = address.chat
        if not target or any(letter in target for letter in " ,:\r\n\0"):
            raise Undeliverable(f"{target!r} is not a valid IRC target.")
        try:
            async with asyncio.timeout(QUEUE_TIMEOUT):
                await self._lock.acquire()
        except TimeoutError as late:
            raise DeliveryError("Too many messages are queued for IRC.", retry_after=5.0) from late
        try:
            await self._send(address, target, part)
        finally:
            self._lock.release()
        return part.id or "said"

    async def edit(self, address: Address, message: str, part: MessagePart) -> None:
        raise DeliveryError("IRC messages cannot be edited.")

    async def delete(self, address: Address, message: str) -> None:
        raise DeliveryError("IRC messages cannot be deleted.")

    async def typing(self, address: Address) -> None:
        """IRC has no typing indicator."""

    async def _send(self, address: Address, target: str, part: MessagePart) -> None:
        if not is_channel(target) and address.user:
            await self._check_identity(target, address.user)
        text = part.text or part.plain
        called = f"{part.reply_to.partition(' ')[0]}: " if part.reply_to and is_channel(target) else ""
        try:
            try:
                await self._send_text(target, called + text)
            except IrcRefused as refused:
                plain = strip_formatting(text)
                if str(refused)[:3] not in ("404", "408") or plain == text:
                    raise
                await self._send_text(target, called + plain)  # some channels reject formatting
        except IrcRefused as refused:
            raise self._translate_refusal(refused, target) from refused

    async def _send_text(self, target: str, text: str) -> None:
        await self._session.wait_introduced(INTRODUCTION_TIMEOUT)
        cut = split_lines(text, available_bytes(self._session.source, target))
        for at in range(0, len(cut), MAX_UNCONFIRMED_LINES):
            some = cut[at : at + MAX_UNCONFIRMED_LINES]
            await asyncio.sleep(self._pace.reserve(len(some)))
            try:
                await self._session.send_lines(target, some, ANSWER_TIMEOUT)
            except DeliveryError as error:
                if at and not error.uncertain:  # part of it was sent
                    raise DeliveryError(str(error), uncertain=True) from error
                raise

    async def _check_identity(self, nick: str, sender: str) -> None:
        """Check that the nick still belongs to the person whom the message is for."""
        met, _, when = self._people.get(fold_name(nick), ("", "", 0.0))
        if met == sender and self._clock() - when < IDENTITY_TTL:
            return
        self._pace.reserve()
        leavings = self.departures
        found = await self._session.whois(nick, ANSWER_TIMEOUT)
        if not found.source:
            raise DeliveryError(f"{nick} is not on IRC at the moment.")
        if person_id(found.source, found.account) != sender:
            raise Undeliverable(f"{nick} on IRC is another person now.")
        self.remember(found.source, sender, leavings)

    def _translate_refusal(self, refused: IrcRefused, target: str) -> DeliveryError:
        name = fold_name(target)
        if str(refused)[:3] in _ABSENT and not is_channel(target):
            self.forget(target)
            return DeliveryError(f"{target} is not on IRC at the moment.")
        if name in self._channels and name not in self._session.joined:
            return DeliveryError(f"We are not in {target} at the moment ({refused}).")
        return Undeliverable(f"The IRC server rejected the message to {target} ({refused}).")
