"""Shutdown of `alipes serve`: safe points of turns, and signals."""

import asyncio
import os
import signal

import pytest

from alipes.cli.serve.run import TurnDrain, may_stop_this_process
from alipes.cli.serve.signals import ExitSignals
from alipes.kernel.messages import ToolCall
from alipes.kernel.turns import Address, Inbound, Turn
from alipes.plugins import specs
from alipes.plugins.dispatch import Hooks
from tests.world.environment import LIMIT_S


def turn(id: str = "t1") -> Turn:
    return Turn(id, "s", Inbound("i", Address("telegram", "1"), "someone", "hello"))


def call(command: str) -> ToolCall:
    return ToolCall("c1", "terminal", {"command": command})


class TurnSteps:
    """Sends the hooks of a turn as the agent does."""

    def __init__(self) -> None:
        self.draining, hooks = TurnDrain(), Hooks()
        self.draining.register(hooks)
        self.dispatcher = hooks.dispatcher

    async def ask(self, turn: Turn) -> None:
        await self.dispatcher.notify(specs.request_sent, attempt=None, turn=turn)

    async def answered(self, turn: Turn) -> None:
        await self.dispatcher.notify(specs.request_answered, attempt=None, reply=None, seconds=1.0, turn=turn)

    async def end(self, turn: Turn) -> None:
        await self.dispatcher.notify(specs.turn_ended, turn=turn, ending="answered", detail="", said=(), usage=None)

    async def act(self, turn: Turn, call: ToolCall, until: asyncio.Event) -> str:
        async def go(_args) -> str:
            await until.wait()
            return "done"

        return await self.dispatcher.wrap(specs.around_tool, go, call.args, call=call, turn=turn)


async def test_a_running_model_call_is_waited_for_and_the_next_is_not_started():
    lived = TurnSteps()
    await lived.ask(turn())
    lived.draining.start()
    assert lived.draining.unsafe_turns == 1
    await lived.answered(turn())
    async with asyncio.TaskGroup() as group:
        parked = group.create_task(lived.ask(turn()))
        async with asyncio.timeout(LIMIT_S):
            await lived.draining.wait_until_safe()
        assert not parked.done(), "it rests before its next question"
        parked.cancel()


async def test_a_turn_that_waits_for_subagents_is_not_waited_for():
    lived, until = TurnSteps(), asyncio.Event()
    async with asyncio.TaskGroup() as group:
        group.create_task(lived.act(turn(), ToolCall("c1", "delegate_task", {"goal": "look"}), until))
        group.create_task(lived.act(turn("t2"), call("make"), until))
        await asyncio.sleep(0)
        lived.draining.start()
        assert lived.draining.unsafe_turns == 1, "only the subagent's own work is"
        until.set()


async def test_an_ended_turn_is_no_longer_waited_for():
    lived = TurnSteps()
    await lived.ask(turn())
    await lived.ask(turn("t2"))
    lived.draining.start()
    await lived.end(turn())
    assert lived.draining.unsafe_turns == 1
    await lived.end(turn("t2"))
    await lived.draining.wait_until_safe()


async def test_a_running_tool_is_waited_for():
    lived, until = TurnSteps(), asyncio.Event()
    await lived.ask(turn())
    await lived.answered(turn())
    async with asyncio.TaskGroup() as group:
        acting = group.create_task(lived.act(turn(), call("make"), until))
        await asyncio.sleep(0.4)
        lived.draining.start()
        assert lived.draining.unsafe_turns == 1
        until.set()
        async with asyncio.timeout(LIMIT_S):
            await lived.draining.wait_until_safe()
        assert await acting == "done"


async def test_a_turn_that_stops_this_process_is_not_waited_for():
    lived = TurnSteps()
    await lived.ask(turn())
    await lived.answered(turn())
    async with asyncio.TaskGroup() as group:
        acting = group.create_task(lived.act(turn(), call("systemctl --user restart alipes"), asyncio.Event()))
        await asyncio.sleep(0)
        lived.draining.start()
        await lived.draining.wait_until_safe()
        assert not acting.done()
        acting.cancel()


async def test_a_turn_that_waits_for_a_person_is_safe_after_a_moment():
    lived = TurnSteps()
    await lived.ask(turn())
    await lived.answered(turn())
    lived.draining.start()
    assert lived.draining.unsafe_turns == 1, "it may be about to act"
    async with asyncio.timeout(LIMIT_S):
        await lived.draining.wait_until_safe()


@pytest.mark.parametrize(
    ("command", "yes"),
    [
        ("systemctl restart alipes", True),
        ("sudo service alipes restart", True),
        ("cd x && docker restart bot", True),
        ("alipes serve --replace", True),
        ("kill -TERM {pid}", True),
        ("make test", False),
        ("kill -TERM 1", False),
        ("./systemctlx", False),
    ],
)
def test_commands_that_may_stop_this_process(command, yes):
    assert may_stop_this_process(call(command.replace("{pid}", str(os.getpid())))) is yes
    assert not may_stop_this_process(ToolCall("c", "read_file", {"path": "systemctl"}))


async def test_the_first_signal_requests_an_exit_and_the_second_hurries():
    with ExitSignals() as orders:
        os.kill(os.getpid(), signal.SIGHUP)
        await orders.requested.wait()
        assert orders.action == "restart" and not orders.hurry.is_set()
        os.kill(os.getpid(), signal.SIGTERM)
        await orders.hurry.wait()
        assert orders.action == "leave"
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


async def test_a_restart_does_not_override_an_exit():
    orders = ExitSignals()
    orders.request("leave")
    orders.request("restart")
    assert orders.action == "leave"


async def test_after_a_withdrawn_request_the_next_one_counts_as_the_first():
    with ExitSignals() as orders:
        for _ in range(3):
            os.kill(os.getpid(), signal.SIGHUP)
            await orders.requested.wait()
            assert not orders.hurry.is_set()
            orders.withdraw_request()
        assert not orders.requested.is_set()


async def test_a_closed_terminal_means_exit():
    with ExitSignals(at_terminal=True) as orders:
        os.kill(os.getpid(), signal.SIGHUP)
        await orders.requested.wait()
        assert orders.action == "leave"
