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


async def test_in_plain_mode_a_shell_command_is_run_and_its_output_given_along(home):
    async with ModelServer([Say("It says four.")]) as server:
        home.use(server)
        async with dumb(home) as terminal:
            await terminal.until(READY)
            terminal.type("!echo $((2 + 2)) apples; exit 7" + ENTER)
            await terminal.until("\n4 apples\n· exit code 7\n>")
            assert not server.requests
            terminal.type("what does it say?" + ENTER)
            await terminal.until("It says four.\n>")
    assert "4 apples" in str(server.bodies[0]["messages"])
    listed = await home.run("sessions", "list")
    assert listed.out.rstrip().endswith("  !echo $((2 + 2)) apples; exit 7"), "the title has no output"


async def test_in_plain_mode_ctrl_c_ends_a_shell_command_and_the_conversation_continues(home):
    async with ModelServer([Say("Here.")]) as server:
        home.use(server)
        async with dumb(home) as terminal:
            await terminal.until(READY)
            terminal.type("!echo $$ > started; exec sleep 600" + ENTER)
            await terminal.until(lambda: (home.path.parent / "started").exists())
            terminal.type(CTRL_C)
            await terminal.until("· killed by the user\n>")
            terminal.type("still there?" + ENTER)
            await terminal.until("Here.")


async def test_in_plain_mode_setup_connects_a_model_and_the_conversation_continues(home):
    async with ModelServer([Say("First."), Say("Ready."), Say("Second.")], models=["alpha", "beta"]) as server:
        home.use(server)
        async with dumb(home) as terminal:
            await terminal.until(READY)
            terminal.type("one" + ENTER)
            await terminal.until("First.")
            terminal.type("/setup" + ENTER)
            for question, answer in (
                ("Provider (number or name", "other"),
                ("Address", server.url("openai").removeprefix("http://")),
                ("API (number or name", ""),
                ("Name (Enter: local)", ""),
                ("Key (Enter for none)", ""),
                ("Model (number or name", "beta"),
                ("Save? (number or name; Enter: yes)", ""),
            ):
                await terminal.until(question)
                terminal.type(answer + ENTER)
            await terminal.until("· Model: local/beta")
            terminal.type("two" + ENTER)
            await terminal.until("Second.")
    assert [m["content"] for m in server.bodies[-1]["messages"] if m["role"] == "user"] == ["one", "two"]
    assert server.bodies[-1]["model"] == "beta"


async def test_in_plain_mode_a_cancelled_setup_changes_nothing(home):
    async with ModelServer([Say("Here.")]) as server:
        home.use(server)
        before = (home.path / "config.toml").read_text()
        async with dumb(home) as terminal:
            await terminal.until(READY)
            terminal.type("/setup" + ENTER)
            await terminal.until("Provider (number or name")
            terminal.type(CTRL_C)
            await terminal.until("Nothing changed.\n>")
            terminal.type("still there?" + ENTER)
            await terminal.until("Here.")
    assert (home.path / "config.toml").read_text() == before


async def test_in_plain_mode_rewind_shows_the_message_again(home):
    async with ModelServer([Say("Hello.")]) as server:
        home.use(server)
        async with dumb(home) as terminal:
            await terminal.until(READY)
            terminal.type("greet me" + ENTER)
            await terminal.until("Hello.")
            terminal.type("/rewind" + ENTER)
            await terminal.until("\n\ngreet me\n>")


async def test_in_plain_mode_help_wraps_at_words_and_a_question_mark_shows_it(home):
    async with ModelServer([]) as server:
        home.use(server)
        async with dumb(home) as terminal:
            await terminal.until(READY)
            terminal.type("?" + ENTER)
            await terminal.until("attaches a file.")
            await terminal.until(lambda: terminal.shown[-1] == ">")
            assert "enable, disable or reset\n                          one" in terminal.text
        assert not server.requests


async def test_in_plain_mode_one_line_says_how_to_come_back(home):
    async with ModelServer([Say("Hello.")]) as server:
        home.use(server)
        async with dumb(home) as terminal:
            await terminal.until(READY)
            terminal.type("hi" + ENTER)
            await terminal.until("Hello.")
            terminal.type(CTRL_D)
            assert await terminal.ended() == 0
            assert "\nContinue with: alipes -c" in terminal.text


async def test_over_a_pipe_setup_names_the_command(home):
    async with ModelServer([]) as server:
        home.use(server)
        done = await home.run(stdin=b"/setup\n")
        assert done.status == 1 and "/setup needs a terminal; run `alipes setup`" in done.err


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
