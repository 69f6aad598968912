"""Connections of remote tools: authentication, invalid messages, life cycle, documentation."""

import asyncio
import importlib
import json
import random
import re
import socket
import stat
import sys
import typing
from contextlib import AsyncExitStack

import msgspec
import pytest

pytest.importorskip("websockets", reason="the example needs websockets (make test installs it)")

from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

from alipes.app import open_app
from alipes.config.loader import load_settings
from alipes.testing.leaks import no_leaks
from tests.e2e.program import Home
from tests.world.remote_tools import EXAMPLE, closed, find_address, free_port, install_plugin, open_client, open_remote

# --- authentication and messages


@pytest.mark.parametrize(
    ("first", "code"),
    [
        ({"type": "hello", "protocol": 1, "token": "wrong", "name": "x"}, 4401),
        ({"type": "hello", "protocol": 1, "token": "wröng", "name": "x"}, 4401),
        ({"type": "hello", "protocol": 2, "token": "TOKEN", "name": "x"}, 4400),
        ({"type": "hello", "protocol": 1, "token": "TOKEN", "name": ""}, 4400),
        ({"type": "ping"}, 4400),
        ("nonsense", 4400),
    ],
)
async def test_a_connection_needs_a_valid_hello(tmp_path, first, code):
    async with open_remote(tmp_path) as remote, connect(remote.socket, proxy=None) as connection:
        words = first if isinstance(first, str) else json.dumps(first).replace("TOKEN", remote.token)
        await connection.send(words)
        closing, reason = await closed(connection)
        assert closing == code and reason
        assert "No clients connected" in await remote.command("/remote")


async def test_a_silent_connection_is_closed(tmp_path):
    async with open_remote(tmp_path, hello=0.05) as remote, connect(remote.socket, proxy=None) as connection:
        assert await closed(connection) == (4408, "no hello within 0.05 s")


async def test_only_allowed_origins_may_connect(tmp_path):
    async with open_remote(tmp_path, origins=["https://good.example"]) as remote:
        for origin in ("https://evil.example", "null", "http://127.0.0.1:1"):
            with pytest.raises(InvalidStatus) as refused:
                await connect(remote.socket, origin=origin, proxy=None)
            assert refused.value.response.status_code == 403
        for origin in (remote.url.rstrip("/"), "https://good.example"):
            async with connect(remote.socket, origin=origin, proxy=None):
                pass


async def test_a_foreign_host_header_is_rejected(tmp_path):
    async with open_remote(tmp_path) as remote:
        assert (await get(remote, "/", host="evil.example"))[0] == 403
        status, headers, body = await get(remote, "/")
        assert status == 200 and "Remote tools" in body
        assert "default-src 'none'" in headers["content-security-policy"]
        assert remote.token not in body
        assert (await get(remote, "/page.js"))[1]["content-type"].startswith("text/javascript")
        assert (await get(remote, "/../token"))[0] == 404


async def get(remote, path, host=""):
    address = remote.url.removeprefix("http://").rstrip("/")
    reader, writer = await asyncio.open_connection(*address.split(":"))
    writer.write(f"GET {path} HTTP/1.1\r\nHost: {host or address}\r\n\r\n".encode())
    answer = (await reader.read()).decode()
    writer.close()
    await writer.wait_closed()
    head, _, body = answer.partition("\r\n\r\n")
    status, *lines = head.split("\r\n")
    return int(status.split()[1]), {k.lower(): v for k, v in (line.split(": ", 1) for line in lines)}, body


async def test_a_message_that_is_too_large_closes_only_its_connection(tmp_path):
    async with open_remote(tmp_path, message_bytes=2048) as remote:
        async with open_client(remote, "dig", name="large") as large, open_client(remote, "fly") as small:
            await large.send("ping", id="x" * 4000)
            assert (await closed(large.connection))[0] == 1009
            await small.settle()
        assert "no tool named dig" in (await remote.ask("!call dig")).text


@pytest.mark.parametrize(
    ("words", "code"),
    [
        ("{", "bad_message"),
        ('{"type": "dance", "id": "1"}', "bad_message"),
        ('{"type": "hello", "protocol": 1, "token": "", "name": "again", "id": "1"}', "bad_message"),
        ('{"type": "register", "id": "1", "tool": {"name": "no spaces", "description": "x"}}', "bad_message"),
        ('{"type": "register", "id": "1", "tool": {"name": "x", "description": "x", "schema": {}}}', "bad_tool"),
        ('{"type": "unregister", "id": "1", "name": "x"}', "no_such_tool"),
        (b"{}", "bad_message"),
        ("[" * 100_000, "bad_message"),
    ],
)
async def test_an_invalid_message_gets_an_error_and_the_connection_stays_open(tmp_path, words, code):
    async with open_remote(tmp_path) as remote, open_client(remote) as wire:
        await wire.connection.send(words)
        error = await wire.until("error")
        assert error["code"] == code and error["message"]
        assert error["id"] in ("1", "")
        await wire.settle()


async def test_no_frame_breaks_the_server(tmp_path):
    dice = random.Random(11)
    shapes = [
        {"type": "register", "id": "1", "tool": {"name": "dig", "description": "x", "schema": {"type": "object"}}},
        {"type": "unregister", "id": "1", "name": "dig"},
        {"type": "result", "call": "x", "output": None},
        {"type": "error", "call": "x", "message": "y"},
        {"type": "progress", "call": "x", "text": "y"},
        {"type": "ping", "id": "z"},
    ]
    values = [None, True, -1, 1e400, "", "\x00", "dig", [], {}, [[]], {"type": "object"}, "\ud800", 2**70]
    async with open_remote(tmp_path) as remote, open_client(remote) as wire:
        for _ in range(400):
            frame = mutated(dice.choice(shapes), dice, values)
            text = json.dumps(frame)
            await wire.connection.send(text[: dice.randrange(1, len(text))] if dice.random() < 0.3 else text)
        await wire.settle()
        assert {words["code"] for words in wire.of("error")} >= {"bad_message", "bad_tool", "no_such_tool"}


def mutated(shape, dice, values):
    """A copy with one value changed, removed or added."""
    made = json.loads(json.dumps(shape))
    inside = made["tool"] if "tool" in made and dice.random() < 0.6 else made
    key = dice.choice([*inside, "more"])
    if dice.random() < 0.2:
        inside.pop(key, None)
    elif dice.random() < 0.8:
        inside[key] = dice.choice(values)
    return made


async def test_a_client_that_does_not_read_is_cut_off(tmp_path):
    async with open_remote(tmp_path, message_bytes=65536, heartbeat=60) as remote, open_client(remote) as wire:
        wire.connection.transport.pause_reading()
        with pytest.raises(ConnectionClosed):
            while True:
                await wire.send("ping", id="x" * 60_000)


async def test_the_token_is_created_once_and_is_private(tmp_path):
    async with open_remote(tmp_path) as remote:
        token = remote.token
        assert len(token) >= 43
        assert stat.S_IMODE(remote.token_file.stat().st_mode) == 0o600
        assert f"#token={token}" in await remote.command("/remote")
        assert token not in await remote.command("/remote", platform="telegram")
    async with open_remote(tmp_path) as remote:
        assert remote.token == token


async def test_a_renewed_token_disconnects_everyone(tmp_path):
    async with open_remote(tmp_path) as remote, open_client(remote, "dig") as wire:
        old = remote.token
        assert old not in await remote.command("/remote renew")
        assert await closed(wire.connection) == (4401, "the token was renewed")
        assert remote.token != old
        async with open_client(remote, "dig"):
            pass
        assert "/remote renew (new token" in await remote.command("/remote what")


async def test_it_listens_on_ipv6_loopback_too(tmp_path):
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError as error:
        pytest.skip(f"no IPv6 here: {error}")
    async with open_remote(tmp_path, host="::1") as remote, open_client(remote, "dig"):
        assert remote.url.startswith("http://[::1]:")


# --- life cycle of the plugin


@pytest.mark.parametrize(
    ("config", "why"),
    [
        ({"host": "0.0.0.0"}, "address of this machine"),
        ({"host": "example.org"}, "address of this machine"),
        ({"port": 70000}, "port"),
        ({"timeout": 700}, "more than max_timeout"),
        ({"origins": ["https://example.org/path"]}, "scheme and host"),
        ({"colour": "teal"}, "colour"),
    ],
)
async def test_an_invalid_setting_is_rejected_with_the_reason(tmp_path, config, why):
    install_plugin(tmp_path, **config)
    async with open_app(load_settings(tmp_path)) as app:
        (facts,) = app.plugins.statuses()
        assert facts.state == "failed" and why in facts.why


async def test_nothing_is_left_open(tmp_path):
    async with no_leaks():
        async with open_remote(tmp_path) as remote, open_client(remote, "dig") as wire:
            asking = asyncio.create_task(remote.ask("!call dig"))
            await wire.until("call")
            await remote.stop()
            await asking


async def test_shutdown_cancels_open_calls_once_and_notifies_clients(tmp_path):
    async with AsyncExitStack() as outside:
        async with open_remote(tmp_path) as remote:
            wire = await outside.enter_async_context(open_client(remote, "dig"))
            asking = asyncio.create_task(remote.ask("!call dig"))
            await wire.until("call")
            asking.cancel()  # the watcher leaves; the turn continues
            await asyncio.wait({asking})
        assert (await wire.until("cancelled"))["reason"] == "shutdown"
        assert (await closed(wire.connection))[0] == 1001


@pytest.mark.deadline(30)
async def test_a_second_process_waits_for_the_port_and_takes_over(tmp_path):
    port = free_port()
    install_plugin(tmp_path / "one", port=port)
    install_plugin(tmp_path / "two", port=port)
    async with AsyncExitStack() as one:
        first = await one.enter_async_context(open_remote(tmp_path / "one"))
        async with open_remote(tmp_path / "two") as second:
            assert "Another process listens" in await second.command("/remote")
            assert "#token=" in await first.command("/remote")
            await one.aclose()
            while "#token=" not in await second.command("/remote"):
                await asyncio.sleep(0.05)
            await find_address(second)
            async with open_client(second, "dig"):
                pass


# --- documentation


@pytest.mark.deadline(60)
async def test_it_is_installed_as_the_readme_says_without_problems(tmp_path):
    home = Home(tmp_path / "home")
    done = await home.run("plugins", "install", "--yes", str(EXAMPLE / "plugin"))
    assert done.status == 0, done.err
    assert "agent_loop_stopped" in done.out and "/remote" in done.out
    done = await home.run("plugins", "doctor", "remote_tools")
    assert done.status == 0 and "ok    remote_tools" in done.out, done


def test_the_readme_lists_every_setting_and_every_message_type():
    plugin, wire = example("plugin"), example("plugin.protocol")
    settings, _, protocol = (EXAMPLE / "README.md").read_text().partition("## The protocol")
    default = {name: value for name, value, *_ in rows(settings)}
    for field in msgspec.structs.fields(plugin.Config):
        stated = json.loads(default[field.name]) if field.name != "host" else default[field.name]
        assert stated == field.default or (stated, field.default) == ([], ()), field.name
    for side in (wire.ClientMessage, wire.ServerMessage):
        for kind in typing.get_args(side):
            tag = kind.__struct_config__.tag
            named = {word for name, words, *_ in rows(protocol) if name == tag for word in re.findall(r"\w+", words)}
            assert set(kind.__struct_fields__) <= named, tag


def rows(text):
    """The rows of a table whose first cell is a name."""
    lines = [line.strip("|") for line in text.splitlines() if line.startswith("| `")]
    return [[cell.strip(" `") for cell in line.split(" | ")] for line in lines]


def example(name):
    """A module of the example, imported from its folder."""
    sys.path.insert(0, str(EXAMPLE))
    try:
        return importlib.import_module(name)
    finally:
        sys.path.remove(str(EXAMPLE))
