"""Anthropic's messages API, the way there; whoever else speaks it, too. Back comes `anthropic_reader`."""

import re
from collections.abc import Iterator, Sequence
from typing import Any, TypeAlias

from alipes.kernel.endpoints import Endpoint
from alipes.kernel.messages import Image, Message, Part, Text, Thinking, ToolCall, ToolResult
from alipes.kernel.ports import Request
from alipes.providers.anthropic_reader import AnthropicReader
from alipes.providers.faults import Place
from alipes.providers.parts import base64_of, fit_id, fit_name, notice, result_text
from alipes.providers.wire import Stream, outgoing
from alipes.runtime.clients import Http

Wire: TypeAlias = dict[str, Any]
MARK = {"type": "ephemeral"}
REDACTED = "redacted:"
"""Begins the seal of thinking that came as ciphertext only; a signature has no colon."""
_BUDGETED = r"claude-(?:[123]|(?:opus|sonnet|haiku)-(?:4-[0-5](?!\d)|4-\d{8}|4$))"
"""Models from before adaptive thinking: they are given a budget, the later ones an effort."""
_SHARE = {"low": 8, "medium": 4, "high": 2}
_LEAST = 1024


class Anthropic:
    def __init__(self, endpoint: Endpoint, http: Http) -> None:
        self._endpoint, self._http = endpoint, http

    def stream(self, request: Request) -> Stream:
        place = Place(self._endpoint, request.model)
        body = _to_wire(request, place.name) | request.extra
        return Stream(
            self._http,
            outgoing(self._endpoint, request.model, "/messages", body),
            AnthropicReader(place),
        )


def _to_wire(request: Request, us: str) -> Wire:
    messages = _messages(request.messages, us)
    _mark(messages)
    body: Wire = {"model": request.model, "max_tokens": request.max_tokens, "stream": True}
    body["messages"] = messages
    if request.system:
        body["system"] = [{"type": "text", "text": request.system, "cache_control": MARK}]
    body |= _tools(request, messages)
    if request.effort:
        body |= _thinking(request, messages)
    return body


def _tools(request: Request, messages: list[Wire]) -> Wire:
    if request.tools:
        tools: list[Wire] = [
            {"name": tool.name, "description": tool.description, "input_schema": tool.schema}
            for tool in request.tools
        ]
        if not request.system:
            tools[-1]["cache_control"] = MARK
        return {"tools": tools} | ({"tool_choice": {"type": "none"}} if request.tool_choice == "none" else {})
    called = {
        block["name"] for message in messages for block in message["content"] if block["type"] == "tool_use"
    }
    if not called:
        return {}
    # A transcript with calls is rejected where no tools are defined: they are named, and may not be used.
    named = [{"name": name, "input_schema": {"type": "object"}} for name in sorted(called)]
    return {"tools": named, "tool_choice": {"type": "none"}}


def _thinking(request: Request, messages: list[Wire]) -> Wire:
    if "claude" in request.model and not re.search(_BUDGETED, request.model):
        return {
            "thinking": {"type": "adaptive", "display": "summarized"},
            "output_config": {"effort": request.effort},
        }
    budget = max(_LEAST, request.max_tokens // _SHARE[request.effort])
    # With a budget, a tool loop must begin with thinking; one that another model began cannot go on with it.
    if budget >= request.max_tokens or _thoughtless_loop(messages):
        return {}
    return {"thinking": {"type": "enabled", "budget_tokens": budget}}


def _thoughtless_loop(messages: list[Wire]) -> bool:
    if len(messages) < 2 or messages[-1]["content"][0]["type"] != "tool_result":
        return False
    return messages[-2]["content"][0]["type"] not in ("thinking", "redacted_thinking")


def _mark(messages: list[Wire]) -> None:
    """Breakpoints of the prompt cache: the end of this request, and the ends of the two before it.

    The server looks back only twenty blocks from a breakpoint for what it has kept, and a round
    of many calls is longer: so the end of the last request is named, not looked for. With the
    one on the system prompt these are the four that the API allows.
    """
    ends = [message for message in messages if message["role"] == "user"][-3:]
    for message in ends:
        message["content"][-1]["cache_control"] = MARK


def _messages(messages: Sequence[Message], us: str) -> list[Wire]:
    """In alternation, as the API wants it: neighbours of one role are one message."""
    wire: list[Wire] = []
    for message in messages:
        role = "assistant" if message.role == "assistant" else "user"
        blocks = list(_said(message, us) if role == "assistant" else _asked(message))
        if not blocks:
            continue
        if wire and wire[-1]["role"] == role:
            wire[-1]["content"] += blocks
        else:
            wire.append({"role": role, "content": blocks})
    return wire


def _said(message: Message, us: str) -> list[Wire]:
    blocks = [block for part in message.parts if (block := _from_us(part, us))]
    while blocks and blocks[-1]["type"] in ("thinking", "redacted_thinking"):
        # Thinking that led to nothing, cut off by the output limit: the API wants something after it.
        blocks.pop()
    return blocks


def _from_us(part: Part, us: str) -> Wire | None:
    match part:
        case Text(text) if text.strip():
            return {"type": "text", "text": text}
        case Thinking(text, seal, by) if seal and by == us and not seal.startswith("{"):
            if seal.startswith(REDACTED):
                return {"type": "redacted_thinking", "data": seal.removeprefix(REDACTED)}
            return {"type": "thinking", "thinking": text, "signature": seal}
        case ToolCall(id, name, args):
            return {"type": "tool_use", "id": fit_id(id), "name": fit_name(name), "input": args}
        case _:
            return None


def _asked(message: Message) -> Iterator[Wire]:
    for part in message.parts:
        match part:
            case Text(text) if text.strip():
                yield {"type": "text", "text": notice(text) if message.role == "notice" else text}
            case Image():
                yield _image(part)
            case ToolResult():
                yield _result(part)


def _result(result: ToolResult) -> Wire:
    content = [{"type": "text", "text": result_text(result)}, *map(_image, result.images)]
    block = {"type": "tool_result", "tool_use_id": fit_id(result.call_id), "content": content}
    return block if result.outcome == "ok" else {**block, "is_error": True}


def _image(image: Image) -> Wire:
    source = {"type": "base64", "media_type": image.media_type, "data": base64_of(image)}
    return {"type": "image", "source": source}
