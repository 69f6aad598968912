"""`ctx.llm`: four ways to ask one question."""

import asyncio
import sys

import pytest

from alipes.compat.hermes.llm import PluginLlmTrustError
from alipes.kernel.messages import Image, Message, Text, assistant, user
from alipes.kernel.turns import ModelReply, Usage

KEEP = """
    def register(ctx):
        global ctx_
        ctx_ = ctx
"""
SCHEMA = {"type": "object", "properties": {"urgency": {"type": "number"}}, "required": ["urgency"]}


async def test_a_question_goes_to_the_model_of_alipes(harness):
    async with harness.plugin(KEEP):
        result = await harness.module.ctx_.llm.acomplete(
            messages=[
                {"role": "system", "content": "Be short."},
                {"role": "user", "content": "ping"},
                {"role": "assistant", "content": "pong"},
                {"role": "user", "content": "again"},
            ],
            max_tokens=64,
            temperature=0.3,
            purpose="test",
        )
        assert (result.text, result.provider, result.model) == ("an answer", "acme", "usual")
        assert (result.usage.input_tokens, result.usage.total_tokens) == (10, 13)
        assert result.audit == {"plugin_id": "sample", "purpose": "test", "profile": None}
        ((messages, more),) = harness.host.asked
        assert messages == (user("ping"), assistant(Text("pong")), user("again"))
        assert more == {"system": "Be short.", "model": "", "max_tokens": 64}


async def test_plain_code_asks_from_its_thread(harness):
    async with harness.plugin(KEEP):
        llm = harness.module.ctx_.llm
        result = await asyncio.to_thread(llm.complete, [{"role": "user", "content": "ping"}])
        assert result.text == "an answer"
        harness.host.reply = ModelReply(assistant(Text('{"urgency": 1}')))
        structured = await asyncio.to_thread(
            lambda: llm.complete_structured("Score it.", "the text", json_schema=SCHEMA)
        )
        assert structured.parsed == {"urgency": 1}


@pytest.mark.parametrize("text", ['{"urgency": 0.5}', '```json\n{"urgency": 0.5}\n```'])
async def test_a_structured_answer_is_parsed(harness, text):
    async with harness.plugin(KEEP):
        harness.host.reply = ModelReply(assistant(Text(text)), Usage())
        result = await harness.module.ctx_.llm.acomplete_structured(
            instructions="Score it.",
            input=[{"type": "text", "text": "it burns"}, {"type": "image", "data": b"x", "mime_type": "image/png"}],
            json_schema=SCHEMA,
            schema_name="triage",
            system_prompt="You are calm.",
        )
        assert (result.content_type, result.parsed) == ("json", {"urgency": 0.5})
        assert result.audit["schema_name"] == "triage"
        ((messages, more),) = harness.host.asked
        assert messages == (Message("user", (Text("it burns"), Image("image/png", b"x"))),)
        assert more["system"].startswith("You are calm.\n\nScore it.")
        assert "urgency" in more["system"]


async def test_an_answer_that_is_no_json_is_given_as_text(harness):
    async with harness.plugin(KEEP):
        llm = harness.module.ctx_.llm
        result = await llm.acomplete_structured("Score it.", "x", json_mode=True)
        assert (result.content_type, result.parsed, result.text) == ("text", None, "an answer")
        result = await llm.acomplete_structured("Say it.", "x")
        assert result.content_type == "text"


async def test_an_answer_against_the_schema_is_refused_where_that_can_be_reported(harness, monkeypatch):
    class Checking:
        __spec__ = sys.__spec__

        class ValidationError(Exception):
            message = "'urgency' is missing"

        @classmethod
        def validate(cls, value, schema):
            raise cls.ValidationError

    monkeypatch.setitem(sys.modules, "jsonschema", Checking)
    async with harness.plugin(KEEP):
        harness.host.reply = ModelReply(assistant(Text("{}")))
        with pytest.raises(ValueError, match="'urgency' is missing"):
            await harness.module.ctx_.llm.acomplete_structured("Score it.", "x", json_schema=SCHEMA)


async def test_empty_questions_are_refused(harness):
    async with harness.plugin(KEEP):
        llm = harness.module.ctx_.llm
        with pytest.raises(ValueError, match="no message"):
            await llm.acomplete([])
        with pytest.raises(ValueError, match="at least one input"):
            await llm.acomplete_structured("Score it.", [])


@pytest.mark.parametrize("wish", ["provider", "model", "agent_id", "profile"])
async def test_a_wish_needs_the_operators_word(harness, wish):
    async with harness.plugin(KEEP):
        with pytest.raises(PluginLlmTrustError, match=f"allow_{wish}_override"):
            await harness.module.ctx_.llm.acomplete([{"role": "user", "content": "x"}], **{wish: "other"})
        assert harness.host.asked == []


@pytest.mark.parametrize(
    ("wishes", "asked"),
    [
        ({"model": "small"}, "acme/small"),
        ({"provider": "other", "model": "small"}, "other/small"),
        ({"provider": "other"}, "other"),
        ({"provider": "other", "model": "other/small"}, "other/small"),
    ],
)
async def test_an_allowed_wish_is_granted(harness, wishes, asked):
    config = {"llm": {"allow_model_override": True, "allow_provider_override": True, "allowed_providers": ["other"]}}
    async with harness.plugin(KEEP, config=config):
        llm, question = harness.module.ctx_.llm, [{"role": "user", "content": "x"}]
        await llm.acomplete(question, **wishes)
        assert harness.host.asked[0][1]["model"] == asked
        with pytest.raises(PluginLlmTrustError):
            await llm.acomplete(question, provider="third")


async def test_a_question_may_have_a_limit_in_time(harness):
    async with harness.plugin(KEEP):
        gate = asyncio.Event()

        async def never(messages, **more):
            await gate.wait()

        harness.host.ask = never
        with pytest.raises(TimeoutError):
            await harness.module.ctx_.llm.acomplete([{"role": "user", "content": "x"}], timeout=0.01)
