"""What memory and skills cost in every request, and that their part of the prompt never changes in a conversation."""

import itertools

from alipes.features.skills.feature import SkillsFeature
from alipes.features.skills.versions import SkillChange, SkillFile
from alipes.testing.agent import open_agent
from alipes.testing.scripted_model import call

MAX_TOKENS = 1500
CHARS_PER_TOKEN = 4
"""English text has more; so this is an upper bound."""


def fill(agent):
    """Full notes and 50 skills with ordinary descriptions."""
    folder = agent.app.settings.paths.memory
    folder.mkdir()
    line = "- The staging server is called bravo and is only reachable from the office network\n"
    for name, limit in (("MEMORY.md", agent.app.settings.memory.limit), ("USER.md", 800)):
        (folder / name).write_text((line * 50)[:limit])
    about = "Writes release notes from the merged changes. Use it when a version is about to be published or announced."
    for number in range(50):
        text = f"---\nname: task-number-{number}\ndescription: {about}\n---\n\nDo it.\n"
        agent.app.features.get(SkillsFeature).skills.store.create(
            f"task-number-{number}", {"SKILL.md": SkillFile(text.encode())}, SkillChange("person")
        )


async def test_full_notes_and_50_skills_cost_at_most_1500_tokens():
    async with open_agent(model=["one", "two"], config={"skills": {"project": False}}) as agent:
        await agent.say("before")
        fill(agent)
        await agent.command("/new")
        await agent.say("after")
        without, with_both = (request.system for request in agent.model.requests)
        assert "task-number-49" in with_both and "bravo" in with_both
        tokens = (len(with_both.encode()) - len(without.encode())) / CHARS_PER_TOKEN
        assert 1000 < tokens <= MAX_TOKENS


async def test_the_prefix_is_the_same_over_50_turns_with_new_notes_and_skills():
    def note(number):
        return call("memory", action="add", target="memory", content=f"fact {number}")

    script = [line for number in range(50) for line in (note(number), "done")]
    async with open_agent(model=script, config={"skills": {"project": False}}) as agent:
        for number in range(50):
            if number == 10:
                text = b"---\nname: late\ndescription: x\n---\n\nx\n"
                agent.app.features.get(SkillsFeature).skills.store.create(
                    "late", {"SKILL.md": SkillFile(text)}, SkillChange("person")
                )
            assert (await agent.say(f"turn {number}")).results[0].outcome == "ok"
        requests = agent.model.requests
        assert len(requests) == 100 and len({request.system for request in requests}) == 1
        assert len({repr(request.tools) for request in requests}) == 1
        assert all(
            later.messages[: len(earlier.messages)] == earlier.messages
            for earlier, later in itertools.pairwise(requests)
        )
