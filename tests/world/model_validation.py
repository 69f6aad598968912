"""Validation like the real APIs: rejects a tool call without its result, or a result without its call."""

from collections.abc import Iterator
from itertools import pairwise
from typing import Any, Literal, TypeAlias

Body: TypeAlias = dict[str, Any]
Step: TypeAlias = tuple[Literal["user", "assistant", "call", "result", "other"], str]


class Invalid(Exception):
    """The message of a 400."""


def steps(api: str, body: Body) -> list[Step]:
    """The transcript in one form for all APIs: roles, calls and results."""
    return list(
        {
            "openai-chat": _chat,
            "openai-responses": _responses,
            "anthropic": _anthropic,
            "gemini": _gemini,
            "bedrock": _converse,
        }[api](body)
    )


def check(api: str, body: Body) -> None:
    """Raise `Invalid` as the API would answer 400."""
    if not isinstance(body.get("model"), str) or not body["model"]:
        raise Invalid("you must provide a model parameter")
    if api == "anthropic":
        _check_anthropic(body)
    elif api == "gemini":
        _check_gemini(body)
    elif api == "bedrock":
        _check_converse(body)
    else:
        key = "messages" if api == "openai-chat" else "input"
        if not body.get(key):
            raise Invalid(f"{key} must not be empty")
        _paired(steps(api, body), at_once=api == "openai-chat")
    if api == "openai-responses":
        _check_reasoning(body)


def serial(api: str, body: Body) -> int:
    """The number of assistant messages so far."""
    return sum(kind == "assistant" for kind, _ in steps(api, body))


def since_user(api: str, body: Body) -> tuple[int, str]:
    """The number of assistant messages since the last user message, and that message."""
    said, words = 0, ""
    for kind, text in steps(api, body):
        if kind == "user" and not text.startswith("<notice>"):
            said, words = 0, text
        elif kind == "assistant":
            said += 1
    return said, words


def _paired(transcript: list[Step], *, at_once: bool) -> None:
    made: set[str] = set()
    waiting: set[str] = set()
    for kind, what in transcript:
        if kind == "call":
            if what in made:
                raise Invalid(f"duplicate tool call id {what!r}")
            made.add(what)
            waiting.add(what)
        elif kind == "result":
            if what not in waiting:
                raise Invalid(f"no tool call found for tool output with call_id {what!r}")
            waiting.discard(what)
        elif waiting and at_once:
            break
    if waiting:
        raise Invalid(f"no tool output found for tool calls {sorted(waiting)}: each must be answered")


def _chat(body: Body) -> Iterator[Step]:
    for message in body["messages"]:
        match message["role"]:
            case "assistant":
                if not message.get("content") and not message.get("tool_calls"):
                    raise Invalid("an assistant message needs content or tool_calls")
                yield "assistant", message.get("content") or ""
                for call in message.get("tool_calls", ()):
                    if not isinstance(call["function"]["arguments"], str):
                        raise Invalid("function.arguments must be a string")
                    yield "call", call["id"]
            case "tool":
                yield "result", message["tool_call_id"]
            case "user":
                yield "user", _words(message["content"])
            case "system" | "developer":
                yield "other", ""
            case role:
                raise Invalid(f"unknown role {role!r}")


def _responses(body: Body) -> Iterator[Step]:
    items = [{"role": "user", "content": body["input"]}] if isinstance(body["input"], str) else body["input"]
    speaking = False
    for item in items:
        kind = item.get("type", "message")
        theirs = kind in {"reasoning", "function_call"} or item.get("role") == "assistant"
        if theirs and not speaking:
            yield "assistant", ""
        speaking = theirs
        if kind == "function_call":
            if not isinstance(item["arguments"], str):
                raise Invalid("arguments must be a string")
            yield "call", item["call_id"]
        elif kind == "function_call_output":
            yield "result", item["call_id"]
        elif kind == "message" and item["role"] == "user":
            yield "user", _words(item["content"])


def _check_reasoning(body: Body) -> None:
    if isinstance(body["input"], str):
        return
    for item, after in zip(body["input"], [*body["input"][1:], {}], strict=True):
        if item.get("type") == "reasoning":
            if (
                after.get("type") != "function_call"
                and after.get("role") != "assistant"
                and after.get("type") != "reasoning"
            ):
                raise Invalid(f"reasoning item {item.get('id')!r} was provided without its required following item")
            _sealed(item.get("encrypted_content"), "encrypted_content")


def _anthropic(body: Body) -> Iterator[Step]:
    for message in body["messages"]:
        content = message["content"]
        blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
        if message["role"] == "assistant":
            yield "assistant", ""
            for block in blocks:
                if block["type"] == "tool_use":
                    yield "call", block["id"]
            continue
        for block in blocks:
            if block["type"] == "tool_result":
                yield "result", block["tool_use_id"]
        words = [block["text"] for block in blocks if block["type"] == "text"]
        spoken = [text for text in words if not text.startswith("<notice>")]
        if spoken or words or any(block["type"] == "image" for block in blocks):
            yield "user", (spoken or words or [""])[-1]


def _check_anthropic(body: Body) -> None:
    messages = body.get("messages")
    if not messages or messages[0]["role"] != "user":
        raise Invalid("messages: first message must use the user role")
    if messages[-1]["role"] != "user":
        raise Invalid("this model does not support assistant message prefill")
    if not isinstance(body.get("max_tokens"), int):
        raise Invalid("max_tokens: field required")
    marks = sum("cache_control" in block for block in _marked(body))
    if marks + ("cache_control" in body) > 4:
        raise Invalid(f"a maximum of 4 blocks with cache_control may be provided, found {marks}")
    for message in messages:
        if message["role"] not in {"user", "assistant"}:
            raise Invalid(f"messages: unexpected role {message['role']!r}")
        _check_blocks(message)
    _paired(steps("anthropic", body), at_once=True)


def _check_blocks(message: Body) -> None:
    content = message["content"]
    if not content:
        raise Invalid("messages: content must be non-empty")
    results_over = False
    for block in content if isinstance(content, list) else []:
        match block["type"]:
            case "text" if not block["text"].strip():
                raise Invalid("messages: text content blocks must contain non-whitespace text")
            case "tool_use" if not isinstance(block["input"], dict):
                raise Invalid("tool_use.input: input should be a valid dictionary")
            case "tool_result" if results_over:
                raise Invalid("tool_result blocks must come first in the message's content")
            case "thinking":
                _sealed(block.get("signature"), "signature")
            case "redacted_thinking":
                _sealed(block.get("data"), "data")
        results_over = results_over or block["type"] != "tool_result"


def _gemini(body: Body) -> Iterator[Step]:
    for content in body["contents"]:
        if content["role"] == "model":
            yield "assistant", ""
        for part in content["parts"]:
            if call := part.get("functionCall"):
                yield "call", call["id"]
            elif answer := part.get("functionResponse"):
                yield "result", answer["id"]
            elif content["role"] == "user" and "text" in part:
                yield "user", part["text"]


def _check_gemini(body: Body) -> None:
    contents = body.get("contents")
    if not contents or contents[0]["role"] != "user":
        raise Invalid("contents: the first one must have the role user")
    roles = [content["role"] for content in contents]
    if any(role == after for role, after in pairwise(roles)) or set(roles) - {"user", "model"}:
        raise Invalid("contents: please ensure that multiturn requests alternate between user and model")
    names: dict[str, str] = {}
    for content in contents:
        if not content["parts"]:
            raise Invalid("contents.parts must not be empty")
        calls = [part for part in content["parts"] if "functionCall" in part]
        if calls and not calls[0].get("thoughtSignature"):
            raise Invalid("function call is missing a thought_signature")
        names |= {part["functionCall"]["id"]: part["functionCall"]["name"] for part in calls}
        for part in content["parts"]:
            if "thoughtSignature" in part and part["thoughtSignature"] != "skip_thought_signature_validator":
                _sealed(part["thoughtSignature"], "thought_signature")
            answer = part.get("functionResponse")
            if answer and names.get(answer["id"]) != answer["name"]:
                raise Invalid("a function response must have the name of its call")
    _paired(steps("gemini", body), at_once=True)


def _converse(body: Body) -> Iterator[Step]:
    for message in body["messages"]:
        if message["role"] == "assistant":
            yield "assistant", ""
        for block in message["content"]:
            if call := block.get("toolUse"):
                yield "call", call["toolUseId"]
            elif result := block.get("toolResult"):
                yield "result", result["toolUseId"]
            elif message["role"] == "user" and "text" in block:
                yield "user", block["text"]


def _check_converse(body: Body) -> None:
    messages = body["messages"]
    if not messages or messages[0]["role"] != "user" or messages[-1]["role"] != "user":
        raise Invalid("A conversation must start and end with a user message.")
    if any(one["role"] == after["role"] for one, after in pairwise(messages)):
        raise Invalid("A conversation must alternate between user and assistant roles.")
    for message in messages:
        if not message["content"]:
            raise Invalid("The content field in the Message object is empty.")
        for block in message["content"]:
            if "text" in block and not block["text"].strip():
                raise Invalid("The text field in the ContentBlock object is blank.")
            if "toolUse" in block and not body.get("toolConfig", {}).get("tools"):
                raise Invalid("The toolConfig field must be defined when using toolUse and toolResult blocks.")
            if "reasoningContent" in block:
                thought = block["reasoningContent"]
                _sealed(thought.get("redactedContent") or thought["reasoningText"]["signature"], "signature")
    _paired(steps("bedrock", body), at_once=True)


def _marked(body: Body) -> Iterator[Body]:
    yield from body.get("tools", ())
    if isinstance(body.get("system"), list):
        yield from body["system"]
    for message in body["messages"]:
        if isinstance(message["content"], list):
            yield from message["content"]


def _sealed(seal: object, field: str) -> None:
    if not (isinstance(seal, str) and seal.startswith("sealed-by-the-scripted-model")):
        raise Invalid(f"invalid {field} in thinking: it was not made by this model")


def _words(content: object) -> str:
    if isinstance(content, str):
        return content
    return "".join(part.get("text", "") for part in content) if isinstance(content, list) else ""
