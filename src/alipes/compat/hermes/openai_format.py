"""Translates messages, requests and responses between our types and the OpenAI format that plugins use."""

import base64
import json
from collections.abc import Iterable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

from msgspec import structs

from alipes.kernel.messages import Image, Json, Message, Part, Text, ToolCall, ToolResult
from alipes.kernel.ports import Request, ToolSpec
from alipes.kernel.turns import ModelReply, StopReason, Usage

Wire = dict[str, Any]
_REQUEST_FIELDS = frozenset(
    [
        "model",
        "messages",
        "max_tokens",
        "max_completion_tokens",
        "tools",
        "tool_choice",
        "stream",
        "stream_options",
        "timeout",
        "extra_body",
        "extra_headers",
    ]
)
"""Keywords with their own field in a `Request`, and keywords that alipes decides."""
FINISH: Mapping[StopReason, str] = {
    "end": "stop",
    "calls": "tool_calls",
    "length": "length",
    "refused": "content_filter",
}


def messages_to_wire(messages: Iterable[Message]) -> list[Wire]:
    """Messages with role, content and tool_calls; each tool result is a message of its own."""
    names: dict[str, str] = {}
    wire: list[Wire] = []
    for message in messages:
        names.update((call.id, call.name) for call in message.calls)
        wire += _message_to_wire(message, names)
    return wire


def _message_to_wire(message: Message, names: Mapping[str, str]) -> list[Wire]:
    if message.role == "tool":
        return [
            {"role": "tool", "tool_call_id": part.call_id, "name": names.get(part.call_id, ""), "content": part.text}
            for part in message.parts
            if isinstance(part, ToolResult)
        ]
    role = "system" if message.role == "notice" else message.role  # notices are not the user's words
    wire: Wire = {"role": role, "content": _content(message)}
    if message.calls:
        wire["tool_calls"] = [call_to_wire(call) for call in message.calls]
    return [wire]


def _content(message: Message) -> str | list[Wire]:
    images = [part for part in message.parts if isinstance(part, Image)]
    if not images:
        return message.text
    text_parts = [{"type": "text", "text": message.text}] if message.text else []
    return text_parts + [{"type": "image_url", "image_url": {"url": _data_url(each)}} for each in images]


def _data_url(image: Image) -> str:
    return f"data:{image.media_type};base64,{base64.b64encode(image.data).decode()}"


def call_to_wire(call: ToolCall) -> Wire:
    arguments = call.raw or json.dumps(call.args, ensure_ascii=False)
    return {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": arguments}}


def messages_from_wire(wire: Sequence[Mapping[str, Any]], known: Sequence[Message] = ()) -> tuple[Message, ...]:
    """The reverse. Messages that equal one of `known` are that object, so that nothing is lost."""
    names: dict[str, str] = {}
    chunks = []
    for message in known:
        names.update((call.id, call.name) for call in message.calls)
        chunks.append((message, _message_to_wire(message, names)))
    messages: list[Message] = []
    remaining = [dict(each) for each in wire]
    while remaining:
        same = next((at for at, (_, made) in enumerate(chunks) if made and remaining[: len(made)] == made), None)
        if same is not None:
            message, made = chunks[same]
            del chunks[: same + 1], remaining[: len(made)]
            messages.append(message)
        elif remaining[0].get("role") == "tool":
            messages.append(_take_results(remaining))
        else:
            messages.append(message_from_wire(remaining.pop(0)))
    return tuple(messages)


def _take_results(remaining: list[Wire]) -> Message:
    """Neighbouring results form one message."""
    parts = []
    while remaining and remaining[0].get("role") == "tool":
        each = remaining.pop(0)
        parts.append(ToolResult(str(each.get("tool_call_id", "")), _content_text(each.get("content"))))
    return Message("tool", tuple(parts))


def message_from_wire(wire: Mapping[str, Any]) -> Message:
    """One user, assistant or system message."""
    role = {"assistant": "assistant", "user": "user"}.get(str(wire.get("role")), "notice")
    content = wire.get("content")
    parts: list[Part] = list(map(_part_from_wire, content)) if isinstance(content, list) else []
    if isinstance(content, str) and (content or role != "assistant"):
        parts.append(Text(content))
    parts += [_call_from_wire(each) for each in wire.get("tool_calls") or ()]
    return Message(role, tuple(parts))  # type: ignore[arg-type]


def _part_from_wire(part: Any) -> Part:
    """A content part: text or an inline image."""
    if not isinstance(part, Mapping):
        return Text(str(part))
    url = part.get("image_url")
    address = url.get("url", "") if isinstance(url, Mapping) else url or ""
    if isinstance(address, str) and address.startswith("data:"):
        kind, _, data = address.removeprefix("data:").partition(";base64,")
        return Image(kind, base64.b64decode(data))
    if isinstance(given := part.get("data"), bytes):
        return Image(str(part.get("mime_type") or "image/png"), given)
    return Text(str(part.get("text") or address or part.get("url") or ""))


def _content_text(content: Any) -> str:
    if isinstance(content, list):
        return "".join(part.text for part in map(_part_from_wire, content) if isinstance(part, Text))
    return content if isinstance(content, str) else "" if content is None else json.dumps(content, default=str)


def _call_from_wire(wire: Mapping[str, Any]) -> ToolCall:
    function = wire.get("function") or {}
    raw = function.get("arguments") or "{}"
    try:
        args = json.loads(raw) if isinstance(raw, str) else dict(raw)
    except ValueError:
        args = None
    name, id = str(function.get("name", "")), str(wire.get("id", ""))
    return ToolCall(id, name, args) if isinstance(args, dict) else ToolCall(id, name, {}, str(raw))


def tool_to_wire(spec: ToolSpec) -> Wire:
    shape = {"name": spec.name, "description": spec.description, "parameters": spec.schema}
    return {"type": "function", "function": shape}


def request_to_wire(request: Request) -> Wire:
    """A model request as the keywords of a chat completion."""
    system = [{"role": "system", "content": request.system}] if request.system else []
    wire: Wire = {
        "model": request.model,
        "messages": system + messages_to_wire(request.messages),
        "max_tokens": request.max_tokens,
    }
    if request.tools:
        wire["tools"] = [tool_to_wire(spec) for spec in request.tools]
        wire["tool_choice"] = request.tool_choice
    return wire | request.extra


def request_from_wire(wire: Mapping[str, Any], request: Request) -> Request:
    """`request` with the plugin's changes. Unknown keywords go to `extra`."""
    messages = list(wire.get("messages") or ())
    system = ""
    if messages and messages[0].get("role") == "system":
        system = _content_text(messages.pop(0).get("content"))
    specs = {spec.name: spec for spec in request.tools}
    wanted = [each.get("function", each) for each in wire.get("tools") or ()]
    limit = wire.get("max_tokens") or wire.get("max_completion_tokens") or request.max_tokens
    return structs.replace(
        request,
        model=str(wire.get("model") or request.model),
        system=system,
        messages=messages_from_wire(messages, request.messages),
        tools=tuple(_spec_from_wire(each, specs.get(str(each.get("name")))) for each in wanted),
        max_tokens=int(limit),
        tool_choice="none" if wire.get("tool_choice") == "none" else "auto",
        extra=_extra(wire),
    )


def _extra(wire: Mapping[str, Any]) -> dict[str, Json]:
    """Provider-specific parameters such as a temperature, and those in `extra_body`."""
    plain = {name: value for name, value in wire.items() if name not in _REQUEST_FIELDS}
    body = wire.get("extra_body")
    return {**plain, **(body if isinstance(body, Mapping) else {})}


def _spec_from_wire(wire: Mapping[str, Any], known: ToolSpec | None) -> ToolSpec:
    name, description = str(wire.get("name", "")), str(wire.get("description", ""))
    schema = dict(wire.get("parameters") or {})
    spec = ToolSpec(name, description, schema) if known is None else known
    return structs.replace(spec, description=description, schema=schema)


def usage_to_wire(usage: Usage) -> Wire:
    """Token counts under the names of both API families."""
    return {
        "input_tokens": usage.input,
        "output_tokens": usage.output,
        "prompt_tokens": usage.input,
        "completion_tokens": usage.output,
        "total_tokens": usage.input + usage.output,
        "cache_read_tokens": usage.cached,
        "cache_write_tokens": usage.cache_write,
        "reasoning_tokens": usage.reasoning,
        "cost_usd": usage.cost,
    }


class CompletionResponse(SimpleNamespace):
    """A chat completion (`.choices[0].message.content`) that remembers the reply it was built from."""

    native: ModelReply


def response_to_wire(reply: ModelReply, request: Request) -> CompletionResponse:
    message = SimpleNamespace(
        role="assistant",
        content=reply.message.text or None,
        tool_calls=[_to_namespace(call_to_wire(call)) for call in reply.message.calls] or None,
    )
    choice = SimpleNamespace(index=0, message=message, finish_reason=FINISH[reply.stop])
    usage = SimpleNamespace(**usage_to_wire(reply.usage))
    return CompletionResponse(
        id="", object="chat.completion", model=request.model, choices=[choice], usage=usage, native=reply
    )


def _to_namespace(wire: Any) -> Any:
    """Replace mappings by objects with attributes."""
    if isinstance(wire, Mapping):
        return SimpleNamespace(**{name: _to_namespace(value) for name, value in wire.items()})
    return wire


def reply_from_wire(answer: Any) -> ModelReply:
    """The result of a middleware: the response it received, changed or not, or a new one.

    Raises `TypeError` for anything else.
    """
    native = getattr(answer, "native", None)
    choices = _get(answer, "choices")
    if not isinstance(choices, list | tuple) or not choices:
        raise TypeError(f"llm_execution returned {type(answer).__name__} instead of a model response")
    wire = _get(choices[0], "message")
    calls = [_call_to_dict(call) for call in _get(wire, "tool_calls") or ()]
    message = message_from_wire({"role": "assistant", "content": _get(wire, "content"), "tool_calls": calls})
    if isinstance(native, ModelReply):
        if (message.text, _comparable_calls(message)) == (native.message.text, _comparable_calls(native.message)):
            return native
        others = tuple(part for part in native.message.parts if not isinstance(part, Text | ToolCall))
        message = Message("assistant", (*others, *message.parts))
        return structs.replace(native, message=message)
    return ModelReply(message, stop=_stop(_get(choices[0], "finish_reason")))


def _comparable_calls(message: Message) -> list[tuple[str, str, str]]:
    return [(call.id, call.name, call.raw or json.dumps(call.args)) for call in message.calls]


def _call_to_dict(call: Any) -> dict[str, Any]:
    function = _get(call, "function")
    function_dict = {"name": _get(function, "name"), "arguments": _get(function, "arguments")}
    return {"id": _get(call, "id"), "function": function_dict}


def _get(thing: Any, name: str) -> Any:
    return thing.get(name) if isinstance(thing, Mapping) else getattr(thing, name, None)


def _stop(reason: Any) -> StopReason:
    return next((cause for cause, word in FINISH.items() if word == reason), "end")
