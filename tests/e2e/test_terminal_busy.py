"""While a turn runs: messages in all three modes, every command, tools with their progress, questions."""

import asyncio
import re
from pathlib import Path

import pytest

from alipes.sessions.commands import COMMANDS
from tests.e2e.program import Home
from tests.world.glass import CTRL_C, ENTER, ESCAPE, Glass
from tests.world.model_server import Call, Calls, ModelServer, Plan, Say, Stall

pytestmark = pytest.mark.deadline(90)
PAUSE = 0.7
"""Longer than the quiet that a question wants before a key answers it."""
DANGEROUS = "git push --force; touch done"


@pytest.fixture
def home(tmp_path):
    return Home(tmp_path / "home")


def asked(server: ModelServer) -> list[str]:
    """What the model was asked last, request by request."""
    return [body["messages"][-1]["content"] for body in server.bodies]


def run(command: str, text: str = "") -> Calls:
    return Calls((Call("terminal", {"command": command}),), text)


async def test_in_interrupt_mode_a_message_ends_the_turn_and_is_next(home):
    async with ModelServer([Stall("A long story"), Say("Better.")]) as server:
        home.use(server)
        async with Glass.of(home) as glass:
            glass.type("tell" + ENTER)
            await glass.until("A long story")
            glass.type("something better" + ENTER)
            await glass.until(
                "A long story\n\n· stopped for what comes next\n\n› something better\n\nBetter.\n\n›"
            )
            await server.closed_early()
    assert asked(server) == ["tell", "something better"]


async def test_in_queue_mode_messages_wait_and_are_answered_in_order(home):
    async with ModelServer([Say("one", wait=1.5), Say("two"), Say("three")]) as server:
        home.use(server)
        async with Glass.of(home, ALIPES_TERMINAL_BUSY="queue") as glass:
            glass.type("first" + ENTER)
            await server.asked()
            glass.type("second" + ENTER + "third" + ENTER)
            await glass.until("· waits: second\n· waits: third\n›")
            await glass.until("2 waiting")
            await glass.until("› first\n\none\n\n› second\n\ntwo\n\n› third\n\nthree\n\n›")
            assert "waits" not in glass.text and "waiting" not in glass.text
    assert asked(server) == ["first", "second", "third"]


async def test_in_steer_mode_the_living_turn_takes_the_message_in(home, tmp_path):
    script = [run(f"until test -e {tmp_path}/go; do sleep 0.05; done"), Say("Both done."), Say("no")]
    async with ModelServer(script) as server:
        home.use(server)
        async with Glass.of(home) as glass:
            glass.type("/busy steer" + ENTER)
            await glass.until("steer: ")
            glass.type("do this" + ENTER)
            await glass.until("running terminal")
            glass.type("and that" + ENTER)
            await glass.until("· waits: and that")
            (tmp_path / "go").touch()
            await glass.until("› and that\n\nBoth done.\n\n›")
            await glass.until(lambda: "waits" not in glass.text)
    assert len(server.requests) == 2 and server.bodies[1]["messages"][-1]["content"] == "and that"


async def test_every_command_works_while_a_turn_runs(home, tmp_path):
    answers = Plan((Say("fine"),), {"stall": (Stall("I am thinking about it"),)})
    done = {
        "help": "show the commands",
        "status": "busy mode",
        "model": "test/scripted answers",
        "usage": "this conversation",
        "sessions": "goes on with one",
        "title": "This conversation",
        "search": "What for?",
        "queue": "What shall be said?",
        "steer": "What shall be said?",
        "busy": "interrupt: ",
        "compress": "It will be summed up",
        "agents": "Nobody is at work",
        "background": "What shall be done?",
        "moa": "No models are set up",
        "copy": "copied 4 characters",
        "export": "Written to",
        "plugins": "There is no plugin.",
        "resume": "Which one?",
        "undo": "Undone: “stall",
        "branch": "A branch",
        "retry": "Asking again",
        "stop": "Stopping.",
        "new": "A new conversation.",
        "quit": "",
    }
    assert set(done) == {command.name for command in COMMANDS}
    async with ModelServer(answers) as server:
        home.use(server)
        async with Glass.of(home, size=(100, 40)) as glass:
            glass.type("hello" + ENTER)
            await glass.until("fine")
            for number, (name, words) in enumerate(done.items()):
                if "answering" not in glass.rows[-1] and not any("answering" in row for row in glass.rows):
                    glass.type(f"stall {number}" + ENTER)
                    await glass.until(lambda: any("answering" in row for row in glass.rows))
                before = glass.text.count(words) if words else 0
                glass.type(f"/{name}" + ENTER)
                if name == "quit":
                    assert await glass.ended() == 0
                else:
                    await glass.until(lambda words=words, before=before: glass.text.count(words) > before)
                    await asyncio.sleep(0.2)
                    assert "Traceback" not in glass.text
    assert b"\x1b]52;c;ZmluZQ==\x07" in glass.raw  # the answer that was copied
    assert len(list(tmp_path.glob("*.md"))) == 1


async def test_what_begins_with_a_slash_and_is_no_command_is_a_message(home):
    async with Glass.of(home, "-m", "scripted") as glass:
        glass.type("/etc/hosts is what?" + ENTER)
        await glass.until("You said: /etc/hosts is what?")


async def test_a_tool_shows_its_progress_and_then_its_outcome(home, tmp_path):
    command = f"echo begun; until test -e {tmp_path}/go; do sleep 0.05; done; echo over"
    async with ModelServer([run(command, "I run it."), Say("It ran.")]) as server:
        home.use(server)
        async with Glass.of(home, size=(160, 30)) as glass:
            glass.type("run" + ENTER)
            await glass.until(f"I run it.\n\n• terminal {command}")
            await glass.until("  │ begun\n\n›")
            (tmp_path / "go").touch()
            await glass.until("It ran.\n\n›")
            assert re.search(r"✓ terminal echo begun;.* s\n  │ begun\n  │ over\n\nIt ran\.", glass.text)
            assert "•" not in glass.text


async def test_what_a_tool_changed_is_shown_as_a_diff(home, tmp_path):
    (tmp_path / "song.txt").write_text("one\ntwo\nthree\n")
    change = {"path": "song.txt", "old_string": "two", "new_string": "TWO\ntwo and a half"}
    async with ModelServer(
        [Calls((Call("patch", {"mode": "replace", **change}),)), Say("Changed.")]
    ) as server:
        home.use(server)
        async with Glass.of(home) as glass:
            glass.type("change" + ENTER)
            await glass.until("Changed.")
            rows = "  1   one\n  2 - two\n  2 + TWO\n  3 + two and a half\n  4   three"
            assert "✓ patch song.txt  +2 -1" in glass.text and rows in glass.text
            row = next(y for y, text in enumerate(glass.rows) if "+ TWO" in text)
            assert glass.screen.buffer[row][5].fg == "brightgreen"
    assert "TWO" in (tmp_path / "song.txt").read_text()


async def test_a_failing_command_is_visible(home):
    async with ModelServer([run("echo oh no >&2; exit 3"), Say("It failed.")]) as server:
        home.use(server)
        async with Glass.of(home) as glass:
            glass.type("run" + ENTER)
            await glass.until("✗ terminal echo oh no >&2; exit 3  exit code 3")
            await glass.until("  │ oh no")


async def test_ctrl_c_ends_a_command_and_its_grandchildren(home, tmp_path):
    grandchild = f"setsid sh -c 'trap \"\" TERM; echo $$ > {tmp_path}/pid; sleep 1000'"
    async with ModelServer([run(f"{grandchild} & sleep 1000")]) as server:
        home.use(server)
        async with Glass.of(home) as glass:
            glass.type("run" + ENTER)
            await glass.until(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text())
            pid = int((tmp_path / "pid").read_text())
            glass.type(CTRL_C)
            await glass.until("· stopped")
            await glass.until(lambda: not Path(f"/proc/{pid}").exists())


@pytest.mark.parametrize(
    ("key", "told", "done"),
    [("o", "allowed this once", True), ("n", "not allowed", False), (ESCAPE, "not allowed", False)],
    ids=["once", "no", "escape"],
)
async def test_a_dangerous_command_is_asked_about(home, tmp_path, key, told, done):
    async with ModelServer([run(DANGEROUS), Say("So it is.")]) as server:
        home.use(server)
        async with Glass.of(home) as glass:
            glass.type("tidy up" + ENTER)
            await glass.until("? terminal wants to do this:\n    git push --force; touch done\n")
            await glass.until("waiting for your word")
            assert "o once  s in this conversation  a always exactly this  n no" in glass.text
            await asyncio.sleep(PAUSE)
            glass.type(key)
            await glass.until(told)
            await glass.until("So it is.")
            assert "wants to do this" not in glass.text
    assert (tmp_path / "done").exists() is done


async def test_typing_on_never_answers_a_question_by_accident(home, tmp_path):
    async with ModelServer([run(DANGEROUS), Say("So it is.")]) as server:
        home.use(server)
        async with Glass.of(home) as glass:
            glass.type("tidy up" + ENTER)
            await server.asked()
            for letter in "yes, also, and so on, always":
                glass.type(letter)
                await asyncio.sleep(0.03)
            await glass.until("› yes, also, and so on, always")
            await glass.until("Esc puts away what you are typing; then")
            await asyncio.sleep(PAUSE)
            glass.type("o")  # the input is not empty: this is typing, too
            await glass.until("› yes, also, and so on, alwayso")
            glass.type(ESCAPE)
            await glass.until("  o once")
            await asyncio.sleep(PAUSE)
            glass.type("n")
            await glass.until("not allowed")
    assert not (tmp_path / "done").exists()


async def test_always_holds_for_this_very_command_and_the_next_start(home, tmp_path):
    script = Plan((run(DANGEROUS), Say("Gone.")), {"other": (run("git push --force"), Say("Hm."))})
    async with ModelServer(script) as server:
        home.use(server)
        async with Glass.of(home) as glass:
            glass.type("tidy up" + ENTER)
            await glass.until("wants to do this")
            await asyncio.sleep(PAUSE)
            glass.type("a")
            await glass.until("allowed from now on")
            await glass.until("Gone.")
            await glass.until(lambda: glass.shown[-1].startswith("  test/scripted"))  # the turn is over
        (tmp_path / "done").unlink()
        async with Glass.of(home) as glass:
            glass.type("tidy up" + ENTER)
            await glass.until("Gone.")
            assert (tmp_path / "done").exists() and "wants to do this" not in glass.text
            glass.type("other" + ENTER)
            await glass.until("wants to do this")


async def test_ctrl_c_at_a_question_stops_the_turn_and_nothing_is_done(home, tmp_path):
    async with ModelServer([run(DANGEROUS)]) as server:
        home.use(server)
        async with Glass.of(home) as glass:
            glass.type("tidy up" + ENTER)
            await glass.until("wants to do this")
            glass.type(CTRL_C)
            await glass.until("· stopped")
            assert "wants to do this" not in glass.text
    assert not (tmp_path / "done").exists()


async def test_with_yes_nothing_is_asked(home, tmp_path):
    async with ModelServer([run(DANGEROUS), Say("Gone.")]) as server:
        home.use(server)
        async with Glass.of(home, "--yes") as glass:
            glass.type("tidy up" + ENTER)
            await glass.until("Gone.")
    assert (tmp_path / "done").exists()
