"""The server itself over HTTP: facts, checks, restart."""

import asyncio

import pytest

from tests.world.admin_harness import open_admin

ENVIRON = {"PATH": "/usr/bin:/bin", "ALIPES_TEST_PROVIDER": "scripted_provider", "ALIPES_LOCAL_SERVERS": "false"}
pytestmark = pytest.mark.deadline(120)


async def test_the_server_says_what_it_is(tmp_path):
    async with open_admin(tmp_path / "home") as api:
        found = await api.get("/server", by="page")
    assert found["home"] == str(tmp_path / "home") and found["profile"] == "default"
    assert found["address"].startswith("http://127.0.0.1:") and found["started"] > 1e9
    assert found["model"].startswith("scripted") and found["platforms"] == []


async def test_the_checks_of_doctor_are_run_one_at_a_time(tmp_path):
    async with open_admin(tmp_path / "home", environ=ENVIRON) as api:
        async with asyncio.TaskGroup() as group:
            asked = [group.create_task(api.ask("POST", "/doctor", {}, by="root")) for _ in range(2)]
        statuses = sorted(each.result().status_code for each in asked)
        assert statuses == [200, 409]
        done = next(each.result().json() for each in asked if each.result().status_code == 200)
    groups = {each["group"]: each for each in done["checks"]}
    assert groups["python"]["status"] == "ok" and groups["database"]["status"] == "ok"
    assert {each["status"] for each in done["checks"]} <= {"ok", "warn", "error"} and done["seconds"] > 0


async def test_a_restart_is_requested(tmp_path):
    async with open_admin(tmp_path / "home") as api:
        await api.call("POST", "/server/restart", status=202)
        assert api.exit.requested.is_set() and api.exit.action == "restart"


async def test_a_restart_with_broken_settings_is_refused(tmp_path):
    async with open_admin(tmp_path / "home") as api:
        (tmp_path / "home" / "config.toml").write_text("log_level = 5\n")
        refused = await api.call("POST", "/server/restart", status=409)
        assert "config.toml:1" in refused["detail"] and not api.exit.requested.is_set()


async def test_only_an_admin_may_restart_and_check(tmp_path):
    async with open_admin(tmp_path / "home") as api:
        for by in ("page", "ann", "reader"):
            await api.call("POST", "/server/restart", by=by, status=403)
            await api.call("POST", "/doctor", {}, by=by, status=403)
            await api.get("/server", by=by, status=200 if by == "page" else 403)
