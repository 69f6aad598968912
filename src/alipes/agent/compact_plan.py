"""How much room a conversation takes, and what of it to shorten: sizes and borders. Pure.

Sizes come from what the provider counted: tokens by letter, as measured at the last call.
"""

from msgspec import Struct, structs

from alipes.agent.compact_view import letters, told
from alipes.kernel.messages import Message, Text, ToolResult
from alipes.kernel.turns import Digest

GOAL = 0.6
"""Of what may be full: below this, shortening has made room for a while."""
TAIL = 0.4
"""Of what may be full and is not taken anyway: so much is told as it was said."""
WIDE = 0.35
"""Of the same: more than that a single message does not get, but for the latest."""
SMALLEST = 1_500
"""Letters below which nothing is cut, and for which no model is asked."""
GUESS = 0.25
"""Tokens by letter where nothing was counted yet."""


class Room(Struct, frozen=True):
    window: int
    """Tokens, in and out together."""
    ratio: float
    """Tokens by letter."""
    fixed: int = 0
    """Letters of the system prompt and the tools."""
    at: float = 0.8
    """How full it may be."""
    answer: int = 0
    """Tokens that are kept free for the answer; half of the window at most."""

    @property
    def limit(self) -> int:
        return min(int(self.window * self.at), max(self.window - self.answer, self.window // 2))

    @property
    def free(self) -> int:
        """Letters that messages may have in all."""
        return max(int(self.limit / self.ratio) - self.fixed, 0)

    def tokens(self, messages: tuple[Message, ...], digest: Digest) -> int:
        return round((self.fixed + letters(told(messages, digest))) * self.ratio)


def measured(tokens: int, count: int) -> float:
    """Tokens by letter; zero where that cannot be known."""
    return min(max(tokens / count, 0.01), 4.0) if tokens > 0 and count > 0 else 0.0


def snug(messages: tuple[Message, ...], digest: Digest, room: Room) -> Room:
    """As if it were full already: for a person who wants it to be shortened now."""
    return structs.replace(room, window=max(min(room.window, room.tokens(messages, digest)), 1))


def tail(messages: tuple[Message, ...], room: Room) -> int:
    """Where that part begins which is told as it was said. No result begins it: its call would be missing."""
    widest, budget = _widest(room), max(int(room.free * TAIL), SMALLEST)
    start = len(messages)
    while start and budget >= 0:
        budget -= min(letters(messages[start - 1 : start]), widest)
        start -= budget >= 0
    while start < len(messages) and messages[start].role == "tool":
        start += 1
    if start == len(messages):  # the last step stays, however long it is
        start -= 1
        while start > 0 and messages[start].role == "tool":
            start -= 1
    return max(start, 0)


def trimmed(messages: tuple[Message, ...], digest: Digest, room: Room) -> Digest:
    """What tools gave before the tail is cut, and whatever is too long for anything else to fit beside it."""
    start, widest = max(tail(messages, room), digest.trimmed), _widest(room)
    if not any(_length(part) > widest for message in messages[digest.upto :] for part in message.parts):
        widest = digest.widest
    elif digest.widest:
        widest = min(widest, digest.widest)
    return structs.replace(digest, trimmed=start, widest=widest)


def summed(messages: tuple[Message, ...], digest: Digest, room: Room, text: str) -> Digest:
    """The same with everything before the tail told in `text` instead."""
    start = max(tail(messages, room), digest.upto)
    return structs.replace(digest, upto=start, trimmed=max(start, digest.trimmed), text=text)


def gain(messages: tuple[Message, ...], digest: Digest, room: Room) -> int:
    """Letters that a summary could take the place of."""
    start = tail(messages, room)
    if start <= digest.upto:
        return 0
    without = structs.replace(digest, upto=start)
    return letters(told(messages, digest)) - letters(told(messages, without))


def _widest(room: Room) -> int:
    return max(int(room.free * WIDE), SMALLEST)


def _length(part: object) -> int:
    return len(part.text) if isinstance(part, Text | ToolResult) else 0
