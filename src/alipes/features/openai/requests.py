"""Requests of OpenAI clients: their bodies, and how they are parsed into our own types. Unknown fields are ignored."""

import base64
import binascii
import hashlib
from collections.abc import Iterable, Iterator
from typing import Annotated, Any, Literal, TypeAlias

import msgspec
from msgspec import Meta, Struct, structs

from alipes.agent.answer_schema import check_schema
from alipes.agent.transcript_repair import with_unique_call_ids
from alipes.kernel.errors import ConfigError
from alipes.kernel.messages import MODEL_IMAGE_TYPES, Image, Json, Message, Part, Text, ToolCall, ToolResult, image_type
from alipes.kernel.turns import ClientTool
from alipes.providers.wire import parse_tool_call
from alipes.web.endpoint import HttpProblem

Name: TypeAlias = Annotated[str, Meta(pattern=r"^[a-zA-Z0-9_-]{1,64}(?!\n)$")]
Schema: TypeAlias = dict[str, Any]


class ImageUrl(Struct, frozen=True):
    url: str


class FileContent(Struct, frozen=True):
    """A document: its content as a data URL, the id of an upload, or an address."""

    filename: str | None = None
    file_data: str | None = None
    file_id: str | None = None
    file_url: str | None = None


class ContentPart(Struct, frozen=True):
    """Any kind of content part; `type` decides which fields are used."""

    type: str
    text: str | None = None
    image_url: ImageUrl | str | None = None
    refusal: str | None = None
    file: FileContent | None = None
    filename: str | None = None
    file_data: str | None = None
    file_id: str | None = None
    file_url: str | None = None

    @property
    def document(self) -> FileContent | None:
        """The document of a part `file` or `input_file`."""
        if self.type == "input_file":
            return FileContent(self.filename, self.file_data, self.file_id, self.file_url)
        return (self.file or FileContent()) if self.type == "file" else None


Content: TypeAlias = str | list[ContentPart] | None


class CalledFunctionInput(Struct, frozen=True):
    name: str
    arguments: str


class ToolCallInput(Struct, frozen=True):
    id: str
    function: CalledFunctionInput
    type: Literal["function"] = "function"


class SystemMessage(Struct, frozen=True, tag="system", tag_field="role"):
    content: Content


class DeveloperMessage(Struct, frozen=True, tag="developer", tag_field="role"):
    content: Content


class UserMessage(Struct, frozen=True, tag="user", tag_field="role"):
    content: Content


class AssistantMessage(Struct, frozen=True, tag="assistant", tag_field="role"):
    content: Content = None
    tool_calls: list[ToolCallInput] | None = None


class ToolMessage(Struct, frozen=True, tag="tool", tag_field="role"):
    tool_call_id: Annotated[str, Meta(min_length=1)]
    content: Content


ChatMessage: TypeAlias = SystemMessage | DeveloperMessage | UserMessage | AssistantMessage | ToolMessage


class FunctionSpec(Struct, frozen=True):
    name: Name
    description: str | None = None
    parameters: Schema | None = None


class ChatTool(Struct, frozen=True):
    """Types other than `function` are ignored: the agent has its own tools."""

    type: str
    function: FunctionSpec | None = None


class NamedFunction(Struct, frozen=True):
    name: str


class ToolChoice(Struct, frozen=True):
    """A tool by name: inside `function` in chat completions, directly in responses."""

    type: str = "function"
    function: NamedFunction | None = None
    name: str | None = None


ToolChoiceOption: TypeAlias = Literal["none", "auto", "required"] | ToolChoice | None


class StreamOptions(Struct, frozen=True):
    include_usage: bool | None = None


class JsonSchema(Struct, frozen=True):
    name: str | None = None
    schema: Schema | None = None


class OutputFormat(Struct, frozen=True):
    """Format of the answer: `text`, `json_object` or `json_schema`."""

    type: str
    json_schema: JsonSchema | None = None
    name: str | None = None
    schema: Schema | None = None
    """Used by the Responses API."""

    @property
    def named_schema(self) -> Schema | None:
        return self.json_schema.schema if self.json_schema else self.schema


class ChatRequest(Struct, frozen=True):
    messages: Annotated[list[ChatMessage], Meta(min_length=1)]
    model: str = "alipes"
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    tools: list[ChatTool] | None = None
    tool_choice: ToolChoiceOption = None
    response_format: OutputFormat | None = None
    steps: Literal["reasoning"] | None = None
    """Show the steps of the agent's own tools as reasoning."""
    n: Annotated[int, Meta(ge=1, le=1)] | None = None


class InputItem(Struct, frozen=True):
    """Any kind of input item; without a `type` it is a message."""

    type: str = "message"
    role: Literal["system", "developer", "user", "assistant"] | None = None
    content: Content = None
    call_id: str | None = None
    name: str | None = None
    arguments: str | None = None
    output: Content = None


class ResponseTool(Struct, frozen=True):
    """Types other than `function` are ignored: the agent has its own tools."""

    type: str
    name: Name | None = None
    description: str | None = None
    parameters: Schema | None = None


class TextConfig(Struct, frozen=True):
    format: OutputFormat | None = None


class ConversationName(Struct, frozen=True):
    id: str


class ResponseRequest(Struct, frozen=True):
    input: Annotated[str, Meta(min_length=1)] | Annotated[list[InputItem], Meta(min_length=1)]
    model: str = "alipes"
    instructions: str | None = None
    previous_response_id: str | None = None
    conversation: str | ConversationName | None = None
    """Name or id of a conversation to continue; see `/v1/sessions`."""
    store: bool | None = None
    stream: bool | None = None
    background: bool | None = None
    tools: list[ResponseTool] | None = None
    tool_choice: ToolChoiceOption = None
    text: TextConfig | None = None
    steps: Literal["reasoning"] | None = None
    """Show the steps of the agent's own tools as reasoning."""
    metadata: dict[str, str] | None = None

    @property
    def conversation_id(self) -> str:
        named = self.conversation
        return named.id if isinstance(named, ConversationName) else named or ""


EMPTY_SCHEMA: dict[str, Json] = {"type": "object", "properties": {}}
_TEXT_TYPES = ("text", "input_text", "output_text")
_IMAGE_TYPES = ("image_url", "input_image")


class ParsedRequest(Struct, frozen=True):
    said: tuple[Message, ...]
    """All messages as the client sent them."""
    before: tuple[Message, ...]
    """Messages up to the model's last one; each call is answered there or in `results`."""
    results: tuple[ToolResult, ...]
    """Results of the model's last calls, if the request continues after them."""
    text: str
    images: tuple[Image, ...]
    instructions: str
    offered: tuple[ClientTool, ...]
    model: str
    untrusted: str = ""
    """Whose text it has, if not the client's: that of documents."""
    schema: dict[str, Json] = {}
    """What the answer must match; empty: any text."""


def parse_chat(request: ChatRequest) -> ParsedRequest:
    """Raises `HttpProblem`."""
    said = [each for each in request.messages if not isinstance(each, SystemMessage | DeveloperMessage)]
    system = [_text(each.content) for each in request.messages if isinstance(each, SystemMessage | DeveloperMessage)]
    specs = [tool.function for tool in request.tools or () if tool.type == "function" and tool.function]
    _check_tool_choice(request.tool_choice, specs)
    wanted, schema = _read_format(request.response_format, "response_format")
    prompts = [*system, *wanted, *_tool_choice_prompt(request.tool_choice)]
    parsed = _split_request(request, [_chat_message(message) for message in said], prompts, specs)
    return structs.replace(parsed, schema=schema)


def parse_response(request: ResponseRequest) -> ParsedRequest:
    """Raises `HttpProblem`. If it continues a conversation, `before` holds only what the client adds to it."""
    if request.previous_response_id and request.conversation_id:
        raise HttpProblem(400, "give either previous_response_id or conversation", code="conversation")
    continued = "previous_response_id" if request.previous_response_id else "conversation"
    alone = not (request.previous_response_id or request.conversation_id)
    items = [InputItem(role="user", content=request.input)] if isinstance(request.input, str) else request.input
    system = [_text(item.content) for item in items if item.role in ("system", "developer")]
    specs = [
        FunctionSpec(tool.name, tool.description, tool.parameters)
        for tool in request.tools or ()
        if tool.type == "function" and tool.name
    ]
    _check_tool_choice(request.tool_choice, specs)
    wanted, schema = _read_format(request.text.format if request.text else None, "text.format")
    prompts = [request.instructions or "", *system, *wanted, *_tool_choice_prompt(request.tool_choice)]
    said = [message for item in items if (message := _item_message(item)) is not None]
    parsed = structs.replace(_split_request(request, said, prompts, specs, alone=alone), schema=schema)
    if parsed.before and not alone:
        why = f"with {continued}, input must contain only new items: user messages and call outputs"
        raise HttpProblem(400, why, code="input_not_new")
    return parsed


def conversation_hash(caller: str, messages: Iterable[Message]) -> bytes:
    """Hash of a caller's conversation. Surrounding whitespace is ignored because clients trim it."""
    said = hashlib.sha256(msgspec.json.encode(caller))
    for message in messages:
        said.update(msgspec.json.encode([message.role, *map(_hash_input, message.parts)], order="sorted"))
    return said.digest()


def _hash_input(part: Part) -> object:
    match part:
        case Text(text):
            return ["text", text.strip()]
        case Image(kind, data):
            return ["image", kind, hashlib.sha256(data).hexdigest()]
        case ToolCall(id, name, args, raw):
            return ["call", id, name, args, raw]
        case ToolResult(id, text):
            return ["result", id, text.strip(), [_hash_input(image) for image in part.images]]
    return []


def _chat_message(message: UserMessage | AssistantMessage | ToolMessage) -> Message:
    """Raises `HttpProblem`."""
    match message:
        case ToolMessage(id, content):
            return Message("tool", (_result(id, content),))
        case AssistantMessage(content, calls):
            made = (parse_tool_call(each.id, each.function.name, each.function.arguments) for each in calls or ())
            return Message("assistant", (*_text_parts(_text(content)), *made))
        case UserMessage(content):
            return Message("user", tuple(_parts(content)))


def _item_message(item: InputItem) -> Message | None:
    """One input item, or None if it is not relevant. Raises `HttpProblem`."""
    match item:
        case InputItem(type="message", role="user"):
            return Message("user", tuple(_parts(item.content)))
        case InputItem(type="message", role="assistant"):
            return Message("assistant", _text_parts(_text(item.content)))
        case InputItem(type="function_call"):
            call = parse_tool_call(item.call_id or "", item.name or "", item.arguments or "")
            return Message("assistant", (call,))
        case InputItem(type="function_call_output"):
            return Message("tool", (_result(item.call_id, item.output),))
    return None


def _result(id: str | None, content: Content) -> ToolResult:
    if not id:
        raise HttpProblem(400, "a tool message needs the tool_call_id it answers", code="tool_call_missing")
    parts = tuple(_parts(content))
    text = "\n".join(part.text for part in parts if isinstance(part, Text))
    return ToolResult(id, text, images=tuple(part for part in parts if isinstance(part, Image)))


def _join_messages(messages: list[Message]) -> list[Message]:
    """Merge neighbouring messages of one role, such as text and calls, or results of several calls."""
    joined: list[Message] = []
    for message in messages:
        if joined and joined[-1].role == message.role:
            joined[-1] = Message(message.role, _merge_texts((*joined[-1].parts, *message.parts)))
        else:
            joined.append(message)
    return joined


def _merge_texts(parts: tuple[Part, ...]) -> tuple[Part, ...]:
    """Merge neighbouring texts into paragraphs of one."""
    merged: list[Part] = []
    for part in parts:
        if merged and isinstance(part, Text) and isinstance(before := merged[-1], Text):
            merged[-1] = Text(f"{before.text}\n\n{part.text}")
        else:
            merged.append(part)
    return tuple(merged)


def _split_request(
    request: ChatRequest | ResponseRequest,
    messages: list[Message],
    prompts: list[str],
    specs: list[FunctionSpec],
    *,
    alone: bool = True,
) -> ParsedRequest:
    """Split after the model's last message. `alone`: there is no earlier history. Raises `HttpProblem`."""
    said = _join_messages(messages)
    if alone:
        _check_pairs(said)
        said = _make_ids_unique(said)
    end = next((n for n in range(len(said), 0, -1) if said[n - 1].role == "assistant"), 0)
    new_parts = [part for message in said[end:] for part in message.parts]
    results = tuple(part for part in new_parts if isinstance(part, ToolResult))
    text = "\n\n".join(part.text for part in new_parts if isinstance(part, Text))
    images = tuple(part for part in new_parts if isinstance(part, Image))
    if not (results or text.strip() or images):
        why = "nothing to answer: the last message must be a non-empty user or tool message"
        raise HttpProblem(400, why, code="nothing_asked")
    instructions, offered = "\n\n".join(filter(None, prompts)), _client_tools(specs, request.tool_choice)
    return ParsedRequest(tuple(said), tuple(said[:end]), results, text, images, instructions, offered, request.model)


def _check_pairs(said: list[Message]) -> None:
    """Check that each call is answered by the next message. Raises `HttpProblem`."""
    waiting: set[str] = set()
    for message in (*said, Message("user", ())):
        results = {part.call_id for part in message.parts if isinstance(part, ToolResult)}
        if stray := results - waiting:
            why = f"no tool call found for tool output {', '.join(sorted(stray))}"
            raise HttpProblem(400, why, code="tool_call_missing")
        if missing := waiting - results:
            why = f"no tool output found for tool calls {', '.join(sorted(missing))}: each must be answered"
            raise HttpProblem(400, why, code="tool_output_missing")
        waiting = {call.id for call in message.calls}
        if len(waiting) < len(message.calls):
            raise HttpProblem(400, "two tool calls of one message have the same id", code="tool_call_twice")


def _make_ids_unique(said: list[Message]) -> list[Message]:
    """Make call ids unique: some servers reuse them in every answer."""
    used: set[str] = set()
    names: dict[str, str] = {}
    whole: list[Message] = []
    for message in said:
        if message.calls:
            fresh = with_unique_call_ids(message, used)
            names = {old.id: new.id for old, new in zip(message.calls, fresh.calls, strict=True)}
            used |= set(names.values())
            message = fresh
        elif message.role == "tool":
            results = (part for part in message.parts if isinstance(part, ToolResult))
            renamed = (structs.replace(part, call_id=names.get(part.call_id, part.call_id)) for part in results)
            message = Message("tool", tuple(renamed))
        whole.append(message)
    return whole


def _parts(content: Content) -> Iterator[Part]:
    if content is None or isinstance(content, str):
        yield from _text_parts(content or "")
        return
    for part in content:
        if part.type in _IMAGE_TYPES:
            yield _image(part.image_url)
        elif part.type in _TEXT_TYPES:
            yield from _text_parts(part.text or "")
        elif part.type == "refusal":
            yield from _text_parts(part.refusal or "")
        else:
            raise HttpProblem(400, f"content type {part.type!r} is not supported", code="content_type")


def _text(content: Content) -> str:
    """The text without images, which system and assistant messages do not have."""
    if isinstance(content, list):
        content = [part for part in content if part.type not in _IMAGE_TYPES]
    return "\n\n".join(part.text for part in _parts(content) if isinstance(part, Text))


def _text_parts(text: str) -> tuple[Text, ...]:
    return (Text(text),) if text else ()


def _image(image: ImageUrl | str | None) -> Image:
    url = image.url if isinstance(image, ImageUrl) else image or ""
    head, comma, data = url.partition(",")
    media_type = head.removeprefix("data:").partition(";")[0].lower().replace("image/jpg", "image/jpeg")
    if not (comma and head.startswith("data:") and head.endswith(";base64")):
        raise HttpProblem(400, "images must be https or data URLs: data:image/png;base64,...", code="image_url")
    if media_type not in MODEL_IMAGE_TYPES:
        why = f"image type {media_type} is not supported; use {', '.join(MODEL_IMAGE_TYPES)}"
        raise HttpProblem(400, why, code="image_type")
    try:
        content = base64.b64decode(data, validate=True)
    except (binascii.Error, ValueError) as error:
        raise HttpProblem(400, f"the image is not valid base64: {error}", code="image_data") from error
    if not (found := image_type(content)):
        raise HttpProblem(400, f"the content is not an image of type {media_type}", code="image_data")
    return Image(found, content)


def _client_tools(specs: list[FunctionSpec], choice: ToolChoiceOption) -> tuple[ClientTool, ...]:
    if choice == "none":
        return ()
    if len({spec.name for spec in specs}) < len(specs):
        raise HttpProblem(400, "two tools have the same name", code="tool_twice")
    return tuple(ClientTool(spec.name, spec.description or "", spec.parameters or EMPTY_SCHEMA) for spec in specs)


def _check_tool_choice(choice: ToolChoiceOption, specs: list[FunctionSpec]) -> None:
    """Raises `HttpProblem` if a tool is wanted that the request does not have."""
    if choice == "required" and not specs:
        raise HttpProblem(
            400, "tool_choice is `required`, but there are no tools", code="tool_choice", param="tool_choice"
        )
    if isinstance(choice, ToolChoice) and choice.type == "function":
        name = choice.function.name if choice.function else choice.name
        if name not in [spec.name for spec in specs]:
            why = f"tool_choice names the tool {name!r}, which is not in tools"
            raise HttpProblem(400, why, code="tool_choice", param="tool_choice")


def _tool_choice_prompt(choice: ToolChoiceOption) -> list[str]:
    """Models cannot be forced to call a tool, so the prompt asks for it."""
    if isinstance(choice, ToolChoice):
        name = choice.function.name if choice.function else choice.name
        return [f"Call the tool {name}."] if name else []
    return ["Answer by calling a tool."] if choice == "required" else []


def _read_format(output_format: OutputFormat | None, param: str) -> tuple[list[str], dict[str, Json]]:
    """What the model is asked for in words, and the schema of its answer. Raises `HttpProblem`."""
    if output_format is None or output_format.type == "text":
        return [], {}
    if output_format.type not in ("json_object", "json_schema"):
        why = f"{param}.type is {output_format.type!r}: use text, json_object or json_schema"
        raise HttpProblem(400, why, code="invalid_value", param=f"{param}.type")
    schema = output_format.named_schema
    if schema is None:
        return ["Answer with one JSON object and nothing else, without a code fence."], {}
    try:
        return [], check_schema(schema)
    except ConfigError as error:
        raise HttpProblem(400, str(error), code="invalid_schema", param=param) from error
