"""OpenAI's chat completions, the way there; many servers speak it. Back comes `openai_chat_reader`."""

from collections.abc import Iterator, Sequence
from typing import Any, TypeAlias

import msgspec

from alipes.kernel.endpoints import Endpoint
from alipes.kernel.messages import Image, Message, Thinking, ToolCall, ToolResult
from alipes.kernel.ports import Request
from alipes.providers.dialects import Dialect, dialect
from alipes.providers.faults import Place
from alipes.providers.openai_chat_reader import ChatReader, Seal
from alipes.providers.parts import arguments, data_url, digest, fit_id, fit_name, notice, result_text
from alipes.providers.wire import Stream, outgoing
from alipes.runtime.clients import Http

Wire: TypeAlias = dict[str, Any]
MARK = {"type": "ephemeral"}
UNSIGNED = {"google": {"thought_signature": "skip_thought_signature_validator"}}
_decode = msgspec.json.Decoder(Seal).decode


class OpenAIChat:
    def __init__(self, endpoint: Endpoint, http: Http) -> None:
        self._dialect = dialect(endpoint.base_url)
        self._endpoint = msgspec.structs.replace(
            endpoint, headers={**self._dialect.headers, **endpoint.headers}
        )
        self._http = http

    def stream(self, request: Request) -> Stream:
        place = Place(self._endpoint, request.model)
        body = _to_wire(request, place.name, self._dialect) | request.extra
        request_out = outgoing(self._endpoint, request.model, "/chat/completions", body)
        return Stream(self._http, request_out, ChatReader(place))


def _to_wire(request: Request, us: str, spoken: Dialect) -> Wire:
    marked = bool(spoken.marks) and spoken.marks in request.model
    messages = _Messages(us, spoken, in_parts=marked).of(request)
    if marked:
        _mark(messages)
    body: Wire = {"model": request.model, "stream": True, "messages": messages, **spoken.body}
    body[spoken.limit] = request.max_tokens
    if spoken.counts:
        body["stream_options"] = {"include_usage": True}
    if request.tools:
        body["tools"] = [
            {
                "type": "function",
                "function": {"name": tool.name, "description": tool.description, "parameters": tool.schema},
            }
            for tool in request.tools
        ]
        if request.tool_choice == "none":
            body["tool_choice"] = "none"
    if request.effort:
        effort = {"effort": request.effort}
        body |= {"reasoning": effort} if spoken.nested_effort else {"reasoning_effort": request.effort}
    if spoken.cache_key and request.session:
        body["prompt_cache_key"] = fit_id(request.session)
    return body


def _mark(messages: list[Wire]) -> None:
    """Breakpoints of the prompt cache: the system prompt and the ends of this request and the two before."""
    ends = [message for message in messages if message["role"] in ("user", "tool")]
    system = [message for message in messages[:1] if message["role"] == "system"]
    for message in (*system, *ends[-3:]):
        message["content"][-1]["cache_control"] = MARK


def _opened(seal: str) -> Seal:
    try:
        return _decode(seal)
    except msgspec.DecodeError:
        # Sealed when this provider was reached by another of its APIs.
        return Seal()


class _Messages:
    """Turns the transcript into this server's messages."""

    def __init__(self, us: str, spoken: Dialect, *, in_parts: bool) -> None:
        self._us, self._spoken, self._in_parts = us, spoken, in_parts

    def of(self, request: Request) -> list[Wire]:
        system = [{"role": "system", "content": self._content(request.system)}] if request.system else []
        rest = [message for said in request.messages for message in self._to_wire(said)]
        return self._spaced([*system, *rest])

    def _to_wire(self, message: Message) -> Sequence[Wire]:
        match message.role:
            case "assistant":
                said = self._said(message)
                return [said] if said else []
            case "tool":
                return list(self._results(message))
            case _:
                return self._asked(message)

    def _asked(self, message: Message) -> list[Wire]:
        images = [part for part in message.parts if isinstance(part, Image)]
        text = notice(message.text) if message.role == "notice" else message.text
        return [{"role": "user", "content": self._content(text, images)}] if text or images else []

    def _said(self, message: Message) -> Wire | None:
        seals = [
            (part.text, _opened(part.seal))
            for part in message.parts
            if isinstance(part, Thinking) and part.seal and part.by == self._us
        ]
        signatures = {n: extra for _, seal in seals for n, extra in seal.calls.items()}
        calls = [self._call(call, signatures.get(str(n)), n) for n, call in enumerate(message.calls)]
        if not message.text and not calls:
            return None
        wire: Wire = {"role": "assistant", "content": self._content(message.text) if message.text else None}
        for text, seal in seals:
            if seal.details:
                wire["reasoning_details"] = seal.details
            elif seal.field and text:
                wire[seal.field] = text
        return {**wire, "tool_calls": calls} if calls else wire

    def _call(self, call: ToolCall, signature: Any, n: int) -> Wire:
        function = {"name": fit_name(call.name), "arguments": arguments(call)}
        wire: Wire = {"id": self._id(call.id), "type": "function", "function": function}
        if signature is None and n == 0 and self._spoken.signed_calls:
            signature = UNSIGNED
        return {**wire, "extra_content": signature} if signature is not None else wire

    def _results(self, message: Message) -> Iterator[Wire]:
        """The results in their order; then their images, for which a tool's message has no room."""
        shown: list[Image] = []
        for part in message.parts:
            if isinstance(part, ToolResult):
                content = self._content(result_text(part))
                yield {"role": "tool", "tool_call_id": self._id(part.call_id), "content": content}
                shown += part.images
        if shown:
            text = notice("The images that belong to the results above, in their order.")
            yield {"role": "user", "content": self._content(text, shown)}

    def _content(self, text: str, images: Sequence[Image] = ()) -> str | list[Wire]:
        if not images and not self._in_parts:
            return text
        said = [{"type": "text", "text": text}] if text else []
        return [*said, *({"type": "image_url", "image_url": {"url": data_url(image)}} for image in images)]

    def _id(self, id: str) -> str:
        if self._spoken.short_ids and not (len(id) == 9 and id.isascii() and id.isalnum()):
            return digest(id, 9)
        return fit_id(id)

    def _spaced(self, messages: list[Wire]) -> list[Wire]:
        if not self._spoken.answer_before_user:
            return messages
        spaced: list[Wire] = []
        for message in messages:
            if message["role"] == "user" and spaced and spaced[-1]["role"] == "tool":
                spaced.append({"role": "assistant", "content": "Noted."})
            spaced.append(message)
        return spaced
