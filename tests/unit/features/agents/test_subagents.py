"""Other agents as subagents: several at once, each in its folder."""

from alipes.testing import call
from tests.world.agent_harness import open_with_agent


def tasks(*given):
    listed = [{"goal": goal, "folder": folder} for goal, folder in given]
    return call("delegate_task", tasks=listed, agent="test")


async def test_several_work_at_once_each_in_its_folder(tmp_path):
    script = [
        tasks(("edit a.txt first\nsay one is done", "one"), ("edit a.txt second\nsay two is done", "two")),
        "all done",
    ]
    async with open_with_agent(tmp_path, script=script) as agent:
        for name in ("one", "two"):
            (agent.workdir / name).mkdir()
        reply = await agent.say("go", model="scripted")
        assert (reply.ending, reply.text) == ("answered", "all done")
        report = reply.result("delegate_task").text
        assert "one is done" in report and "two is done" in report
        assert (agent.workdir / "one" / "a.txt").read_text() == "first\n"
        assert (agent.workdir / "two" / "a.txt").read_text() == "second\n"
        assert not (agent.workdir / "a.txt").exists()
        delegate = next(tool for tool in agent.model.requests[0].tools if tool.name == "delegate_task")
        assert delegate.schema["properties"]["agent"]["enum"] == ["test"]


async def test_a_folder_outside_of_the_project_is_refused(tmp_path):
    async with open_with_agent(tmp_path, script=[tasks(("say no", "/etc")), "ok"]) as agent:
        reply = await agent.say("go", model="scripted")
    assert "is not inside" in reply.result("delegate_task").text


async def test_an_unknown_agent_is_refused_with_those_there_are(tmp_path):
    wrong = call("delegate_task", goal="x", agent="nobody")
    async with open_with_agent(tmp_path, script=[wrong, "ok"]) as agent:
        reply = await agent.say("go", model="scripted")
    text = reply.result("delegate_task").text
    assert text == "not run: argument agent must be one of test"


async def test_one_that_fails_is_reported_and_the_others_are_not_harmed(tmp_path):
    script = [tasks(("die", ""), ("say fine", "")), "ok"]
    async with open_with_agent(tmp_path, script=script) as agent:
        report = (await agent.say("go", model="scripted")).result("delegate_task").text
    assert "fine" in report and "ended in the middle of its work" in report
