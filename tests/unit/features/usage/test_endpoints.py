"""Usage over HTTP: by day in a time zone, model, task, surface and conversation."""

from datetime import datetime
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from alipes.config.settings import Amount, SpendConfig
from alipes.kernel.messages import Message, Text
from alipes.kernel.turns import Address, Inbound, Said, Turn, Usage
from alipes.store.sql.turns import SqlTurns
from alipes.store.sql.usage import UsageLedger, UsageRecord
from alipes.testing.scripted_provider import ScriptedProvider
from tests.unit.web.test_messages import seen
from tests.world.api_harness import ApiHarness, open_api


def moment(text: str, zone: str = "UTC") -> float:
    return datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(zone)).timestamp()


async def spend(api: ApiHarness, when: float, address: Address, model: str = "a/b", cost: float | None = 0.5) -> Turn:
    store = api.house.store
    turns = SqlTurns(store.database, store.processes, clock=lambda: when)
    await turns.accept(Inbound(f"{when}{model}{address.key}", address, "ann", "hi"))
    turn = await turns.claim_next(address.key)
    assert turn is not None
    usage = Usage(input=100, output=10, cached=40, cost=cost)
    await turns.record(turn, Said(Message("assistant", (Text("x"),)), model, usage))
    await turns.finish(turn, "answered", "")
    await turns.release(address.key)
    return turn


API, CHAT = Address("api", "talk", user="ann"), Address("telegram", "7")


async def fill(api: ApiHarness) -> Turn:
    turn = await spend(api, moment("2026-03-01T22:30"), API)
    await spend(api, moment("2026-03-01T23:30"), API, "a/c")
    await spend(api, moment("2026-03-02T10:00"), CHAT, cost=None)
    ledger = UsageLedger(api.house.store.database, clock=lambda: moment("2026-03-02T11:00"))
    await ledger.add(
        UsageRecord(turn=turn, task="title", tool="", model="a/b", usage=Usage(input=5, output=5, cost=0.25))
    )
    return turn


def rows(report: Any, *names: str) -> list[tuple[Any, ...]]:
    return [tuple(row.get(name, "") for name in names) for row in report["rows"]]


async def test_a_day_begins_at_midnight_of_the_time_zone(tmp_path: Path):
    async with open_api(tmp_path, ScriptedProvider()) as api:
        await fill(api)
        period = "from=2026-03-01&to=2026-03-03&by=day"
        utc = await seen(api, f"/usage?{period}&zone=UTC", by="page")
        assert rows(utc, "day", "calls", "input") == [("2026-03-01", 2, 200), ("2026-03-02", 2, 105)]
        rome = await seen(api, f"/usage?{period}&zone=Europe/Rome", by="page")
        assert rows(rome, "day", "calls", "input") == [("2026-03-01", 1, 100), ("2026-03-02", 3, 205)]
        assert rome["total"]["calls"] == 4 and rome["total"]["cost"] == pytest.approx(1.25)
        assert rome["total"]["unpriced"] == 1 and rome["total"]["cached"] == 120
        assert (rome["zone"], rome["from"], rome["to"]) == ("Europe/Rome", "2026-03-01", "2026-03-03")


async def test_usage_is_grouped_by_model_task_surface_and_conversation(tmp_path: Path):
    async with open_api(tmp_path, ScriptedProvider()) as api:
        turn = await fill(api)
        period = "from=2026-03-01&to=2026-03-02&zone=UTC"
        models = await seen(api, f"/usage?{period}&by=model", by="page")
        assert sorted(rows(models, "model", "calls")) == [("a/b", 3), ("a/c", 1)]
        tasks = await seen(api, f"/usage?{period}&by=task", by="page")
        assert sorted(rows(tasks, "task", "calls")) == [("answer", 3), ("title", 1)]
        surfaces = await seen(api, f"/usage?{period}&by=surface", by="page")
        assert rows(surfaces, "surface", "calls", "cost") == [("api", 3, 1.25), ("telegram", 1, "")]
        sessions = await seen(api, f"/usage?{period}&by=session,day", by="page")
        assert rows(sessions, "day", "session", "title")[0] == ("2026-03-01", turn.session, "hi")
        assert [row[0] for row in rows(sessions, "day")] == ["2026-03-01", "2026-03-02", "2026-03-02"]
        none = await seen(api, f"/usage?{period}&by=", by="page")
        assert rows(none, "calls") == [(4,)] and none["total"]["calls"] == 4


async def test_a_caller_sees_only_what_its_own_conversations_used(tmp_path: Path):
    async with open_api(tmp_path, ScriptedProvider()) as api:
        await fill(api)
        period = "from=2026-03-01&to=2026-03-02&zone=UTC&by=day"
        assert (await seen(api, f"/usage?{period}"))["total"]["calls"] == 3
        assert (await seen(api, f"/usage?{period}", by="bob"))["rows"] == []


async def test_deleted_conversations_no_longer_count(tmp_path: Path):
    async with open_api(tmp_path, ScriptedProvider()) as api:
        turn = await fill(api)
        assert (await api.ask("DELETE", f"/sessions/{turn.session}")).status_code == 204
        report = await seen(api, "/usage?from=2026-03-01&to=2026-03-02&zone=UTC&by=surface", by="page")
        assert rows(report, "surface", "calls") == [("telegram", 1)]


async def test_usage_is_exported_as_csv_without_formulas(tmp_path: Path):
    async with open_api(tmp_path, ScriptedProvider()) as api:
        await spend(api, moment("2026-03-01T10:00"), API, "=cmd|' /C calc'!A0")
        answer = await api.ask(
            "GET", "/usage?from=2026-03-01&to=2026-03-01&zone=UTC&by=day,model&format=csv", by="page"
        )
        assert answer.headers["content-type"].startswith("text/csv")
        head, row = answer.text.splitlines()
        assert head == "day,model,calls,input,output,cached,cache_write,reasoning,cost,unpriced"
        assert row == "2026-03-01,'=cmd|' /C calc'!A0,1,100,10,40,0,0,0.5,0"


async def test_limits_are_shown_with_what_was_used_today(tmp_path: Path):
    limits = SpendConfig(per_day=Amount("$5", dollars=5.0), per_turn=Amount("1000", tokens=1000))
    async with open_api(tmp_path, ScriptedProvider(), spend=limits) as api:
        await spend(api, datetime.now().timestamp(), API)
        report = await seen(api, "/usage", by="page")
        assert report["limits"] == [
            {"name": "spend.per_day", "limit": 5.0, "used": 0.5, "unit": "usd", "period": "day"},
            {"name": "spend.per_turn", "limit": 1000.0, "used": None, "unit": "tokens", "period": "turn"},
        ]
        assert (await seen(api, "/usage"))["limits"] == []


@pytest.mark.parametrize(
    "query",
    [
        *("zone=Mars", "zone=../../etc/passwd", "by=day,colour", "from=2026-13-01", "from=x", "limit=0"),
        *("from=2026-03-02&to=2026-03-01", "from=1900-01-01&to=2026-01-01", "to=9999-12-31", "format=xml"),
    ],
)
async def test_a_wrong_query_is_refused(tmp_path: Path, query: str):
    async with open_api(tmp_path, ScriptedProvider()) as api:
        answer = await api.ask("GET", f"/usage?{query}", by="page")
        assert (answer.status_code, answer.json()["code"]) == (422, "query"), answer.text
