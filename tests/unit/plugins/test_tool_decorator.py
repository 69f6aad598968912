"""From an async function to a tool: its description for the model, and how it is called."""

from typing import Annotated, Literal

import msgspec
import pytest

from alipes.kernel.errors import ToolError
from alipes.kernel.messages import Image
from alipes.kernel.ports import ToolOutput
from alipes.plugins.tool_decorator import make_tool, to_output, tool, tool_mark


class Point(msgspec.Struct):
    x: int
    y: int = 0


@tool(effect="read")
async def look(
    city: str, days: Annotated[int, msgspec.Meta(ge=1, le=7, description="how many")] = 3, unit: Literal["c", "f"] = "c"
) -> str:
    """The weather.

    More about it.
    """
    return f"{city} {days} {unit}"


def test_what_a_function_says_of_itself_is_what_the_model_reads():
    spec = make_tool(look).spec
    assert (spec.name, spec.effect) == ("look", "read")
    assert spec.description == "The weather.\n\nMore about it."
    assert spec.schema["required"] == ["city"] and spec.schema["additionalProperties"] is False
    days = spec.schema["properties"]["days"]
    assert days == {"type": "integer", "description": "how many", "minimum": 1, "maximum": 7, "default": 3}
    assert spec.schema["properties"]["unit"]["enum"] == ["c", "f"]
    assert "title" not in spec.schema and "$defs" not in spec.schema


def test_the_mark_goes_over_the_function():
    @tool(name="other", description="Said so.", schema={"type": "object"})
    async def one() -> None: ...

    spec = make_tool(one).spec
    assert (spec.name, spec.description, spec.schema, spec.effect) == ("other", "Said so.", {"type": "object"}, "write")
    assert tool_mark(one) is not None and tool_mark(test_the_mark_goes_over_the_function) is None


async def test_arguments_become_what_the_types_say():
    async def move(to: Point, by: list[Point] | None = None) -> dict:
        return {"x": to.x, "more": len(by or [])}

    made = make_tool(move)
    assert made.spec.schema["$defs"]["Point"]["properties"]["y"]["default"] == 0
    assert await made.run({"to": {"x": 1}, "by": [{"x": 2}]}, None) == '{"x":1,"more":1}'


async def test_a_wrong_argument_is_reported_to_the_model_and_the_function_is_not_called():
    made = make_tool(look)
    for args in ({}, {"city": 3}, {"city": "x", "days": 9}, {"city": "x", "more": 1}):
        with pytest.raises(ToolError, match="not run"):
            await made.run(args, None)
    assert await made.run({"city": "x"}, None) == "x 3 c"


async def test_a_parameter_called_act_knows_about_the_call():
    async def go(act) -> str:
        return act

    made = make_tool(go)
    assert made.spec.schema["properties"] == {} and await made.run({}, "the call") == "the call"


async def test_functions_that_cannot_be_tools_are_refused_with_a_sentence():
    def plain(): ...

    async def many(*rest): ...

    async def any_name(**rest): ...

    for wrong, why in ((plain, "async def"), (many, r"\*rest"), (any_name, r"\*\*rest")):
        with pytest.raises(TypeError, match=why):
            make_tool(wrong)


def test_what_is_given_is_text_for_the_model():
    picture = ToolOutput("seen", (Image("image/png", b"x"),))
    assert to_output("x") == "x" and to_output(picture) is picture and to_output(None) == "done"
    assert to_output([1, {"a": None}]) == '[1,{"a":null}]' and to_output(Point(1)) == '{"x":1,"y":0}'
