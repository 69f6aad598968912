"""Sizes of a conversation and where to cut it. Pure functions.

Tokens are estimated from characters, with the ratio measured at the last call.
"""

from msgspec import Struct, structs

from alipes.agent.tool_calls import shorten
from alipes.kernel.messages import Image, Message, Part, Text, Thinking, ToolCall, ToolResult, notice
from alipes.kernel.ports import Request
from alipes.kernel.turns import CompactionState

TRIMMED_CHARS = 800
"""Characters kept of an old result."""
REQUEST_CHARS = 12_000
"""Characters kept of a person's first and latest message beside a summary."""
IMAGE_CHARS = 6_000
"""Characters that an image counts for."""


def visible_messages(messages: tuple[Message, ...], digest: CompactionState) -> tuple[Message, ...]:
    """The messages as the model sees them. A call is never shown without its result."""
    if digest == CompactionState():
        return messages
    head = _summary_messages(messages, digest) if digest.covered else ()
    return (*head, *visible_since(messages, digest, digest.covered))


def visible_since(messages: tuple[Message, ...], digest: CompactionState, start: int) -> tuple[Message, ...]:
    """The same for the messages from index `start` on."""
    places = enumerate(messages[start:], start)
    return tuple(_shorten_message(message, digest, place < digest.trimmed_until) for place, message in places)


def _summary_messages(messages: tuple[Message, ...], digest: CompactionState) -> tuple[Message, ...]:
    """The person's first request verbatim, the summary, and the last request it covers.

    Independent of later messages.
    """
    asked = [message for message in messages[: digest.covered] if message.role == "user"]
    first, latest = asked[:1], asked[1:][-1:]
    return (*map(_shorten_request, first), notice(digest.text), *map(_shorten_request, latest))


def _shorten_request(message: Message) -> Message:
    words = tuple(Text(shorten(part.text, REQUEST_CHARS)) for part in message.parts if isinstance(part, Text))
    return Message("user", words or (Text("(an image)"),))


def _shorten_message(message: Message, digest: CompactionState, old: bool) -> Message:
    limit = min(TRIMMED_CHARS, digest.max_chars or TRIMMED_CHARS) if old else digest.max_chars
    if not limit or not any(_is_long(part, limit, digest.max_chars) for part in message.parts):
        return message
    return Message(message.role, tuple(_shorten_part(part, limit, digest.max_chars) for part in message.parts))


def _is_long(part: Part, limit: int, widest: int) -> bool:
    match part:
        case ToolResult(text=text, images=images):
            return len(text) > limit or (limit == TRIMMED_CHARS and bool(images))
        case Text(text):
            return bool(widest) and len(text) > widest
    return False


def _shorten_part(part: Part, limit: int, widest: int) -> Part:
    match part:
        case ToolResult(text=text, images=images):
            return structs.replace(part, text=shorten(text, limit), images=() if limit == TRIMMED_CHARS else images)
        case Text(text) if widest:
            return Text(shorten(text, widest))
    return part


def count_chars(messages: tuple[Message, ...]) -> int:
    """Total characters as a model reads them."""
    return sum(_part_chars(part) for message in messages for part in message.parts)


def _part_chars(part: Part) -> int:
    match part:
        case Text(text) | Thinking(text):
            return len(text)
        case ToolCall():
            args = sum(len(key) + _value_chars(each) for key, each in part.args.items())
            return len(part.name) + len(part.raw) + args
        case ToolResult(text=text, images=images):
            return len(text) + IMAGE_CHARS * len(images)
        case Image():
            return IMAGE_CHARS


def _value_chars(value: object) -> int:
    return len(value) if isinstance(value, str) else len(str(value))


def fixed_chars(request: Request) -> int:
    """Characters of the system prompt and tools, which compaction cannot reduce."""
    return len(request.system) + sum(spec.char_count for spec in request.tools)


GOAL_RATIO = 0.6
"""Fraction of the limit that compaction aims for."""
TAIL_RATIO = 0.4
"""Fraction of the free space for messages that stay verbatim."""
MESSAGE_RATIO = 0.35
"""Fraction of the free space for a single message, except the latest."""
MIN_CHARS = 1_500
"""Characters below which nothing is cut and no model is called."""
DEFAULT_RATIO = 0.25
"""Tokens per character before anything was measured."""


class ContextBudget(Struct, frozen=True):
    window: int
    """Tokens, input and output together."""
    ratio: float
    """Tokens per character."""
    fixed_chars: int = 0
    """Characters of the system prompt and tools."""
    fill_ratio: float = 0.8
    """How full the window may be."""
    answer_tokens: int = 0
    """Tokens reserved for the answer; at most half of the window."""

    @property
    def limit(self) -> int:
        return min(int(self.window * self.fill_ratio), max(self.window - self.answer_tokens, self.window // 2))

    @property
    def free_chars(self) -> int:
        """Characters available for messages."""
        return max(int(self.limit / self.ratio) - self.fixed_chars, 0)

    def tokens(self, messages: tuple[Message, ...], digest: CompactionState) -> int:
        return round((self.fixed_chars + count_chars(visible_messages(messages, digest))) * self.ratio)


def tokens_per_char(tokens: int, count: int) -> float:
    """Tokens per character; zero if unknown."""
    return min(max(tokens / count, 0.01), 4.0) if tokens > 0 and count > 0 else 0.0


def full_budget(messages: tuple[Message, ...], digest: CompactionState, room: ContextBudget) -> ContextBudget:
    """A budget as if the window were full, for a person who wants it compacted now."""
    return structs.replace(room, window=max(min(room.window, room.tokens(messages, digest)), 1))


def tail_start(messages: tuple[Message, ...], room: ContextBudget) -> int:
    """Where the verbatim part starts. It never starts with a result, whose call would be missing."""
    widest, budget = _max_chars(room), max(int(room.free_chars * TAIL_RATIO), MIN_CHARS)
    start = len(messages)
    while start and budget >= 0:
        budget -= min(count_chars(messages[start - 1 : start]), widest)
        start -= budget >= 0
    while start < len(messages) and messages[start].role == "tool":
        start += 1
    if start == len(messages):  # the last step stays, however long it is
        start -= 1
        while start > 0 and messages[start].role == "tool":
            start -= 1
    return max(start, 0)


def trim_results(messages: tuple[Message, ...], digest: CompactionState, room: ContextBudget) -> CompactionState:
    """Trim tool results before the tail, and any part too long to fit."""
    start, widest = max(tail_start(messages, room), digest.trimmed_until), _max_chars(room)
    if not any(_text_length(part) > widest for message in messages[digest.covered :] for part in message.parts):
        widest = digest.max_chars
    elif digest.max_chars:
        widest = min(widest, digest.max_chars)
    return structs.replace(digest, trimmed_until=start, max_chars=widest)


def apply_summary(
    messages: tuple[Message, ...], digest: CompactionState, room: ContextBudget, text: str
) -> CompactionState:
    """The same with everything before the tail replaced by `text`."""
    start = max(tail_start(messages, room), digest.covered)
    return structs.replace(digest, covered=start, trimmed_until=max(start, digest.trimmed_until), text=text)


def summary_gain(messages: tuple[Message, ...], digest: CompactionState, room: ContextBudget) -> int:
    """Characters that a summary could replace."""
    start = tail_start(messages, room)
    if start <= digest.covered:
        return 0
    without = structs.replace(digest, covered=start)
    return count_chars(visible_messages(messages, digest)) - count_chars(visible_messages(messages, without))


def _max_chars(room: ContextBudget) -> int:
    return max(int(room.free_chars * MESSAGE_RATIO), MIN_CHARS)


def _text_length(part: object) -> int:
    return len(part.text) if isinstance(part, Text | ToolResult) else 0
