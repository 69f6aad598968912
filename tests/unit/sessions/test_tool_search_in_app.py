"""`tool_search` in a whole app: tools of a plugin outgrow the window, are found, and stay found after a restart."""

import pytest

from alipes.testing.agent import open_agent
from alipes.testing.scripted_model import call

PLUGIN = """
from alipes.plugin import tool

class Numbers:
    def similarity(self, query, texts):
        return [1.0 if query == "a dozen" and "number 12" in text else 0.0 for text in texts]

def made(number):
    @tool(name=f"count_{number}", effect="read", description=f"Say the number {number}. " + "And more. " * 40)
    async def count() -> str:
        return f"it is {number}"
    return count

async def setup(ctx):
    for number in range(300):
        ctx.tool(made(number))
    ctx.provide("embeddings", "numbers", Numbers())
"""


@pytest.fixture
def plugin(tmp_path):
    folder = tmp_path / "numbers"
    folder.mkdir()
    (folder / "__init__.py").write_text(PLUGIN)
    return folder


def listed(agent, number=-1) -> list[str]:
    return [spec.name for spec in agent.model.requests[number].tools]


async def test_a_tool_of_a_plugin_is_found_called_and_listed_after_a_restart(plugin, tmp_path):
    home = tmp_path / "home"
    script = [call("tool_search", query="say the number 217", limit=1), call("count_217"), "done"]
    async with open_agent(model=script, plugins=[plugin], home=home) as agent:
        reply = await agent.say("count")
        assert [result.text for result in reply.results][1] == "it is 217"
        assert listed(agent, 0)[-1] == "tool_search" and listed(agent, 1)[-1] == "count_217"
        assert listed(agent, 1)[:-1] == listed(agent, 0) and "terminal" in listed(agent, 0)
    async with open_agent(model=["again"], plugins=[plugin], home=home) as agent:
        await agent.say("and now?")
        assert listed(agent)[-2:] == ["tool_search", "count_217"]


async def test_embeddings_of_a_plugin_find_what_words_do_not(plugin):
    async with open_agent(model=[call("tool_search", query="a dozen", limit=1), "done"], plugins=[plugin]) as agent:
        reply = await agent.say("count")
        assert "- count_12: Say the number 12." in reply.results[0].text


async def test_the_search_works_in_plan_mode(plugin):
    script = [call("tool_search", query="number 5", limit=1), "done"]
    async with open_agent(model=script, plugins=[plugin]) as agent:
        await agent.command("/mode plan")
        reply = await agent.say("count")
        assert reply.results[0].outcome == "ok" and "count_5:" in reply.results[0].text


async def test_a_tool_that_is_switched_off_is_not_found(plugin):
    script = [call("tool_search", query="count_217"), "done"]
    async with open_agent(model=script, plugins=[plugin]) as agent:
        await agent.command("/tools off count_217")
        reply = await agent.say("count")
        assert "- count_217:" not in reply.results[0].text


async def test_a_large_group_is_counted_in_the_list_of_tools(plugin):
    async with open_agent(model=[], plugins=[plugin]) as agent:
        text = (await agent.command("/tools")).text
        assert "numbers\n  300 tools: 300 on. /tools list GROUP shows them." in text
        assert "count_299" in (await agent.command("/tools list numbers")).text
