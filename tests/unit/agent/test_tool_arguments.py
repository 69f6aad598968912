"""Arguments are checked as far as a sentence to the model needs."""

import pytest

from alipes.agent.tool_calls import validate_args

SCHEMA = {
    "type": "object",
    "properties": {
        "path": {"type": "string"},
        "limit": {"type": "integer"},
        "ratio": {"type": "number"},
        "deep": {"type": "boolean"},
        "mode": {"type": "string", "enum": ["replace", "patch"]},
        "maybe": {"type": ["string", "null"]},
        "tags": {"type": "array", "items": {"type": "string"}},
        "where": {"type": "object", "properties": {"line": {"type": "integer"}}, "required": ["line"]},
        "any": {"description": "whatever"},
        "odd": {"type": "date"},
    },
    "required": ["path"],
}


@pytest.mark.parametrize(
    ("args", "wrong"),
    [
        ({}, "argument path missing"),
        ({"path": 1}, "argument path must be string, not integer"),
        ({"path": "a", "limit": "3"}, "argument limit must be integer, not string"),
        ({"path": "a", "limit": True}, "argument limit must be integer, not boolean"),
        ({"path": "a", "limit": 1.5}, "argument limit must be integer, not number"),
        ({"path": "a", "deep": 1}, "argument deep must be boolean, not integer"),
        ({"path": "a", "mode": "both"}, "argument mode must be one of replace, patch"),
        ({"path": "a", "maybe": []}, "argument maybe must be string or null, not array"),
        ({"path": "a", "tags": ["x", {}]}, "argument tags[1] must be string, not object"),
        ({"path": "a", "where": {}}, "argument where.line missing"),
        ({"path": "a", "where": {"line": None}}, "argument where.line must be integer, not null"),
    ],
)
def test_what_is_wrong_is_named(args, wrong):
    assert validate_args(SCHEMA, args) == wrong


@pytest.mark.parametrize(
    "args",
    [
        {"path": "a"},
        {"path": "a", "limit": 3, "ratio": 1, "deep": False, "mode": "patch", "maybe": None, "tags": []},
        {"path": "a", "where": {"line": 1, "more": 2}, "any": [1, {}], "odd": True, "stranger": 1},
    ],
)
def test_what_fits_passes(args):
    assert validate_args(SCHEMA, args) == ""


def test_several_missing_ones_are_named_together():
    assert validate_args({"required": ["a", "b"]}, {}) == "arguments a, b missing"


def test_a_stranger_is_refused_only_where_the_schema_is_closed():
    closed = {**SCHEMA, "additionalProperties": False}
    assert validate_args(closed, {"path": "a", "limt": 1}) == ("unknown argument limt. Did you mean limit?")


@pytest.mark.parametrize("schema", [{}, {"properties": None, "required": 1}, {"properties": {"a": 1}}])
def test_a_strange_schema_forbids_nothing(schema):
    assert validate_args(schema, {"a": 1}) == ""


def test_a_bottomless_value_ends():
    schema = {"properties": {}}
    schema["properties"]["in"] = schema
    value = {}
    for _ in range(5000):
        value = {"in": value}
    assert validate_args(schema, value) == ""
