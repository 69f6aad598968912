"""The remote tools example in a whole app, with real sockets and a hand-written client."""

import asyncio
import random

import pytest

pytest.importorskip("websockets", reason="the example needs websockets (make test installs it)")

from websockets.asyncio.client import connect

from alipes.kernel.turns import ToolProgress
from alipes.plugins.owner import CORE, PluginOwner
from tests.world.remote_tools import RemoteClient, closed, open_client, open_remote, wait_until

# --- calls and answers


async def test_a_client_registers_a_tool_and_the_agent_uses_it(tmp_path):
    async with open_remote(tmp_path) as remote, open_client(remote, "measure") as wire:
        asking = asyncio.create_task(remote.ask('!call measure {"room": "attic"}'))
        call = await wire.until("call")
        assert (call["tool"], call["args"], call["timeout"]) == ("measure", {"room": "attic"}, 60)
        await wire.send("result", call=call["call"], output="21 degrees")
        assert (await asking).text == "measure (ok): 21 degrees"


async def test_a_result_that_is_not_text_reaches_the_model_as_json(tmp_path):
    async with open_remote(tmp_path) as remote, open_client(remote, "measure") as wire:
        asking = asyncio.create_task(remote.ask("!call measure"))
        call = await wire.until("call")
        await wire.send("result", call=call["call"], output={"degrees": [20, 21.5]})
        assert (await asking).text == 'measure (ok): {"degrees":[20,21.5]}'


async def test_an_error_of_the_client_reaches_the_model(tmp_path):
    async with open_remote(tmp_path) as remote, open_client(remote, "measure") as wire:
        asking = asyncio.create_task(remote.ask("!call measure"))
        call = await wire.until("call")
        await wire.send("error", call=call["call"], message="the sensor is frozen")
        assert (await asking).text == "measure (failed): the sensor is frozen"


async def test_progress_is_shown_and_does_not_reach_the_model(tmp_path):
    async with open_remote(tmp_path) as remote, open_client(remote, "dig") as wire:
        asking = asyncio.create_task(remote.ask("!call dig"))
        call = await wire.until("call")
        for word in ("a metre", "two metres"):
            await wire.send("progress", call=call["call"], text=word)
        await wire.send("result", call=call["call"], output="water")
        heard = await asking
        assert [event.text for event in heard if isinstance(event, ToolProgress)] == ["a metre", "two metres"]
        assert heard.text == "dig (ok): water"


async def test_arguments_that_do_not_fit_the_schema_never_reach_the_client(tmp_path):
    async with open_remote(tmp_path) as remote, open_client(remote) as wire:
        schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
        await wire.register("count", schema=schema)
        assert (await remote.ask('!call count {"n": "many"}')).text.startswith("count (failed): not run:")
        await wire.settle()
        assert not wire.of("call")


async def test_read_calls_of_one_answer_run_in_parallel(tmp_path):
    async with open_remote(tmp_path) as remote, open_client(remote) as wire:
        await wire.register("look", effect="read")
        asking = asyncio.create_task(remote.ask('!call look {"at": 1}\n!call look {"at": 2}'))
        first, second = await wire.until("call"), await wire.until("call")
        assert first["call"] != second["call"]
        for call in (second, first):
            await wire.send("result", call=call["call"], output=f"seen {call['args']['at']}")
        assert (await asking).text == "look (ok): seen 1\nlook (ok): seen 2"


# --- the end of a call


async def test_a_call_that_takes_too_long_fails_on_both_sides_and_its_late_result_is_dropped(tmp_path):
    async with open_remote(tmp_path) as remote, open_client(remote) as wire:
        assert (await wire.register("nap", timeout=0.1))["timeout"] == 0.1
        heard = await remote.ask("!call nap")
        assert heard.text == "nap (failed): hand did not answer within 0.1 s: the result is unknown"
        timeout = await wire.until("timeout")
        assert timeout["seconds"] == 0.1
        await wire.send("result", call=timeout["call"], output="up again")
        assert (await wire.until("dropped"))["why"] == "timeout"
        assert not wire.of("cancelled")


async def test_the_timeout_of_a_tool_is_limited(tmp_path):
    async with open_remote(tmp_path, timeout=2, max_timeout=3) as remote, open_client(remote) as wire:
        assert (await wire.register("quick"))["timeout"] == 2
        assert (await wire.register("slow", timeout=1000))["timeout"] == 3


@pytest.mark.parametrize("way", ["stop", "new"])
async def test_a_stop_is_sent_once_with_its_reason_and_the_late_result_is_dropped(tmp_path, way):
    async with open_remote(tmp_path) as remote, open_client(remote, "dig") as wire:
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
    async with open_remote(tmp_path) as remote, open_client(remote, "dig") as wire:
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
async def test_a_call_ends_exactly_once_at_any_moment_of_a_stop(tmp_path):
    dice = random.Random(7)
    async with open_remote(tmp_path) as remote, open_client(remote) as wire:
        await wire.register("look", effect="read")
        for lap in range(250):
            if lap >= 25 and wire.of("cancelled") and wire.answered:
                break
            asking = asyncio.create_task(remote.ask("!say well\n!call look\n!call look\n!call look"))
            wait = dice.uniform(0, 0.02 + lap / 1000)
            answering = asyncio.create_task(answer(wire, dice))
            await asyncio.sleep(wait)
            await remote.stop()
            await asking
            answering.cancel()
            await asyncio.wait({answering})
        await wire.settle()
        calls = [words["call"] for words in wire.of("call")]
        answered = set(wire.answered)
        cancelled_ids = [words["call"] for words in wire.of("cancelled")]
        dropped = {words["call"] for words in wire.of("dropped")}
        assert cancelled_ids and answered, "the stops came too early or too late to show anything"
        assert len(cancelled_ids) == len(set(cancelled_ids)), "cancelled twice"
        assert set(calls) == set(cancelled_ids) | answered, "neither answered nor cancelled"
        assert set(cancelled_ids) & answered == dropped, "an answer to a cancelled call is dropped, and no other"


async def answer(wire: RemoteClient, dice: random.Random) -> None:
    wire.answered = getattr(wire, "answered", [])
    while True:
        call = await wire.until("call")
        await asyncio.sleep(dice.uniform(0, 0.005))
        wire.answered.append(call["call"])
        await wire.send("result", call=call["call"], output="seen")


async def test_a_call_cancelled_without_a_stop_is_reported_too(tmp_path):
    async def around_tool(go, call):
        try:
            async with asyncio.timeout(0.05):
                return await go(call.args)
        except TimeoutError:
            return "the caller gave up"

    async with open_remote(tmp_path) as remote, open_client(remote, "dig") as wire:
        remote.app.hooks.add(CORE, around_tool)
        assert (await remote.ask("!call dig")).text == "dig (ok): the caller gave up"
        assert (await wire.until("cancelled"))["reason"] == "cancelled"


async def test_a_client_that_does_not_read_delays_no_stop(tmp_path):
    async with open_remote(tmp_path) as remote, open_client(remote, "dig") as wire:
        wire.connection.transport.pause_reading()
        asking = asyncio.create_task(remote.ask(f'!call dig {{"with": "{"x" * 500_000}"}}'))
        await wait_until(lambda: remote.app.sessions.activity.busy)
        await asyncio.sleep(0.05)
        await remote.stop()
        assert (await asking).ending == "stopped"
        wire.connection.transport.resume_reading()
        await wire.settle()
        assert len(wire.of("call")) == len(wire.of("cancelled"))


async def test_arguments_longer_than_a_message_are_refused(tmp_path):
    async with open_remote(tmp_path, message_bytes=2048) as remote, open_client(remote, "dig") as wire:
        text = (await remote.ask(f'!call dig {{"with": "{"x" * 3000}"}}')).text
        assert text == "dig (failed): the arguments are too long: a message may have 2,048 bytes"
        await wire.settle()
        assert not wire.of("call", "cancelled")


async def test_a_disconnect_fails_open_calls_and_removes_the_tools(tmp_path):
    async with open_remote(tmp_path) as remote:
        async with open_client(remote, "dig", name="shovel") as wire:
            asking = asyncio.create_task(remote.ask("!call dig"))
            await wire.until("call")
            wire.connection.transport.abort()
            heard = await asking
        assert heard.text == ("dig (failed): shovel, which runs dig, disconnected: the result is unknown")
        assert "no tool named dig" in (await remote.ask("!call dig")).text
        assert "No clients connected" in await remote.command("/remote")


async def test_a_running_turn_can_use_a_tool_registered_after_a_reconnect(tmp_path):
    async with open_remote(tmp_path) as remote:
        async with open_client(remote, "dig", "stay", name="shovel") as first:
            asking = asyncio.create_task(remote.ask("!call stay\n!call dig"))
            held = await first.until("call", tool="stay")
            async with open_client(remote, name="other") as other:
                refused = await other.register("dig")
                assert (refused["code"], refused["message"]) == ("name_taken", "shovel has a tool dig already")
            await first.send("unregister", id="1", name="dig")
            await first.until("unregistered")
            async with open_client(remote, "dig", name="shovel") as second:
                await first.send("result", call=held["call"], output="done")
                call = await second.until("call")
                await second.send("result", call=call["call"], output="gold")
                assert (await asking).text == "stay (ok): done\ndig (ok): gold"


async def test_an_unregistered_tool_fails_in_a_turn_that_still_lists_it(tmp_path):
    async with open_remote(tmp_path) as remote, open_client(remote, "stay", "dig") as wire:
        asking = asyncio.create_task(remote.ask("!call stay\n!call dig"))
        held = await wire.until("call")
        await wire.send("unregister", id="1", name="dig")
        await wire.until("unregistered", name="dig")
        await wire.send("result", call=held["call"], output="done")
        assert "dig (failed): hand removed or changed dig" in (await asking).text
        await wire.settle()
        assert len(wire.of("call")) == 1


async def test_an_answer_from_before_a_reconnect_is_dropped(tmp_path):
    async with open_remote(tmp_path) as remote:
        async with open_client(remote, "dig") as wire:
            asking = asyncio.create_task(remote.ask("!call dig"))
            call = await wire.until("call")
        await asking
        async with open_client(remote, "dig") as wire:
            await wire.send("result", call=call["call"], output="gold")
            assert (await wire.until("dropped"))["why"] == "disconnected"
            await wire.send("result", call="made up", output="gold")
            assert (await wire.until("dropped"))["why"] == "unknown"


# --- many clients


async def test_two_clients_have_their_own_tools_and_cannot_answer_for_each_other(tmp_path):
    async with open_remote(tmp_path) as remote:
        async with open_client(remote, "dig", name="one") as one, open_client(remote, "fly", name="two") as two:
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


async def test_builtin_tool_names_are_rejected(tmp_path):
    async with open_remote(tmp_path) as remote, open_client(remote) as wire:
        refused = await wire.register("terminal")
        assert refused["code"] == "name_taken"
        assert "this tool is built in" in refused["message"]


async def test_a_reconnecting_instance_replaces_its_old_connection(tmp_path):
    async with open_remote(tmp_path) as remote:
        async with open_client(remote, "dig", instance="me") as ghost:
            async with open_client(remote, "dig", instance="me"):
                assert await closed(ghost.connection) == (4409, "the same client connected again")
                assert (await remote.command("/remote")).count("dig") == 1


async def test_limits_are_enforced_and_reported(tmp_path):
    async with open_remote(tmp_path, clients=1, tools=1, calls=1) as remote:
        async with open_client(remote) as wire:
            welcome = wire.of("welcome")[0]
            assert welcome["protocol"] == 1 and welcome["limits"]["tools"] == 1
            await wire.register("look", effect="read")
            assert (await wire.register("hear"))["code"] == "too_many_tools"
            finished = asyncio.Event()

            async def after_tool(call, result):
                finished.set()

            remote.app.hooks.add(PluginOwner("test"), after_tool)
            asking = asyncio.create_task(remote.ask("!call look\n!call look"))
            call = await wire.until("call")
            await finished.wait()  # the other client, whose name was taken
            await wire.send("result", call=call["call"], output="seen")
            text = (await asking).text
            assert "look (ok): seen" in text and "hand is busy with 1 calls" in text
            async with connect(remote.socket, proxy=None) as second:
                await RemoteClient(second).send("hello", protocol=1, token=remote.token, name="late")
                assert (await closed(second))[0] == 4429
