"""What is particular about Gemini's own API."""

import pytest

from alipes.kernel.errors import Refused
from alipes.kernel.messages import Image, Message, Text, ToolCall, ToolResult, assistant
from alipes.kernel.turns import ModelReply
from alipes.runtime.http.clients import ClientScope
from tests.world.model_calls import ask, converse, provider
from tests.world.model_replies import Raw, Say
from tests.world.model_server import ModelServer


async def send(request, reply=None):
    """The body that was sent, and what was heard."""
    async with ModelServer([reply or Say("ok")], strict=False) as server, ClientScope() as scope:
        heard = await converse(provider("gemini", server.url("gemini"), scope), request)
        return server.requests[0], heard


def stream(*chunks: str) -> Raw:
    return Raw("".join(f"data: {chunk}\r\n\r\n" for chunk in chunks).encode())


async def test_the_key_is_a_header_and_the_model_a_part_of_the_path():
    asked, _ = await send(ask("hello", model="gemini-3.8-flash"))
    assert asked.path.endswith("/models/gemini-3.8-flash:streamGenerateContent")
    assert asked.headers["x-goog-api-key"] and "authorization" not in asked.headers
    assert asked.body["systemInstruction"] == {"parts": [{"text": "Be brief."}]}


@pytest.mark.parametrize(
    ("model", "effort", "sent"),
    [
        ("gemini-3.8-flash", "low", {"thinkingLevel": "low", "includeThoughts": True}),
        ("gemini-3.8-flash", "high", {"thinkingLevel": "high", "includeThoughts": True}),
        ("gemini-4-pro", "xhigh", {"thinkingLevel": "xhigh", "includeThoughts": True}),
        ("gemini-4-pro", "max", {"thinkingLevel": "high", "includeThoughts": True}),
        ("gemini-3.5-flash", "off", {"thinkingLevel": "minimal", "includeThoughts": False}),
        ("gemini-2.5-flash", "low", {"thinkingBudget": 2048, "includeThoughts": True}),
        ("gemini-2.5-flash", "high", {"thinkingBudget": 7168, "includeThoughts": True}),
    ],
)
async def test_effort_is_a_level_or_for_older_models_a_budget_below_the_output_limit(model, effort, sent):
    asked, _ = await send(ask("hello", model=model, effort=effort))
    assert asked.body["generationConfig"]["thinkingConfig"] == sent


async def test_results_name_their_function_and_carry_their_images():
    calls = assistant(ToolCall("c1", "look", {"at": "x"}), ToolCall("c2", "read", {}))
    image = Image("image/png", b"png")
    answers = Message("tool", (ToolResult("c1", "seen", images=(image,)), ToolResult("c2", "no file", "failed")))
    asked, _ = await send(ask("hello", calls, answers))
    model, user = asked.body["contents"][1:]
    assert model["parts"][0]["thoughtSignature"] == "skip_thought_signature_validator"
    assert "thoughtSignature" not in model["parts"][1]
    first, picture, second = user["parts"]
    assert first["functionResponse"] == {"id": "c1", "name": "look", "response": {"output": "seen"}}
    assert picture["inlineData"] == {"mimeType": "image/png", "data": "cG5n"}
    assert second["functionResponse"] == {"id": "c2", "name": "read", "response": {"error": "no file"}}


async def test_signatures_of_calls_and_texts_go_back_where_they_came_from():
    reply = stream(
        '{"candidates":[{"content":{"parts":[{"text":"hm","thought":true}]}}]}',
        '{"candidates":[{"content":{"parts":[{"text":"Let me","thoughtSignature":"t"}]}}]}',
        '{"candidates":[{"content":{"parts":[{"functionCall":{"name":"look","args":{"at":"1"}},'
        '"thoughtSignature":"a"},{"functionCall":{"name":"look"}}]},"finishReason":"STOP"}]}',
    )
    _, heard = await send(ask("hello"), reply)
    one, two = heard.message.calls
    assert (heard.reply.stop, one.args, two.args) == ("calls", {"at": "1"}, {}) and one.id != two.id
    answers = Message("tool", (ToolResult(one.id, "x"), ToolResult(two.id, "y")))
    asked, _ = await send(ask("hello", heard.message, answers))
    thought, text, first, second = asked.body["contents"][1]["parts"]
    assert thought == {"text": "hm", "thought": True}
    assert (text["thoughtSignature"], first["thoughtSignature"]) == ("t", "a")
    assert "thoughtSignature" not in second


async def test_a_blocked_question_and_a_blocked_answer_are_refusals():
    with pytest.raises(Refused, match="PROHIBITED_CONTENT"):
        await send(ask("hello"), stream('{"promptFeedback":{"blockReason":"PROHIBITED_CONTENT"}}'))
    with pytest.raises(Refused, match="SAFETY"):
        await send(ask("hello"), stream('{"candidates":[{"finishReason":"SAFETY"}]}'))


@pytest.mark.parametrize("reason", ["MALFORMED_FUNCTION_CALL", "MALFORMED_RESPONSE", "MISSING_THOUGHT_SIGNATURE"])
async def test_what_the_model_wrote_wrongly_is_an_empty_answer_that_the_loop_asks_for_again(reason):
    _, heard = await send(ask("hello"), stream(f'{{"candidates":[{{"finishReason":"{reason}"}}]}}'))
    assert isinstance(heard.reply, ModelReply) and (heard.reply.stop, heard.message.parts) == ("end", ())


async def test_thoughts_of_another_model_are_left_out():
    said = assistant(Text("yes"))
    asked, _ = await send(ask("hello", said, "sure?"))
    assert asked.body["contents"][1] == {"role": "model", "parts": [{"text": "yes"}]}


async def test_the_known_provider_needs_only_another_api():
    async with ModelServer([Say("ok")]) as server, ClientScope() as scope:
        base = f"{server.url('gemini')}/v1beta/openai"
        assert (await converse(provider("gemini", base, scope), "hello")).text == "ok"
        assert server.requests[0].path == "/v1/v1beta/models/m:streamGenerateContent"
