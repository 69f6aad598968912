"""Request bodies of OpenAI clients. Unknown fields are ignored."""

from typing import Annotated, Any, Literal, TypeAlias

from msgspec import Meta, Struct

Name: TypeAlias = Annotated[str, Meta(pattern=r"^[a-zA-Z0-9_-]{1,64}(?!\n)$")]
Schema: TypeAlias = dict[str, Any]


class ImageUrl(Struct, frozen=True):
    url: str


class ContentPart(Struct, frozen=True):
    """Any kind of content part; `type` decides which fields are used."""

    type: str
    text: str | None = None
    image_url: ImageUrl | str | None = None
    refusal: str | None = None


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
    schema: Schema | None = None
    """Used by the Responses API."""


class ChatRequest(Struct, frozen=True):
    messages: Annotated[list[ChatMessage], Meta(min_length=1)]
    model: str = "alipes"
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    tools: list[ChatTool] | None = None
    tool_choice: ToolChoiceOption = None
    response_format: OutputFormat | None = None
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


class ResponseRequest(Struct, frozen=True):
    input: Annotated[str, Meta(min_length=1)] | Annotated[list[InputItem], Meta(min_length=1)]
    model: str = "alipes"
    instructions: str | None = None
    previous_response_id: str | None = None
    store: bool | None = None
    stream: bool | None = None
    background: bool | None = None
    tools: list[ResponseTool] | None = None
    tool_choice: ToolChoiceOption = None
    text: TextConfig | None = None
    metadata: dict[str, str] | None = None
