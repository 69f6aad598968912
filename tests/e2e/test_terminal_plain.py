"""Line by line at a real terminal: `--plain` and `TERM=dumb`; and commands over a pipe."""

import pytest

from tests.e2e.program import Home
from tests.world.model_server import Call, ModelServer, Say, Stall
from tests.world.terminal_process import CTRL_C, CTRL_D, ENTER, TerminalProcess

pytestmark = pytest.mark.deadline(90)
PUSH = Call("terminal", {"command": "git push --force origin main"})
READY = "Ctrl-D quits."


@pytest.fixture
def home(tmp_path):
    return Home(tmp_path / "home")


def dumb(home: Home, *words: str):
    return TerminalProcess.of(home, *words, TERM="dumb")


async def test_a_dumb_terminal_has_a_prompt_and_commands_that_do_not_reach_the_model(home):
    """B4"""
    async with ModelServer([Say("Hello.")]) as server:
        home.use(server)
        async with dumb(home) as terminal:
            await terminal.until(READY)
            await terminal.until(lambda: terminal.shown[-1] == ">")
            terminal.type("/help" + ENTER)
            await terminal.until("/quit")
            await terminal.until(lambda: terminal.shown[-1] == ">")
            terminal.type("hi" + ENTER)
            await terminal.until("> hi\nHello.\n>")
            terminal.type("/quit" + ENTER)
            assert await terminal.ended() == 0
        assert b"\x1b" not in terminal.raw, "no escape sequences"
    assert len(server.requests) == 1


@pytest.mark.parametrize("words", [("--plain",), ()])
async def test_in_plain_mode_approval_is_a_question_that_a_line_answers(home, words):
    """B4"""
    async with ModelServer([PUSH, Say("Not pushed."), PUSH, Say("Tried it.")]) as server:
        home.use(server)
        terminal_type = {} if words else {"TERM": "dumb"}
        async with TerminalProcess.of(home, *words, **terminal_type) as terminal:
            await terminal.until(READY)
            terminal.type("push" + ENTER)
            await terminal.until("Run this command?")
            await terminal.until("    git push --force origin main")
            await terminal.until("[n] no")
            terminal.type("what" + ENTER)
            await terminal.until("Type one of the letters and Enter.")
            await terminal.until(lambda: terminal.text.count("[n] no") == 2)
            terminal.type("n" + ENTER)
            await terminal.until("denied")
            await terminal.until("Not pushed.")
            terminal.type("again" + ENTER)
            await terminal.until(lambda: terminal.text.count("Run this command?") == 2)
            terminal.type("y" + ENTER)
            await terminal.until("Tried it.")
    results = [m["content"] for m in server.bodies[-1]["messages"] if m["role"] == "tool"]
    assert "denied by the user" in results[0] and "exit code" in results[1]


async def test_in_plain_mode_the_exit_code_of_a_failed_command_is_shown(home):
    """B4"""
    async with ModelServer([Call("terminal", {"command": "exit 7"}), Say("It failed.")]) as server:
        home.use(server)
        async with dumb(home) as terminal:
            await terminal.until(READY)
            terminal.type("run it" + ENTER)
            await terminal.until("It failed.")
            assert "exit code 7" in terminal.text


async def test_in_plain_mode_ctrl_c_stops_the_turn_and_the_conversation_continues(home):
    async with ModelServer([Stall("Once"), Say("Here.")]) as server:
        home.use(server)
        async with dumb(home) as terminal:
            await terminal.until(READY)
            terminal.type("a tale" + ENTER)
            await terminal.until("Once")
            terminal.type(CTRL_C)
            await terminal.until("· stopped")
            terminal.type("still there?" + ENTER)
            await terminal.until("Here.")
            await terminal.until(lambda: terminal.shown[-1] == ">")
            terminal.type(CTRL_D)
            assert await terminal.ended() == 0


async def test_over_a_pipe_commands_do_not_reach_the_model(home):
    """B4"""
    async with ModelServer([Say("Hello.")]) as server:
        home.use(server)
        done = await home.run(stdin=b"/help\nhi\n/quit\nnever\n")
        assert done.status == 0 and "/quit" in done.out and done.out.endswith("Hello.\n")
    assert len(server.requests) == 1


async def test_over_a_pipe_a_command_that_fails_sets_the_status(home):
    done = await home.run("-m", "scripted", stdin=b"/resume nothing\n")
    assert done.status == 1 and 'No conversation matches "nothing"' in done.err
