"""A resumed conversation at a real terminal: its whole past, in order, and what was cut off."""

import signal

import pytest

from tests.e2e.program import Home
from tests.e2e.test_terminal_approvals import PUSH, press, run
from tests.world.model_server import Fail, ModelServer, Say
from tests.world.terminal_process import CTRL_D, ENTER, TerminalProcess

pytestmark = pytest.mark.deadline(90)


@pytest.fixture
def home(tmp_path):
    return Home(tmp_path / "home")


async def leave(terminal: TerminalProcess) -> None:
    terminal.type(CTRL_D)
    assert await terminal.ended() == 0


async def test_a_resumed_conversation_is_shown_from_its_first_message(home):
    answers = [Say(f"Answer {n}.") for n in range(6)]
    async with ModelServer([*answers, run("seq 1 2"), Fail(401, "bad key"), Say("More.")]) as server:
        home.use(server)
        for number in range(6):
            await home.run("ask", "--session", "s", f"question {number}")
        await home.run("ask", "--session", "s", "count")
        async with TerminalProcess.of(home, "--session", "s") as terminal:
            await terminal.until("· failed: ")
            await terminal.until("bad key")
            text = terminal.text
            terminal.type("go on" + ENTER)
            await terminal.until("More.")
    places = [text.index(f"› question {n}\n\nAnswer {n}.") for n in range(6)]
    places += [text.index("› count\n\n✓ Run seq 1 2\n  │ 1\n  │ 2\n"), text.index("· failed: ")]
    assert places == sorted(places)


async def test_decisions_are_shown_where_they_were_made(home):
    async with ModelServer([run(PUSH), Say("One."), run("seq 1 2"), Say("Two.")]) as server:
        home.use(server)
        async with TerminalProcess.of(home) as terminal:
            terminal.type("push" + ENTER)
            await press(terminal, "n")
            await terminal.until("One.")
            terminal.type("count" + ENTER)
            await terminal.until("Two.")
            await leave(terminal)
        async with TerminalProcess.of(home, "-c") as terminal:
            await terminal.until("Two.\n\n›")
            text = terminal.text
    assert text.index("› push") < text.index("· denied") < text.index("One.") < text.index("› count")
    assert text.count("· denied") == 1


@pytest.mark.parametrize("how", ["quit", "kill"])
async def test_a_call_that_was_cut_off_is_shown_once(home, how):
    command = "touch x; echo two; sleep 60"
    async with ModelServer([Say("Early."), run("echo one"), run(command), Say("Again.")]) as server:
        home.use(server)
        async with TerminalProcess.of(home) as terminal:
            terminal.type("hello" + ENTER)
            await terminal.until("Early.")
            terminal.type("go" + ENTER)
            await terminal.until("│ two")
            terminal.type(CTRL_D) if how == "quit" else terminal.signal(signal.SIGKILL)
            await terminal.ended()
        async with TerminalProcess.of(home) as terminal:
            await terminal.until("Again.\n\n›")
            text = terminal.text
    assert text.index("› hello\n\nEarly.") < text.index("› go\n\n· Resumed. Step 2 was cut off.\n\n✓ Run echo one")
    assert text.count(f"✗ Run {command}  result unknown") == 1
    assert "Cut off when alipes quit; result unknown." in text
