"""Stop means stop, from outside: processes that resist, nested subagents, a plugin's tool that awaits a remote."""

import asyncio
import random
import statistics
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import pytest

from tests.e2e.program import Home
from tests.e2e.service import OWNER, open_serve
from tests.torture.homes import bot_texts, last_user_text, logged_errors, open_service, write_home
from tests.torture.test_children import find_running, tree, unique_name
from tests.torture.trials import seeds, trials
from tests.world.environment import LIMIT_S
from tests.world.model_server import Call, Calls, ModelServer, Say, Stall
from tests.world.telegram_server import TelegramServer
from tests.world.wait import until

REMOTE_PLUGIN = '''
"""A tool that waits for a remote server, and a hook that records stops."""

import asyncio
from alipes.plugin import tool


@tool(effect="read")
async def far_away(port: int) -> str:
    """Ask a remote server."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(b"?")
        return (await reader.read(100)).decode()
    finally:
        writer.close()


async def setup(ctx):
    global stops_log
    stops_log = ctx.folder / "received"


async def agent_loop_stopped(turn, reason, tool_call_ids):
    with open(stops_log, "a") as file:
        print(turn.id, reason, *tool_call_ids, file=file)
'''


class Remote:
    """A remote server that never answers."""

    def __init__(self) -> None:
        self.open = self.asked = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.open += 1
        self.asked += 1
        try:
            await reader.read(1)
            await reader.read()
        except ConnectionError:
            pass
        finally:
            self.open -= 1
            writer.close()


@asynccontextmanager
async def open_remote() -> AsyncIterator[tuple[Remote, int]]:
    remote = Remote()
    async with await asyncio.start_server(remote.serve, "127.0.0.1", 0) as server:
        yield remote, server.sockets[0].getsockname()[1]


def make_replies(port: int):
    """`go` starts two subagents, each with one more: one runs a stubborn command, the other waits for a remote."""

    def reply(body):
        if not body.get("tools"):
            return Say("A title")
        if body["messages"][-1]["role"] == "tool":
            return Stall("So")
        match last_user_text(body).split():
            case ["go", name]:
                goals = [{"goal": f"level1 {kind} {name}"} for kind in ("tree", "far")]
                return Calls((Call("delegate_task", {"tasks": goals}),))
            case ["level1", kind, name]:
                return Calls((Call("delegate_task", {"goal": f"level2 {kind} {name}"}),))
            case ["level2", "tree", name]:
                return Calls((Call("terminal", {"command": f"bash tree-{name}.sh"}),))
            case ["level2", "far", _]:
                return Calls((Call("far_away", {"port": port}),))
            case ["stall", *_]:
                return Stall("half")
            case ["two", name]:
                calls = [Call("terminal", {"command": f"true {n}"}, id=f"{name}{n}") for n in range(8)]
                return Calls(tuple(calls))
        return Say("well")

    return reply


async def wait_for_random_point(rng: random.Random, model: ModelServer, before: int) -> str:
    """Wait for a random point of the turn; returns its description."""
    match rng.choice(("at once", "by time", "by step", "by step", "deep")):
        case "at once":
            return "at once"
        case "by time":
            await asyncio.sleep(wait := rng.uniform(0, 0.6))
            return f"after {wait:.3f} s"
        case kind:
            steps = 5 if kind == "deep" else rng.randint(1, 5)
            async with asyncio.timeout(LIMIT_S):
                await model.asked(before + steps)
            await asyncio.sleep(wait := rng.uniform(0, 0.2))
            return f"{wait:.3f} s after request {steps}"


@pytest.mark.deadline(300)
@pytest.mark.parametrize("seed", seeds(1, 10))
async def test_nothing_of_a_stopped_turn_keeps_running(tmp_path, seed, figures):
    rng, seconds_taken, home = random.Random(seed), [], Home(tmp_path / "home")
    async with open_remote() as (remote, port), ModelServer(make_replies(port)) as model:
        write_home(home, model, plugin=REMOTE_PLUGIN)
        async with open_service(home) as (_served, api):
            for trial in range(trials(6, 50)):
                name, before = unique_name(rng), len(model.requests)
                (tmp_path / f"tree-{name}.sh").write_text(tree(name, chains=False))
                run = await api.begin(f"go {name}", session="s")
                point = await wait_for_random_point(rng, model, before)
                where, began = f"trial {trial} of seed {seed}, {point}", time.perf_counter()
                for _ in range(rng.choice((1, 2))):
                    assert (await api.ask("POST", f"/runs/{run}/stop")).status_code in (202, 409)
                seen = await api.finish(run)
                await until(lambda name=name: not find_running(name) and not remote.open)
                async with asyncio.timeout(LIMIT_S):
                    await model.idle()
                seconds_taken.append(time.perf_counter() - began)
                assert seen["status"] == "stopped", where
                asked = len(model.requests)
                assert (await api.finish(await api.begin("hello", session="s")))["status"] == "answered", where
                assert len(model.requests) == asked + 1, where
        heard = next(home.path.rglob("received")).read_text().splitlines()
        assert len(heard) >= len(seconds_taken) and all(" user_stop" in line for line in heard)
        assert len(set(heard)) == len(heard), "each turn is reported once"
        assert remote.asked > 0 and logged_errors(home) == []
    figures.tried(len(seconds_taken))
    figures.worst("stop", max(seconds_taken), "s")
    figures.worst("stop, median", statistics.median(seconds_taken), "s")


@pytest.mark.deadline(60)
async def test_a_turn_stopped_while_queued_never_calls_the_model(tmp_path):
    home = Home(tmp_path / "home")
    async with ModelServer(make_replies(0)) as model:
        write_home(home, model)
        async with open_service(home) as (_served, api):
            first = await api.begin("stall", session="s")
            await model.asked()
            second = await api.begin("go never", session="s")
            for run in (second, second, first, first):
                await api.ask("POST", f"/runs/{run}/stop")
            seen = [(await api.finish(run))["status"] for run in (first, second)]
            assert seen == ["stopped", "stopped"]
            assert (await api.finish(await api.begin("hello", session="s")))["status"] == "answered"
        assert not [body for body in model.bodies if body.get("tools") and last_user_text(body) == "go never"]


@pytest.mark.deadline(60)
@pytest.mark.parametrize("seed", seeds(1, 10))
async def test_a_turn_can_be_stopped_between_two_tools(tmp_path, seed):
    rng, home = random.Random(seed), Home(tmp_path / "home")
    async with ModelServer(make_replies(0)) as model:
        write_home(home, model)
        async with open_service(home) as (_served, api):
            for trial in range(6):
                run = await api.begin(f"two t{trial}-", session="s")
                async with api.listening(run) as listener:
                    with suppress(TimeoutError):  # some were done before we listened
                        async with asyncio.timeout(1):
                            for _ in range(rng.randint(1, 6)):
                                await listener.until("tool_finished")
                await api.ask("POST", f"/runs/{run}/stop")
                seen = await api.finish(run)
                assert seen["status"] == "stopped", f"trial {trial} of seed {seed}"
                assert (await api.finish(await api.begin("hello", session="s")))["status"] == "answered"
        assert logged_errors(home) == []


@pytest.mark.deadline(60)
async def test_background_processes_survive_a_stop_and_are_listed(tmp_path):
    home, name = Home(tmp_path / "home"), unique_name(random.Random())

    def reply(body):
        if "begin" not in last_user_text(body):
            return Say("well")
        call = Call("terminal", {"command": f"sleep 300.{name}", "background": True})
        return Stall("So") if body["messages"][-1]["role"] == "tool" else Calls((call,))

    async with ModelServer(reply) as model, TelegramServer() as telegram:
        write_home(home, model, telegram)
        async with open_serve(home) as served:
            await served.ready()
            telegram.chats.say("begin", chat=OWNER)
            await model.asked(2)
            telegram.chats.say("/stop", chat=OWNER)
            reply = await telegram.shows(OWNER, "Stopped")
            assert "Still running in the background" in reply.text and f"300.{name}" in reply.text, reply.text
            await model.idle()
            assert find_running(f"300.{name}")
            telegram.chats.say("hello", chat=OWNER)
            await telegram.shows(OWNER, "well")
            telegram.chats.say("/new", chat=OWNER)
            await until(lambda: not find_running(f"300.{name}"), 5)
            assert await served.left() == 0
        assert any("Stopped" in text for text in bot_texts(telegram, OWNER))
