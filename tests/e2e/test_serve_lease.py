"""`alipes serve` on PostgreSQL: a worker that is cut off starts over under a new id and serves again."""

import asyncio

import psycopg
import pytest

from alipes.store.postgres.migrate import migrate
from tests.e2e.program import Home
from tests.e2e.service import OWNER, open_serve, write_settings
from tests.world.model_server import Call, Calls, ModelServer, Say, Stall
from tests.world.postgres_server import postgres_schema, postgres_server
from tests.world.tcp_proxy import open_proxy
from tests.world.telegram_server import TelegramServer
from tests.world.wait import until

pytestmark = pytest.mark.deadline(90)


@pytest.fixture(scope="session")
def server():
    return postgres_server()


@pytest.fixture
def url(server):
    with postgres_schema(server) as made:
        with psycopg.connect(made, autocommit=True) as db:
            migrate(db)
        yield made


@pytest.fixture
def home(tmp_path):
    return Home(tmp_path / "home")


def count(url, sql):
    with psycopg.connect(url, autocommit=True) as db:
        return db.execute(sql.encode()).fetchone()[0]


async def test_a_worker_that_is_cut_off_serves_again_under_a_new_id_and_answers_each_message_once(server, url, home):
    async with (
        ModelServer([Say("first"), Say("second"), Say("third")]) as model,
        TelegramServer() as telegram,
        open_proxy(("127.0.0.1", server.port)) as proxy,
    ):
        through = url.replace(f":{server.port}/", f":{proxy.port}/")
        write_settings(home, model, telegram, store=f'"{through}"')
        async with open_serve(home) as served:
            address = served.address
            telegram.chats.say("one", chat=OWNER)
            await telegram.shows(OWNER, "first")
            await until(lambda: count(url, "SELECT count(*) FROM outbox WHERE state = 'sent'") == 1)
            proxy.silence()
            telegram.chats.say("two", chat=OWNER)
            await asyncio.sleep(5)
            proxy.restore()
            await served.heard(b"READY=1")
            await telegram.shows(OWNER, "second")
            telegram.chats.say("three", chat=OWNER)
            await telegram.shows(OWNER, "third")
            assert served.address == address
            await until(lambda: count(url, "SELECT count(*) FROM turns WHERE ending = 'answered'") == 3)
            assert count(url, "SELECT count(*) FROM workers") == 2
            assert await served.left() == 0
        assert [kept.text for kept in telegram.chats.mine(OWNER)] == ["first", "second", "third"]


async def test_a_turn_of_a_worker_that_was_cut_off_is_resumed_and_answered_once(server, url, home, tmp_path):
    mark = tmp_path / "ran"
    tool = Calls((Call("terminal", {"command": f"echo ran >> {mark}; sleep 60"}),))
    async with (
        ModelServer([tool, Say("resumed")]) as model,
        TelegramServer() as telegram,
        open_proxy(("127.0.0.1", server.port)) as proxy,
    ):
        through = url.replace(f":{server.port}/", f":{proxy.port}/")
        write_settings(home, model, telegram, store=f'"{through}"')
        async with open_serve(home) as served:
            telegram.chats.say("go", chat=OWNER)
            await until(mark.exists)
            with proxy.silent():
                await until(lambda: count(url, "SELECT count(*) FROM workers WHERE lease_until > now()") == 0)
                assert len(model.requests) == 1
            await served.heard(b"READY=1")
            await telegram.shows(OWNER, "resumed")
            await until(lambda: count(url, "SELECT count(*) FROM turns WHERE ending = 'answered'") == 1)
            assert await served.left() == 0
        assert [kept.text for kept in telegram.chats.mine(OWNER)].count("resumed") == 1
        assert mark.read_text() == "ran\n"
        assert count(url, "SELECT attempts FROM turns") == 2


async def test_ask_ends_with_a_sentence_when_it_was_cut_off(server, url, home):
    async with ModelServer([Stall()]) as model, open_proxy(("127.0.0.1", server.port)) as proxy:
        write_settings(home, model, store=f'"{url.replace(f":{server.port}/", f":{proxy.port}/")}"')
        async with asyncio.timeout(30), home.started("ask", "hello") as process:
            await until(lambda: model.requests)
            proxy.silence()
            assert await process.wait() == 1
            errors = (await process.stderr.read()).decode()
        assert "continues in another process, or when alipes is started again" in errors
        assert "Traceback" not in errors
        assert count(url, "SELECT count(*) FROM turns WHERE ending IS NULL") == 1
