"""Answers with a schema: what the model is asked for, how its answer is read, corrected once, and given up."""

import asyncio
import sys
import time

import pytest

from alipes.agent import answer_schema
from alipes.agent.answer_schema import AnswerSchema, check_schema, parse_schema
from alipes.kernel.errors import ConfigError
from alipes.kernel.messages import Text, ToolCall, assistant, user
from alipes.kernel.turns import Address, Inbound, Notice, Retracted, Turn
from tests.unit.agent_harness import Hand, an_agent, call, live, play, replied

PERSON = {
    "type": "object",
    "properties": {
        "name": {"type": "string"},
        "age": {"type": "integer", "minimum": 0},
        "born": {"type": "string", "format": "date"},
        "children": {"type": "array", "items": {"$ref": "#"}},
    },
    "required": ["name", "age"],
    "additionalProperties": False,
}
ANN = '{"name": "Ann", "age": 40, "children": [{"name": "Bob", "age": 4}]}'


def schema_turn(schema=PERSON, **more) -> Turn:
    return Turn("t1", "s1", Inbound("1", Address("test", "me"), "me", "hello", output_schema=schema), **more)


async def test_an_answer_that_matches_is_the_end_and_the_model_was_shown_the_schema():
    model = play(ANN)
    scene = await live(an_agent(model), schema_turn())
    assert (scene.ending, scene.detail) == ("answered", "")
    assert scene.said == (user("hello"), assistant(Text(ANN)))
    (request,) = model.asked
    assert request.output_schema == PERSON and '"additionalProperties":false' in request.system
    assert not scene.of(Retracted, Notice)


async def test_without_a_schema_nothing_is_asked_for_or_imported():
    model = play("hi")
    await live(an_agent(model))
    assert model.asked[0].output_schema == {} and model.asked[0].system == ""


@pytest.mark.parametrize(
    "text",
    [f"Here it is:\n```json\n{ANN}\n```\nAnything else?", f"```\n{ANN}\n```", f"The result: {ANN}. Done.", f"\n{ANN} "],
)
async def test_words_and_fences_around_the_document_are_left_out(text):
    scene = await live(an_agent(play(text)), schema_turn())
    assert scene.ending == "answered" and scene.said[-1].text == ANN
    assert scene.of(Retracted), "what was shown so far is not the answer"


async def test_a_wrong_answer_is_corrected_once_and_the_model_hears_where_it_is_wrong():
    wrong = '{"name": "Ann", "age": 40, "children": [{"name": "Bob", "age": "four"}]}'
    model = play(wrong, ANN)
    scene = await live(an_agent(model), schema_turn())
    assert scene.ending == "answered" and scene.said[-1].text == ANN
    assert [message.role for message in scene.said] == ["user", "assistant", "notice", "assistant"]
    assert "at $.children[0].age: 'four' is not of type 'integer'" in model.asked[1].messages[-1].text


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        ("I cannot do that.", "at $: it is not JSON"),
        ('{"name": "Ann"}', "at $: 'age' is a required property"),
        ('{"name": "Ann", "age": -1}', "at $.age: -1 is less than the minimum of 0"),
        ('{"name": "Ann", "age": 1, "born": "yesterday"}', "at $.born: 'yesterday' is not a 'date'"),
        ('{"name": "Ann", "age": 1, "x": 1}', "at $: Additional properties are not allowed ('x' was unexpected)"),
        ("[" * 5000, "at $: it is nested too deeply"),
        ('{"name": "\ud800", "age": 1}', "at $: it is not JSON"),
    ],
)
async def test_after_one_correction_the_turn_gives_up_and_says_where_the_answer_is_wrong(answer, problem):
    model = play(answer, answer)
    scene = await live(an_agent(model), schema_turn())
    assert scene.ending == "gave_up" and scene.detail.startswith("the answer does not match its schema " + problem)
    assert len(model.asked) == 2


async def test_tools_are_used_before_the_document_and_their_words_are_no_answer():
    look = Hand("look", "read", does="40")
    model = play(("Let me look.", call("c1", "look")), ANN)
    scene = await live(an_agent(model, [look]), schema_turn())
    assert scene.ending == "answered" and scene.said[1].text == "Let me look." and scene.said[-1].text == ANN


async def test_a_document_that_the_output_limit_cut_off_is_joined():
    first, rest = ANN[:30], ANN[30:]
    model = play(replied(Text(first), stop="length"), rest)
    scene = await live(an_agent(model), schema_turn())
    assert scene.ending == "answered" and scene.said[-1].text == ANN


async def test_a_resumed_turn_counts_the_corrections_before():
    before = await live(an_agent(play("no", "no")), schema_turn())
    again = play("no")
    scene = await live(an_agent(again), schema_turn(said=before.said[:3]))
    assert scene.ending == "gave_up" and len(again.asked) == 1
    over = play()
    assert (await live(an_agent(over), schema_turn(said=before.said))).ending == "gave_up" and over.asked == []


async def test_a_call_of_the_client_is_no_answer_to_check():
    from alipes.kernel.turns import ClientTool

    inbound = Inbound("1", Address("test", "me"), "me", "hi", offered=(ClientTool("w"),), output_schema=PERSON)
    scene = await live(an_agent(play((ToolCall("c", "w", {}),))), Turn("t1", "s1", inbound))
    assert scene.ending == "answered" and not [each for each in scene.said if each.role == "notice"]


@pytest.mark.parametrize(
    ("schema", "problem"),
    [
        ([], "must be a JSON object"),
        ({}, "must be a JSON object"),
        ({"type": "thing"}, "is not valid at $.type"),
        ({"$ref": "#/$defs/nothing"}, "refers to #/$defs/nothing, which is not in it"),
        ({"$ref": "http://127.0.0.1:1/x.json"}, "which is not in it"),
        ({"$ref": "file:///etc/passwd"}, "which is not in it"),
        ({"$ref": "#"}, "refers to itself without end"),
        ({"$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}, "$ref": "#/$defs/a"}, "without end"),
        ({"description": "x" * 300_000}, "the limit is"),
    ],
)
def test_a_schema_that_cannot_be_used_is_refused(schema, problem):
    with pytest.raises(ConfigError, match="schema") as caught:
        check_schema(schema)
    assert problem in str(caught.value)


def test_a_schema_in_words_is_read():
    assert parse_schema('{"type": "array"}') == {"type": "array"}
    with pytest.raises(ConfigError, match="not JSON"):
        parse_schema("{type: array}")


async def test_a_pattern_that_takes_forever_blocks_nobody(monkeypatch):
    monkeypatch.setattr(answer_schema, "PATTERN_SECONDS", 1.0)
    evil = AnswerSchema({"type": "object", "properties": {"a": {"type": "string", "pattern": "^(a+)+$"}}})
    ticks = 0

    async def tick():
        nonlocal ticks
        while True:
            await asyncio.sleep(0.01)
            ticks += 1

    async with asyncio.TaskGroup() as group:
        ticking = group.create_task(tick())
        mismatch = await evil.find_mismatch('{"a": "' + "a" * 60 + '!"}')
        ticking.cancel()
    assert "took more than" in mismatch and ticks > 3
    assert await AnswerSchema(evil_free()).find_mismatch('{"a": "b"}') == "$.a: 'b' does not match '^a+$'"
    assert await AnswerSchema(evil_free()).find_mismatch('{"a": "aa"}') == ""


def evil_free():
    return {"type": "object", "properties": {"a": {"type": "string", "pattern": "^a+$"}}}


def test_without_the_packages_the_command_that_installs_them_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "jsonschema", None)
    answer_schema.json_schema.open_validator.cache_clear()
    with pytest.raises(ConfigError, match="alipes install schema"):
        check_schema({"type": "object", "title": str(time.monotonic())})


@pytest.mark.parametrize(
    ("format", "good", "bad"),
    [
        ("date", "2026-02-03", "3.2.2026"),
        ("date-time", "2026-02-03T10:00:00Z", "soon"),
        ("time", "10:00:00", "ten"),
        ("email", "a@b.c", "a"),
        ("uuid", "5f0ac0ee-63ae-4a4c-8a8e-6f9b1c2d3e4f", "x"),
    ],
)
async def test_formats_are_checked(format, good, bad):
    schema = AnswerSchema({"type": "string", "format": format})
    assert await schema.find_mismatch(f'"{good}"') == ""
    assert format in await schema.find_mismatch(f'"{bad}"')
