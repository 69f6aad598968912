"""`alipes serve` without platforms: one per home, HTTP, signals, keys."""

import asyncio
import os
import signal
import socket

import msgspec
import pytest

from tests.e2e.program import Home, read_until
from tests.e2e.service import open_serve, write_settings
from tests.world.environment import LIMIT_S
from tests.world.model_server import Fail, ModelServer

pytestmark = pytest.mark.deadline(60)


@pytest.fixture
def home(tmp_path):
    return Home(tmp_path / "home")


async def test_it_prints_what_it_serves_and_is_ready_at_once(home):
    async with ModelServer() as model:
        write_settings(home, model)
        async with open_serve(home) as served:
            said = await read_until(served.process.stdout, "Press Ctrl-C to exit")
            assert f"serves no platform yet at {served.address}" in said
            assert "docs/messengers.md" in said
            assert (await served.get("/health")).json() == {"status": "alive"}
            assert (await served.get("/ready")).json() == {"status": "ready", "profile": "default"}
            assert (await served.get("/metrics", host="rebound.example")).status_code == 421
            assert await served.left() == 0
        assert not list((home.path / "run").glob("*.sock")), "nothing is left behind"


async def test_ready_reports_an_unreachable_model(home):
    async with ModelServer() as model:
        write_settings(home, model)
    async with open_serve(home) as served:
        answer = await served.get("/ready")
        assert answer.status_code == 503
        assert "is unreachable" in answer.json()["because"]["model"]


async def test_a_second_one_names_the_first_and_replace_takes_over(home):
    async with ModelServer() as model:
        write_settings(home, model)
        async with open_serve(home) as first:
            done = await home.run("serve", "--port", "0")
            assert done.status == 2
            assert f"process {first.process.pid} at {first.address}" in done.err
            assert "--replace" in done.err and done.err.count("\n") == 1
            async with open_serve(home, "--replace") as second:
                assert await first.left(by=None) == 0
                assert (await second.get("/health")).status_code == 200
                assert await second.left() == 0


async def test_replace_kills_one_that_hangs(home):
    async with ModelServer() as model:
        write_settings(home, model, **{"serve.drain": 0})
        async with open_serve(home) as first:
            first.process.send_signal(signal.SIGSTOP)
            async with open_serve(home, "--replace") as second:
                assert await first.left(by=None) == -signal.SIGKILL
                assert (await second.get("/health")).status_code == 200


async def test_sighup_restarts_in_the_same_process(home):
    async with ModelServer() as model:
        write_settings(home, model)
        async with open_serve(home) as served:
            await served.get("/ready")
            before = (served.process.pid, await served.metric("alipes_start_time_seconds"))
            served.process.send_signal(signal.SIGHUP)
            assert b"MONOTONIC_USEC" in await served.heard(b"RELOADING=1")
            await served.heard(b"READY=1")
            after = (served.process.pid, await served.metric("alipes_start_time_seconds"))
            assert after[0] == before[0] and after[1] > before[1]
            assert await served.left() == 0


async def test_invalid_settings_prevent_a_restart(home):
    async with ModelServer() as model:
        write_settings(home, model)
        async with open_serve(home) as served:
            good = (home.path / "config.toml").read_text()
            (home.path / "config.toml").write_text(f"max_steps = 0\n{good}")
            served.process.send_signal(signal.SIGHUP)
            said = await read_until(served.process.stderr, "from 1 to")
            assert "not restarted" in said and "config.toml:1" in said
            assert (await served.get("/health")).status_code == 200
            (home.path / "config.toml").write_text(good)
            served.process.send_signal(signal.SIGHUP)
            await served.heard(b"READY=1")
            assert await served.left() == 0


async def test_the_watchdog_is_notified_and_so_is_the_end(home):
    async with ModelServer() as model:
        write_settings(home, model)
        async with open_serve(home, WATCHDOG_USEC="400000") as served:
            for _ in range(3):
                await served.heard(b"WATCHDOG=1")
            served.process.send_signal(signal.SIGTERM)
            await served.heard(b"STOPPING=1")
            assert await served.left(by=None) == 0


async def test_a_port_in_use_and_a_public_address_without_a_key_are_rejected(home):
    done = await home.run("serve", "--host", "0.0.0.0", "--port", "0")
    assert done.status == 2 and "alipes serve key" in done.err
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        done = await home.run("serve", "--port", str(port))
        assert done.status == 2 and f"127.0.0.1:{port}" in done.err and "serve.port" in done.err


async def test_the_key_is_created_once_shown_again_and_works_remotely(home):
    made = await home.run("serve", "key")
    assert made.status == 0 and len(made.out.strip()) > 30
    assert (await home.run("serve", "key")).out == made.out
    renewed = await home.run("serve", "key", "--new")
    assert renewed.out != made.out
    assert (home.path / ".env").stat().st_mode & 0o077 == 0
    async with ModelServer() as model:
        write_settings(home, model)
        async with open_serve(home, "--host", "0.0.0.0") as served:
            assert (await served.get("/metrics")).status_code == 401
            key = renewed.out.strip()
            assert (await served.get("/metrics", authorization=f"Bearer {key}")).status_code == 200
            assert key.encode() not in (home.path / "logs" / "alipes.log").read_bytes()


async def test_keys_are_created_used_and_revoked(home):
    async with ModelServer() as model:
        write_settings(home, model)
        async with open_serve(home) as served:
            own = (await home.run("serve", "key")).out.strip()
            assert len(own) > 30, "made when it was started"
            made = await home.run("serve", "key", "add", "reader", "--scope", "read", "--days", "30")
            assert made.status == 0 and "not shown again" in made.err
            key = made.out.strip()
            listed = (await home.run("serve", "key", "list")).out
            assert "reader" in listed and "29 d" in listed and key not in listed and own not in listed
            for shown, status in ((own, 200), (key, 200), ("other", 401)):
                answer = await served.get("/v1/key", authorization=f"Bearer {shown}")
                assert answer.status_code == status
            assert (await home.run("serve", "key", "revoke", "reader")).status == 0
            assert (await served.get("/v1/key", authorization=f"Bearer {key}")).status_code == 401
            for file in home.path.rglob("*"):
                if file.is_file() and file.name != ".env":
                    content = file.read_bytes()
                    assert key.encode() not in content and own.encode() not in content


async def test_the_unit_names_this_python_and_this_home(home):
    done = await home.run("serve", "install")
    assert done.status == 0
    for line in ("Type=notify", "WatchdogSec=30", "ExecReload=/bin/kill -HUP $MAINPID", "TimeoutStopSec=35"):
        assert line in done.out.splitlines()
    assert f'Environment="ALIPES_HOME={home.path}"' in done.out
    assert "-m alipes serve" in done.out and "WantedBy=default.target" in done.out
    written = await home.run("serve", "install", "--write")
    file = home.path.parent / ".config/systemd/user/alipes.service"
    assert str(file) in written.out and file.read_text() == done.out


async def test_invalid_settings_are_reported_with_their_line_and_status_2(home):
    home.path.mkdir()
    (home.path / "config.toml").write_text('[telegram]\nmode = "push"\n')
    done = await home.run("serve")
    assert done.status == 2 and "config.toml:2" in done.err


async def test_a_missing_package_is_reported_by_name(home, tmp_path):
    broken = tmp_path / "broken" / "starlette"
    broken.mkdir(parents=True)
    (broken / "__init__.py").write_text("raise ModuleNotFoundError('No module', name='starlette')\n")
    path = f"{broken.parent}:{home.environ()['PYTHONPATH']}"
    done = await home.run("serve", PYTHONPATH=path)
    assert (done.status, done.out) == (2, "")
    assert done.err == "alipes serve needs the package starlette: run `alipes install serve`\n"


async def test_the_outbox_is_listed_and_edited_by_number(home):
    assert "The outbox is empty" in (await home.run("serve", "outbox")).out
    kept = await home.run("send", "telegram:42", "hello", "there")
    assert kept.status == 0 and "will be sent when `alipes serve` is running" in kept.out
    listed = await home.run("serve", "outbox", "--json")
    (debt,) = msgspec.json.decode(listed.out)
    assert debt["state"] == "queued" and debt["outbound"]["text"] == "hello there"
    number = str(debt["number"])
    assert "telegram:42" in (await home.run("serve", "outbox")).out
    assert (await home.run("serve", "outbox", "again", number)).status == 1, "it was not given up"
    assert (await home.run("serve", "outbox", "drop", number)).status == 0
    assert "discarded by the operator" in (await home.run("serve", "outbox", "list")).out
    assert (await home.run("serve", "outbox", "again", number)).status == 0
    assert (await home.run("serve", "outbox", "drop", number)).status == 0
    assert (await home.run("serve", "outbox", "drop", number)).status == 0, "and out of the list"
    assert "The outbox is empty" in (await home.run("serve", "outbox")).out
    assert (await home.run("serve", "outbox", "drop", number)).status == 1


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("send",), "TARGET"),
        (("send", "telegram:1"), "nothing to send"),
        (("send", "telegrm:1", "x"), "telegram"),
        (("send", "telegram", "x"), "/sethome"),
        (("send", "telegram:1", "--file", "/nowhere"), "/nowhere"),
        (("serve", "outbox", "again", "x"), "NUMBER"),
        (("serve", "nothing"), "unknown action"),
        (("serve", "--port", "99999"), "not a port"),
        (("pair", "revoke", "telegram:1"), "not paired"),
        (("pair", "ABCD-EFGH", "--owner", "--user"), "either --owner or --user"),
    ],
)
async def test_usage_errors_are_one_sentence(home, words, said):
    done = await home.run(*words)
    assert done.status == 2 and said in done.err and "Traceback" not in done.err


async def test_a_broken_database_ends_it_with_one_sentence(home):
    async with ModelServer([Fail(500)]) as model:
        write_settings(home, model)
        home.path.mkdir(exist_ok=True)
        (home.path / "alipes.db").write_bytes(b"this is no database, " * 100)
        done = await home.run("serve", "--port", "0")
        assert done.status == 1 and "Traceback" not in done.err and "alipes.db" in done.err


async def test_under_nohup_a_hangup_is_ignored(home):
    async with ModelServer() as model:
        write_settings(home, model)
        async with open_serve(home, under=("nohup",)) as served:
            served.process.send_signal(signal.SIGHUP)
            await served.ready()
            assert await served.left() == 0
        log = (home.path / "logs" / "alipes.log").read_text()
        assert "restart" not in log


async def test_two_signals_exit_at_once(home):
    async with ModelServer() as model:
        write_settings(home, model)
        async with open_serve(home) as served:
            served.process.send_signal(signal.SIGTERM)
            served.process.send_signal(signal.SIGINT)
            async with asyncio.timeout(LIMIT_S):
                assert await served.left(by=None) == 0
        assert not os.path.exists(f"/proc/{served.process.pid}")
