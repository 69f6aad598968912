"""Conversations in the terminal: the real program in a real pty, a scripted model."""

import asyncio
import signal

import pytest

from tests.e2e.program import Home, read_until
from tests.world.model_server import Cut, Fail, ModelServer, Say, Stall, Tokens
from tests.world.terminal_process import CTRL_C, CTRL_D, ENTER, ESCAPE, TerminalProcess

pytestmark = pytest.mark.deadline(60)


@pytest.fixture
def home(tmp_path):
    return Home(tmp_path / "home")


async def test_a_message_is_answered_and_the_prompt_returns(home):
    async with ModelServer([Say("Good **morning**."), Say("Good night.")]) as server:
        home.use(server)
        async with TerminalProcess.of(home) as terminal:
            await terminal.until("Model: test/scripted")
            terminal.type("hello" + ENTER)
            await terminal.until("Good morning.")
            terminal.type("bye" + ENTER)
            await terminal.until("› hello\n\nGood morning.\n\n› bye\n\nGood night.\n\n›")
            terminal.type(CTRL_D)
            assert await terminal.ended() == 0
    contents = [m["content"] for m in server.bodies[1]["messages"] if m["role"] != "system"]
    assert contents == ["hello", "Good **morning**.", "bye"]


async def test_the_first_screen_names_the_demo_model_and_the_way_to_a_real_one(home):
    async with TerminalProcess.of(home) as terminal:
        await terminal.until("demo model")
        await terminal.until("  embedded/")
        text = " ".join(terminal.text.split())
        assert "No API key found" in text and "Run /setup to" in text


async def test_a_message_typed_during_startup_is_answered(home):
    async with TerminalProcess.of(home, "-m", "scripted") as terminal:
        await terminal.until("›")
        terminal.type("early" + ENTER)
        await terminal.until("You said: early")
        assert terminal.text.count("› early") == 1


async def test_ctrl_c_stops_the_turn_and_keeps_the_input(home):
    async with ModelServer([Stall("Once upon a time"), Say("And now this.")]) as server:
        home.use(server)
        async with TerminalProcess.of(home) as terminal:
            terminal.type("a tale" + ENTER)
            await terminal.until("Once upon a time")
            terminal.type("something else")
            await terminal.until("› something else")
            terminal.type(CTRL_C)
            await terminal.until("· stopped")
            await server.closed_early()
            await terminal.until("› something else")
            terminal.type(ENTER)
            await terminal.until("And now this.")
    assert server.bodies[1]["messages"][-1]["content"] == "something else"


async def test_sigint_stops_the_turn_too(home):
    async with ModelServer([Stall("Once")]) as server:
        home.use(server)
        async with TerminalProcess.of(home) as terminal:
            terminal.type("a tale" + ENTER)
            await terminal.until("Once")
            terminal.signal(signal.SIGINT)
            await terminal.until("· stopped")
            assert terminal.status is None


async def test_ctrl_c_twice_quits_and_the_turn_is_not_resumed(home):
    async with ModelServer([Stall("Once"), Say("Other.")]) as server:
        home.use(server)
        async with TerminalProcess.of(home, "--session", "tale") as terminal:
            terminal.type("a tale" + ENTER)
            await terminal.until("Once")
            terminal.type(CTRL_C)
            await terminal.until("Press Ctrl-C again to quit")
            terminal.type(CTRL_C)
            assert await terminal.ended() == 0
            assert not terminal.is_raw()
        async with TerminalProcess.of(home, "--session", "tale") as terminal:
            terminal.type("other" + ENTER)
            await terminal.until("Other.")
    assert len(server.requests) == 2


async def test_text_typed_between_two_ctrl_c_is_neither_lost_nor_does_it_quit(home):
    async with TerminalProcess.of(home, "-m", "scripted") as terminal:
        await terminal.until("Using scripted/echo")
        terminal.type(CTRL_C)
        await terminal.until("Press Ctrl-C again to quit")
        terminal.type("precious text")
        await terminal.until("› precious text")
        assert "again to quit" not in terminal.text
        terminal.type(CTRL_C)
        await terminal.until(lambda: "precious" not in terminal.text)
        terminal.type("\x1b[A")
        await terminal.until("› precious text")
        assert terminal.status is None


async def test_ctrl_c_without_a_turn_clears_the_input_and_then_offers_to_quit(home):
    async with TerminalProcess.of(home, "-m", "scripted") as terminal:
        await terminal.until("Using scripted/echo")
        terminal.type("oops")
        await terminal.until("› oops")
        terminal.type(CTRL_C)
        await terminal.until(lambda: "oops" not in terminal.text)
        terminal.type(CTRL_C)
        await terminal.until("Press Ctrl-C again to quit")
        await terminal.until(lambda: "again to quit" not in terminal.text)  # the offer expires
        terminal.type(CTRL_C)
        await terminal.until("Press Ctrl-C again to quit")
        terminal.type(CTRL_C)
        assert await terminal.ended() == 0


async def test_a_key_ends_the_offer_to_quit_and_typed_text_stays_in_the_history(home):
    async with TerminalProcess.of(home, "-m", "scripted") as terminal:
        await terminal.until("Using scripted/echo")
        terminal.type(CTRL_C)
        await terminal.until("Press Ctrl-C again to quit")
        terminal.type("precious text")
        await terminal.until(lambda: "› precious text" in terminal.rows and "again to quit" not in terminal.text)
        terminal.type(CTRL_C)
        await terminal.until(lambda: "› precious text" not in terminal.rows)
        terminal.type("\x1b[A")
        await terminal.until(lambda: "› precious text" in terminal.rows)


async def test_ctrl_d_deletes_text_and_quits_on_empty_input(home):
    async with TerminalProcess.of(home, "-m", "scripted") as terminal:
        terminal.type("ab\x1b[D\x1b[D")
        await terminal.until("› ab")
        terminal.type(CTRL_D)
        await terminal.until(lambda: "› b" in terminal.rows)
        terminal.type(CTRL_D + CTRL_D)
        assert await terminal.ended() == 0


async def test_quitting_during_a_turn_resumes_it_at_the_next_start(home):
    async with ModelServer([Stall("Once"), Say("The end.")]) as server:
        home.use(server)
        async with TerminalProcess.of(home) as terminal:
            terminal.type("a tale" + ENTER)
            await terminal.until("Once")
            terminal.type(CTRL_D)
            assert await terminal.ended() == 0
            assert terminal.text.rstrip().endswith(
                "The running turn resumes at the next start. Continue with: alipes -c"
            )
        async with TerminalProcess.of(home) as terminal:
            await terminal.until("Resuming the interrupted turn")
            await terminal.until("The end.\n\n›")
            assert terminal.text.count("› a tale") == 1


async def test_after_kill_9_the_next_start_resumes_the_turn(home):
    async with ModelServer([Stall("Half of it"), Say("All of it.")]) as server:
        home.use(server)
        async with TerminalProcess.of(home) as terminal:
            terminal.type("say it" + ENTER)
            await terminal.until("Half of it")
            terminal.signal(signal.SIGKILL)
            assert await terminal.ended() == -signal.SIGKILL
        async with TerminalProcess.of(home) as terminal:
            await terminal.until("› say it\n\n· Resuming the interrupted turn\n\nAll of it.\n\n›")
            await terminal.until(lambda: "esc to stop" not in terminal.text)
            terminal.type("/status" + ENTER)
            await terminal.until("nothing is running")
    assert len(server.requests) == 2


async def test_a_resumed_conversation_is_shown(home):
    async with ModelServer([Say("It is Ada."), Say("Still Ada.")]) as server:
        home.use(server)
        await home.run("ask", "--session", "names", "who am I?")
        async with TerminalProcess.of(home, "--session", "names") as terminal:
            await terminal.until("› who am I?\n\nIt is Ada.\n\n›")
            terminal.type("and now?" + ENTER)
            await terminal.until("Still Ada.")
    assert len(server.bodies[1]["messages"]) == 4


async def test_a_failed_turn_is_one_line_and_the_conversation_continues(home):
    async with ModelServer([Fail(401, "bad key"), Say("Better.")]) as server:
        home.use(server)
        async with TerminalProcess.of(home) as terminal:
            terminal.type("hello" + ENTER)
            await terminal.until("· failed: ")
            assert "Traceback" not in terminal.text
            terminal.type("again" + ENTER)
            await terminal.until("Better.")


async def test_a_cut_off_answer_is_removed_or_marked(home):
    long = "A whole paragraph.\n\nAnd half of"
    async with ModelServer([Cut("Half an ans"), Cut(long), Say("The whole answer.")]) as server:
        home.use(server)
        async with TerminalProcess.of(home) as terminal:
            terminal.type("hi" + ENTER)
            await terminal.until("The whole answer.\n\n›")
            text = " ".join(terminal.text.split())
    assert "Half an ans" not in text and "And half of" not in text
    assert "A whole paragraph. · Ignore the partial answer above: Connection lost." in text


async def test_the_status_line_shows_what_it_waits_for(home):
    async with ModelServer([Fail(429, "slow down", retry_after=2), Say("Now.", wait=0.3)]) as server:
        home.use(server)
        async with TerminalProcess.of(home) as terminal:
            terminal.type("hi" + ENTER)
            await terminal.until("retrying in 2 s · ")
            await terminal.until("Now.")


async def test_tokens_and_cost_are_shown(home):
    async with ModelServer([Say("Yes.", usage=Tokens(6000, 400))]) as server:
        home.use(server)
        facts = '[models."test/scripted"]\nwindow = 64000\nprice_input = 10.0\nprice_output = 100.0\n'
        file = home.path / "config.toml"
        file.write_text(file.read_text() + facts)
        async with TerminalProcess.of(home) as terminal:
            terminal.type("hi" + ENTER)
            await terminal.until("Yes.")
            await terminal.until("test/scripted · ▰▱▱▱▱▱ 10 % of 64k · $0.1000")


async def test_thinking_is_shortened_or_hidden(home):
    thought = "First I look at it from the left. " * 8
    async with ModelServer([Say("So be it.", thinking=thought)] * 2) as server:
        home.use(server)
        async with TerminalProcess.of(home) as terminal:
            terminal.type("hi" + ENTER)
            await terminal.until("So be it.")
            assert sum("First I look" in row for row in terminal.rows) == 1 and "∴ First I look" in terminal.text
        async with TerminalProcess.of(home, ALIPES_TERMINAL_THINKING="false") as terminal:
            terminal.type("hi" + ENTER)
            await terminal.until("So be it.")
            assert "First I look" not in terminal.text


async def test_an_unknown_model_is_reported_and_the_terminal_restored(home):
    async with TerminalProcess.of(home, "-m", "nonsense") as terminal:
        assert await terminal.ended() == 2
        assert "Unknown model or provider 'nonsense'" in terminal.text
        assert "Traceback" not in terminal.text and not terminal.is_raw()


async def test_missing_programs_are_mentioned_once_per_home(home):
    async with TerminalProcess.of(home, "-m", "scripted", programs=()) as terminal:
        await terminal.until("Optional: install ripgrep")
        terminal.type("/quit" + ENTER)
        await terminal.ended()
    async with TerminalProcess.of(home, "-m", "scripted", programs=()) as terminal:
        terminal.type("hello" + ENTER)
        await terminal.until("You said: hello")
        assert "Optional: install" not in terminal.text


async def test_the_first_screen_names_bubblewrap_once(home):
    sandbox = {"ALIPES_SANDBOX_BACKEND": "auto"}
    async with TerminalProcess.of(home, "-m", "scripted", programs=(), size=(200, 24), **sandbox) as terminal:
        await terminal.until("Optional: install ripgrep")
        assert terminal.text.count("install bubblewrap (apt install bubblewrap)") == 1


async def test_an_idle_terminal_writes_nothing(home):
    async with TerminalProcess.of(home, "-m", "scripted") as terminal:
        terminal.type("hello" + ENTER)
        await terminal.until("You said: hello\n\n›")
        await asyncio.sleep(0.5)
        before = terminal.written
        await asyncio.sleep(3)
        assert terminal.written == before


async def test_a_dumb_terminal_gets_plain_lines(home):
    async with TerminalProcess.of(home, "-m", "scripted", TERM="dumb") as terminal:
        terminal.type("hello\n")
        await terminal.until("You said: hello")
        assert b"\x1b" not in terminal.raw


async def test_escape_clears_the_input_and_up_restores_it(home):
    async with TerminalProcess.of(home, "-m", "scripted") as terminal:
        await terminal.until("(from ")
        terminal.type("a thought")
        await terminal.until("› a thought")
        terminal.type(ESCAPE)
        await terminal.until(lambda: "a thought" not in terminal.text)
        terminal.type("\x1b[A")
        await terminal.until("› a thought")


async def test_ctrl_c_cancels_a_message_before_its_turn_starts(home):
    async with ModelServer([Stall("Never wanted")]) as server:
        home.use(server)
        async with TerminalProcess.of(home) as terminal:
            await terminal.until("›")
            terminal.type("oops" + ENTER + CTRL_C)
            await terminal.until("· stopped")
            await terminal.until(lambda: "stopping" not in terminal.text)


async def test_interrupted_conversations_are_listed_at_start(home):
    async with ModelServer([Stall("Once"), Say("The end.")]) as server:
        home.use(server)
        async with home.started("ask", "--session", "elsewhere", "a tale") as process:
            await read_until(process.stdout, "Once")
            process.kill()
        async with TerminalProcess.of(home, "--session", "here") as terminal:
            await terminal.until("resuming interrupted conversations: agent:main:terminal:")
