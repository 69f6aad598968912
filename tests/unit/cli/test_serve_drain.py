"""Turns on their way to a safe point, through the real relay; and orders by real signals."""

import asyncio
import os
import signal

import pytest

from alipes.cli.serve.run import Draining, asks_for_our_end
from alipes.cli.serve.signals import Orders
from alipes.kernel.messages import ToolCall
from alipes.kernel.turns import Address, Inbound, Turn
from alipes.plugins import specs
from alipes.plugins.dispatch import Hooks


def turn(id: str = "t1") -> Turn:
    return Turn(id, "s", Inbound("i", Address("telegram", "1"), "someone", "hello"))


def call(command: str) -> ToolCall:
    return ToolCall("c1", "terminal", {"command": command})


class Lived:
    """A turn's steps as the agent tells them."""

    def __init__(self) -> None:
        self.draining, hooks = Draining(), Hooks()
        self.draining.listen(hooks)
        self.relay = hooks.relay

    async def ask(self, turn: Turn) -> None:
        await self.relay.tell(specs.request_sent, attempt=None, turn=turn)

    async def answered(self, turn: Turn) -> None:
        await self.relay.tell(specs.request_answered, attempt=None, reply=None, seconds=1.0, turn=turn)

    async def end(self, turn: Turn) -> None:
        await self.relay.tell(specs.turn_ended, turn=turn, ending="answered", detail="", said=(), usage=None)

    async def act(self, turn: Turn, call: ToolCall, until: asyncio.Event) -> str:
        async def go(_args) -> str:
            await until.wait()
            return "done"

        return await self.relay.wrap(specs.around_tool, go, call.args, call=call, turn=turn)


async def test_a_model_that_answers_is_waited_for_and_the_next_question_is_not_asked():
    lived = Lived()
    await lived.ask(turn())
    lived.draining.begin()
    assert lived.draining.unsafe == 1
    await lived.answered(turn())
    async with asyncio.TaskGroup() as group:
        parked = group.create_task(lived.ask(turn()))
        async with asyncio.timeout(5):
            await lived.draining.drained()
        assert not parked.done(), "it rests before its next question"
        parked.cancel()


async def test_who_waits_for_subagents_is_not_waited_for():
    lived, until = Lived(), asyncio.Event()
    async with asyncio.TaskGroup() as group:
        group.create_task(lived.act(turn(), ToolCall("c1", "delegate_task", {"goal": "look"}), until))
        group.create_task(lived.act(turn("t2"), call("make"), until))
        await asyncio.sleep(0)
        lived.draining.begin()
        assert lived.draining.unsafe == 1, "only the subagent's own work is"
        until.set()


async def test_a_turn_that_ends_is_not_waited_for_any_more():
    lived = Lived()
    await lived.ask(turn())
    await lived.ask(turn("t2"))
    lived.draining.begin()
    await lived.end(turn())
    assert lived.draining.unsafe == 1
    await lived.end(turn("t2"))
    await lived.draining.drained()


async def test_a_tool_at_work_is_waited_for():
    lived, until = Lived(), asyncio.Event()
    await lived.ask(turn())
    await lived.answered(turn())
    async with asyncio.TaskGroup() as group:
        acting = group.create_task(lived.act(turn(), call("make"), until))
        await asyncio.sleep(0.4)
        lived.draining.begin()
        assert lived.draining.unsafe == 1
        until.set()
        async with asyncio.timeout(5):
            await lived.draining.drained()
        assert await acting == "done"


async def test_the_turn_that_asked_for_our_end_is_not_waited_for():
    lived = Lived()
    await lived.ask(turn())
    await lived.answered(turn())
    async with asyncio.TaskGroup() as group:
        acting = group.create_task(
            lived.act(turn(), call("systemctl --user restart alipes"), asyncio.Event())
        )
        await asyncio.sleep(0)
        lived.draining.begin()
        await lived.draining.drained()
        assert not acting.done()
        acting.cancel()


async def test_a_turn_that_waits_for_a_person_is_safe_after_a_moment():
    lived = Lived()
    await lived.ask(turn())
    await lived.answered(turn())
    lived.draining.begin()
    assert lived.draining.unsafe == 1, "it may be about to act"
    async with asyncio.timeout(5):
        await lived.draining.drained()


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
def test_which_commands_ask_for_our_end(command, yes):
    assert asks_for_our_end(call(command.replace("{pid}", str(os.getpid())))) is yes
    assert not asks_for_our_end(ToolCall("c", "read_file", {"path": "systemctl"}))


async def test_the_first_signal_is_an_order_and_the_second_a_hurry():
    with Orders() as orders:
        os.kill(os.getpid(), signal.SIGHUP)
        await orders.given.wait()
        assert orders.order == "restart" and not orders.hurried.is_set()
        os.kill(os.getpid(), signal.SIGTERM)
        await orders.hurried.wait()
        assert orders.order == "leave"
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


async def test_who_leaves_is_not_called_back_for_a_restart():
    orders = Orders()
    orders.give("leave")
    orders.give("restart")
    assert orders.order == "leave"


async def test_after_an_order_was_withdrawn_the_next_one_is_the_first():
    with Orders() as orders:
        for _ in range(3):
            os.kill(os.getpid(), signal.SIGHUP)
            await orders.given.wait()
            assert not orders.hurried.is_set()
            orders.withdraw()
        assert not orders.given.is_set()


async def test_a_terminal_that_goes_away_means_to_leave():
    with Orders(at_terminal=True) as orders:
        os.kill(os.getpid(), signal.SIGHUP)
        await orders.given.wait()
        assert orders.order == "leave"
