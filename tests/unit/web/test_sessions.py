"""Sessions over HTTP, at a real door: begun, listed, read, forked, searched, exported, forgotten."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from alipes.kernel.turns import Address, Inbound
from alipes.testing.scripted_provider import ScriptedProvider
from tests.unit.agent_harness import play
from tests.world.api_harness import ApiHarness, open_api


async def seen(api: ApiHarness, path: str, *, by: str = "ann") -> Any:
    answer = await api.ask("GET", path, by=by)
    assert answer.status_code == 200, answer.text
    return answer.json()


async def talk(api: ApiHarness, *words: str, session: str = "talk", by: str = "ann") -> dict[str, Any]:
    """Say each, wait for its answer; the last run."""
    for word in words:
        run = await api.finish(await api.begin(word, session=session, by=by), by=by)
    return run


async def test_a_session_is_begun_named_and_found_by_both_its_names(tmp_path: Path):
    async with open_api(tmp_path, ScriptedProvider()) as api:
        new = {"name": "work", "title": "My work", "model": "a/b"}
        answer = await api.ask("POST", "/sessions", new)
        assert answer.status_code == 201
        session = answer.json()
        assert answer.headers["location"] == f"/v1/sessions/{session['id']}"
        assert {name: session[name] for name in new} == new and session["platform"] == "api"
        assert await seen(api, "/sessions/work") == await seen(api, f"/sessions/{session['id']}")
        taken = await api.ask("POST", "/sessions", new)
        assert (taken.status_code, taken.json()["code"]) == (409, "name_taken")
        assert (await api.ask("POST", "/sessions", new, by="bob")).status_code == 201
        run = await talk(api, "hello", session="work")
        assert run["session_id"] == session["id"]
        nameless = [(await api.ask("POST", "/sessions", {})).json()["name"] for _ in range(2)]
        assert nameless[0] != nameless[1]


async def test_sessions_are_listed_the_latest_first_in_pages_and_by_words(tmp_path: Path):
    async with open_api(tmp_path, ScriptedProvider()) as api:
        for name in ("a", "b", "c"):
            await talk(api, f"thing {name}{name}", session=name)
        first = await seen(api, "/sessions?limit=2")
        assert [each["name"] for each in first["sessions"]] == ["c", "b"] and first["more"]
        rest = await seen(api, f"/sessions?limit=2&before={first['sessions'][-1]['updated']}")
        assert [each["name"] for each in rest["sessions"]] == ["a"] and not rest["more"]
        found = await seen(api, "/sessions?q=thing%20bb")
        assert [(each["title"], each["turns"]) for each in found["sessions"]] == [("thing bb", 1)]
        assert (await api.ask("GET", "/sessions?limit=0")).status_code == 422


async def test_a_fork_shares_what_was_said_and_both_go_on_apart(tmp_path: Path):
    model = ScriptedProvider()
    async with open_api(tmp_path, model) as api:
        await talk(api, "first")
        forked = await api.ask("POST", "/sessions/talk/fork", {"name": "other", "title": "Another way"})
        assert forked.status_code == 201
        fork = forked.json()
        assert fork["parent"] == (await seen(api, "/sessions/talk"))["id"]
        await talk(api, "here", session="other")
        await talk(api, "there")
        for name, words in (("other", ["first", "here"]), ("talk", ["first", "there"])):
            said = (await seen(api, f"/sessions/{name}/messages"))["messages"]
            assert [each["text"] for each in said if each["role"] == "user"] == words
        again = await api.ask("POST", "/sessions/talk/fork", {"name": "other"})
        assert (again.status_code, again.json()["code"]) == (409, "name_taken")


async def test_a_session_is_forked_while_it_is_at_work_without_what_is_unfinished(tmp_path: Path):
    go = asyncio.Event()
    async with open_api(tmp_path, play("One.", ("Two", go), "Here.")) as api:
        empty = (await api.ask("POST", "/sessions", {"name": "empty"})).json()
        nothing = await api.ask("POST", f"/sessions/{empty['id']}/fork", {})
        assert (nothing.status_code, nothing.json()["code"]) == (409, "session")
        await talk(api, "first")
        run = await api.begin("second", session="talk")
        async with api.listening(run) as listener:
            await listener.until("text_delta")
            fork = (await api.ask("POST", "/sessions/talk/fork", {})).json()
            go.set()
            await listener.rest()
        assert (await api.look(run))["text"] == "Two"
        said = (await seen(api, f"/sessions/{fork['id']}/messages"))["messages"]
        assert [each["text"] for each in said] == ["first", "One."]


async def test_a_session_is_forgotten_unless_it_is_at_work_or_shared(tmp_path: Path):
    async with open_api(tmp_path, play("One.", ("Two", asyncio.Event()))) as api:
        await talk(api, "first")
        await api.ask("POST", "/sessions/talk/fork", {"name": "other"})
        shared = await api.ask("DELETE", "/sessions/talk")
        assert (shared.status_code, shared.json()["code"]) == (409, "session")
        run = await api.begin("second", session="other")
        busy = await api.ask("DELETE", "/sessions/other")
        assert (busy.status_code, busy.json()["code"]) == (409, "session")
        await api.ask("POST", f"/runs/{run}/stop")
        await api.finish(run)
        assert (await api.ask("DELETE", "/sessions/other")).status_code == 204
        assert (await api.ask("DELETE", "/sessions/talk")).status_code == 204
        assert (await api.ask("GET", "/sessions/talk")).status_code == 404
        assert (await api.ask("GET", f"/runs/{run}")).status_code == 404


async def test_words_are_found_only_in_ones_own_sessions(tmp_path: Path):
    async with open_api(tmp_path, ScriptedProvider()) as api:
        await talk(api, "the blue whale")
        await talk(api, "a blue bird", by="bob")
        mine = (await seen(api, "/sessions/search?q=blue"))["hits"]
        assert {hit["title"] for hit in mine} == {"the blue whale"}
        everyone = (await seen(api, "/sessions/search?q=blue", by="root"))["hits"]
        assert {hit["title"] for hit in everyone} == {"the blue whale", "a blue bird"}
        assert (await seen(api, "/sessions/search?q=blue&limit=1"))["hits"] == mine[:1]
        assert (await seen(api, "/sessions/search"))["hits"] == []


async def test_a_session_is_exported_for_programs_and_for_people(tmp_path: Path):
    async with open_api(tmp_path, play("Four.")) as api:
        await talk(api, "two and two?")
        whole = await seen(api, "/sessions/talk/export")
        assert whole["format"] == "alipes.session/1" and whole["turns"][0]["ending"] == "answered"
        text = await api.ask("GET", "/sessions/talk/export/markdown")
        assert text.headers["content-type"].startswith("text/markdown")
        assert text.text.startswith("# two and two?") and "Four." in text.text


@pytest.mark.parametrize(
    ("method", "way"),
    [
        ("GET", ""),
        ("DELETE", ""),
        ("GET", "/messages"),
        ("POST", "/fork"),
        ("GET", "/export"),
        ("GET", "/export/markdown"),
    ],
)
async def test_a_session_of_somebody_else_does_not_exist(tmp_path: Path, method: str, way: str):
    async with open_api(tmp_path, ScriptedProvider()) as api:
        run = await talk(api, "mine")
        for name in (run["session_id"], "talk"):
            answer = await api.ask(method, f"/sessions/{name}{way}", {} if way == "/fork" else None, by="bob")
            assert (answer.status_code, answer.json()["code"]) == (404, "no_session")
        assert (await seen(api, "/sessions", by="bob"))["sessions"] == []


async def test_admins_see_everybodys_and_the_terminals(tmp_path: Path):
    async with open_api(tmp_path, ScriptedProvider()) as api:
        await talk(api, "mine")
        async with api.house.sessions.ask(Inbound("1", Address("terminal", "main"), "me", "typed")) as following:
            _ = [event async for event in following]
        listed = (await seen(api, "/sessions", by="root"))["sessions"]
        assert [(each["platform"], each["title"], each.get("user", "")) for each in listed] == [
            ("terminal", "typed", ""),
            ("api", "mine", "ann"),
        ]
        said = await seen(api, f"/sessions/{listed[0]['id']}/messages", by="root")
        assert said["messages"][0]["text"] == "typed"


async def test_names_may_be_of_any_script_but_not_look_like_ids(tmp_path: Path):
    async with open_api(tmp_path, ScriptedProvider()) as api:
        name = "Größe: 50 % & mehr"
        session = (await api.ask("POST", "/sessions", {"name": name})).json()
        run = await talk(api, "hallo", session=name)
        assert (run["session"], run["session_id"]) == (name, session["id"])
        for wrong in ("0123456789ab", "a/b", "a\nb", "x" * 201):
            assert (await api.ask("POST", "/sessions", {"name": wrong})).status_code == 422


async def test_messages_around_a_hit_are_read_only_in_ones_own_sessions(tmp_path: Path):
    async with open_api(tmp_path, ScriptedProvider()) as api:
        await talk(api, "the blue whale")
        (hit, *_) = (await seen(api, "/sessions/search?q=whale"))["hits"]
        way = f"/sessions/search/around?message={hit['message']}&before=0"
        around = await seen(api, way)
        assert around["messages"][0]["text"] == "the blue whale" and around["session"] == hit["session"]
        assert (await api.ask("GET", way, by="bob")).status_code == 404
        assert (await seen(api, way, by="root")) == around
