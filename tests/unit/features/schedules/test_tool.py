"""The tool `cronjob` and `/schedule`: what the model and people in chats may do with jobs."""

from alipes.features.schedules.feature import SchedulesFeature
from alipes.kernel.turns import Address
from alipes.testing.agent import open_agent
from alipes.testing.scripted_model import call


def job(action="add", **fields):
    return call("cronjob", action=action, **fields)


async def test_the_model_makes_a_job_and_is_shown_its_next_times():
    script = [job(when="every weekday at 9", prompt="say hi", name="hi", timezone="Europe/Berlin"), "done"]
    async with open_agent(model=script) as agent:
        said = await agent.say("greet me every weekday")
        assert said.results[0].outcome == "ok" and said.results[0].text.count("09:00 CE") == 3
        (view,) = await agent.app.features.get(SchedulesFeature).schedules.list()
        assert view.schedule.job.origin == agent.address and view.schedule.job.owner == "person"
        assert view.schedule.job.workdir == str(agent.workdir) and view.schedule.job.mode == "ask"


async def test_the_model_lists_changes_and_removes_jobs():
    script = [
        job(when="in 30m", prompt="tea", name="tea"),
        job("edit", name="tea", when="in 1h"),
        job("pause", name="tea"),
        job("resume", name="tea"),
        job("list"),
        job("show", name="tea"),
        job("remove", name="tea"),
        job("list"),
        job("show", name="tea"),
        "done",
    ]
    async with open_agent(model=script) as agent:
        texts = [result.text for result in (await agent.say("tea")).results]
        assert texts[1].startswith("Changed tea: in 1h.") and "paused" in texts[2] and "Next:" in texts[3]
        assert texts[4].startswith("tea: in 1h; next: ") and "Does: tea" in texts[5]
        assert texts[6:8] == ["Removed tea.", "No jobs."] and "no job 'tea'" in texts[8]


async def test_a_wrong_time_is_explained_to_the_model():
    async with open_agent(model=[job(when="whenever", prompt="x"), job("fly"), job("pause"), "sorry"]) as agent:
        results = (await agent.say("go")).results
        assert [each.outcome for each in results] == ["failed"] * 3
        assert "every weekday at 9" in results[0].text and "must be one of" in results[1].text
        assert "needs the name" in results[2].text


async def test_an_ordinary_job_needs_no_approval_and_a_script_does():
    script = [job(when="in 1h", prompt="x"), job(when="in 1h", script="true"), "done"]
    async with open_agent(model=script, person="no") as agent:
        results = (await agent.say("go")).results
        assert [each.outcome for each in results] == ["ok", "denied"]
        assert "schedules a script" in results[1].text


async def test_messages_to_others_need_approval():
    script = [job(when="in 1h", prompt="x", to=["origin", "telegram:99"]), "done"]
    async with open_agent(model=script, person="no") as agent:
        (result,) = (await agent.say("go")).results
        assert result.outcome == "denied" and "telegram:99" in result.text


async def test_a_job_made_after_untrusted_text_is_asked_about_and_stays_untrusted():
    script = [job(when="in 1h", prompt="x", name="one"), "done"]
    async with open_agent(model=script, person="no") as agent:
        (result,) = (await agent.say("go", untrusted="mail from eve")).results
        assert result.outcome == "denied" and "mail from eve" in result.text
    async with open_agent(model=script, person="once") as agent:
        (result,) = (await agent.say("go", untrusted="mail from eve")).results
        assert result.outcome == "ok"
        (view,) = await agent.app.features.get(SchedulesFeature).schedules.list()
        assert view.schedule.job.untrusted == "mail from eve"


async def test_somebody_who_is_not_an_owner_sees_only_jobs_of_the_chat_and_makes_no_scripts():
    script = [job("list"), job("remove", name="mine"), job(when="in 1h", script="true"), "done"]
    async with open_agent(model=script, person="once") as agent:
        schedules = agent.app.features.get(SchedulesFeature).schedules
        await schedules.add({"when": "in 1h", "prompt": "secret", "name": "mine"}, origin=Address("telegram", "1"))
        results = (await agent.say("go", untrusted="a message from Bob, who is not an owner")).results
        assert results[0].text == "No jobs." and "in this chat" in results[1].text
        assert "only an owner" in results[2].text and len(await schedules.list()) == 1


async def test_a_job_cannot_make_jobs():
    async with open_agent(model=[job(when="in 1h", prompt="again"), "done"]) as agent:
        agent.address = Address("schedule", "abcd", thread="1")
        (result,) = (await agent.say("go")).results
        assert result.outcome == "failed" and "cannot change jobs" in result.text


async def test_the_command_adds_lists_and_removes_jobs():
    async with open_agent(model=[]) as agent:
        added = await agent.command("/schedule add tomorrow at 17:00: ask about the report")
        assert added.text.startswith("Added ask-about-the-report: tomorrow at 17:00. Next: ")
        assert (await agent.command("/schedule")).text.startswith("ask-about-the-report")
        assert "Does: ask about the report" in (await agent.command("/schedule show ask-about-the-report")).text
        assert "paused" in (await agent.command("/schedule pause ask-about-the-report")).text
        assert (await agent.command("/schedule remove ask-about-the-report")).text == "Removed ask-about-the-report."
        assert (await agent.command("/schedule")).text.startswith("No jobs.")
        failed = await agent.command("/schedule pause nothing")
        assert failed.failed and "no job 'nothing'" in failed.text
        assert (await agent.command("/schedule add whenever")).text.startswith("Usage")
        assert (await agent.command("/schedule fly away")).failed


def write_skill(home, name):
    folder = home / "skills" / name
    folder.mkdir(parents=True)
    (folder / "SKILL.md").write_text(f"---\nname: {name}\ndescription: About it.\n---\nLook.\n")


async def test_the_model_names_the_skills_of_a_job_and_an_unknown_one_is_refused(tmp_path):
    write_skill(tmp_path, "weather")
    script = [job(when="in 1h", prompt="x", skills=["weather"]), job(when="in 1h", prompt="x", skills=["wether"]), "."]
    async with open_agent(model=script, home=tmp_path) as agent:
        results = (await agent.say("go")).results
        assert [each.outcome for each in results] == ["ok", "failed"] and "Did you mean weather" in results[1].text
        (view,) = await agent.app.features.get(SchedulesFeature).schedules.list()
        assert view.schedule.job.skills == ("weather",)


async def test_schedule_names_the_skills_of_a_job_before_the_prompt(tmp_path):
    for name in ("weather", "verse"):
        write_skill(tmp_path, name)
    async with open_agent(home=tmp_path) as agent:
        await agent.command("/schedule add every day at 9 --skill weather --skill=verse: will it rain?")
        (view,) = await agent.app.features.get(SchedulesFeature).schedules.list()
        job = view.schedule.job
        assert (job.when, job.skills, job.prompt) == ("every day at 9", ("weather", "verse"), "will it rain?")
        assert (await agent.command("/schedule add every day at 9 --skill nothing: x")).failed


async def test_only_owners_make_jobs_that_get_the_text_of_an_event_or_of_a_job_of_others():
    events = ("on mail", "on webhook ci", "on file /etc/hosts", "after mine", "after mime")
    script = [*(job(when=when, prompt="x") for when in events), job(when="in 1h", prompt="x", name="own")]
    script += [job(when="after own", prompt="x"), "done"]
    async with open_agent(model=script, person="once") as agent:
        await agent.app.features.get(SchedulesFeature).schedules.add(
            {"when": "in 1h", "prompt": "secret", "name": "mine"}
        )
        results = (await agent.say("go", untrusted="a message from Bob, who is not an owner")).results
        assert [each.outcome for each in results] == ["failed"] * 5 + ["ok", "ok"]
        assert all("only an owner" in each.text for each in results[:3])
        assert [each.text for each in results[3:5]] == [
            f"there is no job {name!r} in this chat" for name in ("mine", "mime")
        ]
