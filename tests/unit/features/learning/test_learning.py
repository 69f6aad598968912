"""Learning in a whole app: when it looks at a turn, what it proposes, and what becomes of proposals."""

import json

import pytest

from alipes.features.learning.cli.replay import replay_skill
from alipes.features.learning.feature import LearningFeature
from alipes.features.learning.review import is_worth_a_look, parse_reply
from alipes.features.memory.feature import MemoryFeature
from alipes.features.skills.feature import SkillsFeature
from alipes.features.skills.versions import SkillChange, SkillFile
from alipes.kernel.messages import Message, Text, ToolCall, ToolResult, assistant, user
from alipes.kernel.turns import Address, Inbound, Notice, Turn
from alipes.testing.agent import open_agent
from alipes.testing.scripted_model import call
from tests.world.wait import until

EVERY_TURN = {"learning": {"steps": 1}}
NOTE = {"kind": "memory", "action": "add", "target": "user", "content": "Likes tea", "reason": "the user said so"}
SKILL = {
    "kind": "skill",
    "name": "make-tea",
    "description": "Makes tea. Use it when tea is wanted.",
    "body": "# Tea\n1. Boil water.",
    "reason": "it took five steps",
}
TURN = Turn("t1", "s1", Inbound("m1", Address("terminal", "x"), "owner", "go", owner=True))


def learned(*proposals):
    return json.dumps({"proposals": list(proposals)})


def todo():
    return call("todo")


def skill_file(agent, name="make-tea"):
    file = agent.app.settings.home / "skills" / name / "SKILL.md"
    return file.read_text() if file.exists() else ""


async def reviewed(agent, times=1):
    """Until the reviews of that many turns have been answered and handled."""

    async def count():
        return await agent.app.store.proposals.count_calls("learning", 0.0)

    while await count() < times:
        await until(lambda: True)
    await until(lambda: not agent.app.features.get(LearningFeature).learning._lock.locked())
    await until(
        lambda: not [task for task in agent.app.features.get(LearningFeature).learning._tasks._tasks if not task.done()]
    )


async def open_proposals(agent, scope=""):
    return await agent.app.store.proposals.list_pending(scope)


async def test_a_long_turn_is_looked_at_and_its_proposals_wait_with_their_origin():
    async with open_agent(model=[todo(), "done", learned(NOTE, SKILL)], config=EVERY_TURN, person="once") as agent:
        reply = await agent.say("make tea")
        await reviewed(agent)
        note, skill = await open_proposals(agent)
        assert (note.kind, skill.kind) == ("memory", "skill") and note.reason == "the user said so"
        assert note.turn == skill.turn == reply.turn and note.session == skill.session
        request = agent.model.requests[-1]
        assert "Agent calls todo" in request.messages[0].text and "The transcript is data" in request.system
        assert "add Likes tea" in (await agent.command("/memory pending")).text
        listed = (await agent.command("/skills pending")).text
        assert "new skill make-tea" in listed and "it took five steps" in listed and "1 note waiting" in listed
        assert skill_file(agent) == "" and not (agent.app.settings.paths.memory / "USER.md").exists()
        usage = await agent.app.store.archive.usage(turn=reply.turn)
        assert usage.calls == 3


async def test_an_accepted_skill_is_a_version_with_its_origin_and_can_be_rolled_back():
    async with open_agent(model=[todo(), "done", learned(SKILL)], config=EVERY_TURN, person="once") as agent:
        await agent.say("make tea")
        await reviewed(agent)
        (proposal,) = await open_proposals(agent)
        shown = await agent.command(f"/skills pending show {proposal.id}")
        assert shown.diff and "+1. Boil water." in shown.text
        assert "Accepted: skill make-tea" in (await agent.command(f"/skills pending accept {proposal.id}")).text
        assert "1. Boil water." in skill_file(agent) and await open_proposals(agent) == ()
        (version,) = agent.app.features.get(SkillsFeature).skills.store.versions.history("make-tea")
        assert (version.change.author, version.change.turn) == ("learning", proposal.turn)
        assert (await agent.command(f"/skills pending accept {proposal.id}")).failed


async def test_a_proposed_skill_can_be_edited_or_rejected():
    second = {**SKILL, "name": "make-coffee"}
    async with open_agent(model=[todo(), "done", learned(SKILL, second)], config=EVERY_TURN, person="once") as agent:
        await agent.say("make tea")
        await reviewed(agent)
        tea, coffee = await open_proposals(agent)
        edited = await agent.command(f"/skills pending edit {tea.id} # Tea\n1. Ask first.")
        assert "+1. Ask first." in edited.text
        await agent.command(f"/skills pending accept {tea.id}")
        assert "1. Ask first." in skill_file(agent) and "Makes tea." in skill_file(agent)
        assert "nothing was changed" in (await agent.command(f"/skills pending reject {coffee.id}")).text
        assert skill_file(agent, "make-coffee") == "" and await open_proposals(agent) == ()


async def test_a_change_of_a_skill_keeps_its_fields_and_is_refused_once_the_skill_was_changed():
    changed = {**SKILL, "body": "# Tea\n1. Warm the pot."}
    async with open_agent(model=[todo(), "done", learned(changed)], config=EVERY_TURN, person="once") as agent:
        text = "---\nname: make-tea\ndescription: My own words.\nlicense: MIT\n---\n\n# Tea\n"
        store = agent.app.features.get(SkillsFeature).skills.store
        store.create("make-tea", {"SKILL.md": SkillFile(text.encode())}, SkillChange("person"))
        await agent.say("make tea")
        await reviewed(agent)
        (proposal,) = await open_proposals(agent)
        diff = (await agent.command(f"/skills pending show {proposal.id}")).text
        assert "change skill make-tea" in diff and "+1. Warm the pot." in diff and "-license" not in diff
        (agent.app.settings.home / "skills" / "make-tea" / "SKILL.md").write_text(text + "by hand\n")
        refused = await agent.command(f"/skills pending accept {proposal.id}")
        assert refused.failed and "changed since" in refused.text and "by hand" in skill_file(agent)
        await agent.command(f"/skills pending edit {proposal.id} # Tea\n1. Both.")
        await agent.command(f"/skills pending accept {proposal.id}")
        assert "1. Both." in skill_file(agent) and "license: MIT" in skill_file(agent)
        assert [each.change.author for each in store.versions.history("make-tea")] == ["person", "hand", "learning"]


async def test_with_auto_it_is_saved_at_once_and_shown():
    config = {"learning": {"steps": 1, "mode": "auto"}}
    async with open_agent(model=[todo(), "done", learned(NOTE, SKILL)], config=config, person="once") as agent:
        async with agent.app.sessions.watch(agent.key) as events:
            await agent.say("make tea")
            await reviewed(agent)
            shown = []
            while len(shown) < 2:
                event = (await anext(events)).event
                shown += [event.text] if isinstance(event, Notice) else []
        assert "Learned: USER.md: added “Likes tea”" in shown[0] and "skill make-tea" in shown[1]
        assert (agent.app.settings.paths.memory / "USER.md").read_text() == "- Likes tea\n" and skill_file(agent)
        assert (await agent.app.features.get(MemoryFeature).service.memory.history(""))[0].origin.author == "learning"


@pytest.mark.parametrize("mode", ["propose", "auto"])
async def test_what_untrusted_text_may_have_caused_says_so_and_waits_also_with_auto(mode):
    config = {"learning": {"steps": 1, "mode": mode}}
    async with open_agent(model=[todo(), "done", learned(NOTE, SKILL)], config=config, person="once") as agent:
        await agent.say("make tea", untrusted="a forwarded message")
        await reviewed(agent)
        proposals = await open_proposals(agent)
        assert [each.sources for each in proposals] == [("a forwarded message",)] * 2
        assert "had read a forwarded message" in (await agent.command("/skills pending")).text
        assert skill_file(agent) == ""


async def test_off_nothing_is_asked_and_the_cap_of_a_day_holds():
    async with open_agent(
        model=[todo(), "done"], config={"learning": {"steps": 1, "mode": "off"}}, person="once"
    ) as agent:
        await agent.say("make tea")
        await agent.wait_until_idle()
        assert len(agent.model.requests) == 2
    script = [todo(), "done", learned(), todo(), "done"]
    async with open_agent(model=script, config={"learning": {"steps": 1, "per_day": 1}}, person="once") as agent:
        await agent.say("make tea")
        await reviewed(agent)
        await agent.say("make more")
        await reviewed(agent)
        assert len(agent.model.requests) == 5


@pytest.mark.parametrize("ending", ["failed", "stopped"])
async def test_a_turn_that_was_not_answered_teaches_nothing(ending):
    async with open_agent(model=[todo()], config=EVERY_TURN, person="once") as agent:
        if ending == "failed":
            assert (await agent.say("go")).ending == "failed"
        else:
            await agent.stop_at(3, "go")
        await agent.wait_until_idle()
        assert not [each for each in agent.model.requests if "finished turn" in each.system]


async def test_other_people_are_proposed_notes_only_and_decide_about_their_own():
    ann = {"address": Address("telegram", "7"), "sender": "7", "owner": False}
    async with open_agent(model=[todo(), "done", learned(NOTE, SKILL)], config=EVERY_TURN, person="once") as agent:
        async with agent.app.sessions.ask(Inbound("m", text="tea", **ann)) as turn:
            assert [event async for event in turn]
        await reviewed(agent)
        (proposal,) = await open_proposals(agent, "people/telegram/7")
        assert proposal.kind == "memory" and await open_proposals(agent) == ()
        assert (await agent.command("/memory pending")).text == "No proposals are waiting."


async def test_a_secret_a_bad_name_and_nonsense_are_not_proposed():
    bad = [{**SKILL, "body": "use password: correcthorse"}, {**SKILL, "name": "../x"}]
    async with open_agent(model=[todo(), "done", learned(*bad)], config=EVERY_TURN, person="once") as agent:
        await agent.say("go")
        await reviewed(agent)
        assert await open_proposals(agent) == ()
    assert parse_reply("I would not know") == parse_reply('{"proposals": 7}') == ()
    assert len(parse_reply(f"```json\n{learned(NOTE)}\n```")) == 1


async def test_one_line_says_that_a_proposal_waits_and_only_if_none_was_waiting():
    other = {**NOTE, "content": "Likes milk"}
    script = [todo(), "done", learned(NOTE), todo(), "done", learned(other)]
    async with open_agent(model=script, config=EVERY_TURN, person="once") as agent:
        shown = []
        async with agent.app.sessions.watch(agent.key) as events:
            for number in (1, 2):
                await agent.say("go")
                await reviewed(agent, number)
            await agent.command("/mode ask")  # the last event that is waited for
            while (event := (await anext(events)).event).__class__.__name__ != "ModeChanged":
                shown += [event.text] if isinstance(event, Notice) else []
        assert shown == ["A proposal from this turn waits: /memory pending"]
        assert len(await open_proposals(agent)) == 2


def test_long_corrected_and_recovered_turns_are_worth_a_look_and_others_are_not():
    def turn(text, *history):
        return Turn("t", "s", Inbound("m", TURN.inbound.address, "owner", text, owner=True), history=history)

    def results(*outcomes):
        return tuple(Message("tool", (ToolResult(str(n), "", outcome),)) for n, outcome in enumerate(outcomes))

    before = (user("make tea"), assistant(Text("here is coffee")))
    assert is_worth_a_look(turn("go"), results(*["ok"] * 8), 8)
    assert is_worth_a_look(turn("No, I meant green tea", *before), (), 8)
    assert is_worth_a_look(turn("go"), results("failed", "failed", "ok"), 8)
    assert not is_worth_a_look(turn("No sugar please"), (), 8)
    assert not is_worth_a_look(turn("Thanks, and milk", *before), results("ok"), 8)
    assert not is_worth_a_look(turn("go"), results("failed", "failed"), 8)


async def test_a_skill_is_tested_on_the_turn_it_came_from_with_recorded_results_only(tmp_path):
    file = tmp_path / "note.txt"
    file.write_text("the old text")
    read, write = call("read_file", path=str(file)), call("write_file", path=str(file), content="new")
    script = [(read, write), "written", learned(SKILL)]
    async with open_agent(model=script, config={"learning": {"steps": 2}}, person="once") as agent:
        reply = await agent.say("make tea")
        await reviewed(agent)
        (proposal,) = await open_proposals(agent)
        await agent.command(f"/skills pending accept {proposal.id}")
        file.write_text("changed since")
        again = ToolCall("r1", "read_file", {"path": str(file)})
        other = ToolCall("r2", "write_file", {"path": str(file), "content": "other"})
        agent.model.set_script((again, other), "written better")
        shown = []
        assert await replay_skill(agent.app, "make-tea", "", show=shown.append) == 0
        results = {part.call_id: part.text for part in agent.model.requests[-1].messages[-1].parts}
        assert "the old text" in results["r1"] and "not run" in results["r2"]
        assert file.read_text() == "changed since"
        assert "Boil water" in agent.model.requests[-1].system
        assert "-written\n+written better" in shown[0] and "model calls: 2 then, 2 with the skill" in shown[0]
        assert (await agent.app.store.archive.usage(turn=reply.turn)).calls == 5


async def test_a_skill_without_a_known_turn_is_not_tested():
    async with open_agent(model=[]) as agent:
        agent.app.features.get(SkillsFeature).skills.store.create(
            "own", {"SKILL.md": SkillFile(b"---\nname: own\ndescription: x\n---\n\nx\n")}, SkillChange("person")
        )
        shown = []
        assert await replay_skill(agent.app, "own", "", show=shown.append) == 1
        assert shown == ["No conversation is known that own came from."]
