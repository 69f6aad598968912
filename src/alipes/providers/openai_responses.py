"""OpenAI's responses API, the way there; the server keeps nothing. Back comes `openai_responses_reader`."""

from collections.abc import Iterator
from typing import Any, TypeAlias

import msgspec

from alipes.kernel.endpoints import Endpoint
from alipes.kernel.messages import Image, Json, Message, Text, Thinking, ToolCall, ToolResult
from alipes.kernel.ports import Request
from alipes.providers.faults import Place
from alipes.providers.openai_responses_reader import ResponsesReader
from alipes.providers.parts import arguments, data_url, fit_id, fit_name, notice, result_text
from alipes.providers.wire import Stream, outgoing
from alipes.runtime.clients import Http

Wire: TypeAlias = dict[str, Any]
_decode = msgspec.json.Decoder(dict[str, Json]).decode


class OpenAIResponses:
    def __init__(self, endpoint: Endpoint, http: Http) -> None:
        self._endpoint, self._http = endpoint, http

    def stream(self, request: Request) -> Stream:
        place = Place(self._endpoint, request.model)
        body = _to_wire(request, place.name) | request.extra
        request_out = outgoing(self._endpoint, request.model, "/responses", body)
        return Stream(self._http, request_out, ResponsesReader(place))


def _to_wire(request: Request, us: str) -> Wire:
    body: Wire = {
        "model": request.model,
        "stream": True,
        "store": False,
        # As nothing is kept there, its reasoning comes to us encrypted and goes back with the next request.
        "include": ["reasoning.encrypted_content"],
        "input": [item for message in request.messages for item in _items(message, us)],
        "max_output_tokens": request.max_tokens,
    }
    if request.system:
        body["instructions"] = request.system
    if request.tools:
        body["tools"] = [
            {
                "type": "function",
                "name": tool.name,
                "description": tool.description,
                "parameters": tool.schema,
                "strict": False,
            }
            for tool in request.tools
        ]
        if request.tool_choice == "none":
            body["tool_choice"] = "none"
    if request.effort:
        body["reasoning"] = {"effort": request.effort, "summary": "auto"}
    if request.session:
        body["prompt_cache_key"] = fit_id(request.session)
    return body


def _items(message: Message, us: str) -> list[Wire]:
    match message.role:
        case "assistant":
            return _said(message, us)
        case "tool":
            return [_result(part) for part in message.parts if isinstance(part, ToolResult)]
        case _:
            content = list(_asked(message))
            return [{"type": "message", "role": "user", "content": content}] if content else []


def _asked(message: Message) -> Iterator[Wire]:
    for part in message.parts:
        match part:
            case Text(text) if text:
                yield {"type": "input_text", "text": notice(text) if message.role == "notice" else text}
            case Image():
                yield _image(part)


def _said(message: Message, us: str) -> list[Wire]:
    items: list[Wire] = []
    for part in message.parts:
        match part:
            case Text(text) if text:
                content = [{"type": "output_text", "text": text, "annotations": []}]
                items.append({"type": "message", "role": "assistant", "content": content})
            case Thinking(_, seal, by) if seal and by == us and (item := _reasoning(seal)):
                items.append(item)
            case ToolCall(id, name):
                call = {"call_id": fit_id(id), "name": fit_name(name), "arguments": arguments(part)}
                items.append({"type": "function_call", **call})
    while items and items[-1]["type"] == "reasoning":
        # Thinking that led to nothing, cut off by the output limit: the API wants something after it.
        items.pop()
    return items


def _reasoning(seal: str) -> Wire | None:
    """The item as it came; None when it was sealed by another of this provider's APIs."""
    try:
        item = _decode(seal)
    except msgspec.DecodeError:
        return None
    return item if item.get("type") == "reasoning" else None


def _result(result: ToolResult) -> Wire:
    text = result_text(result)
    shown = [{"type": "input_text", "text": text}, *map(_image, result.images)]
    output = shown if result.images else text
    return {"type": "function_call_output", "call_id": fit_id(result.call_id), "output": output}


def _image(image: Image) -> Wire:
    return {"type": "input_image", "image_url": data_url(image), "detail": "auto"}
