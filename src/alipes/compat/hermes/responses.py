"""What a model answered, in the form of a chat completion that plugins read and change, and back."""

import json
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

from msgspec import structs

from alipes.compat.hermes.wire import FINISH, call_of, message_from, usage_of
from alipes.kernel.messages import Message, Text, ToolCall
from alipes.kernel.ports import Request
from alipes.kernel.turns import Replied, StopCause


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
