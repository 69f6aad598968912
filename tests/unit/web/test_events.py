"""What changes in the home, over HTTP: ids only, of every process, resumable."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from alipes.kernel.turns import Address, Inbound
from alipes.store.sqlite.store import open_store
from alipes.testing.scripted_provider import ScriptedProvider
from alipes.web import events
from tests.unit.agent_harness import play
from tests.world.api_harness import ApiHarness, EventListener, StreamEvent, open_api


@asynccontextmanager
async def following(api: ApiHarness, last: str = "", *, by: str = "root") -> AsyncIterator[EventListener]:
    headers = {"authorization": f"Bearer key-{by}-0123456789abcdef", **({"last-event-id": last} if last else {})}
    async with api.client.stream("GET", "/v1/events", headers=headers) as response:
        assert response.status_code == 200
        yield EventListener(response)


async def take(listener: EventListener, name: str, **data: str) -> StreamEvent:
    """The next event of this name with this data."""
    async for heard in listener:
        if heard.name == name and data.items() <= heard.data.items():
            return heard
    raise AssertionError(f"the stream ended without {name}")


async def test_a_run_is_announced_from_its_start_to_its_end(tmp_path: Path):
    async with open_api(tmp_path, play("Hi.")) as api, following(api) as listener:
        assert (await anext(listener)).name == "ready"
        run = await api.begin("hello", session="talk")
        assert set((await take(listener, "run", id=run)).data) == {"id", "session", "status"}
        ended = await take(listener, "run", id=run, status="answered")
        session = (await api.ask("GET", "/sessions/talk")).json()["id"]
        assert ended.data["session"] == session
        await api.ask("PATCH", "/sessions/talk", {"title": "New"})
        await take(listener, "session", id=session)
        await api.ask("DELETE", "/sessions/talk")
        await take(listener, "session_deleted", id=session)


async def test_changes_of_another_process_are_announced(tmp_path: Path):
    async with open_api(tmp_path, ScriptedProvider()) as api, following(api) as listener:
        await anext(listener)
        async with open_store(tmp_path) as other:
            address = Address("terminal", "t1")
            turn = await other.turns.accept(Inbound("1", address, "me", "hello"))
            assert turn is not None
            assert await other.turns.claim_next(address.key) is not None
            await take(listener, "run", id=turn, status="running")
            other.changes.announce("plugin", "weather")
            await take(listener, "plugin", id="weather")
        api.house.store.changes.announce("settings")
        await take(listener, "settings")


async def test_a_client_that_reconnects_misses_nothing(tmp_path: Path):
    async with open_api(tmp_path, ScriptedProvider()) as api:
        async with following(api) as listener:
            last = (await anext(listener)).id
        for name in ("a", "b"):
            api.house.store.changes.announce("plugin", name)
        async with following(api, last) as listener:
            assert [(await anext(listener)).data["id"] for _ in "ab"] == ["a", "b"]


async def test_an_unknown_place_is_answered_with_reset(tmp_path: Path):
    async with open_api(tmp_path, ScriptedProvider()) as api:
        for last in ("00000000.1", "nonsense", "1"):
            async with following(api, last) as listener:
                assert (await anext(listener)).name == "reset"


async def test_a_client_that_was_away_for_too_long_is_answered_with_reset(tmp_path: Path):
    async with open_api(tmp_path, ScriptedProvider()) as api:
        async with following(api) as listener:
            last = (await anext(listener)).id
            for n in range(events.MAX_KEPT + 5):
                api.house.store.changes.announce("plugin", str(n))
            await take(listener, "reset")
        async with following(api, last) as listener:
            assert (await anext(listener)).name == "reset"


async def test_a_caller_hears_only_of_its_own_conversations(tmp_path: Path):
    async with open_api(tmp_path, play("One.", "Two.")) as api, following(api, by="bob") as listener:
        await anext(listener)
        await api.finish(await api.begin("hello", session="talk"))
        api.house.store.changes.announce("plugin", "weather")
        run = await api.begin("hello", session="mine", by="bob")
        heard = await anext(listener)
        mine = (await api.ask("GET", "/sessions/mine", by="bob")).json()["id"]
        assert mine in heard.data.values() and (await take(listener, "run", id=run)).data["session"] == mine


async def test_nothing_is_noticed_before_somebody_watches(tmp_path: Path):
    async with open_store(tmp_path) as store:
        triggers = "SELECT count(*) FROM temp.sqlite_master"
        assert (await store.database.fetch_one(triggers))[0] == 0
        async with store.changes.watch() as changes:
            assert (await store.database.fetch_one(triggers))[0] > 0
            await store.turns.accept(Inbound("1", Address("terminal", "t"), "me", "hello"))
            kinds = {envelope.event.kind for envelope in await asyncio.wait_for(changes.take_all(), 5)}
            assert {"run", "session"} <= kinds
