"""Client-side tools: shown to the model, never run here, and the end of a turn."""

from alipes.agent.tool_calls import CLIENT_RUNS_IT, is_client_call
from alipes.kernel.messages import Message, ToolResult
from alipes.kernel.turns import ClientTool
from tests.unit.agent_harness import Hand, an_agent, call, live, play, turn

WEATHER = ClientTool("weather", "tells the weather", {"type": "object", "properties": {"at": {"type": "string"}}})


async def test_a_call_of_theirs_ends_the_turn_unrun_and_is_kept():
    model = play(("I ask.", call("c1", "weather", at="Rome")))
    scene = await live(an_agent(model), turn("how is it?", offered=(WEATHER,)))
    assert (scene.ending, scene.detail) == ("answered", "")
    assert [spec.name for spec in model.asked[0].tools] == ["weather"] and len(model.asked) == 1
    assert scene.said[1].calls[0].args == {"at": "Rome"}
    assert scene.said[2] == Message("tool", (ToolResult("c1", CLIENT_RUNS_IT, passed_on=True),))


async def test_calls_of_built_in_tools_beside_it_are_run_first():
    look = Hand("look", "read", does="there")
    model = play((call("c1", "look"), call("c2", "weather")))
    scene = await live(an_agent(model, [look]), turn(offered=(WEATHER,)))
    assert scene.ending == "answered" and look.ran == [{}] and len(model.asked) == 1
    assert [part.text for part in scene.said[2].parts] == ["there", CLIENT_RUNS_IT]


async def test_where_both_have_a_name_it_is_theirs():
    mine, theirs = Hand("look"), ClientTool("look", "theirs")
    model = play((call("c1", "look"),))
    scene = await live(an_agent(model, [mine]), turn(offered=(theirs,)))
    assert [spec.description for spec in model.asked[0].tools] == ["theirs"] and mine.ran == []
    assert scene.ending == "answered"


async def test_a_turn_that_was_cut_off_after_handing_over_does_not_ask_again():
    model = play()
    first = await live(an_agent(play((call("c1", "weather"),))), turn(offered=(WEATHER,)))
    again = await live(an_agent(model), turn(offered=(WEATHER,), said=first.said))
    assert again.ending == "answered" and model.asked == []


def test_only_what_was_handed_over_ends_a_turn():
    assert is_client_call(Message("tool", (ToolResult("c1", "x"), ToolResult("c2", CLIENT_RUNS_IT, passed_on=True))))
    assert not is_client_call(Message("tool", (ToolResult("c1", "x"),)))


async def test_a_tool_that_prints_our_placeholder_does_not_end_the_turn():
    model = play((call("c1", "look"),), "done")
    scene = await live(an_agent(model, [Hand("look", "read", does=CLIENT_RUNS_IT)]), turn())
    assert scene.ending == "answered" and scene.said[-1].text == "done"
