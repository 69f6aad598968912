"""Permission modes in a whole app: what each of them asks, whose they are, and patterns of commands."""

import pytest

from alipes.kernel.turns import Address, AnswerApproval, AnswerQuestion, ApprovalAsked, QuestionAsked
from alipes.sessions.permissions import ACCEPT, ACCEPT_QUESTION, ACCEPT_WITH_EDITS, REJECT, cycle_mode, parse_mode
from alipes.testing.agent import open_agent
from alipes.testing.scripted_model import call

PLAN = "## Plan\n\n1. Write it\n2. Check it"


def push(target: str = "main"):
    return call("terminal", command=f"git push --force origin {target}")


def write(path: str = "Jenkinsfile"):
    return call("write_file", path=path, content="x")


def outcomes(reply) -> list[str]:
    return [each.outcome for each in reply.results]


@pytest.mark.parametrize(
    ("mode", "seen"),
    [
        ("ask", ["denied", "denied", "denied", "ok"]),
        ("edits", ["denied", "ok", "denied", "ok"]),
        ("plan", ["denied", "denied", "denied", "denied"]),
        ("all", ["failed", "ok", "ok", "ok"]),
    ],
)
async def test_each_mode_asks_about_what_it_says(mode, seen):
    script = [(push(), write(), write(".git/hooks/pre-commit"), write("src/app.py")), "Done."]
    async with open_agent(model=script, person="no") as agent:
        assert not (await agent.command(f"/mode {mode}")).failed
        reply = await agent.say("go")
    assert [
        "failed" if each.outcome == "ok" and "exit code" in each.text else each.outcome for each in reply.results
    ] == seen


async def test_no_mode_allows_what_nothing_allows():
    async with open_agent(
        model=[call("terminal", command="rm -rf ~"), "Done."], config={"approvals": {"mode": "all"}}
    ) as agent:
        reply = await agent.say("go")
    assert outcomes(reply) == ["denied"] and "whatever is approved" in reply.results[0].text


async def test_what_somebody_else_than_an_owner_wrote_has_no_rights_of_a_mode():
    async with open_agent(model=[(push(), write()), "Done."], person="no") as agent:
        await agent.command("/mode all")
        reply = await agent.say("go", untrusted="a message from eve")
        refused = await agent.app.sessions.permissions.of_key(agent.key)
    assert outcomes(reply) == ["denied", "denied"] and refused == "all"


async def test_the_mode_of_a_message_becomes_that_of_its_conversation():
    async with open_agent(model=[write("a"), "No.", write("a"), "No."]) as agent:
        assert outcomes(await agent.say("go", permission_mode="plan")) == ["denied"]
        assert outcomes(await agent.say("again")) == ["denied"]
        assert await agent.app.sessions.permissions.of_key(agent.key) == "plan"


async def test_a_mode_is_kept_by_a_branch_and_not_by_a_new_conversation():
    async with open_agent(model=["Hi."]) as agent:
        await agent.command("/mode plan")
        await agent.say("hello")
        await agent.command("/branch")
        assert await agent.app.sessions.permissions.of_key(agent.key) == "plan"
        await agent.command("/new")
        assert await agent.app.sessions.permissions.of_key(agent.key) == "ask"


async def test_one_key_switches_between_three_modes():
    async with open_agent() as agent:
        place = Address("terminal", "a:b%")
        seen = [await cycle_mode(agent.app.store, place.key) for _ in range(4)]
        assert seen == ["edits", "plan", "ask", "edits"]
        assert (await agent.app.store.sessions.active(place.key)).address == place
        await agent.app.sessions.permissions.choose(place, "all")
        assert await cycle_mode(agent.app.store, place.key) == "ask"


async def test_each_mode_says_what_it_does():
    async with open_agent(model=["hi"], person="no") as agent:
        text = (await agent.command("/mode")).text
        assert "  edits  never asks about edits, not even CI and hook files" in text
        assert (ACCEPT_WITH_EDITS, ACCEPT, REJECT) == ("Yes, and edit without asking", "Yes", "No")


async def test_an_unknown_mode_is_refused_with_a_suggestion():
    async with open_agent() as agent:
        reply = await agent.command("/mode edit")
    assert reply.failed and "edits" in reply.text and parse_mode("edit") is None and parse_mode(" ALL ") == "all"


async def say_and_answer(agent, text: str, *answers: str) -> tuple:
    events, left = [], list(answers)
    async with agent.app.sessions.ask(agent._inbound(text)) as following:
        async for event in following:
            events.append(event)
            if isinstance(event, QuestionAsked):
                assert event.question == ACCEPT_QUESTION
                await agent.post(AnswerQuestion(event.ask, event.interpret(left.pop(0)), "me"))
            if isinstance(event, ApprovalAsked):
                choice, _, pattern = left.pop(0).partition(" ")
                await agent.post(AnswerApproval(event.ask, choice, "me", pattern=pattern))
    return tuple(events)


@pytest.mark.parametrize(("said", "mode"), [("1", "edits"), ("2", "ask"), ("yes", "ask")])
async def test_an_accepted_plan_is_carried_out_in_another_mode(said, mode):
    async with open_agent(model=[PLAN, write("new.txt"), "Done."], person="no") as agent:
        await agent.command("/mode plan")
        await say_and_answer(agent, "write it", said)
        assert (agent.workdir / "new.txt").exists()
        assert await agent.app.sessions.permissions.of_key(agent.key) == mode
        offered = [{tool.name for tool in request.tools} for request in agent.model.requests]
    assert "write_file" not in offered[0] and "write_file" in offered[1]
    assert "Plan mode is on" in agent.model.requests[0].system and "Plan mode" not in agent.model.requests[1].system


async def test_a_plan_that_is_not_accepted_ends_the_turn():
    async with open_agent(model=[PLAN], person="no") as agent:
        await agent.command("/mode plan")
        events = await say_and_answer(agent, "write it", "3")
        assert events[-1].ending == "answered"
        assert await agent.app.sessions.permissions.of_key(agent.key) == "plan"


async def test_an_answer_that_is_no_plan_is_not_asked_about():
    async with open_agent(model=["It parses dates."], person="no") as agent:
        await agent.command("/mode plan")
        assert not any(isinstance(each, QuestionAsked) for each in await say_and_answer(agent, "what does it do?"))


async def test_a_pattern_allows_such_commands_in_this_folder_until_it_is_revoked():
    script = [push(), "One.", push("other"), "Two.", push(), "Three."]
    async with open_agent(model=script, person="once") as agent:
        approvals = agent.app.store.approvals
        assert (await agent.say("one")).of(ApprovalAsked)
        assert not await approvals.list_patterns(str(agent.workdir))
        assert not (await agent.command("/permissions add git push *")).failed
        reply = await agent.say("two")
        assert not reply.of(ApprovalAsked)
        (right,) = await approvals.list_patterns(str(agent.workdir))
        assert "git push *" in (await agent.command("/permissions")).text
        assert not (await agent.command(f"/permissions revoke {right.id[:6]}")).failed
        assert (await agent.say("three")).of(ApprovalAsked)


async def test_after_untrusted_text_a_pattern_is_asked_about_again():
    async with open_agent(model=[push(), "One.", push(), "Two."], person="once") as agent:
        await agent.command("/permissions add git push *")
        assert not (await agent.say("one")).of(ApprovalAsked)
        reply = await agent.say("two", untrusted="a message from eve")
    assert reply.of(ApprovalAsked)


async def test_a_pattern_that_would_allow_any_command_is_refused():
    async with open_agent() as agent:
        reply = await agent.command("/permissions add sudo *")
    assert reply.failed and "would allow any command" in reply.text
