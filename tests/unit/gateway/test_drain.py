"""Shutdown of `alipes serve` and full clusters: safe points of turns, and messages that are held."""

import asyncio
import os

import pytest

from alipes.cli.serve.platforms import refuse_when_held
from alipes.gateway.drain import DrainGate, MessageHeld, TurnDrain, may_stop_this_process
from alipes.kernel.messages import ToolCall
from alipes.kernel.platform import IncomingMessage
from alipes.kernel.turns import Address, Inbound, Turn
from alipes.plugins import specs
from alipes.plugins.dispatch import Hooks
from tests.world.environment import LIMIT_S

HERE = Address("telegram", "7")


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


class Speaks:
    """A platform that hands over three things at once."""

    name = "speaks"

    async def listen(self, take, tell):
        async with asyncio.TaskGroup() as group:
            for text, pressed in (("words", ""), ("/stop", ""), ("", "yes")):
                group.create_task(take(IncomingMessage("1", HERE, "7", text=text, pressed=pressed)))


async def test_during_shutdown_messages_are_held_and_commands_and_buttons_pass():
    leaving, taken = asyncio.Event(), []

    async def take(arrival):
        taken.append(arrival.text or arrival.pressed)

    gate = DrainGate(Speaks(), leaving)
    await gate.listen(take, lambda *_: None)
    assert taken == ["words", "/stop", "yes"] and gate.name == "speaks"
    taken.clear()
    leaving.set()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.2):
            await gate.listen(take, lambda *_: None)
    assert taken == ["/stop", "yes"], "the platform keeps what was not taken"


async def test_during_shutdown_a_pushed_message_is_answered_with_503():
    leaving, taken = asyncio.Event(), []
    leaving.set()

    class Pushed(Speaks):
        async def listen(self, take, tell):
            self.take = take

        async def on_webhook(self, headers, body):
            await self.take(IncomingMessage("1", HERE, "7", text=body.decode()))
            return 200

    async def take(arrival):
        taken.append(arrival.text)

    platform = Pushed()
    await DrainGate(platform, leaving, pushed=True).listen(take, lambda *_: None)
    bring = refuse_when_held(platform.on_webhook)
    assert await bring({}, b"words") == 503
    assert await bring({}, b"/stop") == 200
    assert taken == ["/stop"]
    with pytest.raises(MessageHeld):
        await platform.on_webhook({}, b"words")


async def test_while_the_cluster_is_full_messages_wait_and_commands_pass():
    answers, taken = [True, True, False], []

    async def is_full():
        return answers.pop(0)

    async def take(arrival):
        taken.append(arrival.text or arrival.pressed)

    await DrainGate(Speaks(), asyncio.Event(), is_full=is_full).listen(take, lambda *_: None)
    assert taken == ["/stop", "yes", "words"] and not answers


async def test_while_the_cluster_is_full_a_pushed_message_is_refused():
    async def is_full():
        return True

    class Pushed(Speaks):
        async def listen(self, take, tell):
            self.take = take

    platform = Pushed()
    await DrainGate(platform, asyncio.Event(), pushed=True, is_full=is_full).listen(None, lambda *_: None)
    with pytest.raises(MessageHeld):
        await platform.take(IncomingMessage("1", HERE, "7", text="words"))
