"""The example of remote tools in a whole house: real sockets, and a client by hand."""

import asyncio
import json
import random
import stat
from contextlib import AsyncExitStack

import pytest

pytest.importorskip("websockets", reason="the example needs websockets (make test installs it)")

from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

from alipes.kernel.turns import ToolProgress
from tests.world.remote import Wire, free_port, furnish, locate, open_remote, open_wire


async def closed(connection):
    """The code and the words with which the server closed it."""
    with pytest.raises(ConnectionClosed) as caught:
        while True:
            await connection.recv()
    return caught.value.rcvd.code, caught.value.rcvd.reason


# --- calls and answers


async def test_a_client_brings_a_tool_and_the_agent_uses_it(tmp_path):
    async with open_remote(tmp_path) as remote, open_wire(remote, "measure") as wire:
        asking = asyncio.create_task(remote.ask('!call measure {"room": "attic"}'))
        call = await wire.until("call")
        assert (call["tool"], call["args"], call["timeout"]) == ("measure", {"room": "attic"}, 60)
        await wire.send("result", call=call["call"], output="21 degrees")
        assert (await asking).text == "measure (ok): 21 degrees"


async def test_what_is_no_text_reaches_the_model_as_json(tmp_path):
    async with open_remote(tmp_path) as remote, open_wire(remote, "measure") as wire:
        asking = asyncio.create_task(remote.ask("!call measure"))
        call = await wire.until("call")
        await wire.send("result", call=call["call"], output={"degrees": [20, 21.5]})
        assert (await asking).text == 'measure (ok): {"degrees":[20,21.5]}'


async def test_what_the_client_could_not_do_is_told_to_the_model(tmp_path):
    async with open_remote(tmp_path) as remote, open_wire(remote, "measure") as wire:
        asking = asyncio.create_task(remote.ask("!call measure"))
        call = await wire.until("call")
        await wire.send("error", call=call["call"], message="the sensor is frozen")
        assert (await asking).text == "measure (failed): the sensor is frozen"


async def test_progress_is_shown_and_does_not_reach_the_model(tmp_path):
    async with open_remote(tmp_path) as remote, open_wire(remote, "dig") as wire:
        asking = asyncio.create_task(remote.ask("!call dig"))
        call = await wire.until("call")
        for word in ("a metre", "two metres"):
            await wire.send("progress", call=call["call"], text=word)
        await wire.send("result", call=call["call"], output="water")
        heard = await asking
        assert [event.text for event in heard if isinstance(event, ToolProgress)] == ["a metre", "two metres"]
        assert heard.text == "dig (ok): water"


async def test_arguments_that_do_not_fit_the_schema_never_reach_the_client(tmp_path):
    async with open_remote(tmp_path) as remote, open_wire(remote) as wire:
        schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
        await wire.register("count", schema=schema)
        assert (await remote.ask('!call count {"n": "many"}')).text.startswith("count (failed): not run:")
        await wire.settle()
        assert not wire.of("call")


async def test_reads_of_one_answer_are_with_the_client_side_by_side(tmp_path):
    async with open_remote(tmp_path) as remote, open_wire(remote) as wire:
        await wire.register("look", effect="read")
        asking = asyncio.create_task(remote.ask('!call look {"at": 1}\n!call look {"at": 2}'))
        first, second = await wire.until("call"), await wire.until("call")
        assert first["call"] != second["call"]
        for call in (second, first):
            await wire.send("result", call=call["call"], output=f"seen {call['args']['at']}")
        assert (await asking).text == "look (ok): seen 1\nlook (ok): seen 2"


# --- the end of a call


async def test_a_call_that_takes_too_long_fails_on_both_sides_and_its_late_result_is_dropped(tmp_path):
    async with open_remote(tmp_path) as remote, open_wire(remote) as wire:
        assert (await wire.register("nap", timeout=0.1))["timeout"] == 0.1
        heard = await remote.ask("!call nap")
        assert heard.text == "nap (failed): hand did not answer within 0.1 s: what was done is not known"
        timeout = await wire.until("timeout")
        assert timeout["seconds"] == 0.1
        await wire.send("result", call=timeout["call"], output="up again")
        assert (await wire.until("dropped"))["why"] == "timeout"
        assert not wire.of("cancelled")


async def test_no_tool_may_take_longer_than_the_longest_time(tmp_path):
    async with open_remote(tmp_path, timeout=2, max_timeout=3) as remote, open_wire(remote) as wire:
        assert (await wire.register("quick"))["timeout"] == 2
        assert (await wire.register("slow", timeout=1000))["timeout"] == 3


@pytest.mark.parametrize("way", ["stop", "new"])
async def test_a_stop_is_told_once_with_its_reason_and_the_late_result_is_dropped(tmp_path, way):
    async with open_remote(tmp_path) as remote, open_wire(remote, "dig") as wire:
        asking = asyncio.create_task(remote.ask("!call dig"))
        call = await wire.until("call")
        await remote.command(f"/{way}")
        cancelled = await wire.until("cancelled")
        assert cancelled["call"] == call["call"]
        assert cancelled["reason"] == {"stop": "user_stop", "new": "reset"}[way]
        assert (await asking).ending == "stopped"
        await wire.send("progress", call=call["call"], text="still digging")
        await wire.send("result", call=call["call"], output="water")
        assert (await wire.until("dropped"))["why"] == "cancelled"
        await wire.settle()
        assert len(wire.of("cancelled", "timeout")) == 1
        assert (await remote.ask("hello")).text == "You said: hello"


async def test_a_stop_ends_the_calls_of_its_own_conversation_only(tmp_path):
    async with open_remote(tmp_path) as remote, open_wire(remote, "dig") as wire:
        here = asyncio.create_task(remote.ask('!call dig {"at": "here"}', chat="here"))
        await wire.until("call")
        there = asyncio.create_task(remote.ask('!call dig {"at": "there"}', chat="there"))
        other = await wire.until("call")
        await remote.stop("here")
        assert (await here).ending == "stopped"
        await wire.send("result", call=other["call"], output="gold")
        assert (await there).text == "dig (ok): gold"
        await wire.settle()
        assert [words["call"] for words in wire.of("cancelled")] == [wire.of("call")[0]["call"]]


@pytest.mark.deadline(60)
async def test_wherever_a_turn_is_stopped_each_call_ends_in_exactly_one_way(tmp_path):
    dice = random.Random(7)
    async with open_remote(tmp_path) as remote, open_wire(remote) as wire:
        await wire.register("look", effect="read")
        for _ in range(25):
            asking = asyncio.create_task(remote.ask("!say well\n!call look\n!call look\n!call look"))
            wait = dice.uniform(0, 0.02)
            answering = asyncio.create_task(answer(wire, dice))
            await asyncio.sleep(wait)
            await remote.stop()
            await asking
            answering.cancel()
            await asyncio.wait({answering})
        await wire.settle()
        calls = [words["call"] for words in wire.of("call")]
        answered = set(wire.answered)
        told = [words["call"] for words in wire.of("cancelled")]
        dropped = {words["call"] for words in wire.of("dropped")}
        assert told and answered, "the stops came too early or too late to show anything"
        assert len(told) == len(set(told)), "told twice"
        assert set(calls) == set(told) | answered, "neither answered nor told"
        assert set(told) & answered == dropped, "an answer to a cancelled call is dropped, and no other"


async def answer(wire: Wire, dice: random.Random) -> None:
    wire.answered = getattr(wire, "answered", [])
    while True:
        call = await wire.until("call")
        await asyncio.sleep(dice.uniform(0, 0.005))
        wire.answered.append(call["call"])
        await wire.send("result", call=call["call"], output="seen")


async def test_a_client_that_disconnects_fails_its_calls_at_once_and_takes_its_tools_away(tmp_path):
    async with open_remote(tmp_path) as remote:
        async with open_wire(remote, "dig", name="shovel") as wire:
            asking = asyncio.create_task(remote.ask("!call dig"))
            await wire.until("call")
            wire.connection.transport.abort()
            heard = await asking
        assert heard.text == (
            "dig (failed): shovel, which runs dig, disconnected: what was done is not known"
        )
        assert "there is no tool named dig" in (await remote.ask("!call dig")).text
        assert "Nobody is connected" in await remote.command("/remote")


async def test_who_comes_back_registers_again_and_a_living_turn_finds_the_tool(tmp_path):
    async with open_remote(tmp_path) as remote:
        async with open_wire(remote, "dig", "stay", name="shovel") as first:
            asking = asyncio.create_task(remote.ask("!call stay\n!call dig"))
            held = await first.until("call", tool="stay")
            async with open_wire(remote, name="other") as other:
                refused = await other.register("dig")
                assert (refused["code"], refused["message"]) == (
                    "name_taken",
                    "shovel has a tool dig already",
                )
            await first.send("unregister", id="1", name="dig")
            await first.until("unregistered")
            async with open_wire(remote, "dig", name="shovel") as second:
                await first.send("result", call=held["call"], output="done")
                call = await second.until("call")
                await second.send("result", call=call["call"], output="gold")
                assert (await asking).text == "stay (ok): done\ndig (ok): gold"


async def test_a_tool_that_was_taken_back_fails_in_the_turn_that_still_has_it(tmp_path):
    async with open_remote(tmp_path) as remote, open_wire(remote, "stay", "dig") as wire:
        asking = asyncio.create_task(remote.ask("!call stay\n!call dig"))
        held = await wire.until("call")
        await wire.send("unregister", id="1", name="dig")
        await wire.until("unregistered", name="dig")
        await wire.send("result", call=held["call"], output="done")
        assert "dig (failed): hand took dig back" in (await asking).text
        await wire.settle()
        assert len(wire.of("call")) == 1


async def test_an_answer_from_before_a_reconnect_is_dropped(tmp_path):
    async with open_remote(tmp_path) as remote:
        async with open_wire(remote, "dig") as wire:
            asking = asyncio.create_task(remote.ask("!call dig"))
            call = await wire.until("call")
        await asking
        async with open_wire(remote, "dig") as wire:
            await wire.send("result", call=call["call"], output="gold")
            assert (await wire.until("dropped"))["why"] == "disconnected"
            await wire.send("result", call="made up", output="gold")
            assert (await wire.until("dropped"))["why"] == "unknown"


# --- many clients


async def test_two_clients_have_their_own_tools_and_cannot_answer_for_each_other(tmp_path):
    async with open_remote(tmp_path) as remote:
        async with open_wire(remote, "dig", name="one") as one, open_wire(remote, "fly", name="two") as two:
            account = await remote.command("/remote")
            assert "one (c1): dig" in account and "two (c2): fly" in account
            asking = asyncio.create_task(remote.ask("!call dig\n!call fly"))
            call = await one.until("call")
            await two.send("result", call=call["call"], output="forged")
            assert (await two.until("dropped"))["why"] == "unknown"
            await one.send("result", call=call["call"], output="gold")
            call = await two.until("call")
            await two.send("result", call=call["call"], output="up")
            assert (await asking).text == "dig (ok): gold\nfly (ok): up"


async def test_names_of_the_house_are_refused(tmp_path):
    async with open_remote(tmp_path) as remote, open_wire(remote) as wire:
        refused = await wire.register("terminal")
        assert refused["code"] == "name_taken"
        assert "the house has this tool already" in refused["message"]


async def test_the_same_instance_takes_the_place_of_its_former_connection(tmp_path):
    async with open_remote(tmp_path) as remote:
        async with open_wire(remote, "dig", instance="me") as ghost:
            async with open_wire(remote, "dig", instance="me"):
                assert await closed(ghost.connection) == (4409, "the same client connected anew")
                assert (await remote.command("/remote")).count("dig") == 1


async def test_there_are_limits_and_each_is_told(tmp_path):
    async with open_remote(tmp_path, clients=1, tools=1, calls=1) as remote:
        async with open_wire(remote) as wire:
            welcome = wire.of("welcome")[0]
            assert welcome["protocol"] == 1 and welcome["limits"]["tools"] == 1
            await wire.register("look", effect="read")
            assert (await wire.register("hear"))["code"] == "too_many_tools"
            asking = asyncio.create_task(remote.ask("!call look\n!call look"))
            call = await wire.until("call")
            await wire.send("result", call=call["call"], output="seen")
            text = (await asking).text
            assert "look (ok): seen" in text and "hand is busy with 1 calls" in text
            async with connect(remote.socket, proxy=None) as second:
                await Wire(second).send("hello", protocol=1, token=remote.token, name="late")
                assert (await closed(second))[0] == 4429


# --- the door


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
async def test_nobody_comes_in_without_a_proper_hello(tmp_path, first, code):
    async with open_remote(tmp_path) as remote, connect(remote.socket, proxy=None) as connection:
        words = first if isinstance(first, str) else json.dumps(first).replace("TOKEN", remote.token)
        await connection.send(words)
        closing, reason = await closed(connection)
        assert closing == code and reason
        assert "Nobody is connected" in await remote.command("/remote")


async def test_who_says_nothing_is_sent_away(tmp_path):
    async with open_remote(tmp_path, hello=0.05) as remote, connect(remote.socket, proxy=None) as connection:
        assert await closed(connection) == (4408, "no hello within 0.05 s")


async def test_only_our_own_page_and_those_that_are_allowed_may_connect(tmp_path):
    async with open_remote(tmp_path, origins=["https://good.example"]) as remote:
        for origin in ("https://evil.example", "null", "http://127.0.0.1:1"):
            with pytest.raises(InvalidStatus) as refused:
                await connect(remote.socket, origin=origin, proxy=None)
            assert refused.value.response.status_code == 403
        for origin in (remote.url.rstrip("/"), "https://good.example"):
            async with connect(remote.socket, origin=origin, proxy=None):
                pass


async def test_a_foreign_name_led_to_this_machine_is_not_answered(tmp_path):
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


async def test_too_large_a_message_ends_the_connection_and_nothing_else(tmp_path):
    async with open_remote(tmp_path, message_bytes=2048) as remote:
        async with open_wire(remote, "dig", name="large") as large, open_wire(remote, "fly") as small:
            await large.send("ping", id="x" * 4000)
            assert (await closed(large.connection))[0] == 1009
            await small.settle()
        assert "there is no tool named dig" in (await remote.ask("!call dig")).text


@pytest.mark.parametrize(
    ("words", "code"),
    [
        ("{", "bad_message"),
        ('{"type": "dance", "id": "1"}', "bad_message"),
        ('{"type": "hello", "protocol": 1, "token": "", "name": "again", "id": "1"}', "bad_message"),
        ('{"type": "register", "id": "1", "tool": {"name": "no spaces", "description": "x"}}', "bad_message"),
        (
            '{"type": "register", "id": "1", "tool": {"name": "x", "description": "x", "schema": {}}}',
            "bad_tool",
        ),
        ('{"type": "unregister", "id": "1", "name": "x"}', "no_such_tool"),
        (b"{}", "bad_message"),
        ("[" * 100_000, "bad_message"),
    ],
)
async def test_what_makes_no_sense_is_answered_and_the_connection_stays(tmp_path, words, code):
    async with open_remote(tmp_path) as remote, open_wire(remote) as wire:
        await wire.connection.send(words)
        error = await wire.until("error")
        assert error["code"] == code and error["message"]
        assert error["id"] in ("1", "")
        await wire.settle()


async def test_a_client_that_does_not_read_is_cut_off(tmp_path):
    async with open_remote(tmp_path, message_bytes=65536, heartbeat=60) as remote, open_wire(remote) as wire:
        wire.connection.transport.pause_reading()
        with pytest.raises(ConnectionClosed):
            while True:
                await wire.send("ping", id="x" * 60_000)


async def test_the_token_is_made_once_and_is_nobody_elses(tmp_path):
    async with open_remote(tmp_path) as remote:
        token = remote.token
        assert len(token) >= 43
        assert stat.S_IMODE(remote.token_file.stat().st_mode) == 0o600
        assert f"#token={token}" in await remote.command("/remote")
        assert token not in await remote.command("/remote", platform="telegram")
    async with open_remote(tmp_path) as remote:
        assert remote.token == token


async def test_a_renewed_token_sends_everyone_away(tmp_path):
    async with open_remote(tmp_path) as remote, open_wire(remote, "dig") as wire:
        old = remote.token
        assert old not in await remote.command("/remote renew")
        assert await closed(wire.connection) == (4401, "the token was renewed")
        assert remote.token != old
        async with open_wire(remote, "dig"):
            pass
        assert "/remote renew makes" in await remote.command("/remote what")


# --- the life of the plugin


async def test_when_the_house_closes_clients_are_told(tmp_path):
    async with open_remote(tmp_path) as remote:
        connection = await connect(remote.socket, proxy=None)
        await Wire(connection).send("hello", protocol=1, token=remote.token, name="x")
        await connection.recv()
    assert (await closed(connection))[0] in (1001, 1011)


@pytest.mark.deadline(30)
async def test_a_second_process_waits_for_the_port_and_takes_over(tmp_path):
    port = free_port()
    furnish(tmp_path / "one", port=port)
    furnish(tmp_path / "two", port=port)
    async with AsyncExitStack() as one:
        first = await one.enter_async_context(open_remote(tmp_path / "one"))
        async with open_remote(tmp_path / "two") as second:
            assert "Another process listens" in await second.command("/remote")
            assert "#token=" in await first.command("/remote")
            await one.aclose()
            while "#token=" not in await second.command("/remote"):
                await asyncio.sleep(0.05)
            await locate(second)
            async with open_wire(second, "dig"):
                pass
