"""The conversation in a terminal, and over a pipe: the real program in a real pty."""

import asyncio
import signal

import pytest

from tests.e2e.program import Home, finished, until_said
from tests.e2e.terminal import open_terminal
from tests.world.model_server import Fail, ModelServer, Say, Stall

pytestmark = pytest.mark.deadline(60)
CTRL_C, CTRL_D = "\x03", "\x04"


@pytest.fixture
def home(tmp_path):
    return Home(tmp_path / "home")


async def test_a_line_is_answered_and_the_prompt_is_there_again(home):
    async with ModelServer([Say("Good morning."), Say("Good night.")]) as server:
        home.use(server)
        async with open_terminal(home) as terminal:
            await terminal.shows("test/scripted answers")
            terminal.type("hello\r")
            await terminal.shows("Good morning.")
            terminal.type("bye\r")
            await terminal.shows("Good night.")
            await terminal.shows("> hello\nGood morning.\n\n> bye\nGood night.\n\n>")
            terminal.type(CTRL_D)
            assert await terminal.process.wait() == 0
    contents = [m["content"] for m in server.bodies[1]["messages"] if m["role"] != "system"]
    assert contents == ["hello", "Good morning.", "bye"]


async def test_the_first_screen_tells_which_model_answers_and_that_it_is_a_toy(home):
    async with open_terminal(home) as terminal:
        await terminal.shows("toy")
        told = " ".join(terminal.text.split())
        assert "embedded" in told and "No model is configured" in told
        assert "ANTHROPIC_API_KEY" in told and "alipes model" in told


async def test_what_is_typed_before_everything_is_ready_is_answered(home):
    async with open_terminal(home, "-m", "scripted") as terminal:
        await terminal.shows(">")
        terminal.type("early\r")
        await terminal.shows("You said: early")


async def test_ctrl_c_stops_the_turn_and_keeps_what_is_being_typed(home):
    async with ModelServer([Stall("Once upon a time"), Say("And now this.")]) as server:
        home.use(server)
        async with open_terminal(home) as terminal:
            terminal.type("a tale\r")
            await terminal.shows("Once upon a time")
            terminal.type("something else")
            await terminal.shows("> something else")
            terminal.type(CTRL_C)
            await terminal.shows("· stopped")
            await server.closed_early()
            await terminal.shows("> something else")
            terminal.type("\r")
            await terminal.shows("And now this.")
    assert server.bodies[1]["messages"][-1]["content"] == "something else"


async def test_a_real_sigint_does_the_same(home):
    async with ModelServer([Stall("Once")]) as server:
        home.use(server)
        async with open_terminal(home) as terminal:
            terminal.type("a tale\r")
            await terminal.shows("Once")
            terminal.process.send_signal(signal.SIGINT)
            await terminal.shows("· stopped")
            assert terminal.process.returncode is None


async def test_stop_is_a_command_too(home):
    async with ModelServer([Stall("Once")]) as server:
        home.use(server)
        async with open_terminal(home) as terminal:
            terminal.type("/stop\r")
            await terminal.shows("nothing is being done")
            terminal.type("a tale\r")
            await terminal.shows("Once")
            terminal.type("/stop\r")
            await terminal.shows("· stopped")


async def test_ctrl_c_without_a_turn_clears_the_line_and_then_says_how_to_leave(home):
    async with open_terminal(home, "-m", "scripted") as terminal:
        await terminal.shows("scripted/echo answers")
        terminal.type("oops")
        await terminal.shows("> oops")
        terminal.type(CTRL_C)
        await terminal.hides("oops")
        terminal.type(CTRL_C)
        await terminal.shows("Ctrl-D or /quit leaves")
        terminal.type("/quit\r")
        assert await terminal.process.wait() == 0


async def test_what_is_typed_while_a_turn_runs_is_answered_next_in_order(home):
    async with ModelServer([Say("one", wait=1.0), Say("two"), Say("three")]) as server:
        home.use(server)
        async with open_terminal(home) as terminal:
            terminal.type("first\r")
            await server.asked()
            terminal.type("second\rthird\r")
            await terminal.shows("> third")
            await terminal.shows("> first\none\n\n> second\ntwo\n\n> third\nthree\n\n>")
    assert [body["messages"][-1]["content"] for body in server.bodies] == ["first", "second", "third"]


async def test_leaving_while_something_is_done_is_asked_for_twice_and_it_goes_on_later(home):
    async with ModelServer([Stall("Once"), Say("The end.")]) as server:
        home.use(server)
        async with open_terminal(home, "--session", "tale") as terminal:
            terminal.type("a tale\r")
            await terminal.shows("Once")
            terminal.type(CTRL_D)
            await terminal.shows("still working")
            terminal.type(CTRL_D)
            assert await terminal.process.wait() == 0
        async with open_terminal(home, "--session", "tale") as terminal:
            await terminal.shows("taking up what was interrupted")
            await terminal.shows("The end.")
            assert "> a tale\nThe end." in terminal.text
        assert "The end." in (await home.run("sessions", "show", "tale")).out


async def test_commands_are_listed_and_a_wrong_one_is_not_sent_to_the_model(home):
    async with open_terminal(home, "-m", "scripted") as terminal:
        terminal.type("/help\r/hlep\r")
        await terminal.shows("begin a new conversation")
        await terminal.shows("Did you mean /help?")
        terminal.type("/etc/hosts is what?\r")
        await terminal.shows("You said: /etc/hosts is what?")


async def test_new_begins_a_conversation_of_its_own(home):
    async with ModelServer([Say("Answered."), Say("Anew.")]) as server:
        home.use(server)
        async with open_terminal(home) as terminal:
            terminal.type("first\r")
            await terminal.shows("Answered.\n\n>")
            terminal.type("/new\r")
            await terminal.shows("a new conversation")
            terminal.type("second\r")
            await terminal.shows("Anew.")
    assert [m["content"] for m in server.bodies[1]["messages"] if m["role"] == "user"] == ["second"]


async def test_a_long_answer_is_broken_at_blanks_and_nothing_of_it_is_lost(home):
    words = [f"word{n}" for n in range(300)]
    async with ModelServer([Say(" ".join(words), pieces=100)]) as server:
        home.use(server)
        async with open_terminal(home, size=(60, 12)) as terminal:
            terminal.type("talk\r")
            await terminal.shows("word299\n\n>")
            assert [word for word in terminal.text.split() if word.startswith("word")] == words


async def test_a_failed_turn_is_a_line_and_the_conversation_goes_on(home):
    async with ModelServer([Fail(401, "bad key"), Say("Better.")]) as server:
        home.use(server)
        async with open_terminal(home) as terminal:
            terminal.type("hello\r")
            await terminal.shows("alipes: failed: ")
            assert "Traceback" not in terminal.text
            terminal.type("again\r")
            await terminal.shows("Better.")


async def test_a_wrong_model_ends_with_a_sentence_and_a_usable_terminal(home):
    async with open_terminal(home, "-m", "nonsense") as terminal:
        await terminal.shows("No model or provider is called 'nonsense'")
        assert await terminal.process.wait() == 2
        assert "Traceback" not in terminal.text


async def test_missing_programs_are_told_once_per_home(home, tmp_path):
    (tmp_path / "bin").mkdir()
    async with open_terminal(home, "-m", "scripted", PATH=str(tmp_path / "bin")) as terminal:
        await terminal.shows("Not installed: ripgrep")
        terminal.type("/quit\r")
        await terminal.process.wait()
    async with open_terminal(home, "-m", "scripted", PATH=str(tmp_path / "bin")) as terminal:
        terminal.type("hello\r")
        await terminal.shows("You said: hello")
        assert "Not installed" not in terminal.text


async def test_a_terminal_that_goes_away_keeps_the_turn_for_the_next_start(home):
    async with ModelServer([Stall("Once"), Say("The end."), Say("Other.")]) as server:
        home.use(server)
        async with open_terminal(home, "--session", "tale") as terminal:
            terminal.type("a tale\r")
            await terminal.shows("Once")
            terminal.process.send_signal(signal.SIGHUP)
            assert await terminal.process.wait() == 130
        server.script = lambda body: Say(
            "The end." if body["messages"][-1]["content"] == "a tale" else "Other."
        )
        await home.run("ask", "other")
        assert "The end." in (await home.run("sessions", "show", "tale")).out


async def test_nothing_is_written_while_nothing_happens(home):
    async with open_terminal(home, "-m", "scripted") as terminal:
        terminal.type("hello\r")
        await terminal.shows("You said: hello\n\n>")
        await asyncio.sleep(0.5)
        before = terminal.written
        await asyncio.sleep(2)
        assert terminal.written == before


async def test_over_a_pipe_each_line_is_answered(home):
    done = await home.run("-m", "scripted", stdin="hello\n\nzwölf".encode())
    assert (done.status, done.out) == (0, "You said: hello\nYou said: zwölf\n")


async def test_over_a_pipe_a_line_is_answered_before_the_next_comes(home):
    async with home.started("-m", "scripted", stdin=asyncio.subprocess.PIPE) as process:
        process.stdin.write(b"one\n")
        await until_said(process.stdout, "You said: one\n")
        process.stdin.write(b"two\n")
        await until_said(process.stdout, "You said: two\n")
        process.send_signal(signal.SIGINT)
        assert (await finished(process)).status == 130


async def test_from_a_file_each_line_is_answered(home, tmp_path):
    (tmp_path / "lines").write_text("one\ntwo\n")
    with (tmp_path / "lines").open("rb") as lines:
        async with home.started("-m", "scripted", stdin=lines.fileno()) as process:
            assert (await finished(process)).out == "You said: one\nYou said: two\n"


async def test_over_a_pipe_a_signal_stops_the_running_turn(home):
    async with home.started("-m", "scripted", stdin=asyncio.subprocess.PIPE) as process:
        process.stdin.write(b"!wait 100\nnever asked\n")
        while b"turn" not in (await _sessions(home)):
            await asyncio.sleep(0.05)
        process.send_signal(signal.SIGTERM)
        done = await finished(process)
    assert done.status == 130 and "never" not in done.out


async def _sessions(home: Home) -> bytes:
    done = await home.run("sessions", "--json")
    return b"turn" if '"turns":1' in done.out else b""
