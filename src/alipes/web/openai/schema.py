"""What OpenAI's clients send, as values: for chat completions, and for responses. All else is ignored."""

from typing import Annotated, Any, Literal, TypeAlias

from msgspec import Meta, Struct

Name: TypeAlias = Annotated[str, Meta(pattern=r"^[a-zA-Z0-9_-]{1,64}(?!\n)$")]
Schema: TypeAlias = dict[str, Any]


class ImageUrl(Struct, frozen=True):
    url: str


class Part(Struct, frozen=True):
    """A piece of a message, of any kind; which fields count is decided by `type`."""

    type: str
    text: str | None = None
    image_url: ImageUrl | str | None = None
    refusal: str | None = None


Content: TypeAlias = str | list[Part] | None


class Function(Struct, frozen=True):
    name: str
    arguments: str


class Called(Struct, frozen=True):
    id: str
    function: Function
    type: Literal["function"] = "function"


class SystemMessage(Struct, frozen=True, tag="system", tag_field="role"):
    content: Content


class DeveloperMessage(Struct, frozen=True, tag="developer", tag_field="role"):
    content: Content


class UserMessage(Struct, frozen=True, tag="user", tag_field="role"):
    content: Content


class AssistantMessage(Struct, frozen=True, tag="assistant", tag_field="role"):
    content: Content = None
    tool_calls: list[Called] | None = None


class ToolMessage(Struct, frozen=True, tag="tool", tag_field="role"):
    tool_call_id: Annotated[str, Meta(min_length=1)]
    content: Content


ChatMessage: TypeAlias = SystemMessage | DeveloperMessage | UserMessage | AssistantMessage | ToolMessage


class FunctionSpec(Struct, frozen=True):
    name: Name
    description: str | None = None
    parameters: Schema | None = None


class ChatTool(Struct, frozen=True):
    """Kinds other than `function` are ignored: the agent has tools of its own."""

    type: str
    function: FunctionSpec | None = None


class NamedFunction(Struct, frozen=True):
    name: str


class ToolChoice(Struct, frozen=True):
    """A tool by name: under `function` in chat completions, by itself in responses."""

    type: str = "function"
    function: NamedFunction | None = None
    name: str | None = None


Choice: TypeAlias = Literal["none", "auto", "required"] | ToolChoice | None


class StreamOptions(Struct, frozen=True):
    include_usage: bool | None = None


class JsonSchema(Struct, frozen=True):
    name: str | None = None
    schema: Schema | None = None


class Format(Struct, frozen=True):
    """The form of the answer: `text`, `json_object` or `json_schema`."""

    type: str
    json_schema: JsonSchema | None = None
    schema: Schema | None = None
    """Where responses have it."""


class ChatRequest(Struct, frozen=True):
    messages: Annotated[list[ChatMessage], Meta(min_length=1)]
    model: str = "alipes"
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    tools: list[ChatTool] | None = None
    tool_choice: Choice = None
    response_format: Format | None = None
    n: Annotated[int, Meta(ge=1, le=1)] | None = None


class Item(Struct, frozen=True):
    """A piece of the input of a response, of any kind; without a `type` it is a message."""

    type: str = "message"
    role: Literal["system", "developer", "user", "assistant"] | None = None
    content: Content = None
    call_id: str | None = None
    name: str | None = None
    arguments: str | None = None
    output: Content = None


class ResponseTool(Struct, frozen=True):
    """Kinds other than `function` are ignored: the agent has tools of its own."""

    type: str
    name: Name | None = None
    description: str | None = None
    parameters: Schema | None = None


class TextConfig(Struct, frozen=True):
    format: Format | None = None


class ResponseRequest(Struct, frozen=True):
    input: Annotated[str, Meta(min_length=1)] | Annotated[list[Item], Meta(min_length=1)]
    model: str = "alipes"
    instructions: str | None = None
    previous_response_id: str | None = None
    store: bool | None = None
    stream: bool | None = None
    background: bool | None = None
    tools: list[ResponseTool] | None = None
    tool_choice: Choice = None
    text: TextConfig | None = None
    metadata: dict[str, str] | None = None
