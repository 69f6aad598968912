"""The log over HTTP: searched and followed."""

import logging
from contextlib import asynccontextmanager

import pytest

from alipes.runtime.log_file import log_context, open_log
from tests.world.admin_harness import open_admin
from tests.world.api_harness import EventListener

log = logging.getLogger("alipes.test")
SECRET = "sk-mine-0123456789abcdefgh"


@asynccontextmanager
async def open_world(tmp_path, **more):
    home = tmp_path / "home"
    with open_log(home / "logs" / "alipes.log", "debug"):
        async with open_admin(home, **more) as api:
            assert api.app.settings.paths.log == home / "logs" / "alipes.log"
            yield api


@asynccontextmanager
async def following(api, query="", last="", by="page"):
    headers = {"authorization": f"Bearer key-{by}-0123456789abcdef", **({"last-event-id": last} if last else {})}
    async with api.client.stream("GET", f"/v1/log/stream{query}", headers=headers) as response:
        assert response.status_code == 200
        yield EventListener(response)


async def search(api, query, count=1):
    """The lines, once that many are in the file."""
    while len(found := (await api.get(f"/log{query}", by="page"))["lines"]) < count:
        pass
    return found


async def test_lines_are_searched_by_level_text_and_conversation(tmp_path):
    async with open_world(tmp_path) as api:
        with log_context(session="s1", turn="t1"):
            log.warning("the <b>cat</b> is out")
        log.info("the cat is in")
        found = await search(api, "?q=CAT", 2)
        assert [each["text"] for each in found] == ["the cat is in", "the <b>cat</b> is out"]
        assert (found[1]["level"], found[1]["session"], found[1]["run"]) == ("warning", "s1", "t1")
        assert found[1]["time"] > 1e9 and found[1]["logger"] == "alipes.test"
        assert len(await search(api, "?q=cat&level=warning")) == 1
        assert [each["text"] for each in await search(api, "?q=cat&session=s1")] == ["the <b>cat</b> is out"]
        older = await search(api, f"?q=cat&before={found[0]['id']}")
        assert [each["id"] for each in older] == [found[1]["id"]]


async def test_pages_follow_one_another(tmp_path):
    async with open_world(tmp_path) as api:
        for number in range(5):
            log.info("number %d", number)
        await search(api, "?q=number", 5)
        page = await api.get("/log?q=number&limit=3")
        assert [each["text"][-1] for each in page["lines"]] == ["4", "3", "2"] and page["more"] is True
        rest = await api.get(f"/log?q=number&limit=3&before={page['lines'][-1]['id']}")
        assert [each["text"][-1] for each in rest["lines"]] == ["1", "0"] and rest["more"] is False


async def test_new_lines_are_sent_and_a_reader_continues_where_it_stopped(tmp_path):
    async with open_world(tmp_path) as api:
        log.info("before")
        (before,) = await search(api, "?q=before")
        end = (await api.get("/log?q=before"))["end"]
        async with following(api, "?q=news", end) as stream:
            log.info("news 1")
            first = await stream.until("line")
            assert first.data["text"] == "news 1" and before["text"] == "before"
        log.info("news 2")
        log.info("other")
        log.info("news 3")
        async with following(api, "?q=news", first.id) as stream:
            assert [(await stream.until("line")).data["text"] for _ in range(2)] == ["news 2", "news 3"]


async def test_a_line_of_another_process_is_sent(tmp_path):
    async with open_world(tmp_path) as api:
        async with following(api, "?q=elsewhere", (await api.get("/log"))["end"]) as stream:
            line = '{"time":"2026-01-01T00:00:00+00:00","level":"info","logger":"x","message":"elsewhere"}\n'
            with (tmp_path / "home" / "logs" / "alipes.log").open("a") as file:
                file.write(line)
            assert (await stream.until("line")).data["text"] == "elsewhere"


@pytest.mark.parametrize("last", ["1-5", "nonsense"])
async def test_a_place_that_is_gone_is_reported_and_new_lines_follow(tmp_path, last):
    async with open_world(tmp_path) as api:
        log.info("old")
        await search(api, "?q=old")
        async with following(api, "?q=news", last) as stream:
            await stream.until("reset")
            await stream.until("following")
            log.info("news")
            assert (await stream.until("line")).data["text"] == "news"


async def test_secrets_that_became_known_later_are_masked(tmp_path):
    async with open_world(tmp_path) as api:
        log.info("the key is %s", SECRET)
        await search(api, "?q=key+is")
        api.app.secrets.add(SECRET)
        answer = await api.ask("GET", "/log?q=key+is", by="page")
        assert answer.status_code == 200 and SECRET not in answer.text


async def test_a_long_line_is_truncated(tmp_path):
    async with open_world(tmp_path) as api:
        log.info("long %s", "x" * 100_000)
        (found,) = await search(api, "?q=long")
        assert found["truncated"] is True and len(found["text"]) == 16_384


@pytest.mark.parametrize("query", ["?before=x", "?limit=0", "?level=loud", "?limit=5000"])
async def test_an_invalid_query_is_refused(tmp_path, query):
    async with open_admin(tmp_path / "home") as api:
        await api.get(f"/log{query}", status=422)


async def test_ordinary_keys_may_not_read_the_log(tmp_path):
    async with open_admin(tmp_path / "home") as api:
        assert (await api.get("/log", by="page"))["lines"] == []
        for by in ("ann", "reader"):
            for path in ("/log", "/log/stream"):
                await api.get(path, by=by, status=403)
