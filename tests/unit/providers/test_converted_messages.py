"""Messages are converted to the form of an API once, not in every step of a turn."""

import gc
import weakref

import pytest

from alipes.kernel.messages import Message, Text, ToolCall, ToolResult, user
from alipes.kernel.models import Endpoint
from alipes.kernel.ports import Request
from alipes.providers.anthropic import AnthropicProvider
from alipes.providers.openai_chat import OpenAIChatProvider
from alipes.providers.openai_responses import OpenAIResponsesProvider
from alipes.providers.wire import ConvertedMessages
from alipes.runtime.http.clients import ClientScope

WIRES = {
    "openai-chat": (OpenAIChatProvider, "https://x.test/v1", "m"),
    "with breakpoints": (OpenAIChatProvider, "https://openrouter.ai/api/v1", "anthropic/m"),
    "with short ids": (OpenAIChatProvider, "https://api.mistral.ai/v1", "m"),
    "anthropic": (AnthropicProvider, "https://x.test/v1", "m"),
    "openai-responses": (OpenAIResponsesProvider, "https://x.test/v1", "m"),
}


class Parts(tuple):
    """The parts of a message; counts how often they are read."""

    reads = 0

    def __iter__(self):
        self.reads += 1
        return super().__iter__()


def step(n: int) -> tuple[Message, Message]:
    call = Message("assistant", Parts((Text(f"step {n}"), ToolCall(f"call{n}", "look", {"n": n}))))
    return call, Message("tool", Parts((ToolResult(f"call{n}", f"result {n}"),)))


@pytest.mark.parametrize("name", WIRES)
async def test_a_step_converts_only_its_new_messages_and_sends_the_same(name):
    create, url, model = WIRES[name]
    endpoint = Endpoint("x", "openai-chat", url)
    messages = (user("go"), *step(1))
    async with ClientScope() as scope:
        provider = create(endpoint, scope.http("x"))
        for number in range(2, 6):
            sent = provider.stream(Request(model, "system", messages))._request.content
            fresh = create(endpoint, scope.http("x")).stream(Request(model, "system", messages))._request.content
            assert sent == fresh
            reads = [message.parts.reads for message in messages[1:]]
            provider.stream(Request(model, "system", messages))
            assert [message.parts.reads for message in messages[1:]] == reads
            messages = (*messages, *step(number))


def test_the_form_of_a_message_is_forgotten_with_the_message():
    converted: ConvertedMessages[str] = ConvertedMessages(lambda message: [message.text])
    message = user("hello")
    assert [*converted.of((message, message))] == [["hello"]] * 2 and len(converted._known) == 1
    gone = weakref.ref(message)
    del message
    gc.collect()
    assert gone() is None and converted._known == {}
