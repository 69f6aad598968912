"""Which schemas are sent to a server, so that it enforces them."""

import pytest
from msgspec import structs

from alipes.kernel.models import Endpoint
from alipes.providers.schemas import is_enforced, to_wire

FLAT = {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"], "additionalProperties": False}
NESTED = {**FLAT, "properties": {"a": {"type": "array", "items": {"$ref": "#/$defs/x"}}}, "$defs": {"x": FLAT}}
TREE = {**FLAT, "properties": {"a": {"type": "array", "items": {"$ref": "#/$defs/x"}}}}
TREE = {**TREE, "$defs": {"x": {**FLAT, "properties": {"a": {"$ref": "#/$defs/x"}}}}}
OPTIONAL = {**FLAT, "required": []}
OPEN = {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]}
UNION = {**FLAT, "properties": {"a": {"anyOf": [{"type": "null"}, FLAT]}}}
LIMIT = {**FLAT, "properties": {"a": {"type": "integer", "minimum": 1}}}
LENGTH = {**FLAT, "properties": {"a": {"type": "string", "minLength": 1}}}
OPENAI = Endpoint("openai", "openai-chat", "https://api.openai.com/v1")
ANTHROPIC = Endpoint("anthropic", "anthropic", "https://api.anthropic.com")
BEDROCK = Endpoint("bedrock", "bedrock", "https://bedrock-runtime.eu-west-1.amazonaws.com")
GEMINI = Endpoint("gemini", "gemini", "https://generativelanguage.googleapis.com/v1beta/openai")
LOCAL = Endpoint("local", "openai-chat", "http://127.0.0.1:8080/v1")


@pytest.mark.parametrize(
    ("schema", "openai", "anthropic"),
    [
        (FLAT, True, True),
        (NESTED, True, True),
        (UNION, True, True),
        (TREE, True, False),
        (OPTIONAL, False, True),
        (OPEN, False, False),
        (LIMIT, True, False),
        (LENGTH, False, False),
        ({"type": "array", "items": FLAT}, False, False),
        ({**FLAT, "properties": {"a": {"$ref": "#/$defs/x", "title": "A"}}}, False, False),
        ({**FLAT, "properties": {"a": {"$ref": "#"}}}, True, False),
        ({**FLAT, "properties": {"a": {}}}, False, False),
        ({**FLAT, "properties": {"a": True}}, False, False),
        ({}, False, False),
    ],
)
def test_only_what_the_server_takes_is_sent(schema, openai, anthropic):
    assert is_enforced(OPENAI, "gpt-5.2", schema) is openai
    assert is_enforced(ANTHROPIC, "claude-sonnet-4-5", schema) is anthropic
    assert is_enforced(LOCAL, "qwen3", schema) is False


@pytest.mark.parametrize("model", ["gpt-3.5-turbo", "gpt-4", "gpt-4-turbo", "o1-mini-2024-09-12", "whisper-1"])
def test_older_models_are_asked_in_words(model):
    assert not is_enforced(OPENAI, model, FLAT)


@pytest.mark.parametrize("model", ["gpt-4o-mini", "gpt-4.1", "gpt-5", "o3", "o4-mini"])
def test_later_models_enforce(model):
    assert is_enforced(OPENAI, model, FLAT)


@pytest.mark.parametrize("model", ["claude-3-5-sonnet-latest", "claude-opus-4-1", "claude-sonnet-4-20250514"])
def test_older_models_of_anthropic_are_asked_in_words(model):
    assert not is_enforced(ANTHROPIC, model, FLAT)


@pytest.mark.parametrize("model", ["claude-opus-4-5", "claude-sonnet-4-6", "claude-sonnet-5-5", "claude-fable-5-1"])
def test_later_models_of_anthropic_enforce(model):
    assert is_enforced(ANTHROPIC, model, FLAT)


@pytest.mark.parametrize(
    ("endpoint", "model", "schema", "sent"),
    [
        (BEDROCK, "eu.anthropic.claude-sonnet-4-6", FLAT, True),
        (BEDROCK, "eu.anthropic.claude-opus-5-5", FLAT, False),
        (BEDROCK, "meta.llama4-scout-17b-instruct-v1:0", FLAT, False),
        (GEMINI, "gemini-3.8-flash", TREE, True),
        (GEMINI, "gemini-3.8-flash", LIMIT, True),
        (GEMINI, "gemini-3.8-flash", LENGTH, False),
        (GEMINI, "gemini-2.5-flash", FLAT, False),
        (
            structs.replace(GEMINI, base_url="https://europe-west1-aiplatform.googleapis.com"),
            "gemini-4-pro",
            FLAT,
            True,
        ),
        (structs.replace(GEMINI, api="openai-chat"), "gemini-3.8-flash", FLAT, False),
        (structs.replace(ANTHROPIC, base_url="https://aiplatform.googleapis.com"), "claude-opus-4-6", FLAT, False),
    ],
)
def test_clouds_enforce_what_their_documentation_names(endpoint, model, schema, sent):
    assert is_enforced(endpoint, model, schema) is sent


def test_the_operator_knows_better():
    on = Endpoint("local", "openai-chat", "http://127.0.0.1:8080/v1", schemas="on")
    off = Endpoint("openai", "openai-chat", "https://api.openai.com/v1", schemas="off")
    assert is_enforced(on, "qwen3", OPEN) and not is_enforced(on, "qwen3", {}) and not is_enforced(off, "gpt-5", FLAT)


def test_a_schema_that_is_not_strict_is_said_to_be_so():
    assert to_wire(FLAT)["strict"] is True and to_wire(OPEN)["strict"] is False
