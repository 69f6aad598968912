"""Scheduled jobs over HTTP."""

import pytest

from alipes.features.schedules.feature import SchedulesFeature
from tests.world.admin_harness import open_admin

DAILY = {"when": "every weekday at 9", "prompt": "news", "name": "news", "zone": "Europe/Rome"}


async def test_a_job_is_added_and_shown_with_its_next_five_times(tmp_path):
    async with open_admin(tmp_path / "home") as api:
        made = await api.call("POST", "/schedules", DAILY, status=201)
        listed = await api.get("/schedules")
        by_name = await api.get("/schedules/news")
    assert (made["name"], made["kind"], made["state"]) == ("news", "prompt", "active")
    assert made["when_text"] == "at 09:00, Monday to Friday" and made["when"] == "every weekday at 9"
    assert len(made["next"]) == 5 and made["next"] == sorted(made["next"])
    assert made["deliver"] == ["files"] and made["folder"]
    assert listed["jobs"] == [made] and by_name == made


async def test_a_preview_adds_no_job(tmp_path):
    async with open_admin(tmp_path / "home") as api:
        shown = await api.call("POST", "/schedules/preview", {"when": "*/15 * * * *", "zone": "UTC"})
        assert (await api.get("/schedules"))["jobs"] == []
    assert shown["when_text"] == "every 15 minutes, every day"
    assert [later - earlier for earlier, later in zip(shown["next"], shown["next"][1:], strict=False)] == [900] * 4


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({"when": "whenever", "prompt": "x"}, "Examples"),
        ({"when": "every day", "prompt": "x", "zone": "Mars/Base"}, "Europe/Berlin"),
        ({"when": "every day"}, "give a prompt or a script"),
        ({"when": "every day", "prompt": "x", "budget": "lots"}, "$0.50"),
        ({"when": "every day", "prompt": "x", "folder": "/no/such"}, "is not a folder"),
        ({"when": "every day", "prompt": "x", "name": "Bad Name"}, "lowercase"),
        ({"when": "every day", "prompt": "x", "deliver": ["a b"]}, "answers cannot go to"),
        ({"when": "2001-01-01", "prompt": "x"}, "past"),
        ({"when": "every day", "prompt": "x", "retries": 21}, "retries"),
        ({"when": "every day", "prompt": "x", "colour": "red"}, "colour"),
    ],
)
async def test_an_invalid_job_is_refused_with_the_reason(tmp_path, body, words):
    async with open_admin(tmp_path / "home") as api:
        refused = await api.call("POST", "/schedules", body, status=422)
        assert words in refused["detail"]
        assert (await api.get("/schedules"))["jobs"] == []


async def test_changes_keep_the_other_fields(tmp_path):
    async with open_admin(tmp_path / "home") as api:
        await api.call(
            "POST", "/schedules", {**DAILY, "tools": ["read_file"], "budget": "$0.50", "retries": 2}, status=201
        )
        changed = await api.call(
            "PATCH", "/schedules/news", {"when": "every 2h", "tools": None, "jitter": 90, "overlap": "queue"}
        )
    assert (changed["when_text"], changed["jitter"], changed["overlap"]) == ("every 2 hours", 90, "queue")
    assert "tools" not in changed and (changed["budget"], changed["retries"]) == ("$0.50", 2)
    assert changed["prompt"] == "news"


async def test_an_invalid_change_leaves_the_job_as_it_was(tmp_path):
    async with open_admin(tmp_path / "home") as api:
        made = await api.call("POST", "/schedules", DAILY, status=201)
        await api.call("PATCH", "/schedules/news", {"when": "never ever", "prompt": "other"}, status=422)
        assert await api.get("/schedules/news") == made


async def test_pause_resume_run_history_and_delete(tmp_path):
    async with open_admin(tmp_path / "home") as api:
        await api.call("POST", "/schedules", DAILY, status=201)
        paused = await api.call("POST", "/schedules/news/pause")
        assert (paused["state"], paused["next"]) == ("paused", [])
        assert (await api.call("POST", "/schedules/news/resume"))["state"] == "active"
        number = (await api.call("POST", "/schedules/news/run"))["run"]
        (run,) = (await api.get("/schedules/news/history"))["runs"]
        assert (run["id"], run["cause"], run["status"]) == (number, "manual", "waiting")
        assert (await api.get("/schedules/news"))["last"]["id"] == number
        assert await api.call("POST", "/schedules/news/stop") == {"stopped": 0}
        await api.call("DELETE", "/schedules/news", status=204)
        missing = await api.get("/schedules/news", status=404)
    assert missing["code"] == "no_job"


async def test_an_unknown_job_gets_a_suggestion(tmp_path):
    async with open_admin(tmp_path / "home") as api:
        await api.call("POST", "/schedules", DAILY, status=201)
        for method, path in (("GET", "/schedules/nes"), ("POST", "/schedules/nes/run"), ("DELETE", "/schedules/nes")):
            assert "news" in (await api.call(method, path, status=404))["detail"]


async def test_a_second_job_of_that_name_is_refused(tmp_path):
    async with open_admin(tmp_path / "home") as api:
        await api.call("POST", "/schedules", DAILY, status=201)
        assert "already" in (await api.call("POST", "/schedules", DAILY, status=422))["detail"]


async def test_the_heartbeat_can_be_paused_but_not_deleted(tmp_path):
    async with open_admin(tmp_path / "home", '[heartbeat]\nevery = "1h"\n') as api:
        await api.app.features.get(SchedulesFeature).schedules.sync_heartbeat(str(tmp_path))
        assert (await api.get("/schedules/heartbeat"))["fixed"] is True
        assert "config.toml" in (await api.call("DELETE", "/schedules/heartbeat", status=409))["detail"]
        assert (await api.call("POST", "/schedules/heartbeat/pause"))["state"] == "paused"


async def test_a_reading_browser_may_look_but_not_change(tmp_path):
    async with open_admin(tmp_path / "home") as api:
        await api.call("POST", "/schedules", DAILY, status=201)
        assert len((await api.get("/schedules", by="page"))["jobs"]) == 1
        assert (await api.call("POST", "/schedules/news/run", by="page", status=403))["code"] == "scope"


@pytest.mark.parametrize("by", ["ann", "reader"])
async def test_an_ordinary_key_may_not_see_the_jobs(tmp_path, by):
    async with open_admin(tmp_path / "home") as api:
        assert (await api.get("/schedules", by=by, status=403))["code"] == "scope"
