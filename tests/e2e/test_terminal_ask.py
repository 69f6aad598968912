"""`alipes ask`, and a question without `ask`, at a real terminal."""

import re

import pytest

from tests.e2e.program import Home
from tests.world.model_server import Call, ModelServer, Say
from tests.world.terminal_process import ENTER, TerminalProcess

pytestmark = pytest.mark.deadline(60)
PUSH = Call("terminal", {"command": "git push --force origin main"})
MARKDOWN = "# Numbers\n\nIt is **four**:\n\n- one `two`\n- three\n\n```python\nprint(4)\n```\n"


@pytest.fixture
def home(tmp_path):
    return Home(tmp_path / "home")


async def test_at_a_terminal_the_answer_is_rendered(home):
    """B29"""
    async with ModelServer([Say(MARKDOWN, pieces=20, delay=0.01)]) as server:
        home.use(server)
        async with TerminalProcess.of(home, "ask", "two and two?") as terminal:
            assert await terminal.ended() == 0
            assert "**" not in terminal.text and "```" not in terminal.text
            assert terminal.shown == ["Numbers", "It is four:", "• one two", "• three", "── python", "print(4)", "──"]
            assert b"\x1b[1mfour" in terminal.raw


@pytest.mark.parametrize("more", [{"TERM": "dumb"}, {}])
async def test_plain_and_dumb_terminals_get_the_answer_as_it_was_written(home, more):
    """B29"""
    async with ModelServer([Say("It is **four**.")]) as server:
        home.use(server)
        words = () if more else ("--plain",)
        async with TerminalProcess.of(home, *words, "ask", "two and two?", **more) as terminal:
            assert await terminal.ended() == 0
            assert terminal.shown == ["It is **four**."] and b"\x1b" not in terminal.raw


@pytest.mark.parametrize(("answer", "status"), [("n", 3), ("y", 0)])
async def test_at_a_terminal_a_dangerous_call_is_asked_about(home, answer, status):
    """B19"""
    async with ModelServer([PUSH, Say("Done.")]) as server:
        home.use(server)
        async with TerminalProcess.of(home, "ask", "push it") as terminal:
            await terminal.until("[n] no")
            assert "git push --force origin main" in terminal.text
            terminal.type(answer + ENTER)
            assert await terminal.ended() == status
    (result,) = [m["content"] for m in server.bodies[-1]["messages"] if m["role"] == "tool"]
    assert ("denied by the user" in result) == (answer == "n")


async def test_without_a_terminal_a_dangerous_call_is_refused_and_the_status_is_3(home):
    """B19"""
    async with ModelServer([PUSH, Say("Not done.")]) as server:
        home.use(server)
        done = await home.run("ask", "push it")
    assert (done.status, done.out) == (3, "Not done.\n")


@pytest.mark.parametrize(
    "words",
    [("two and two?",), ("-p", "two and two?"), ("two", "and", "two?"), ("-m", "test/scripted", "ask", "two and two?")],
)
async def test_a_question_needs_no_command_and_options_may_come_first(home, words):
    async with ModelServer([Say("Four.")]) as server:
        home.use(server)
        done = await home.run(*words)
    assert (done.status, done.out, done.err) == (0, "Four.\n", "")
    assert server.bodies[0]["messages"][-1]["content"] == "two and two?"


@pytest.mark.parametrize("words", [("sesions", "list"), ("seshions",), ("upgrade",)])
async def test_a_mistyped_command_is_no_question(home, words):
    done = await home.run(*words)
    assert done.status == 2 and "unknown command" in done.err and "alipes ask" in done.err


async def test_sessions_use_a_pager_at_a_terminal_and_show_folder_and_model(home):
    async with ModelServer([Say("It is **four**.")]) as server:
        home.use(server)
        assert (await home.run("ask", "two and two?")).status == 0
        async with TerminalProcess.of(home, "sessions", PAGER="sed s/^/PAGED:/") as terminal:
            assert await terminal.ended() == 0
            head, row = terminal.shown
            assert re.match(r"PAGED:ID +LAST USED +TURNS +FOLDER +MODEL +TITLE", head)
            assert re.search(r" 1 +~ +scripted +two and two\?", row)
        async with TerminalProcess.of(home, "sessions", "show", "two", PAGER="cat") as terminal:
            await terminal.ended()
            assert "No conversation" in terminal.text
        (id,) = (await home.run("completion", "sessions")).out.split()
        async with TerminalProcess.of(home, "sessions", "show", id, PAGER="cat") as terminal:
            assert await terminal.ended() == 0
            assert "It is four." in terminal.text and b"\x1b[1mfour" in terminal.raw
