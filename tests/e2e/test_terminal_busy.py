"""While a turn runs: messages in all three busy modes, commands, tool progress, questions."""

import asyncio
import re
from pathlib import Path

import pytest

from alipes.sessions.commands.registry import known_commands
from tests.e2e.program import Home
from tests.world.commands import all_commands
from tests.world.model_server import Call, Calls, ModelServer, Plan, Say, Stall
from tests.world.terminal_process import CTRL_C, ENTER, ESCAPE, TerminalProcess

pytestmark = pytest.mark.deadline(90)
PAUSE = 0.7
"""Longer than the pause in typing that a question requires before a key answers it."""
DANGEROUS = "git push --force; touch done"
WRITING = "  writing · "
"""The start of the status line while the model writes."""


@pytest.fixture
def home(tmp_path):
    return Home(tmp_path / "home")


def asked(server: ModelServer) -> list[str]:
    """The last user message of each request to the model."""
    return [body["messages"][-1]["content"] for body in server.bodies]


def run(command: str, text: str = "") -> Calls:
    return Calls((Call("terminal", {"command": command}),), text)


async def test_in_interrupt_mode_a_message_stops_the_turn_and_runs_next(home):
    async with ModelServer([Stall("A long story"), Say("Better.")]) as server:
        home.use(server)
        async with TerminalProcess.of(home, ALIPES_TERMINAL_BUSY="interrupt") as terminal:
            terminal.type("tell" + ENTER)
            await terminal.until("A long story")
            terminal.type("something better" + ENTER)
            await terminal.until(
                "A long story\n\n· interrupted by your next message\n\n› something better\n\nBetter.\n\n›"
            )
            await server.closed_early()
    assert asked(server) == ["tell", "something better"]


async def test_in_queue_mode_messages_are_answered_in_order(home):
    async with ModelServer([Say("one", wait=1.5), Say("two"), Say("three")]) as server:
        home.use(server)
        async with TerminalProcess.of(home, ALIPES_TERMINAL_BUSY="queue") as terminal:
            terminal.type("first" + ENTER)
            await server.asked()
            terminal.type("second" + ENTER + "third" + ENTER)
            await terminal.until("· after this turn: second\n· after this turn: third\n›")
            await terminal.until("2 queued")
            await terminal.until("› first\n\none\n\n› second\n\ntwo\n\n› third\n\nthree\n\n›")
            assert "queued" not in terminal.text
    assert asked(server) == ["first", "second", "third"]


async def test_by_default_the_running_turn_gets_the_message_at_its_next_step(home, tmp_path):
    script = [run(f"until test -e {tmp_path}/go; do sleep 0.05; done"), Say("Both done."), Say("no")]
    async with ModelServer(script) as server:
        home.use(server)
        async with TerminalProcess.of(home) as terminal:
            terminal.type("do this" + ENTER)
            await terminal.until("running a command")
            terminal.type("and that" + ENTER)
            await terminal.until("· next step: and that")
            (tmp_path / "go").touch()
            await terminal.until("› and that\n\nBoth done.\n\n›")
            await terminal.until(lambda: "queued" not in terminal.text)
    assert len(server.requests) == 2 and server.bodies[1]["messages"][-1]["content"] == "and that"


async def test_every_command_works_while_a_turn_runs(home, tmp_path):
    answers = Plan((Say("fine"),), {"stall": (Stall("I am thinking about it"),)})
    done = {
        "help": "show the commands",
        "status": "busy mode",
        "model default": "test/scripted is used again",
        "effort": "Effort: ",
        "usage": "this conversation",
        "sessions": "Use /resume ID",
        "title": "This conversation",
        "search": "Usage: /search",
        "queue": "No messages are queued.",
        "steer": "Usage: /steer",
        "busy": "steer: ",
        "context": "system prompt",
        "btw": "Usage: /btw QUESTION",
        "review": "next step: /review",
        "compact": "The conversation will be compacted",
        "agents": "No subagents running.",
        "jobs": "No background jobs.",
        "background": "Usage: /background",
        "moa": "No mixture is configured",
        "copy": "Copied",
        "export": "Written to",
        "plugins": "No plugins.",
        "approvals": "No approvals:",
        "permissions": "Allowed without asking:",
        "mode": "Permission mode: ask",
        "tools": "Usage: /tools",
        "mcp": "No MCP servers",
        "rollback": "No checkpoints",
        "keys": "Keys of the terminal",
        "config terminal.title": "terminal.title = true",
        "theme pink": "must be",
        "memory": "New conversations see changes.",
        "schedule": "No jobs",
        "skills": "No skills",
        "resume nothing": "No conversation matches",
        "continue": "A turn is running",
        "undo": "Undone: “stall",
        "redo": "Nothing to redo.",
        "rewind": "Turn undone.",
        "init": "next step: /init",
        "diff": "No diff: not a git repository.",
        "branch": "Created a branch",
        "retry": "Retrying:",
        "stop": "Stopped.",
        "new": "Started a new conversation.",
        "quit": "",
    }
    assert {typed.split()[0] for typed in done} == {command.name for command in known_commands(all_commands())} - {
        "setup"
    }
    async with ModelServer(answers) as server:
        home.use(server)
        async with TerminalProcess.of(home, size=(100, 40)) as terminal:
            terminal.type("hello" + ENTER)
            await terminal.until("fine")
            for number, (name, words) in enumerate(done.items()):
                if not any(row.startswith(WRITING) for row in terminal.rows):
                    terminal.type(f"stall {number}" + ENTER)
                    await terminal.until(lambda: any(row.startswith(WRITING) for row in terminal.rows))
                before = terminal.text.count(words) if words else 0
                terminal.type(f"/{name}" + ENTER)
                if name == "quit":
                    assert await terminal.ended() == 0
                else:
                    await terminal.until(lambda words=words, before=before: terminal.text.count(words) > before)
                    await asyncio.sleep(0.2)
                    assert "Traceback" not in terminal.text
    assert b"\x1b]52;c;ZmluZQ==\x07" in terminal.raw  # the copied answer
    assert len(list(tmp_path.glob("*.md"))) == 1


async def test_a_slash_word_that_is_not_a_command_is_a_message(home):
    async with TerminalProcess.of(home, "-m", "scripted") as terminal:
        terminal.type("/etc/hosts is what?" + ENTER)
        await terminal.until("You said: /etc/hosts is what?")


async def test_a_tool_shows_its_progress_and_then_its_result(home, tmp_path):
    command = f"echo begun; until test -e {tmp_path}/go; do sleep 0.05; done; echo over"
    async with ModelServer([run(command, "I run it."), Say("It ran.")]) as server:
        home.use(server)
        async with TerminalProcess.of(home, size=(160, 30)) as terminal:
            terminal.type("run" + ENTER)
            await terminal.until(f"I run it.\n\n• Run {command}")
            await terminal.until("  │ begun\n\n›")
            (tmp_path / "go").touch()
            await terminal.until("It ran.\n\n›")
            assert re.search(r"✓ Run echo begun;.* s\n  │ begun\n  │ over\n\nIt ran\.", terminal.text)
            assert "•" not in terminal.text


async def test_file_changes_are_shown_as_a_diff(home, tmp_path):
    (tmp_path / "song.txt").write_text("one\ntwo\nthree\n")
    change = {"path": "song.txt", "old_string": "two", "new_string": "TWO\ntwo and a half"}
    async with ModelServer([Calls((Call("patch", {"mode": "replace", **change}),)), Say("Changed.")]) as server:
        home.use(server)
        async with TerminalProcess.of(home) as terminal:
            terminal.type("change" + ENTER)
            await terminal.until("Changed.")
            rows = "  1   one\n  2 - two\n  2 + TWO\n  3 + two and a half\n  4   three"
            assert "✓ Edit song.txt  +2 -1" in terminal.text and rows in terminal.text
            row = next(y for y, text in enumerate(terminal.rows) if "+ TWO" in text)
            assert terminal.screen.buffer[row][5].bg == terminal.screen.buffer[row][70].bg != "default"
    assert "TWO" in (tmp_path / "song.txt").read_text()


async def test_a_failing_command_is_visible(home):
    async with ModelServer([run("echo oh no >&2; exit 3"), Say("It failed.")]) as server:
        home.use(server)
        async with TerminalProcess.of(home) as terminal:
            terminal.type("run" + ENTER)
            await terminal.until("✗ Run echo oh no >&2; exit 3  exit code 3")
            await terminal.until("  │ oh no")


async def test_ctrl_c_kills_a_command_and_its_grandchildren(home, tmp_path):
    grandchild = f"setsid sh -c 'trap \"\" TERM; echo $$ > {tmp_path}/pid; sleep 1000'"
    async with ModelServer([run(f"{grandchild} & sleep 1000")]) as server:
        home.use(server)
        async with TerminalProcess.of(home) as terminal:
            terminal.type("run" + ENTER)
            await terminal.until(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text())
            pid = int((tmp_path / "pid").read_text())
            terminal.type(CTRL_C)
            await terminal.until("· stopped")
            await terminal.until(lambda: not Path(f"/proc/{pid}").exists())


@pytest.mark.parametrize(
    ("key", "shown", "done"),
    [("o", "approved once", True), ("n", "denied", False), (ESCAPE, "denied", False)],
    ids=["once", "no", "escape"],
)
async def test_a_dangerous_command_needs_approval(home, tmp_path, key, shown, done):
    async with ModelServer([run(DANGEROUS), Say("So it is.")]) as server:
        home.use(server)
        async with TerminalProcess.of(home) as terminal:
            terminal.type("tidy up" + ENTER)
            await terminal.until("? Run this command?\n    git push --force; touch done\n")
            await terminal.until("waiting for approval")
            assert "[y] once  2 [s] session  3 [a] always  4 [n] no  5 [e] no, because ..." in terminal.text
            await asyncio.sleep(PAUSE)
            terminal.type(key)
            await terminal.until(shown)
            await terminal.until("So it is.")
            assert "Run this command?" not in terminal.text
    assert (tmp_path / "done").exists() is done


async def test_typing_does_not_answer_a_question_by_accident(home, tmp_path):
    async with ModelServer([run(DANGEROUS), Say("So it is.")]) as server:
        home.use(server)
        async with TerminalProcess.of(home) as terminal:
            terminal.type("tidy up" + ENTER)
            await server.asked()
            for letter in "yes, also, and so on, always":
                terminal.type(letter)
                await asyncio.sleep(0.03)
            await terminal.until("› yes, also, and so on, always")
            await terminal.until("Press Esc to clear your text first, then")
            await asyncio.sleep(PAUSE)
            terminal.type("o")  # the input is not empty, so this is typing too
            await terminal.until("› yes, also, and so on, alwayso")
            terminal.type(ESCAPE)
            await terminal.until("1 [y] once")
            await asyncio.sleep(PAUSE)
            terminal.type("n")
            await terminal.until("denied")
    assert not (tmp_path / "done").exists()


async def test_always_applies_to_this_command_also_after_a_restart(home, tmp_path):
    script = Plan((run(DANGEROUS), Say("Gone.")), {"other": (run("git push --force"), Say("Hm."))})
    async with ModelServer(script) as server:
        home.use(server)
        async with TerminalProcess.of(home) as terminal:
            terminal.type("tidy up" + ENTER)
            await terminal.until("Run this command?")
            await asyncio.sleep(PAUSE)
            terminal.type("a")
            await terminal.until("always allowed")
            await terminal.until("Gone.")
            await terminal.until(lambda: terminal.shown[-1].startswith("  test/scripted"))  # the turn has ended
        (tmp_path / "done").unlink()
        async with TerminalProcess.of(home) as terminal:
            terminal.type("tidy up" + ENTER)
            await terminal.until("Gone.")
            assert (tmp_path / "done").exists() and "Run this command?" not in terminal.text
            terminal.type("other" + ENTER)
            await terminal.until("Run this command?")


async def test_ctrl_c_at_a_question_stops_the_turn_without_running_the_command(home, tmp_path):
    async with ModelServer([run(DANGEROUS)]) as server:
        home.use(server)
        async with TerminalProcess.of(home) as terminal:
            terminal.type("tidy up" + ENTER)
            await terminal.until("Run this command?")
            terminal.type(CTRL_C)
            await terminal.until("· stopped")
            assert "Run this command?" not in terminal.text
    assert not (tmp_path / "done").exists()


async def test_with_yes_nothing_is_asked(home, tmp_path):
    async with ModelServer([run(DANGEROUS), Say("Gone.")]) as server:
        home.use(server)
        async with TerminalProcess.of(home, "--yes") as terminal:
            terminal.type("tidy up" + ENTER)
            await terminal.until("Gone.")
    assert (tmp_path / "done").exists()
