"""Replies in the wire formats of the three APIs, frame by frame. No sockets."""

import zlib
from collections.abc import Iterator
from itertools import pairwise
from typing import ClassVar, Literal, TypeAlias

import msgspec
from msgspec import Struct

from tests.world.model_replies import Broken, Call, Calls, Cut, Fail, Refusal, Reply, Say, Stall, Tokens, Truncated

Kind: TypeAlias = Literal["head", "think", "text", "call", "close", "end"]
Frame: TypeAlias = tuple[Kind, bytes]
Stop: TypeAlias = Literal["end", "calls", "length", "refused"]
encode = msgspec.json.Encoder().encode

KINDS = {
    400: "invalid_request_error",
    401: "authentication_error",
    402: "billing_error",
    403: "permission_error",
    404: "not_found_error",
    408: "timeout_error",
    413: "request_too_large",
    429: "rate_limit_error",
    529: "overloaded_error",
}


class Answer(Struct, frozen=True):
    """A reply in one form for all wire formats."""

    text: str = ""
    thinking: str = ""
    seal: str = ""
    redacted: bool = False
    calls: tuple[Call, ...] = ()
    pieces: int = 4
    stop: Stop = "end"
    usage: Tokens = Tokens()
    model: str = "scripted"
    serial: int = 0


def answer(reply: Reply, *, model: str, serial: int) -> Answer:
    """`serial` is the number of assistant messages so far; ids are made of it."""
    known = {"model": model, "serial": serial}
    match reply:
        case Say(text, pieces, thinking=thinking, seal=seal, redacted=redacted, usage=usage):
            return Answer(text, thinking, seal, redacted, pieces=pieces, usage=usage, **known)
        case Call():
            return answer(Calls((reply,)), model=model, serial=serial)
        case Calls(calls, text, thinking, seal, pieces, usage=usage):
            named = tuple(
                msgspec.structs.replace(call, id=call.id or f"call_{serial}_{n}") for n, call in enumerate(calls)
            )
            return Answer(text, thinking, seal, False, named, pieces, "calls", usage, **known)
        case Truncated(text, usage):
            return Answer(text, stop="length", usage=usage, **known)
        case Refusal(text, usage):
            return Answer(text, stop="refused", usage=usage, **known)
        case Stall(after) | Cut(after) | Broken(after):
            half = isinstance(reply, Cut) and reply.where == "call"
            calls = (Call("terminal", {"command": "echo half of this call arrives"}, "call_cut"),) if half else ()
            return Answer(after or "", calls=calls, pieces=6 if half else 3, **known)
    raise TypeError(f"{reply!r} has no answer")


def frames(api: str, reply: Reply, *, model: str = "scripted", serial: int = 0) -> list[bytes]:
    """The server-sent events of `reply`, in order; of a faulty reply, those before the fault."""
    whole = list(WIRES[api].frames(answer(reply, model=model, serial=serial)))
    match reply:
        case Cut(where="call"):
            call = [n for n, (kind, _) in enumerate(whole) if kind == "call"]
            whole = whole[: call[len(call) // 2]]
        case Cut(where="no_end"):
            whole = [frame for frame in whole if frame[0] != "end"]
        case Stall() | Cut() | Broken():
            last = max((n for n, (kind, _) in enumerate(whole) if kind == "text"), default=-1)
            whole = whole[: last + 1] if last >= 0 else [f for f in whole if f[0] == "head"]
    tail = [WIRES[api].broken(reply)] if isinstance(reply, Broken) else []
    return [data for _, data in whole] + tail


def whole(api: str, reply: Reply, *, model: str, serial: int) -> bytes:
    """The JSON of `reply` for a client that did not ask for a stream."""
    return encode(WIRES[api].whole(answer(reply, model=model, serial=serial)))


def failure(api: str, fail: Fail) -> bytes:
    if fail.body is not None:
        return fail.body.encode()
    kind = fail.kind or KINDS.get(fail.status, "api_error")
    if api == "anthropic":
        error: dict[str, object] = {"type": kind, "message": fail.message}
        return encode({"type": "error", "error": error, "request_id": "req_scripted"})
    if api == "bedrock":
        return encode({"message": f"{fail.message} {fail.kind}".strip()})
    if api == "gemini":
        status = {429: "RESOURCE_EXHAUSTED", 401: "UNAUTHENTICATED", 400: "INVALID_ARGUMENT"}.get(fail.status, kind)
        return encode({"error": {"code": fail.status, "message": fail.message, "status": fail.kind or status}})
    return encode({"error": {"message": fail.message, "type": kind, "param": None, "code": kind}})


def cut(text: str, pieces: int) -> list[str]:
    """`text` in at most `pieces` parts of nearly equal length, none of them empty."""
    pieces = max(1, min(pieces, len(text)))
    size, extra = divmod(len(text), pieces)
    ends = [size * n + min(n, extra) for n in range(pieces + 1)]
    return [text[a:b] for a, b in pairwise(ends) if b > a]


def arguments(call: Call) -> str:
    return call.raw if call.raw is not None else encode(call.args).decode()


def interleaved(answer: Answer) -> Iterator[tuple[int, str]]:
    """The argument pieces of all calls as (index, piece), interleaved."""
    hands = [cut(arguments(call), answer.pieces) for call in answer.calls]
    for round_ in range(max(map(len, hands), default=0)):
        for index, hand in enumerate(hands):
            if round_ < len(hand):
                yield index, hand[round_]


class ChatWire:
    """OpenAI chat completions, with `reasoning_content` as DeepSeek and others add it."""

    stops: ClassVar = {"end": "stop", "calls": "tool_calls", "length": "length", "refused": "content_filter"}

    def frames(self, answer: Answer) -> Iterator[Frame]:
        before = (
            b'data: {"id":"chatcmpl-%d","object":"chat.completion.chunk","created":1,"model":%s,"choices":[{"index":0,"delta":'
            % (answer.serial, encode(answer.model))
        )

        def chunk(delta: bytes, finish: bytes = b"null") -> bytes:
            return b"".join((before, delta, b',"logprobs":null,"finish_reason":', finish, b"}]}\n\n"))

        yield "head", chunk(b'{"role":"assistant","content":""}')
        for piece in cut(answer.thinking, answer.pieces):
            yield "think", chunk(b'{"reasoning_content":%s}' % encode(piece))
        field = b'{"refusal":%s}' if answer.stop == "refused" else b'{"content":%s}'
        for piece in cut(answer.text, answer.pieces):
            yield "text", chunk(field % encode(piece))
        for index, call in enumerate(answer.calls):
            made = {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": ""}}
            yield "call", chunk(encode({"tool_calls": [{"index": index, **made}]}))
        for index, piece in interleaved(answer):
            yield "call", chunk(encode({"tool_calls": [{"index": index, "function": {"arguments": piece}}]}))
        yield "end", chunk(b"{}", encode(self.stops[answer.stop]))
        tail = {"id": "chatcmpl-0", "object": "chat.completion.chunk", "model": answer.model, "choices": []}
        yield "end", b"data: %s\n\ndata: [DONE]\n\n" % encode({**tail, "usage": self.usage(answer.usage)})

    def usage(self, tokens: Tokens) -> dict[str, object]:
        return {
            "prompt_tokens": tokens.input,
            "completion_tokens": tokens.output,
            "total_tokens": tokens.input + tokens.output,
            "prompt_tokens_details": {"cached_tokens": tokens.cached, "cache_write_tokens": tokens.cache_write},
            "completion_tokens_details": {"reasoning_tokens": tokens.reasoning},
        }

    def broken(self, reply: Broken) -> bytes:
        return b"data: %s\n\n" % encode({"error": {"message": reply.message, "type": reply.kind, "code": reply.kind}})

    def whole(self, answer: Answer) -> dict[str, object]:
        calls = [
            {"id": c.id, "type": "function", "function": {"name": c.name, "arguments": arguments(c)}}
            for c in answer.calls
        ]
        message: dict[str, object] = {"role": "assistant", "content": answer.text or None}
        if calls:
            message["tool_calls"] = calls
        choice = {"index": 0, "message": message, "finish_reason": self.stops[answer.stop], "logprobs": None}
        about = {"id": f"chatcmpl-{answer.serial}", "object": "chat.completion", "created": 1}
        return {**about, "model": answer.model, "choices": [choice], "usage": self.usage(answer.usage)}


class MessagesWire:
    """Anthropic messages."""

    stops: ClassVar = {"end": "end_turn", "calls": "tool_use", "length": "max_tokens", "refused": "refusal"}

    def frames(self, answer: Answer) -> Iterator[Frame]:
        message = {**self.about(answer), "content": [], "stop_reason": None, "stop_sequence": None}
        message["usage"] = {**self.usage(answer.usage), "output_tokens": 1}
        yield "head", _event("message_start", message=message)
        yield "head", _event("ping")
        for index, block in enumerate(self.content(answer)):
            yield from self.block(index, block, answer.pieces)
        delta = {"stop_reason": self.stops[answer.stop], "stop_sequence": None}
        yield "end", _event("message_delta", delta=delta, usage=self.usage(answer.usage))
        yield "end", _event("message_stop")

    def block(self, index: int, block: dict[str, object], pieces: int) -> Iterator[Frame]:
        kind: Kind
        match block["type"]:
            case "text":
                kind, empty, whole, name, field = "text", {"text": ""}, block["text"], "text_delta", "text"
            case "thinking":
                empty, whole = {"thinking": "", "signature": ""}, block["thinking"]
                kind, name, field = "think", "thinking_delta", "thinking"
            case "tool_use":
                empty, whole = {"input": {}}, block["input"]
                kind, name, field = "call", "input_json_delta", "partial_json"
            case _:
                kind, empty, whole, name, field = "think", {}, "", "", ""
        yield kind, _event("content_block_start", index=index, content_block={**block, **empty})
        before = (
            b'event: content_block_delta\ndata: {"type":"content_block_delta","index":%d,"delta":{"type":"%s","%s":'
            % (index, name.encode(), field.encode())
        )
        for piece in cut(str(whole), pieces):
            yield kind, b"%s%s}}\n\n" % (before, encode(piece))
        if block["type"] == "thinking":
            seal = {"type": "signature_delta", "signature": block["signature"]}
            yield kind, _event("content_block_delta", index=index, delta=seal)
        yield "close", _event("content_block_stop", index=index)

    def content(self, answer: Answer) -> Iterator[dict[str, object]]:
        if answer.redacted:
            yield {"type": "redacted_thinking", "data": answer.seal}
        elif answer.thinking:
            yield {"type": "thinking", "thinking": answer.thinking, "signature": answer.seal}
        if answer.text:
            yield {"type": "text", "text": answer.text}
        for call in answer.calls:
            yield {"type": "tool_use", "id": call.id, "name": call.name, "input": arguments(call)}

    def usage(self, tokens: Tokens) -> dict[str, object]:
        return {
            "input_tokens": tokens.input - tokens.cached - tokens.cache_write,
            "output_tokens": tokens.output,
            "cache_read_input_tokens": tokens.cached,
            "cache_creation_input_tokens": tokens.cache_write,
            "output_tokens_details": {"thinking_tokens": tokens.reasoning},
        }

    def broken(self, reply: Broken) -> bytes:
        return _event("error", error={"type": reply.kind, "message": reply.message})

    def about(self, answer: Answer) -> dict[str, object]:
        return {"id": f"msg_{answer.serial}", "type": "message", "role": "assistant", "model": answer.model}

    def whole(self, answer: Answer) -> dict[str, object]:
        content = [
            {**block, "input": msgspec.json.decode(str(block["input"]))} if "input" in block else block
            for block in self.content(answer)
        ]
        end = {"stop_reason": self.stops[answer.stop], "stop_sequence": None, "usage": self.usage(answer.usage)}
        return {**self.about(answer), "content": content, **end}


class ResponsesWire:
    """OpenAI responses."""

    def frames(self, answer: Answer) -> Iterator[Frame]:
        started = {**self.whole(answer), "status": "in_progress", "output": [], "usage": None}
        yield "head", _event("response.created", response=started)
        yield "head", _event("response.in_progress", response=started)
        items = self.items(answer)
        for index, item in enumerate(items):
            match item["type"]:
                case "reasoning":
                    yield from self.reasoning(index, item, answer)
                case "message":
                    yield from self.message(index, item, answer)
        first = len(items) - len(answer.calls)
        for index, item in enumerate(items[first:], first):
            begun = {**item, "status": "in_progress", "arguments": ""}
            yield "call", _event("response.output_item.added", output_index=index, item=begun)
        for nth, piece in interleaved(answer):
            at = {"item_id": items[first + nth]["id"], "output_index": first + nth}
            yield "call", _event("response.function_call_arguments.delta", **at, delta=piece)
        for index, item in enumerate(items[first:], first):
            at = {"item_id": item["id"], "output_index": index}
            yield "close", _event("response.function_call_arguments.done", **at, arguments=item["arguments"])
            yield "close", _event("response.output_item.done", output_index=index, item=item)
        last = "response.incomplete" if answer.stop == "length" else "response.completed"
        yield "end", _event(last, response=self.whole(answer))

    def reasoning(self, index: int, item: dict[str, object], answer: Answer) -> Iterator[Frame]:
        at = {"item_id": item["id"], "output_index": index, "summary_index": 0}
        begun = {**item, "summary": [], "encrypted_content": ""}
        yield "think", _event("response.output_item.added", output_index=index, item=begun)
        yield (
            "think",
            _event("response.reasoning_summary_part.added", **at, part={"type": "summary_text", "text": ""}),
        )
        for piece in cut(answer.thinking, answer.pieces):
            yield "think", _event("response.reasoning_summary_text.delta", **at, delta=piece)
        yield "think", _event("response.reasoning_summary_text.done", **at, text=answer.thinking)
        yield "think", _event("response.output_item.done", output_index=index, item=item)

    def message(self, index: int, item: dict[str, object], answer: Answer) -> Iterator[Frame]:
        refused = answer.stop == "refused"
        at = {"item_id": item["id"], "output_index": index, "content_index": 0}
        yield "head", _event("response.output_item.added", output_index=index, item={**item, "content": []})
        part = {"type": "refusal", "refusal": ""} if refused else {"type": "output_text", "text": "", "annotations": []}
        yield "head", _event("response.content_part.added", **at, part=part)
        name = "response.refusal" if refused else "response.output_text"
        before = f"event: {name}.delta\ndata: ".encode() + encode({"type": f"{name}.delta", **at, "logprobs": []})[:-1]
        for piece in cut(answer.text, answer.pieces):
            yield "text", b'%s,"delta":%s}\n\n' % (before, encode(piece))
        done = {"refusal": answer.text} if refused else {"text": answer.text}
        yield "close", _event(f"{name}.done", **at, **done)
        yield "close", _event("response.content_part.done", **at, part={**part, **done})
        yield "close", _event("response.output_item.done", output_index=index, item=item)

    def items(self, answer: Answer) -> list[dict[str, object]]:
        items: list[dict[str, object]] = []
        if answer.thinking or answer.redacted:
            summary = [{"type": "summary_text", "text": answer.thinking}] if answer.thinking else []
            sealed = {"summary": summary, "encrypted_content": answer.seal}
            items.append({"type": "reasoning", "id": f"rs_{answer.serial}", **sealed})
        if answer.text or not answer.calls:
            text = {"type": "output_text", "text": answer.text, "annotations": []}
            part = {"type": "refusal", "refusal": answer.text} if answer.stop == "refused" else text
            said = {"role": "assistant", "status": "completed", "content": [part]}
            items.append({"type": "message", "id": f"msg_{answer.serial}", **said})
        for call in answer.calls:
            made = {"call_id": call.id, "name": call.name, "arguments": arguments(call), "status": "completed"}
            made |= {"namespace": call.namespace} if call.namespace else {}
            items.append({"type": "function_call", "id": f"fc_{call.id}", **made})
        return items

    def usage(self, tokens: Tokens) -> dict[str, object]:
        return {
            "input_tokens": tokens.input,
            "input_tokens_details": {"cached_tokens": tokens.cached, "cache_write_tokens": tokens.cache_write},
            "output_tokens": tokens.output,
            "output_tokens_details": {"reasoning_tokens": tokens.reasoning},
            "total_tokens": tokens.input + tokens.output,
        }

    def broken(self, reply: Broken) -> bytes:
        return _event("error", code=reply.kind, message=reply.message, param=None)

    def whole(self, answer: Answer) -> dict[str, object]:
        short = answer.stop == "length"
        why = {"incomplete_details": {"reason": "max_output_tokens"} if short else None, "error": None}
        about = {"id": f"resp_{answer.serial}", "object": "response", "created_at": 1, "model": answer.model}
        status = {"status": "incomplete" if short else "completed", "output": self.items(answer)}
        usage = {"usage": self.usage(answer.usage), "tools": [], "tool_choice": "auto", "parallel_tool_calls": True}
        return {**about, **status, **why, **usage}


class GeminiWire:
    """Gemini's streamGenerateContent. Calls are whole; one whose arguments are no object is not passed on."""

    stops: ClassVar = {"end": "STOP", "calls": "STOP", "length": "MAX_TOKENS", "refused": "SAFETY"}

    def frames(self, answer: Answer) -> Iterator[Frame]:
        yield "head", self.chunk(answer, {"text": ""})
        for piece in cut(answer.thinking, answer.pieces):
            yield "think", self.chunk(answer, {"text": piece, "thought": True})
        pieces = cut(answer.text, answer.pieces)
        for number, piece in enumerate(pieces):
            seal = {"thoughtSignature": answer.seal} if answer.thinking and number == len(pieces) - 1 else {}
            yield "text", self.chunk(answer, {"text": piece, **seal})
        for number, call in enumerate(answer.calls):
            seal = {"thoughtSignature": "sealed-by-the-scripted-model"} if not number else {}
            yield "call", self.chunk(answer, {"functionCall": self.call(call), **seal})
        yield "end", self.chunk(answer, {"text": ""}, self.stops[answer.stop], self.usage(answer.usage))

    def call(self, call: Call) -> dict[str, object]:
        return {"id": call.id, "name": call.name, "args": msgspec.json.decode(arguments(call))}

    def chunk(self, answer: Answer, part: dict[str, object], finish: str = "", usage: object = None) -> bytes:
        candidate: dict[str, object] = {"content": {"role": "model", "parts": [part]}, "index": 0}
        if finish:
            candidate["finishReason"] = finish
        counted = {"usageMetadata": usage} if usage else {}
        return b"data: %s\r\n\r\n" % encode({"candidates": [candidate], **counted, "modelVersion": answer.model})

    def usage(self, tokens: Tokens) -> dict[str, object]:
        return {
            "promptTokenCount": tokens.input,
            "candidatesTokenCount": tokens.output - tokens.reasoning,
            "thoughtsTokenCount": tokens.reasoning,
            "cachedContentTokenCount": tokens.cached,
            "totalTokenCount": tokens.input + tokens.output,
        }

    def broken(self, reply: Broken) -> bytes:
        usual = {
            "overloaded_error": (503, "UNAVAILABLE"),
            "server_error": (500, "INTERNAL"),
            "insufficient_quota": (429, "RESOURCE_EXHAUSTED: You exceeded your current quota"),
        }
        code, status = usual.get(reply.kind, (400, reply.kind))
        error = {"code": code, "message": reply.message, "status": status}
        return b"data: %s\r\n\r\n" % encode({"error": error})

    def whole(self, answer: Answer) -> dict[str, object]:
        raise NotImplementedError("it is always asked for a stream")


class ConverseWire:
    """Amazon Bedrock's ConverseStream: binary frames."""

    stops: ClassVar = {"end": "end_turn", "calls": "tool_use", "length": "max_tokens", "refused": "content_filtered"}

    def frames(self, answer: Answer) -> Iterator[Frame]:
        yield "head", binary_frame("messageStart", {"role": "assistant"})
        index = 0
        if answer.thinking or answer.redacted:
            thoughts: list[dict[str, object]] = [{"text": piece} for piece in cut(answer.thinking, answer.pieces)]
            last: dict[str, object] = {"redactedContent" if answer.redacted else "signature": answer.seal}
            for piece in [last] if answer.redacted else [*thoughts, last]:
                yield "think", self.delta(index, {"reasoningContent": piece})
            index += 1
        for piece in cut(answer.text, answer.pieces):
            yield "text", self.delta(index, {"text": piece})
        first = index + 1
        for number, call in enumerate(answer.calls):
            start = {"toolUse": {"toolUseId": call.id, "name": call.name}}
            yield "call", binary_frame("contentBlockStart", {"contentBlockIndex": first + number, "start": start})
        for number, piece in interleaved(answer):
            yield "call", self.delta(first + number, {"toolUse": {"input": piece}})
        yield "close", binary_frame("contentBlockStop", {"contentBlockIndex": index})
        yield "end", binary_frame("messageStop", {"stopReason": self.stops[answer.stop]})
        yield "end", binary_frame("metadata", {"usage": self.usage(answer.usage), "metrics": {"latencyMs": 1}})

    def delta(self, index: int, delta: dict[str, object]) -> bytes:
        return binary_frame("contentBlockDelta", {"contentBlockIndex": index, "delta": delta, "p": "abcdef"})

    def usage(self, tokens: Tokens) -> dict[str, object]:
        return {
            "inputTokens": tokens.input - tokens.cached - tokens.cache_write,
            "outputTokens": tokens.output,
            "totalTokens": tokens.input + tokens.output,
            "cacheReadInputTokens": tokens.cached,
            "cacheWriteInputTokens": tokens.cache_write,
        }

    def broken(self, reply: Broken) -> bytes:
        usual = {"overloaded_error": "serviceUnavailableException", "server_error": "internalServerException"}
        return binary_frame(usual.get(reply.kind, reply.kind), {"message": reply.message}, "exception")

    def whole(self, answer: Answer) -> dict[str, object]:
        raise NotImplementedError("it is always asked for a stream")


def binary_frame(name: str, body: object, kind: str = "event") -> bytes:
    """A frame of an AWS event stream."""
    payload = body if isinstance(body, bytes) else encode(body)
    texts = {":message-type": kind, f":{kind}-type": name, ":content-type": "application/json"}
    headers = b"".join(
        b"%c%s\x07%s%s" % (len(key), key.encode(), len(value).to_bytes(2), value.encode())
        for key, value in texts.items()
    )
    prelude = (16 + len(headers) + len(payload)).to_bytes(4) + len(headers).to_bytes(4)
    frame = prelude + zlib.crc32(prelude).to_bytes(4) + headers + payload
    return frame + zlib.crc32(frame).to_bytes(4)


def _event(name: str, **fields: object) -> bytes:
    return b"event: %s\ndata: %s\n\n" % (name.encode(), encode({"type": name, **fields}))


WIRES: dict[str, ChatWire | MessagesWire | ResponsesWire | GeminiWire | ConverseWire] = {
    "openai-chat": ChatWire(),
    "openai-responses": ResponsesWire(),
    "anthropic": MessagesWire(),
    "gemini": GeminiWire(),
    "bedrock": ConverseWire(),
}
