"""Conversations and requests in the OpenAI form that Hermes plugins know, and back. Pure translation."""

import base64
import json
from collections.abc import Iterable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

from msgspec import structs

from alipes.kernel.messages import Image, Json, Message, Part, Text, ToolCall, ToolResult
from alipes.kernel.ports import Request, ToolSpec
from alipes.kernel.turns import Replied, StopCause, Usage

Wire = dict[str, Any]
_OURS = frozenset(
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
"""Keywords that have a place of their own in a `Request`, or that are ours to decide."""
FINISH: Mapping[StopCause, str] = {
    "end": "stop",
    "calls": "tool_calls",
    "length": "length",
    "refused": "content_filter",
}


def messages_of(messages: Iterable[Message]) -> list[Wire]:
    """A conversation: role, content, tool_calls; a result is a message of its own, its text a string."""
    names: dict[str, str] = {}
    told: list[Wire] = []
    for message in messages:
        names.update((call.id, call.name) for call in message.calls)
        told += _one(message, names)
    return told


def _one(message: Message, names: Mapping[str, str]) -> list[Wire]:
    if message.role == "tool":
        return [
            {
                "role": "tool",
                "tool_call_id": part.call_id,
                "name": names.get(part.call_id, ""),
                "content": part.text,
            }
            for part in message.parts
            if isinstance(part, ToolResult)
        ]
    role = "system" if message.role == "notice" else message.role  # the house's words are not the person's
    told: Wire = {"role": role, "content": _content(message)}
    if message.calls:
        told["tool_calls"] = [call_of(call) for call in message.calls]
    return [told]


def _content(message: Message) -> str | list[Wire]:
    images = [part for part in message.parts if isinstance(part, Image)]
    if not images:
        return message.text
    words = [{"type": "text", "text": message.text}] if message.text else []
    return words + [{"type": "image_url", "image_url": {"url": _data_url(each)}} for each in images]


def _data_url(image: Image) -> str:
    return f"data:{image.media_type};base64,{base64.b64encode(image.data).decode()}"


def call_of(call: ToolCall) -> Wire:
    arguments = call.raw or json.dumps(call.args, ensure_ascii=False)
    return {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": arguments}}


def messages_from(told: Sequence[Mapping[str, Any]], known: Sequence[Message] = ()) -> tuple[Message, ...]:
    """Back again. A message that was left as it was stays the very one of `known`: nothing of it is lost."""
    names: dict[str, str] = {}
    chunks = []
    for message in known:
        names.update((call.id, call.name) for call in message.calls)
        chunks.append((message, _one(message, names)))
    messages: list[Message] = []
    rest = [dict(each) for each in told]
    while rest:
        same = next(
            (at for at, (_, wires) in enumerate(chunks) if wires and rest[: len(wires)] == wires), None
        )
        if same is not None:
            message, wires = chunks[same]
            del chunks[: same + 1], rest[: len(wires)]
            messages.append(message)
        elif rest[0].get("role") == "tool":
            messages.append(_results(rest))
        else:
            messages.append(message_from(rest.pop(0)))
    return tuple(messages)


def _results(rest: list[Wire]) -> Message:
    """The results that stand together are one message here."""
    parts = []
    while rest and rest[0].get("role") == "tool":
        each = rest.pop(0)
        parts.append(ToolResult(str(each.get("tool_call_id", "")), _words(each.get("content"))))
    return Message("tool", tuple(parts))


def message_from(told: Mapping[str, Any]) -> Message:
    """One message of a person, of the model or of the house."""
    role = {"assistant": "assistant", "user": "user"}.get(str(told.get("role")), "notice")
    content = told.get("content")
    parts: list[Part] = list(map(_part, content)) if isinstance(content, list) else []
    if isinstance(content, str) and (content or role != "assistant"):
        parts.append(Text(content))
    parts += [_call(each) for each in told.get("tool_calls") or ()]
    return Message(role, tuple(parts))  # type: ignore[arg-type]


def _part(part: Any) -> Part:
    """A piece of a message: words, or an image that is given whole."""
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


def _words(content: Any) -> str:
    if isinstance(content, list):
        return "".join(part.text for part in map(_part, content) if isinstance(part, Text))
    return (
        content if isinstance(content, str) else "" if content is None else json.dumps(content, default=str)
    )


def _call(told: Mapping[str, Any]) -> ToolCall:
    function = told.get("function") or {}
    raw = function.get("arguments") or "{}"
    try:
        args = json.loads(raw) if isinstance(raw, str) else dict(raw)
    except ValueError:
        args = None
    name, id = str(function.get("name", "")), str(told.get("id", ""))
    return ToolCall(id, name, args) if isinstance(args, dict) else ToolCall(id, name, {}, str(raw))


def tool_of(spec: ToolSpec) -> Wire:
    shape = {"name": spec.name, "description": spec.description, "parameters": spec.schema}
    return {"type": "function", "function": shape}


def request_of(request: Request) -> Wire:
    """A question to a model as the keywords of a chat completion."""
    system = [{"role": "system", "content": request.system}] if request.system else []
    told: Wire = {
        "model": request.model,
        "messages": system + messages_of(request.messages),
        "max_tokens": request.max_tokens,
    }
    if request.tools:
        told["tools"] = [tool_of(spec) for spec in request.tools]
        told["tool_choice"] = request.tool_choice
    return told | request.extra


def request_from(told: Mapping[str, Any], request: Request) -> Request:
    """`request` with what a plugin changed. What has no place of its own goes along as it is."""
    messages = list(told.get("messages") or ())
    system = ""
    if messages and messages[0].get("role") == "system":
        system = _words(messages.pop(0).get("content"))
    specs = {spec.name: spec for spec in request.tools}
    wanted = [each.get("function", each) for each in told.get("tools") or ()]
    limit = told.get("max_tokens") or told.get("max_completion_tokens") or request.max_tokens
    return structs.replace(
        request,
        model=str(told.get("model") or request.model),
        system=system,
        messages=messages_from(messages, request.messages),
        tools=tuple(_spec(each, specs.get(str(each.get("name")))) for each in wanted),
        max_tokens=int(limit),
        tool_choice="none" if told.get("tool_choice") == "none" else "auto",
        extra=_extra(told),
    )


def _extra(told: Mapping[str, Any]) -> dict[str, Json]:
    """What a provider may know and we do not, such as a temperature; `extra_body` as SDKs have it."""
    plain = {name: value for name, value in told.items() if name not in _OURS}
    body = told.get("extra_body")
    return {**plain, **(body if isinstance(body, Mapping) else {})}


def _spec(told: Mapping[str, Any], known: ToolSpec | None) -> ToolSpec:
    name, description = str(told.get("name", "")), str(told.get("description", ""))
    schema = dict(told.get("parameters") or {})
    spec = ToolSpec(name, description, schema) if known is None else known
    return structs.replace(spec, description=description, schema=schema)


def usage_of(usage: Usage) -> Wire:
    """Tokens, under the names of both families of APIs."""
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


class Response(SimpleNamespace):
    """`.choices[0].message.content` and so on. It knows of which answer it was made."""

    native: Replied


def response_of(reply: Replied, request: Request) -> Response:
    message = SimpleNamespace(
        role="assistant",
        content=reply.message.text or None,
        tool_calls=[_spaced(call_of(call)) for call in reply.message.calls] or None,
    )
    choice = SimpleNamespace(index=0, message=message, finish_reason=FINISH[reply.stop])
    usage = SimpleNamespace(**usage_of(reply.usage))
    return Response(
        id="", object="chat.completion", model=request.model, choices=[choice], usage=usage, native=reply
    )


def _spaced(told: Any) -> Any:
    """With attributes in place of keys."""
    if isinstance(told, Mapping):
        return SimpleNamespace(**{name: _spaced(value) for name, value in told.items()})
    return told


def reply_from(answer: Any) -> Replied:
    """What a middleware returned: the response it was given, changed or not, or one of its own making.

    Raises `TypeError` for anything else.
    """
    native = getattr(answer, "native", None)
    choices = _get(answer, "choices")
    if not isinstance(choices, list | tuple) or not choices:
        raise TypeError(f"llm_execution gave {type(answer).__name__}, which is no answer of a model")
    told = _get(choices[0], "message")
    calls = [_plain(call) for call in _get(told, "tool_calls") or ()]
    message = message_from({"role": "assistant", "content": _get(told, "content"), "tool_calls": calls})
    if isinstance(native, Replied):
        if (message.text, _bare(message)) == (native.message.text, _bare(native.message)):
            return native
        kept = tuple(part for part in native.message.parts if not isinstance(part, Text | ToolCall))
        message = Message("assistant", (*kept, *message.parts))
        return structs.replace(native, message=message)
    return Replied(message, stop=_stop(_get(choices[0], "finish_reason")))


def _bare(message: Message) -> list[tuple[str, str, str]]:
    return [(call.id, call.name, call.raw or json.dumps(call.args)) for call in message.calls]


def _plain(call: Any) -> dict[str, Any]:
    function = _get(call, "function")
    named = {"name": _get(function, "name"), "arguments": _get(function, "arguments")}
    return {"id": _get(call, "id"), "function": named}


def _get(thing: Any, name: str) -> Any:
    return thing.get(name) if isinstance(thing, Mapping) else getattr(thing, name, None)


def _stop(reason: Any) -> StopCause:
    return next((cause for cause, word in FINISH.items() if word == reason), "end")
