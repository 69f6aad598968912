"""Model calls in tests: one request, all its output. No assertions."""

from collections.abc import Callable
from typing import Any

from msgspec import Struct

from alipes.kernel.messages import Message, ToolCall, ToolResult, user
from alipes.kernel.models import Endpoint, Secret
from alipes.kernel.ports import Provider, Request, ToolSpec
from alipes.kernel.turns import ModelReply, TextDelta, ThinkingDelta, ToolCallBegun
from alipes.providers.anthropic import AnthropicProvider
from alipes.providers.bedrock import BedrockProvider
from alipes.providers.gemini import GeminiProvider
from alipes.providers.openai_chat import OpenAIChatProvider
from alipes.providers.openai_responses import OpenAIResponsesProvider
from alipes.runtime.http.clients import ClientScope

WIRES: dict[str, Callable[..., Provider]] = {
    "openai-chat": OpenAIChatProvider,
    "openai-responses": OpenAIResponsesProvider,
    "anthropic": AnthropicProvider,
    "gemini": GeminiProvider,
    "bedrock": BedrockProvider,
}
"""Every provider that the contract suites test; add a new one here."""
KEY = "sk-a-very-secret-key-1234567890"
LOOK = ToolSpec(
    "look",
    "Look at something.",
    {"type": "object", "properties": {"at": {"type": "string"}}, "required": ["at"]},
    "read",
)


class ModelOutput(Struct):
    deltas: list[TextDelta | ThinkingDelta] = []
    begun: list[str] = []
    """The names of calls, noted when the model began to write them."""
    reply: ModelReply | None = None

    @property
    def text(self) -> str:
        return "".join(delta.text for delta in self.deltas if isinstance(delta, TextDelta))

    @property
    def thinking(self) -> str:
        return "".join(delta.text for delta in self.deltas if isinstance(delta, ThinkingDelta))

    @property
    def message(self) -> Message:
        assert self.reply is not None, "the provider gave no reply"
        return self.reply.message


async def converse(provider: Provider, request: Request | str, heard: ModelOutput | None = None) -> ModelOutput:
    """Send the request and read to the end. `heard` is filled on the way, to inspect it after a failure."""
    heard = heard or ModelOutput()
    request = ask(request) if isinstance(request, str) else request
    async with provider.stream(request) as deltas:
        async for delta in deltas:
            if isinstance(delta, ModelReply):
                assert heard.reply is None, "a second reply"
                heard.reply = delta
                continue
            assert heard.reply is None, "a delta after the reply"
            if isinstance(delta, ToolCallBegun):
                heard.begun.append(delta.name)
            else:
                assert delta.text, "an empty delta"
                heard.deltas.append(delta)
    return heard


def ask(*messages: str | Message, model: str = "m", **more: Any) -> Request:
    said = tuple(user(message) if isinstance(message, str) else message for message in messages)
    return Request(model, more.pop("system", "Be brief."), said, more.pop("tools", (LOOK,)), **more)


def results(*calls: ToolCall, text: str = "seen") -> Message:
    return Message("tool", tuple(ToolResult(call.id, text) for call in calls))


def provider(api: str, url: str, scope: ClientScope, **more: Any) -> Provider:
    """The provider of `api` at `url`; `more` are fields of its endpoint."""
    name = more.pop("name", "acme")
    endpoint = Endpoint(name, api, url, Secret(more.pop("key", KEY)), more.pop("key_env", "ACME_API_KEY"), **more)
    http = scope.http(name, base_url=url, stall=endpoint.stall, connect=endpoint.connect)
    return WIRES[api](endpoint, http)
