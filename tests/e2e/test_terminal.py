"""The conversation at a terminal: the real program in a real pty, a model by script."""

import asyncio
import signal

import pytest

from tests.e2e.program import Home, until_said
from tests.world.glass import CTRL_C, CTRL_D, ENTER, ESCAPE, Glass
from tests.world.model_server import Cut, Fail, ModelServer, Say, Stall, Tokens

pytestmark = pytest.mark.deadline(60)


@pytest.fixture
def home(tmp_path):
    return Home(tmp_path / "home")


async def test_a_message_is_answered_and_the_prompt_is_there_again(home):
    async with ModelServer([Say("Good **morning**."), Say("Good night.")]) as server:
        home.use(server)
        async with Glass.of(home) as glass:
            await glass.until("test/scripted answers")
            glass.type("hello" + ENTER)
            await glass.until("Good morning.")
            glass.type("bye" + ENTER)
            await glass.until("› hello\n\nGood morning.\n\n› bye\n\nGood night.\n\n›")
            glass.type(CTRL_D)
            assert await glass.ended() == 0
    contents = [m["content"] for m in server.bodies[1]["messages"] if m["role"] != "system"]
    assert contents == ["hello", "Good **morning**.", "bye"]


async def test_the_first_screen_tells_which_model_answers_and_that_it_is_a_toy(home):
    async with Glass.of(home) as glass:
        await glass.until("toy")
        told = " ".join(glass.text.split())
        assert "embedded" in told and "No model is configured" in told
        assert "ANTHROPIC_API_KEY" in told and "alipes setup" in told


async def test_what_is_typed_before_everything_is_ready_is_answered(home):
    async with Glass.of(home, "-m", "scripted") as glass:
        await glass.until("›")
        glass.type("early" + ENTER)
        await glass.until("You said: early")
        assert glass.text.count("› early") == 1


async def test_ctrl_c_stops_the_turn_and_keeps_what_is_being_typed(home):
    async with ModelServer([Stall("Once upon a time"), Say("And now this.")]) as server:
        home.use(server)
        async with Glass.of(home) as glass:
            glass.type("a tale" + ENTER)
            await glass.until("Once upon a time")
            glass.type("something else")
            await glass.until("› something else")
            glass.type(CTRL_C)
            await glass.until("· stopped")
            await server.closed_early()
            await glass.until("› something else")
            glass.type(ENTER)
            await glass.until("And now this.")
    assert server.bodies[1]["messages"][-1]["content"] == "something else"


async def test_a_real_sigint_does_the_same(home):
    async with ModelServer([Stall("Once")]) as server:
        home.use(server)
        async with Glass.of(home) as glass:
            glass.type("a tale" + ENTER)
            await glass.until("Once")
            glass.signal(signal.SIGINT)
            await glass.until("· stopped")
            assert glass.status is None


async def test_ctrl_c_twice_stops_and_leaves_and_the_turn_is_not_taken_up_again(home):
    async with ModelServer([Stall("Once"), Say("Other.")]) as server:
        home.use(server)
        async with Glass.of(home, "--session", "tale") as glass:
            glass.type("a tale" + ENTER)
            await glass.until("Once")
            glass.type(CTRL_C)
            await glass.until("Ctrl-C again leaves")
            glass.type(CTRL_C)
            assert await glass.ended() == 0
            assert not glass.is_raw()
        async with Glass.of(home, "--session", "tale") as glass:
            glass.type("other" + ENTER)
            await glass.until("Other.")
    assert len(server.requests) == 2


async def test_ctrl_c_without_a_turn_clears_the_input_and_then_says_how_to_leave(home):
    async with Glass.of(home, "-m", "scripted") as glass:
        await glass.until("scripted/echo answers")
        glass.type("oops")
        await glass.until("› oops")
        glass.type(CTRL_C)
        await glass.until(lambda: "oops" not in glass.text)
        glass.type(CTRL_C)
        await glass.until("Ctrl-C again leaves")
        await glass.until(lambda: "again leaves" not in glass.text)  # the offer does not stand for ever
        glass.type(CTRL_C)
        await glass.until("Ctrl-C again leaves")
        glass.type(CTRL_C)
        assert await glass.ended() == 0


async def test_ctrl_d_deletes_while_there_is_text_and_leaves_at_the_end_of_it(home):
    async with Glass.of(home, "-m", "scripted") as glass:
        glass.type("ab\x1b[D\x1b[D")
        await glass.until("› ab")
        glass.type(CTRL_D)
        await glass.until(lambda: "› b" in glass.rows)
        glass.type(CTRL_D + CTRL_D)
        assert await glass.ended() == 0


async def test_leaving_in_the_middle_of_a_turn_keeps_it_for_the_next_start(home):
    async with ModelServer([Stall("Once"), Say("The end.")]) as server:
        home.use(server)
        async with Glass.of(home) as glass:
            glass.type("a tale" + ENTER)
            await glass.until("Once")
            glass.type(CTRL_D)
            assert await glass.ended() == 0
            assert glass.text.rstrip().endswith("· what was being done is taken up at the next start")
        async with Glass.of(home) as glass:
            await glass.until("this was interrupted, and is taken up again")
            await glass.until("The end.\n\n›")
            assert glass.text.count("› a tale") == 1


async def test_after_kill_9_the_next_start_shows_the_turn_and_finishes_it(home):
    async with ModelServer([Stall("Half of it"), Say("All of it.")]) as server:
        home.use(server)
        async with Glass.of(home) as glass:
            glass.type("say it" + ENTER)
            await glass.until("Half of it")
            glass.signal(signal.SIGKILL)
            assert await glass.ended() == -signal.SIGKILL
        async with Glass.of(home) as glass:
            await glass.until("› say it\n\n· this was interrupted, and is taken up again\n\nAll of it.\n\n›")
            glass.type("/status" + ENTER)
            await glass.until("nothing is running")
    assert len(server.requests) == 2


async def test_an_older_conversation_is_shown_when_it_goes_on(home):
    async with ModelServer([Say("It is Ada."), Say("Still Ada.")]) as server:
        home.use(server)
        await home.run("ask", "--session", "names", "who am I?")
        async with Glass.of(home, "--session", "names") as glass:
            await glass.until("› who am I?\n\nIt is Ada.\n\n›")
            glass.type("and now?" + ENTER)
            await glass.until("Still Ada.")
    assert len(server.bodies[1]["messages"]) == 4


async def test_a_failed_turn_is_a_line_and_the_conversation_goes_on(home):
    async with ModelServer([Fail(401, "bad key"), Say("Better.")]) as server:
        home.use(server)
        async with Glass.of(home) as glass:
            glass.type("hello" + ENTER)
            await glass.until("· failed: ")
            assert "Traceback" not in glass.text
            glass.type("again" + ENTER)
            await glass.until("Better.")


async def test_a_broken_answer_disappears_where_it_can_and_is_marked_where_it_cannot(home):
    long = "A whole paragraph.\n\nAnd half of"
    async with ModelServer([Cut("Half an ans"), Cut(long), Say("The whole answer.")]) as server:
        home.use(server)
        async with Glass.of(home) as glass:
            glass.type("hi" + ENTER)
            await glass.until("The whole answer.\n\n›")
            told = " ".join(glass.text.split())
    assert "Half an ans" not in told and "And half of" not in told
    assert "A whole paragraph. · what stands above broke off and is void" in told


async def test_the_status_line_tells_what_it_waits_for(home):
    async with ModelServer([Fail(429, "slow down", retry_after=2), Say("Now.", wait=0.3)]) as server:
        home.use(server)
        async with Glass.of(home) as glass:
            glass.type("hi" + ENTER)
            await glass.until("retrying in 2 s · ")
            await glass.until("Now.")


async def test_tokens_and_cost_are_told(home):
    async with ModelServer([Say("Yes.", usage=Tokens(6000, 400))]) as server:
        home.use(server)
        facts = '[models."test/scripted"]\nwindow = 64000\nprice_input = 10.0\nprice_output = 100.0\n'
        file = home.path / "config.toml"
        file.write_text(file.read_text() + facts)
        async with Glass.of(home) as glass:
            glass.type("hi" + ENTER)
            await glass.until("Yes.")
            await glass.until("test/scripted · 10 % of 64k · $0.1000")


async def test_thinking_is_shown_short_or_not_at_all(home):
    thought = "First I look at it from the left. " * 8
    async with ModelServer([Say("So be it.", thinking=thought)] * 2) as server:
        home.use(server)
        async with Glass.of(home) as glass:
            glass.type("hi" + ENTER)
            await glass.until("So be it.")
            assert sum("First I look" in row for row in glass.rows) == 1 and "∴ First I look" in glass.text
        async with Glass.of(home, ALIPES_TERMINAL_THINKING="false") as glass:
            glass.type("hi" + ENTER)
            await glass.until("So be it.")
            assert "First I look" not in glass.text


async def test_a_wrong_model_ends_with_a_sentence_and_a_usable_terminal(home):
    async with Glass.of(home, "-m", "nonsense") as glass:
        assert await glass.ended() == 2
        assert "No model or provider is called 'nonsense'" in glass.text
        assert "Traceback" not in glass.text and not glass.is_raw()


async def test_missing_programs_are_told_once_per_home(home, tmp_path):
    (tmp_path / "bin").mkdir()
    async with Glass.of(home, "-m", "scripted", PATH=str(tmp_path / "bin")) as glass:
        await glass.until("Not installed: ripgrep")
        glass.type("/quit" + ENTER)
        await glass.ended()
    async with Glass.of(home, "-m", "scripted", PATH=str(tmp_path / "bin")) as glass:
        glass.type("hello" + ENTER)
        await glass.until("You said: hello")
        assert "Not installed" not in glass.text


async def test_nothing_is_written_while_nothing_happens(home):
    async with Glass.of(home, "-m", "scripted") as glass:
        glass.type("hello" + ENTER)
        await glass.until("You said: hello\n\n›")
        await asyncio.sleep(0.5)
        before = glass.written
        await asyncio.sleep(3)
        assert glass.written == before


async def test_a_dumb_terminal_gets_plain_lines(home):
    async with Glass.of(home, "-m", "scripted", TERM="dumb") as glass:
        glass.type("hello\n")
        await glass.until("You said: hello")
        assert b"\x1b" not in glass.raw


async def test_escape_puts_the_input_away_and_the_up_key_brings_it_back(home):
    async with Glass.of(home, "-m", "scripted") as glass:
        await glass.until("answers")
        glass.type("a thought")
        await glass.until("› a thought")
        glass.type(ESCAPE)
        await glass.until(lambda: "a thought" not in glass.text)
        glass.type("\x1b[A")
        await glass.until("› a thought")


async def test_ctrl_c_reaches_a_message_that_has_not_even_begun(home):
    async with ModelServer([Stall("Never wanted")]) as server:
        home.use(server)
        async with Glass.of(home) as glass:
            await glass.until("›")
            glass.type("oops" + ENTER + CTRL_C)
            await glass.until("· stopped")
            await glass.until(lambda: "stopping" not in glass.text)


async def test_what_was_interrupted_elsewhere_is_named(home):
    async with ModelServer([Stall("Once"), Say("The end.")]) as server:
        home.use(server)
        async with home.started("ask", "--session", "elsewhere", "a tale") as process:
            await until_said(process.stdout, "Once")
            process.kill()
        async with Glass.of(home, "--session", "here") as glass:
            await glass.until("taking up what was interrupted elsewhere: agent:main:terminal:")
