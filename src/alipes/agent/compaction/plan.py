"""How much room a conversation takes, and what of it to shorten: sizes and borders. Pure.

Sizes come from what the provider counted: tokens by letter, as measured at the last call.
"""

from msgspec import Struct, structs

from alipes.agent.tool_calls import cut
from alipes.kernel.messages import Image, Message, Part, Text, Thinking, ToolCall, ToolResult
from alipes.kernel.ports import Request
from alipes.kernel.turns import Digest

TRIMMED = 800
"""Letters that stay of an old result."""
REQUEST = 12_000
"""Letters that stay of a person's first and latest message once they are only told beside a summary."""
IMAGE = 6_000
"""Letters that an image counts for."""


def told(messages: tuple[Message, ...], digest: Digest) -> tuple[Message, ...]:
    """What a model is told of `messages`. Neither a call nor a result is ever told without the other."""
    if digest == Digest():
        return messages
    head = _instead(messages, digest) if digest.upto else ()
    return (*head, *since(messages, digest, digest.upto))


def since(messages: tuple[Message, ...], digest: Digest, start: int) -> tuple[Message, ...]:
    """What a model is told of the messages from place `start` on."""
    places = enumerate(messages[start:], start)
    return tuple(_shown(message, digest, place < digest.trimmed) for place, message in places)


def _instead(messages: tuple[Message, ...], digest: Digest) -> tuple[Message, ...]:
    """The person's first request word for word, the summary, and the last request that it stands for.

    None of it depends on what is said later.
    """
    asked = [message for message in messages[: digest.upto] if message.role == "user"]
    first, latest = asked[:1], asked[1:][-1:]
    return (*map(_request, first), Message("notice", (Text(digest.text),)), *map(_request, latest))


def _request(message: Message) -> Message:
    words = tuple(Text(cut(part.text, REQUEST)) for part in message.parts if isinstance(part, Text))
    return Message("user", words or (Text("(an image)"),))


def _shown(message: Message, digest: Digest, old: bool) -> Message:
    limit = min(TRIMMED, digest.widest or TRIMMED) if old else digest.widest
    if not limit or not any(_long(part, limit, digest.widest) for part in message.parts):
        return message
    return Message(message.role, tuple(_part(part, limit, digest.widest) for part in message.parts))


def _long(part: Part, limit: int, widest: int) -> bool:
    match part:
        case ToolResult(text=text, images=images):
            return len(text) > limit or (limit == TRIMMED and bool(images))
        case Text(text):
            return bool(widest) and len(text) > widest
    return False


def _part(part: Part, limit: int, widest: int) -> Part:
    match part:
        case ToolResult(text=text, images=images):
            return structs.replace(part, text=cut(text, limit), images=() if limit == TRIMMED else images)
        case Text(text) if widest:
            return Text(cut(text, widest))
    return part


def letters(messages: tuple[Message, ...]) -> int:
    """How long they are, as a model reads them."""
    return sum(_letters(part) for message in messages for part in message.parts)


def _letters(part: Part) -> int:
    match part:
        case Text(text) | Thinking(text):
            return len(text)
        case ToolCall():
            args = sum(len(key) + _width(each) for key, each in part.args.items())
            return len(part.name) + len(part.raw) + args
        case ToolResult(text=text, images=images):
            return len(text) + IMAGE * len(images)
        case Image():
            return IMAGE


def _width(value: object) -> int:
    return len(value) if isinstance(value, str) else len(str(value))


def fixed(request: Request) -> int:
    """Letters of a request that no shortening takes away: the system prompt and the tools."""
    return len(request.system) + sum(spec.letters for spec in request.tools)


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
