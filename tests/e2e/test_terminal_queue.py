"""Stopping in the terminal keeps queued messages; the step limit asks the person."""

import signal

import pytest

from tests.e2e.program import Home
from tests.world.model_server import Call, Calls, ModelServer, Plan, Say, Stall
from tests.world.terminal_process import CTRL_C, ENTER, TerminalProcess

pytestmark = pytest.mark.deadline(90)
KEPT = "2 queued messages kept: Enter to send, Esc to discard."


@pytest.fixture
def home(tmp_path):
    return Home(tmp_path / "home")


def asked(server: ModelServer) -> list[str]:
    return [body["messages"][-1]["content"] for body in server.bodies]


async def queue_two(terminal: TerminalProcess) -> None:
    terminal.type("first" + ENTER)
    await terminal.until("A long story")
    terminal.type("second" + ENTER + "third" + ENTER)
    await terminal.until("· next step: second\n· next step: third\n")


@pytest.mark.parametrize("stop", [CTRL_C, "/stop" + ENTER], ids=["ctrl-c", "command"])
async def test_a_stop_keeps_the_queued_messages_until_they_are_sent(home, stop):
    """B13"""
    async with ModelServer([Stall("A long story"), Say("Both.")]) as server:
        home.use(server)
        async with TerminalProcess.of(home) as terminal:
            await queue_two(terminal)
            terminal.type(stop)
            await terminal.until(KEPT)
            await terminal.until("A long story\n\n· stopped\n")
            await terminal.until("· kept: second\n· kept: third\n")
            assert "next step: second" not in terminal.text.split(KEPT)[1]
            terminal.type("/status" + ENTER)
            await terminal.until("nothing is running")
            assert asked(server) == ["first"], "a stop starts nothing"
            terminal.type("/queue send" + ENTER)
            await terminal.until("Both.")
            await terminal.until(lambda: "kept: second" not in terminal.text)
    sent = [each["content"] for each in server.bodies[1]["messages"] if each["role"] == "user"]
    assert sent == ["first", "second", "third"]


async def test_kept_messages_can_be_dropped(home):
    """B13"""
    async with ModelServer([Stall("A long story"), Say("Something else.")]) as server:
        home.use(server)
        async with TerminalProcess.of(home) as terminal:
            await queue_two(terminal)
            terminal.type(CTRL_C)
            await terminal.until("· kept: second\n· kept: third\n")
            terminal.type("/queue drop 1" + ENTER)
            await terminal.until("Discarded “second”.")
            terminal.type("/queue drop" + ENTER)
            await terminal.until("Discarded 1 message.")
            await terminal.until(lambda: "· kept:" not in terminal.text)
            terminal.type("new" + ENTER)
            await terminal.until("Something else.")
    assert asked(server) == ["first", "new"]


async def test_kept_messages_stay_kept_after_kill_9(home):
    """B13"""
    async with ModelServer([Stall("A long story"), Say("Both.")]) as server:
        home.use(server)
        async with TerminalProcess.of(home) as terminal:
            await queue_two(terminal)
            terminal.type(CTRL_C)
            await terminal.until("· kept: second\n· kept: third\n")
            terminal.signal(signal.SIGKILL)
            await terminal.ended()
        async with TerminalProcess.of(home, "-c") as terminal:
            await terminal.until("· kept: second\n· kept: third\n")
            terminal.type("/queue" + ENTER)
            await terminal.until("1  kept  “second”")
            assert asked(server) == ["first"]
            terminal.type("/queue send" + ENTER)
            await terminal.until("Both.")


async def test_a_message_after_the_stop_is_answered_and_the_kept_ones_stay(home):
    """B13"""
    async with ModelServer(Plan((Stall("A long story"),), {"new": (Say("Only this."),)})) as server:
        home.use(server)
        async with TerminalProcess.of(home) as terminal:
            await queue_two(terminal)
            terminal.type(CTRL_C)
            await terminal.until(KEPT)
            terminal.type("new" + ENTER)
            await terminal.until("Only this.")
            await terminal.until("· kept: second\n· kept: third\n")
    assert asked(server) == ["first", "new"]


@pytest.mark.parametrize(("answer", "said"), [("yes", "All done."), ("no", "I looked twice.")], ids=["yes", "no"])
async def test_at_the_step_limit_the_person_is_asked_to_continue(home, answer, said):
    steps = [Calls((Call("terminal", {"command": f"echo {n}"}),)) for n in range(2)]
    async with ModelServer([*steps, Say(said)]) as server:
        home.use(server)
        async with TerminalProcess.of(home, ALIPES_MAX_STEPS="2") as terminal:
            terminal.type("go" + ENTER)
            await terminal.until("Reached 2 steps. Continue?")
            terminal.type(answer + ENTER)
            await terminal.until(said)
            ended = "stopped at the step limit"
            await terminal.until(lambda: (ended in terminal.text) is (answer == "no"))
    assert len(server.requests) == 3
