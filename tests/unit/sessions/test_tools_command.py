"""`/tools` in a whole app: what is off by settings, what is off in a conversation, and what turns see of it."""

import pytest

from alipes.testing.agent import open_agent
from alipes.testing.scripted_model import call


def offered(agent, number=-1) -> set[str]:
    return {spec.name for spec in agent.model.requests[number].tools}


async def test_every_tool_is_listed_with_its_state():
    async with open_agent(model=[]) as agent:
        text = (await agent.command("/tools")).text
    lines = {line.split()[0]: line for line in text.splitlines() if line.startswith("  ")}
    assert "on (read)" in lines["read_file"] and "on (write)" in lines["terminal"]
    assert "unavailable: No image model is configured" in lines["image_generate"]
    assert "unavailable: The browser is switched off" in lines["browser_*"]
    assert text.startswith("core\n") and "Usage: /tools" in text


async def test_a_tool_that_is_switched_off_is_not_offered_and_not_run():
    async with open_agent(model=["one", call("terminal", command="true"), "two"]) as agent:
        await agent.say("before")
        reply = await agent.command("/tools off terminal")
        assert reply.text == "Off in this conversation: terminal." and not reply.failed
        said = await agent.say("after")
        assert "terminal" in offered(agent, 0) and "terminal" not in offered(agent)
        assert said.results[0].outcome == "failed" and "no tool named terminal" in said.results[0].text
        assert "off here" in (await agent.command("/tools list terminal")).text


async def test_switched_on_again_it_is_offered():
    async with open_agent(model=["one", "two"]) as agent:
        await agent.command("/tools off terminal")
        await agent.say("off")
        assert (await agent.command("/tools on terminal")).text == "On: terminal."
        await agent.say("on")
        assert "terminal" not in offered(agent, 0) and "terminal" in offered(agent)


async def test_a_group_is_off_but_for_the_tool_that_is_switched_on():
    async with open_agent(model=["one", "two"]) as agent:
        await agent.command("/tools off core")
        await agent.say("nothing")
        await agent.command("/tools on read_file")
        await agent.say("one")
        assert (offered(agent, 0), offered(agent)) == (set(), {"read_file"})


async def test_reset_brings_all_back():
    async with open_agent(model=["one"]) as agent:
        await agent.command("/tools off read_file write_file")
        assert (await agent.command("/tools reset")).text == "The tools are as in the settings."
        await agent.say("go")
        assert {"read_file", "write_file"} <= offered(agent)


async def test_the_choice_survives_a_restart(tmp_path):
    async with open_agent(model=["one"], home=tmp_path) as agent:
        await agent.say("hello")
        await agent.command("/tools off terminal")
    async with open_agent(model=["two"], home=tmp_path) as agent:
        await agent.say("again")
        assert "terminal" not in offered(agent)


async def test_a_branch_keeps_the_choice_and_a_new_conversation_does_not():
    async with open_agent(model=["one", "two", "three"]) as agent:
        await agent.say("hello")
        await agent.command("/tools off terminal")
        await agent.command("/branch")
        await agent.say("in the branch")
        await agent.command("/new")
        await agent.say("new")
        assert "terminal" not in offered(agent, 1) and "terminal" in offered(agent, 2)


async def test_what_a_setting_switches_off_stays_off():
    config = {"tools": {"off": ["terminal"], "test": {"off": ["read_file"]}, "telegram": {"off": ["write_file"]}}}
    async with open_agent(model=["one"], config=config) as agent:
        reply = await agent.command("/tools on terminal")
        assert reply.failed and reply.text == "terminal stays off. tools.off in config.toml lists it."
        assert "off: tools.test.off in config.toml lists it." in (await agent.command("/tools list read_file")).text
        await agent.say("go")
        assert not {"terminal", "read_file"} & offered(agent) and "write_file" in offered(agent)


async def test_a_platform_can_switch_on_what_is_off_elsewhere():
    config = {"tools": {"off": ["terminal", "patch"], "test": {"on": ["terminal"]}}}
    async with open_agent(model=["one"], config=config) as agent:
        await agent.say("go")
        assert "terminal" in offered(agent) and "patch" not in offered(agent)


async def test_toolsets_are_named_as_the_reason():
    async with open_agent(model=[], config={"toolsets": {"test": ["read_file"]}}) as agent:
        text = (await agent.command("/tools list terminal")).text
        assert "off: toolsets.test in config.toml does not list it." in text


@pytest.mark.parametrize(
    ("command", "says"),
    [
        ("/tools off terminl", "Unknown tool “terminl”. Did you mean terminal?"),
        ("/tools on nothing_like_it", "Unknown tool “nothing_like_it”."),
        ("/tools off", "Usage: /tools"),
        ("/tools forget terminal", "Usage: /tools"),
        ("/tools list qqq", "No tool matches"),
    ],
)
async def test_a_wrong_command_changes_nothing(command, says):
    async with open_agent(model=["one"]) as agent:
        reply = await agent.command(command)
        assert reply.failed and says in reply.text
        await agent.say("go")
        assert "terminal" in offered(agent)


async def test_a_running_turn_keeps_its_tools():
    async with open_agent(model=[call("terminal", command="true"), call("terminal", command="true"), "done"]) as agent:
        pending = await agent.start("go")
        reply = await agent.command("/tools off terminal")
        answer = await pending.reply()
        assert [each.outcome for each in answer.results] == ["ok", "ok"]
        assert reply.text.startswith("Off in this conversation: terminal")


async def test_subagents_have_the_choice_of_their_conversation():
    script = [call("delegate_task", goal="look"), "child", "done"]
    async with open_agent(model=script) as agent:
        await agent.command("/tools off terminal")
        await agent.say("go")
        assert len(agent.model.requests) == 3
        assert all("terminal" not in offered(agent, number) for number in range(3))
