"""Runs over HTTP at a real door: listed in pages, refused beyond a ceiling or with an unknown model."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from alipes.testing.scripted_provider import ScriptedProvider
from tests.unit.agent_harness import call, play
from tests.unit.web.test_runs import held
from tests.world.api_harness import ApiHarness, open_api


async def listed(api: ApiHarness, query: str = "", *, by: str = "ann") -> dict[str, Any]:
    answer = await api.ask("GET", f"/runs{query}", by=by)
    assert answer.status_code == 200, answer.text
    return answer.json()


async def test_runs_are_listed_newest_first_in_pages(tmp_path: Path):
    async with open_api(tmp_path, ScriptedProvider()) as api:
        runs = [(await api.finish(await api.begin(f"run {n}")))["id"] for n in range(3)]
        first = await listed(api, "?limit=2")
        assert [each["id"] for each in first["runs"]] == [runs[2], runs[1]] and first["more"]
        rest = await listed(api, f"?limit=2&before={runs[1]}")
        assert [each["input"] for each in rest["runs"]] == ["run 0"] and not rest["more"]


async def test_runs_are_listed_by_conversation(tmp_path: Path):
    async with open_api(tmp_path, ScriptedProvider()) as api:
        one = await api.finish(await api.begin("a", session="one"))
        await api.finish(await api.begin("b", session="two"))
        for name in ("one", one["session_id"]):
            assert [each["id"] for each in (await listed(api, f"?session={name}"))["runs"]] == [one["id"]]
        assert (await api.ask("GET", "/runs?session=three")).status_code == 404


async def test_runs_are_listed_by_status(tmp_path: Path):
    begun, hand = held()
    async with open_api(tmp_path, play("Fine.", call("c", "hold")), hand) as api:
        done = await api.finish(await api.begin("a", session="s"))
        running = await api.begin("b", session="s")
        await begun.wait()
        queued = await api.begin("c", session="s")
        found = {}
        for status in ("answered", "running", "queued", "failed", "waiting"):
            found[status] = [each["id"] for each in (await listed(api, f"?status={status}"))["runs"]]
        assert found == {
            "answered": [done["id"]],
            "running": [running],
            "queued": [queued],
            "failed": [],
            "waiting": [],
        }
        assert (await api.ask("GET", "/runs?status=lost")).status_code == 422
        for run in (queued, running):
            await api.ask("POST", f"/runs/{run}/stop")


async def test_callers_list_their_own_runs_and_admins_all(tmp_path: Path):
    async with open_api(tmp_path, ScriptedProvider()) as api:
        await api.finish(await api.begin("mine"))
        assert not (await listed(api, by="bob"))["runs"]
        assert [each["input"] for each in (await listed(api, by="root"))["runs"]] == ["mine"]


async def test_an_unknown_model_is_refused_at_once_with_similar_names(tmp_path: Path):
    async with open_api(tmp_path, ScriptedProvider()) as api:
        answer = await api.ask("POST", "/runs", {"input": "a", "model": "a/x"})
        assert (answer.status_code, answer.json()["code"]) == (404, "model_not_found")
        assert "Did you mean a/b?" in answer.json()["detail"]
        assert not (await listed(api))["runs"]


@pytest.mark.parametrize("path", ["/sessions", "/sessions/work"])
async def test_a_conversation_with_an_unknown_model_is_refused(tmp_path: Path, path: str):
    async with open_api(tmp_path, ScriptedProvider()) as api:
        await api.ask("POST", "/sessions", {"name": "work"})
        method = "POST" if path == "/sessions" else "PATCH"
        answer = await api.ask(method, path, {"model": "a/x"})
        assert (answer.status_code, answer.json()["code"]) == (404, "model_not_found")


@pytest.mark.parametrize(("limits", "refused"), [({"max_runs_per_key": 2}, "ann"), ({"max_runs": 2}, "bob")])
async def test_more_runs_than_allowed_are_refused_for_now(tmp_path: Path, limits: dict[str, int], refused: str):
    begun, hand = held()
    async with open_api(tmp_path, play(call("c", "hold")), hand, limits=limits) as api:
        running = await api.begin("a", session="s")
        queued = await api.begin("b", session="s")
        await begun.wait()
        answer = await api.ask("POST", "/runs", {"input": "c", "session": "s"}, by=refused)
        assert (answer.status_code, answer.json()["code"]) == (429, "too_many_runs")
        assert int(answer.headers["retry-after"]) > 0
        for run in (queued, running):
            await api.ask("POST", f"/runs/{run}/stop")
        for run in (running, queued):
            await api.finish(run)
        assert (await api.ask("POST", "/runs", {"input": "c"}, by=refused)).status_code == 202


async def test_runs_that_come_at_once_do_not_pass_the_ceiling_together(tmp_path: Path):
    begun, hand = held()
    async with open_api(tmp_path, play(call("c", "hold")), hand, limits={"max_runs_per_key": 3}) as api:
        async with asyncio.TaskGroup() as group:
            asked = [group.create_task(api.ask("POST", "/runs", {"input": "a", "session": "s"})) for _ in range(10)]
        accepted = [each.result().json()["id"] for each in asked if each.result().status_code == 202]
        assert 1 <= len(accepted) <= 3
        assert {each.result().status_code for each in asked} == {202, 429}
        await begun.wait()
        for run in reversed(accepted):
            await api.ask("POST", f"/runs/{run}/stop")


async def test_a_conversation_is_changed(tmp_path: Path):
    async with open_api(tmp_path, ScriptedProvider()) as api:
        session = (await api.ask("POST", "/sessions", {"name": "work", "title": "Old", "model": "a/b"})).json()
        changed = await api.ask("PATCH", "/sessions/work", {"title": "New"})
        assert (changed.status_code, changed.json()["title"], changed.json()["model"]) == (200, "New", "a/b")
        changed = await api.ask("PATCH", f"/sessions/{session['id']}", {"model": "a/c"})
        assert (changed.json()["title"], changed.json()["model"]) == ("New", "a/c")
        changed = await api.ask("PATCH", "/sessions/work", {"model": ""})
        assert "model" not in changed.json()


async def test_a_change_that_is_not_known_or_not_allowed_is_refused(tmp_path: Path):
    async with open_api(tmp_path, ScriptedProvider()) as api:
        await api.ask("POST", "/sessions", {"name": "work"})
        assert (await api.ask("PATCH", "/sessions/work", {"name": "other"})).status_code == 422
        assert (await api.ask("PATCH", "/sessions/work", {"busy": "sometimes"})).status_code == 422
        assert (await api.ask("PATCH", "/sessions/work", {"title": "x"}, by="bob")).status_code == 404
        assert (await api.ask("PATCH", "/sessions/work", {"title": "x"}, by="reader")).status_code == 403
