"""The simulated model: its answers depend only on the transcript. Also finds errors in that transcript."""

import re
from typing import Any

import msgspec
from msgspec import Struct

STEPS = {"act": 1, "look": 1, "both": 1, "twice": 2, "trip": 1, "risk": 1, "ask": 1, "send": 1, "apart": 1}
"""How often it calls tools before it answers."""
_TOKEN = re.compile(r"\b(echo|act|look|both|twice|slow|long|trip|risk|ask|send|apart) (c\d+[a-z]\d+)\b")

_PARTS = re.compile(r"(c\d+)([a-z])(\d+)")


class StreamedReply(Struct):
    data: list[bytes]
    slow: float


def find_transcript_errors(messages: list[dict[str, Any]]) -> list[str]:
    """Calls that are not answered before the next message, and results without a call."""
    errors, open_calls = [], []
    for message in messages:
        if message["role"] == "tool":
            if message["tool_call_id"] not in open_calls:
                errors.append(f"a result without a call: {message['tool_call_id']}")
            else:
                open_calls.remove(message["tool_call_id"])
            continue
        if open_calls:
            errors.append(f"{message['role']} after calls without answers: {open_calls}")
        open_calls = [call["id"] for call in message.get("tool_calls") or ()]
    if open_calls:
        errors.append(f"calls without answers at the end: {open_calls}")
    return errors


def text_of(content: Any) -> str:
    if isinstance(content, list):
        return " ".join(str(part.get("text", "")) for part in content)
    return str(content or "")


def stream_reply(messages: list[dict[str, Any]], how: str = "", *, tools: bool = True) -> StreamedReply:
    """The chunks that the model streams. Without tools it is asked for a summary."""
    verb, token, done = _last_request(messages) if tools else ("sum", "", 0)
    slow = 3.0 if verb == "slow" else 0.3
    if how == "garbage":
        return StreamedReply([b"data: {nonsense\n\n"], slow)
    if done < STEPS.get(verb, 0):
        return StreamedReply(_call_lines(verb, token, done), slow)
    if not tools:
        return StreamedReply([_line({"content": "it was about this and that"}), *_end("stop")], slow)
    heard = [
        each
        for message in _user_messages_since_answer(messages)
        for _, each in _TOKEN.findall(text_of(message["content"]))
    ]
    text = f"answer to {' '.join(dict.fromkeys(heard)) or 'nothing'} is here"
    if verb == "long":
        text += "\n\n" + "\n\n".join(f"part {n} of {token} " + "x" * 900 for n in range(6))
    size = max(1, len(text) // (6 if verb == "slow" else 3))
    parts = [text[at : at + size] for at in range(0, len(text), size)]
    return StreamedReply([_line({"content": part}) for part in parts] + _end("stop"), slow)


def _user_messages_since_answer(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The messages of people since its last answer."""
    found: list[dict[str, Any]] = []
    for message in messages:
        if message["role"] == "user":
            found.append(message)
        elif message["role"] == "assistant" and not message.get("tool_calls"):
            found = []
    return found


def _last_request(messages: list[dict[str, Any]]) -> tuple[str, str, int]:
    """The verb and token of the last request, and how often tools were called since."""
    verb, token, done = "echo", "", 0
    for message in messages:
        if message["role"] == "user":
            found = _TOKEN.findall(text_of(message["content"]))
            if found:
                (verb, token), done = found[-1], 0
        elif message["role"] == "assistant":
            done += bool(message.get("tool_calls"))
    return verb, token, done


def _call_lines(verb: str, token: str, done: int) -> list[bytes]:
    match verb:
        case "look":
            names = ["see", "see"]
        case "both":
            names = ["see", "do", "see"]
        case "trip" | "risk":
            names = [verb]
        case "ask":
            names = ["clarify"]
        case "send" | "apart":
            names = ["delegate_task"]
        case _:
            names = ["do"]
    calls = [
        {
            "index": n,
            "id": f"{token}-{done}-{n}",
            "function": {"name": name, "arguments": _call_args(verb, token, f"{token}-{done}-{n}")},
        }
        for n, name in enumerate(names)
    ]
    said = [_line({"content": f"let me see {token} {done}"})] if verb == "both" else []
    return [*said, _line({"tool_calls": calls}), *_end("tool_calls")]


def _call_args(verb: str, token: str, what: str) -> str:
    """The arguments of a call. A subagent gets its own token."""
    chat, letter, number = _PARTS.fullmatch(token).groups()  # type: ignore[union-attr]
    child = f"{number}{ord(letter)}"
    match verb:
        case "ask":
            given: dict[str, Any] = {"question": f"which one for {token}?", "choices": ["red", "blue"]}
        case "send":
            given = {"tasks": [{"goal": f"act {chat}x{child}"}, {"goal": f"look {chat}y{child}"}]}
        case "apart":
            given = {"goal": f"look {chat}z{child}", "background": True}
        case _:
            given = {"what": what}
    return msgspec.json.encode(given).decode()


def _line(delta: dict[str, Any], finish: str | None = None) -> bytes:
    return b"data: " + msgspec.json.encode({"choices": [{"delta": delta, "finish_reason": finish}]}) + b"\n\n"


def _end(finish: str) -> list[bytes]:
    return [_line({}, finish) + b"data: [DONE]\n\n"]
