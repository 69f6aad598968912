"""What a client of OpenAI's asks, in our own words: what was said, what is asked now, whose tools. Pure."""

import base64
import binascii
import hashlib
from collections.abc import Iterable, Iterator

import msgspec
from msgspec import Struct, structs

from alipes.agent.transcript_repair import distinct
from alipes.kernel.messages import SEEN_BY_MODELS, Image, Json, Message, Part, Text, ToolCall, ToolResult
from alipes.kernel.turns import Offered
from alipes.providers.sse import made_call
from alipes.web.endpoint import Problem
from alipes.web.openai.schema import (
    AssistantMessage,
    ChatRequest,
    Choice,
    Content,
    DeveloperMessage,
    Format,
    FunctionSpec,
    ImageUrl,
    Item,
    ResponseRequest,
    SystemMessage,
    ToolChoice,
    ToolMessage,
    UserMessage,
)
from alipes.web.openai.schema import Part as WirePart

NOTHING: dict[str, Json] = {"type": "object", "properties": {}}
_TEXTS = ("text", "input_text", "output_text")
_PICTURES = ("image_url", "input_image")


class Question(Struct, frozen=True):
    """A request without its shape."""

    said: tuple[Message, ...]
    """All of it, as the client has it."""
    before: tuple[Message, ...]
    """Up to the last word of the model; every call in it is answered, or in `results`."""
    results: tuple[ToolResult, ...]
    """What the last calls gave, where they are what is told now."""
    text: str
    images: tuple[Image, ...]
    instructions: str
    offered: tuple[Offered, ...]
    model: str


def chat(request: ChatRequest) -> Question:
    """Raises `Problem`."""
    said = [each for each in request.messages if not isinstance(each, SystemMessage | DeveloperMessage)]
    system = [
        _text(each.content) for each in request.messages if isinstance(each, SystemMessage | DeveloperMessage)
    ]
    specs = [tool.function for tool in request.tools or () if tool.type == "function" and tool.function]
    wishes = [*system, *_form(request.response_format), *_urged(request.tool_choice)]
    asked = _asked(_joined(_spoken(message) for message in said))
    return structs.replace(
        asked,
        instructions="\n\n".join(filter(None, wishes)),
        offered=_offered(specs, request.tool_choice),
        model=request.model,
    )


def response(request: ResponseRequest) -> Question:
    """The same; where a response before is named, `before` is only what the client adds to it."""
    items = [Item(role="user", content=request.input)] if isinstance(request.input, str) else request.input
    system = [_text(item.content) for item in items if item.role in ("system", "developer")]
    specs = [
        FunctionSpec(tool.name, tool.description, tool.parameters)
        for tool in request.tools or ()
        if tool.type == "function" and tool.name
    ]
    form = _form(request.text.format if request.text else None)
    wishes = [request.instructions or "", *system, *form, *_urged(request.tool_choice)]
    said = [message for item in items if (message := _told(item)) is not None]
    asked = _asked(_joined(said), alone=not request.previous_response_id)
    if asked.before and request.previous_response_id:
        raise Problem(
            400,
            "with previous_response_id the input is only what is new: a user's messages, outputs of calls",
            code="input_not_new",
        )
    return structs.replace(
        asked,
        instructions="\n\n".join(filter(None, wishes)),
        offered=_offered(specs, request.tool_choice),
        model=request.model,
    )


def mark(caller: str, messages: Iterable[Message]) -> bytes:
    """Equal for the same conversation of the same caller. Blanks around a text do not count: clients trim."""
    said = hashlib.sha256(msgspec.json.encode(caller))
    for message in messages:
        said.update(msgspec.json.encode([message.role, *map(_gist, message.parts)], order="sorted"))
    return said.digest()


def _gist(part: Part) -> object:
    match part:
        case Text(text):
            return ["text", text.strip()]
        case Image(kind, data):
            return ["image", kind, hashlib.sha256(data).hexdigest()]
        case ToolCall(id, name, args, raw):
            return ["call", id, name, args, raw]
        case ToolResult(id, text):
            return ["result", id, text.strip(), [_gist(image) for image in part.images]]
    return []


def _spoken(message: UserMessage | AssistantMessage | ToolMessage) -> Message:
    """One message of a chat. Raises `Problem`."""
    match message:
        case ToolMessage(id, content):
            return Message("tool", (_result(id, content),))
        case AssistantMessage(content, calls):
            made = (made_call(each.id, each.function.name, each.function.arguments) for each in calls or ())
            return Message("assistant", (*_words(_text(content)), *made))
        case UserMessage(content):
            return Message("user", tuple(_parts(content)))


def _told(item: Item) -> Message | None:
    """One item of a response's input; None for what says nothing to us. Raises `Problem`."""
    match item:
        case Item(type="message", role="user"):
            return Message("user", tuple(_parts(item.content)))
        case Item(type="message", role="assistant"):
            return Message("assistant", _words(_text(item.content)))
        case Item(type="function_call"):
            call = made_call(item.call_id or "", item.name or "", item.arguments or "")
            return Message("assistant", (call,))
        case Item(type="function_call_output"):
            return Message("tool", (_result(item.call_id, item.output),))
    return None


def _result(id: str | None, content: Content) -> ToolResult:
    if not id:
        raise Problem(
            400, "a tool's message needs the tool_call_id that it answers", code="tool_call_missing"
        )
    parts = tuple(_parts(content))
    text = "\n".join(part.text for part in parts if isinstance(part, Text))
    return ToolResult(id, text, images=tuple(part for part in parts if isinstance(part, Image)))


def _joined(messages: Iterable[Message]) -> list[Message]:
    """Neighbours of one role as one message: a model's words and calls, the results of several calls."""
    joined: list[Message] = []
    for message in messages:
        if joined and joined[-1].role == message.role:
            joined[-1] = Message(message.role, _merged((*joined[-1].parts, *message.parts)))
        else:
            joined.append(message)
    return joined


def _merged(parts: tuple[Part, ...]) -> tuple[Part, ...]:
    """With texts that stand together as paragraphs of one."""
    merged: list[Part] = []
    for part in parts:
        if merged and isinstance(part, Text) and isinstance(before := merged[-1], Text):
            merged[-1] = Text(f"{before.text}\n\n{part.text}")
        else:
            merged.append(part)
    return tuple(merged)


def _asked(said: list[Message], *, alone: bool = True) -> Question:
    """What was said, apart at the model's last word. `alone`: it is all there is. Raises `Problem`."""
    if alone:
        _check_pairs(said)
        said = _distinct(said)
    end = next((n for n in range(len(said), 0, -1) if said[n - 1].role == "assistant"), 0)
    words = [part for message in said[end:] for part in message.parts]
    results = tuple(part for part in words if isinstance(part, ToolResult))
    text = "\n\n".join(part.text for part in words if isinstance(part, Text))
    images = tuple(part for part in words if isinstance(part, Image))
    if not (results or text.strip() or images):
        why = "nothing is asked: the last message must be a user's or a tool's, and not empty"
        raise Problem(400, why, code="nothing_asked")
    return Question(tuple(said), tuple(said[:end]), results, text, images, "", (), "")


def _check_pairs(said: list[Message]) -> None:
    """Every call is answered by the next message, and nothing else is. Raises `Problem`."""
    waiting: set[str] = set()
    for message in (*said, Message("user", ())):
        results = {part.call_id for part in message.parts if isinstance(part, ToolResult)}
        if stray := results - waiting:
            why = f"no tool call found for tool output {', '.join(sorted(stray))}"
            raise Problem(400, why, code="tool_call_missing")
        if missing := waiting - results:
            why = f"no tool output found for tool calls {', '.join(sorted(missing))}: each must be answered"
            raise Problem(400, why, code="tool_output_missing")
        waiting = {call.id for call in message.calls}
        if len(waiting) < len(message.calls):
            raise Problem(400, "two tool calls of one message have the same id", code="tool_call_twice")


def _distinct(said: list[Message]) -> list[Message]:
    """With call ids that occur once: some servers number their calls anew in every answer."""
    taken: set[str] = set()
    names: dict[str, str] = {}
    whole: list[Message] = []
    for message in said:
        if message.calls:
            fresh = distinct(message, taken)
            names = {old.id: new.id for old, new in zip(message.calls, fresh.calls, strict=True)}
            taken |= set(names.values())
            message = fresh
        elif message.role == "tool":
            message = Message("tool", tuple(_renamed(part, names) for part in message.parts))
        whole.append(message)
    return whole


def _renamed(part: Part, names: dict[str, str]) -> Part:
    if not isinstance(part, ToolResult):
        return part
    return structs.replace(part, call_id=names.get(part.call_id, part.call_id))


def _parts(content: Content) -> Iterator[Part]:
    if content is None or isinstance(content, str):
        yield from _words(content or "")
        return
    for part in content:
        if part.type in _PICTURES:
            yield _image(part.image_url)
        elif part.type in _TEXTS:
            yield from _words(part.text or "")
        elif part.type == "refusal":
            yield from _words(part.refusal or "")
        else:
            raise Problem(400, f"content of type {part.type!r} is not understood here", code="content_type")


def _text(content: Content) -> str:
    """Without pictures, which neither a system's nor a model's words have."""
    if isinstance(content, list):
        content = [part for part in content if isinstance(part, WirePart) and part.type not in _PICTURES]
    return "\n\n".join(part.text for part in _parts(content) if isinstance(part, Text))


def _words(text: str) -> tuple[Text, ...]:
    return (Text(text),) if text else ()


def _image(given: ImageUrl | str | None) -> Image:
    url = given.url if isinstance(given, ImageUrl) else given or ""
    head, comma, data = url.partition(",")
    media_type = head.removeprefix("data:").partition(";")[0].lower().replace("image/jpg", "image/jpeg")
    if not (comma and head.startswith("data:") and head.endswith(";base64")):
        raise Problem(400, "give images as data URLs: data:image/png;base64,...", code="image_url")
    if media_type not in SEEN_BY_MODELS:
        raise Problem(400, f"images may be {', '.join(SEEN_BY_MODELS)}; not {media_type}", code="image_type")
    try:
        return Image(media_type, base64.b64decode(data, validate=True))
    except (binascii.Error, ValueError) as error:
        raise Problem(400, f"the image is no base64: {error}", code="image_data") from error


def _offered(specs: Iterable[FunctionSpec], choice: Choice) -> tuple[Offered, ...]:
    if choice == "none":
        return ()
    specs = tuple(specs)
    if len({spec.name for spec in specs}) < len(specs):
        raise Problem(400, "two tools have the same name", code="tool_twice")
    return tuple(Offered(spec.name, spec.description or "", spec.parameters or NOTHING) for spec in specs)


def _urged(choice: Choice) -> list[str]:
    """No model behind us can be made to call a tool; it is told to."""
    if isinstance(choice, ToolChoice):
        name = choice.function.name if choice.function else choice.name
        return [f"Call the tool {name}."] if name else []
    return ["Answer by calling a tool."] if choice == "required" else []


def _form(wanted: Format | None) -> list[str]:
    if wanted is None or wanted.type not in ("json_object", "json_schema"):
        return []
    schema = wanted.json_schema.schema if wanted.json_schema else wanted.schema
    if schema is None:
        return ["Answer with one JSON object and nothing else, without a code fence."]
    shown = msgspec.json.encode(schema).decode()
    return [f"Answer with JSON that fits this schema and nothing else, without a code fence: {shown}"]
