"""The names that plugins import: each imported by a plugin in a real folder, used, and gone afterwards."""

import asyncio
import json
import shutil
import sys
from pathlib import Path

import pytest

from alipes.features.schedules.feature import SchedulesFeature
from alipes.kernel.turns import Address
from alipes.testing import call, open_agent
from tests.compat.chat_harness import KEY, open_chat
from tests.compat.hook_log import PLUGINS
from tests.e2e.program import Home

pytestmark = pytest.mark.deadline(40)
IMPORTER = PLUGINS / "importer"


async def test_every_name_is_imported_and_used_in_the_course_of_a_turn(home, monkeypatch):
    monkeypatch.delenv("IMPORTER_TOKEN", raising=False)
    script = [call("use_all"), "aside", "done"]
    async with open_agent(home=home, plugins=[IMPORTER], model=script) as agent:
        result = (await agent.say("go")).result("use_all")
        assert result.outcome == "ok", result.text
        seen = json.loads(result.text)
        key = agent.key
    assert seen["config"] == [{"colour": "green", "size": 3}, "usual", "t0ken", "t0ken", "d"]
    assert seen["tools"] == [["made", "fresh", True, ["made"]], None, True, False]
    assert seen["places"] == ["agent:main:anychat:group:9:5", key, key, {}]
    assert seen["media"] == [[True, True, True], False, True]
    assert seen["values"][:3] == ["stop", True, {"x": 1}] and seen["values"][4] == "anychat"
    assert set(seen["values"][3]) == {
        *("TEXT", "PHOTO", "VIDEO", "AUDIO", "VOICE", "DOCUMENT", "STICKER", "LOCATION", "COMMAND")
    }
    assert (seen["model"], seen["jobs"], seen["profile"], seen["approvals"]) == ("aside", [], "default", 0)
    assert seen["errors"] == ['{"error": "no", "code": 3}', '{"a": 1}', "[1]"]
    assert seen["home"] == str(home) and seen["loop"] is True
    assert seen["classes"] == ["MemoryProvider", "BasePlatformAdapter", True, 21]
    assert (home / ".env").stat().st_mode & 0o077 == 0
    for name in ("hermes_constants", "gateway.session", "tools.registry", "agent.memory_provider", "cron.jobs"):
        assert name not in sys.modules, "the names go with the last plugin"


async def test_in_a_chat_the_names_know_the_place_and_the_adapter(home):
    async with open_chat(home, [call("use_all"), "aside", "done"], IMPORTER) as chat:
        await chat.say("go")
        await chat.until("done")
        (result,) = chat.agent.model.requests[-1].messages[-1].parts
        seen = json.loads(result.text)
        assert seen["places"][1:] == [KEY, KEY, {"oldchat": "Oldchat"}]


async def test_without_a_hermes_plugin_none_of_it_is_imported(home):
    (home / "config.toml").write_text('model = "scripted"\n')
    look = "import sys; sys.argv = ['alipes', 'ask', 'hello']; from alipes.cli.main import main\n"
    look += "try:\n    main()\nexcept SystemExit:\n    pass\n"
    look += "print([name for name in sys.modules if 'compat' in name or name in ('yaml', 'hermes_constants')])"
    (home / "look.py").write_text(look)
    done = await run_python(home, home / "look.py")
    assert done.strip().endswith("[]"), done


async def run_python(home: Path, file: Path) -> str:
    child = await asyncio.create_subprocess_exec(
        sys.executable, str(file), env=Home(home).environ(), cwd=home, stdout=-1, stderr=-2
    )
    out, _ = await child.communicate()
    return out.decode()


async def test_the_doctor_reports_plugins_that_reach_into_the_original(home):
    for name in ("patcher", "importer"):
        shutil.copytree(PLUGINS / name, home / "plugins" / name)
    (home / "config.toml").write_text('model = "scripted"\n[plugins]\nenabled = ["patcher", "importer"]\n')
    done = await Home(home).run("plugins", "doctor")
    assert done.status != 0
    said = done.out + done.err
    for line, word in ((5, "run_agent"), (12, "AIAgent"), (13, "_handle_message"), (14, "dispatch")):
        assert any(f"__init__.py:{line}" in each and word in each for each in said.splitlines()), (line, said)
    wrong = [each for each in said.splitlines() if "importer" in each and "out of scope" in each]
    assert wrong == [], "what only uses the names is fine"
    asked = await Home(home).run("ask", "hello")
    assert asked.status == 0 and "You said: hello" in asked.out, "the host continues"


JOBS = """
import asyncio
import json
from cron import jobs

def act(args, **kwargs):
    made = jobs.create_job(
        "say hello", "30m", name="My Greeting!", origin={"platform": "telegram", "chat_id": 7, "thread_id": "t"}
    )
    other = jobs.create_job("look", "every 2h", deliver="local,telegram:9", enabled_toolsets=["terminal"], repeat=0)
    changed = jobs.update_job(other["id"], {"schedule": "0 9 * * 1-5", "prompt": "look around", "name": "Looking"})
    paused = jobs.pause_job("my greeting", reason="holiday")
    listed = [each["name"] for each in jobs.list_jobs()], [each["name"] for each in jobs.load_jobs()]
    resumed = jobs.update_job(made["id"], {"enabled": True})
    started = jobs.trigger_job("looking")
    same = jobs.get_job(made["id"]) == jobs.resolve_job_ref("My Greeting!") == resumed
    removed = jobs.remove_job("looking"), jobs.remove_job("looking"), jobs.pause_job("looking")
    refused = []
    for given in ({"schedule": "whenever"}, {"schedule": "1h", "repeat": 3}, {"schedule": "1h", "no_agent": True}):
        try:
            jobs.create_job("x", **given)
        except (ValueError, NotImplementedError) as error:
            refused.append(str(error))
    return dict(made=made, changed=changed, paused=paused, listed=listed, same=same, removed=removed, refused=refused)

async def act_on_the_loop(args, **kwargs):
    try:
        jobs.create_job("x", "1h")
    except RuntimeError as error:
        said = str(error)
    made = await asyncio.to_thread(jobs.create_job, "x", "1h")
    return dict(said=said, made=made["name"], listed=len(jobs.list_jobs()))

def register(ctx):
    nothing = {"type": "object", "properties": {}}
    ctx.register_tool("act", "jobs", {"name": "act", "description": "d", "parameters": nothing}, act)
    ctx.register_tool(
        "act_on_the_loop", "jobs", {"name": "act_on_the_loop", "description": "d", "parameters": nothing},
        act_on_the_loop, is_async=True,
    )
"""


async def test_a_plugin_makes_changes_and_removes_jobs(home, folder):
    async with open_agent(home=home, plugins=[folder("jobs", JOBS)], model=[call("act"), "done"]) as agent:
        result = (await agent.say("go")).result("act")
        assert result.outcome == "ok", result.text
        seen = json.loads(result.text)
        (view,) = await agent.app.features.get(SchedulesFeature).schedules.list()
        runs = await agent.app.features.get(SchedulesFeature).schedules.runs.latest()
    made, changed = seen["made"], seen["changed"]
    assert (made["name"], made["deliver"], made["state"]) == ("my-greeting", "origin", "scheduled")
    assert made["schedule"]["kind"] == "once" and made["schedule"]["run_at"] == made["next_run_at"]
    assert changed["schedule"] == {"kind": "cron", "expr": "0 9 * * 1-5", "display": "0 9 * * 1-5"}
    assert (changed["name"], changed["prompt"], changed["deliver"]) == ("looking", "look around", "local,telegram:9")
    assert seen["paused"]["state"] == "paused" and seen["paused"]["next_run_at"] is None
    assert seen["listed"] == [["looking"], ["looking", "my-greeting"]] and seen["same"] is True
    assert seen["removed"] == [True, False, None]
    assert [text.partition(":")[0].partition(" ")[0] for text in seen["refused"]] == [
        "cannot",
        "repeat",
        "no_agent=True",
    ]
    assert view.schedule.job.origin == Address("telegram", "7", thread="t") and view.schedule.job.owner == "person"
    assert [(run.job.name, run.cause, run.job.tools) for run in runs] == [
        ("looking", "by a plugin", ("terminal", "process"))
    ]


async def test_on_the_event_loop_jobs_are_read_and_changed_only_in_a_thread(home, folder):
    script = [call("act_on_the_loop"), "done"]
    async with open_agent(home=home, plugins=[folder("jobs", JOBS)], model=script) as agent:
        seen = json.loads((await agent.say("go")).result("act_on_the_loop").text)
        assert "asyncio.to_thread" in seen["said"] and (seen["made"], seen["listed"]) == ("x", 1)
