"""Keys for queued messages and permission modes."""

import asyncio

import pytest

from alipes.cli.terminal.input.key_bindings import KEEP_QUEUE_S
from tests.e2e.program import Home
from tests.e2e.test_terminal_approvals import run
from tests.world.model_server import ModelServer, Say, Stall
from tests.world.terminal_process import ENTER, ESCAPE, TerminalProcess

pytestmark = pytest.mark.deadline(90)
UP, SHIFT_TAB = "\x1b[A", "\x1b[Z"


@pytest.fixture
def home(tmp_path):
    return Home(tmp_path / "home")


def asked(server: ModelServer) -> list[str]:
    return [body["messages"][-1]["content"] for body in server.bodies]


async def queue_a_message(terminal: TerminalProcess) -> None:
    terminal.type("a tale" + ENTER)
    await terminal.until("Once upon a time")
    terminal.type("only once please" + ENTER)
    await terminal.until("· next step: only once please\n")


async def test_up_takes_a_queued_message_back_and_it_is_sent_once(home):
    """B14."""
    async with ModelServer([Stall("Once upon a time"), Say("Once.")]) as server:
        home.use(server)
        async with TerminalProcess.of(home) as terminal:
            await queue_a_message(terminal)
            terminal.type(UP)
            await terminal.until(lambda: "› only once please" in terminal.rows)
            await terminal.until(lambda: "next step" not in terminal.text)
            terminal.type("!" + ENTER)
            await terminal.until("· next step: only once please!")
            await terminal.until("1 queued")
            assert terminal.text.count("only once please") == 1
            terminal.type(ESCAPE)
            await terminal.until("kept: only once please!")
            terminal.type(ENTER)
            await terminal.until("Once.\n")
    assert asked(server) == ["a tale", "only once please!"]


async def test_escape_keeps_the_queue_and_a_second_escape_discards_it(home):
    async with ModelServer([Stall("Once upon a time"), Say("Another.")]) as server:
        home.use(server)
        async with TerminalProcess.of(home) as terminal:
            await queue_a_message(terminal)
            terminal.type(ESCAPE)
            await terminal.until("kept: only once please")
            await terminal.until("· stopped")
            await asyncio.sleep(KEEP_QUEUE_S)  # an earlier one is meant for the stop
            terminal.type(ESCAPE)
            await terminal.until("Discarded 1 message")
            await terminal.until(lambda: "kept: only" not in terminal.text)
            terminal.type("other" + ENTER)
            await terminal.until("Another.")
    assert asked(server) == ["a tale", "other"]


async def test_escape_twice_brings_queued_messages_back_into_the_input(home):
    async with ModelServer([Stall("Once upon a time"), Say("Both.")]) as server:
        home.use(server)
        async with TerminalProcess.of(home) as terminal:
            await queue_a_message(terminal)
            terminal.type("/queue a joke" + ENTER)
            await terminal.until("· after this turn: a joke\n")
            terminal.type(ESCAPE)
            await terminal.until("kept: a joke")
            terminal.type(ESCAPE)
            await terminal.until(lambda: "› only once please" in terminal.rows and "  a joke" in terminal.rows)
            await terminal.until(lambda: "· kept: " not in terminal.text)
            terminal.type(ENTER)
            await terminal.until("Both.")
    assert asked(server) == ["a tale", "only once please\n\na joke"]


async def test_up_takes_a_message_back_as_what_it_was(home):
    async with ModelServer([Stall("Once upon a time"), Say("Ha.")]) as server:
        home.use(server)
        async with TerminalProcess.of(home) as terminal:
            await queue_a_message(terminal)
            terminal.type("/queue a joke" + ENTER)
            await terminal.until("· after this turn: a joke\n")
            terminal.type(UP)
            await terminal.until(lambda: "› /queue a joke" in terminal.rows)
            await terminal.until(lambda: "after this turn" not in terminal.text)
            terminal.type(ENTER)
            await terminal.until("· after this turn: a joke\n")
            assert terminal.text.count("· next step: ") == 1


async def test_up_takes_back_a_held_message(home):
    async with ModelServer([Stall("Once upon a time"), Say("Done.")]) as server:
        home.use(server)
        async with TerminalProcess.of(home) as terminal:
            await queue_a_message(terminal)
            terminal.type(ESCAPE)
            await terminal.until("kept: only once please")
            await terminal.until("· stopped")
            terminal.type(UP)
            await terminal.until(lambda: "› only once please" in terminal.rows)
            terminal.type(", or twice" + ENTER)
            await terminal.until("Done.")
    assert asked(server) == ["a tale", "only once please, or twice"]


async def test_shift_tab_changes_the_permission_mode(home):
    async with TerminalProcess.of(home, "-m", "scripted", size=(100, 24)) as terminal:
        await terminal.until("(from ")
        for mode in ("edits", "plan", "ask"):
            terminal.type(SHIFT_TAB)
            await terminal.until(f"Permission mode: {mode} (")


async def test_keys_queue_and_steer(home):
    async with ModelServer([Stall("Once upon a time")]) as server:
        home.use(server)
        async with TerminalProcess.of(home) as terminal:
            terminal.type("a tale" + ENTER)
            await terminal.until("Once upon a time")
            for text, mode in (("a joke", "after this turn"), ("be shorter", "next step")):
                terminal.type(text + ("\x1bq" if mode == "after this turn" else "\x1bs"))
                await terminal.until(f"· {mode}: {text}\n")
            terminal.type("/busy" + ENTER)  # answered after both
            await terminal.until("› /busy")
            await terminal.until("2 queued")
            assert "· after this turn: a joke\n" in terminal.text and "· next step: be shorter\n" in terminal.text
            assert "Queued." not in terminal.text


async def test_ctrl_b_sends_the_running_command_to_the_background(home):
    command = "echo begun; sleep 1000"
    async with ModelServer([run(command), Say("It runs on.")]) as server:
        home.use(server)
        async with TerminalProcess.of(home) as terminal:
            terminal.type("start" + ENTER)
            await terminal.until("│ begun")
            terminal.type("\x02")
            await terminal.until("It runs on.\n\n›")
            terminal.type("/ps" + ENTER)
            await terminal.until(lambda: "p1" in terminal.text.partition("› /ps")[2])
            await terminal.until("1 job")
    result = next(each["content"] for each in server.bodies[-1]["messages"] if each["role"] == "tool")
    assert result.startswith("begun\n[p1 is running in the background, where the user moved it]")
