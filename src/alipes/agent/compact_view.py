"""A conversation as a model is told it: its beginning summed up, old results shortened. Pure.

The same messages and the same digest always give the same words, so that a provider can keep them.
"""

from msgspec import structs

from alipes.agent.acting import cut
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
