"""`alipes ask` at a terminal asks before risky calls; at a pipe it refuses them."""

import shlex
import sys

import pytest

from tests.e2e.program import Home
from tests.e2e.test_caller import run_as_agent
from tests.world.model_server import Call, Calls, ModelServer, Say
from tests.world.terminal_process import CTRL_C, ENTER, TerminalProcess

pytestmark = pytest.mark.deadline(90)
PUSH = "git push --force origin main"


@pytest.fixture
def home(tmp_path):
    return Home(tmp_path / "home")


def run(command: str) -> Calls:
    return Calls((Call("terminal", {"command": command}),), "")


def result(server: ModelServer) -> str:
    """The last tool result in the last request to the model."""
    return [each["content"] for each in server.bodies[-1]["messages"] if each["role"] == "tool"][-1]


@pytest.mark.parametrize(
    ("typed", "said"),
    [("y", "exit code"), ("n", "denied by the user."), ("no, because it is Friday", "“it is Friday”")],
    ids=["yes", "no", "because"],
)
async def test_at_a_terminal_a_risky_call_is_asked_about(home, typed, said):
    """B19: `ask` refused at a terminal, although a person was there."""
    async with ModelServer([run(f"{PUSH}; echo exit code $?"), Say("Well.")]) as server:
        home.use(server)
        async with TerminalProcess.of(home, "ask", "push it") as terminal:
            await terminal.until("? Run this command?")
            await terminal.until("  Why: a force-push can overwrite work on the remote")
            await terminal.until("[n] no")
            terminal.type(typed + ENTER)
            await terminal.until("Well.")
            await terminal.until(lambda: terminal.status is not None)
            assert terminal.status == (0 if typed == "y" else 3)
    assert said in result(server)


@pytest.mark.parametrize("typed", ["p" + ENTER, "p git push *" + ENTER])
async def test_a_pattern_is_saved_and_covers_the_next_question(home, typed):
    async with ModelServer([run(PUSH), run("git push --force origin other"), Say("Well.")]) as server:
        home.use(server)
        async with TerminalProcess.of(home, "ask", "push it") as terminal:
            await terminal.until("[p] pattern")
            terminal.type(typed)
            if typed == "p" + ENTER:
                await terminal.until(f"(Enter: {PUSH})")
                terminal.type("git push *" + ENTER)
            await terminal.until("Well.")
            assert terminal.text.count("Run this command?") == 1


async def test_ctrl_c_at_the_question_stops_the_turn(home):
    async with ModelServer([run(PUSH)]) as server:
        home.use(server)
        async with TerminalProcess.of(home, "ask", "push it") as terminal:
            await terminal.until("[n] no")
            terminal.type(CTRL_C)
            await terminal.until(lambda: terminal.status is not None)
            assert terminal.status == 130


async def test_at_a_pipe_a_risky_call_is_refused_and_an_edit_in_the_project_is_not(home, tmp_path):
    """B19: the docs said that everything is refused that changes something."""
    write = Calls((Call("write_file", {"path": "new.txt", "content": "x"}),), "")
    async with ModelServer([run(PUSH), write, Say("Well.")]) as server:
        home.use(server)
        done = await home.run("ask", "push it")
    assert done.out == "Well.\n" and "nobody is available to approve it" in server.bodies[1]["messages"][-1]["content"]
    assert (tmp_path / "new.txt").exists()
    assert "  denied: force-push needs approval (use --yes)" in done.err.splitlines()[1]


async def test_plan_mode_of_ask_changes_nothing(home, tmp_path):
    write = Calls((Call("write_file", {"path": "new.txt", "content": "x"}),), "")
    async with ModelServer([write, Say("## Plan\n\n1. Write it\n2. Check it")]) as server:
        home.use(server)
        done = await home.run("ask", "--mode", "plan", "write it")
    assert done.out.startswith("## Plan") and not (tmp_path / "new.txt").exists()
    assert "plan mode is on" in result(server)


async def test_an_unknown_mode_is_refused(home):
    done = await home.run("ask", "--mode", "yolo", "hi")
    assert done.status == 2 and "choose from" in done.err


async def test_the_agent_cannot_answer_a_question_of_its_own_in_a_terminal(home):
    spawn = "import pty, sys; pty.spawn([sys.executable, '-m', 'alipes', 'ask', 'push it'])"
    async with ModelServer([run(PUSH), Say("Well.")]) as server:
        home.use(server)
        done = await run_as_agent(home, f"yes | {shlex.quote(sys.executable)} -c {shlex.quote(spawn)}")
    assert "nobody is available to approve it" in result(server) and "Run this command?" not in done.out
