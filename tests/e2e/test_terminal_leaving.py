"""Every exit restores the terminal, leaves no process behind, and saves the turn."""

import json
import os
import signal
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from tests.e2e.program import Home, children
from tests.world.model_server import Call, Calls, ModelServer, Say, Stall
from tests.world.terminal_process import CTRL_D, ENTER, TerminalProcess

pytestmark = pytest.mark.deadline(90)
PASTE_OFF = b"\x1b[?2004l"


@pytest.fixture
def home(tmp_path):
    return Home(tmp_path / "home")


def restored(terminal: TerminalProcess) -> bool:
    """True if keys are echoed again and bracketed paste is off."""
    return not terminal.is_raw() and terminal.raw.rfind(PASTE_OFF) > terminal.raw.rfind(b"\x1b[?2004h")


def find_holder(home: Home) -> int:
    """The process that runs the only conversation."""
    with closing(sqlite3.connect(home.path / "alipes.db")) as db:
        ((host,),) = db.execute("SELECT holder FROM leases")
    return json.loads((home.path / "run" / f"{host}.lock").read_text())["pid"]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
async def test_a_signal_quits_and_the_turn_resumes_at_the_next_start(home, number):
    async with ModelServer([Stall("Once"), Say("The end.")]) as server:
        home.use(server)
        async with TerminalProcess.of(home) as terminal:
            terminal.type("a tale" + ENTER)
            await terminal.until("Once")
            terminal.type("draft")
            await terminal.until("› draft")
            terminal.signal(number)
            assert await terminal.ended() == 130
            assert restored(terminal) and "Traceback" not in terminal.text
        await server.closed_early()
        assert list((home.path / "run").iterdir()) == []
        async with TerminalProcess.of(home) as terminal:
            await terminal.until("The end.")


async def test_a_closed_terminal_ends_the_program_and_its_children(home):
    command = {"command": "sleep 1000"}
    async with ModelServer([Calls((Call("terminal", command),))]) as server:
        home.use(server)
        async with TerminalProcess.of(home) as terminal:
            terminal.type("wait" + ENTER)
            await terminal.until("• Run sleep 1000")
            below = [pid for child in children(terminal.pid) for pid in (child, *children(child))]
            assert below
            terminal.hang_up()
            assert await terminal.ended() in (0, 130)
            await terminal.until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in below))


async def test_a_broken_database_is_reported_and_the_terminal_restored(home):
    async with ModelServer([Say("Fine."), Say("Never seen.")]) as server:
        home.use(server)
        async with TerminalProcess.of(home) as terminal:
            terminal.type("one" + ENTER)
            await terminal.until("Fine.")
            with sqlite3.connect(home.path / "alipes.db") as database:
                for (table,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall():
                    if table in ("turns", "said"):
                        database.execute(f"ALTER TABLE {table} RENAME TO {table}_away")
            database.close()
            terminal.type("two" + ENTER)
            assert await terminal.ended() == 1
            assert restored(terminal)
            assert "alipes: " in terminal.text and "Traceback" not in terminal.text


async def test_quitting_during_startup(home):
    async with TerminalProcess.of(home, "-m", "scripted") as terminal:
        await terminal.until("›")
        terminal.type(CTRL_D)
        assert await terminal.ended() == 0
        assert restored(terminal)


async def test_output_of_other_code_appears_above_the_prompt(home, tmp_path):
    (tmp_path / "sitecustomize.py").write_text(
        "import asyncio, os, sys\n"
        "run = asyncio.run\n"
        "def noise(loop, go):\n"
        "    if not os.path.exists(go):\n"
        "        return loop.call_later(0.05, noise, loop, go)\n"
        "    for n in range(3):\n"
        "        print(f'noise {n}')\n"
        "    loop.call_later(0.2, lambda: sys.stderr.write('more \\x1b[31mnoise\\n'))\n"
        "def noisy(main, **more):\n"
        "    async def both():\n"
        f"        noise(asyncio.get_running_loop(), {str(tmp_path / 'go')!r})\n"
        "        return await main\n"
        "    return run(both(), **more)\n"
        "asyncio.run = noisy\n"
    )
    path = f"{tmp_path}:{os.path.dirname(os.path.dirname(__file__))}/../src"
    async with TerminalProcess.of(home, "-m", "scripted", PYTHONPATH=path) as terminal:
        await terminal.until("(from --model)")
        terminal.type("a draft")
        (tmp_path / "go").touch()
        await terminal.until("noise 0\nnoise 1\nnoise 2\nmore [31mnoise\n\n› a draft")
        terminal.type(ENTER)
        await terminal.until("You said: a draft")


async def test_a_second_terminal_on_the_same_conversation_shows_the_turn(home):
    async with ModelServer([Say("Seen by both.", pieces=4, delay=0.1)]) as server:
        home.use(server)
        async with (
            TerminalProcess.of(home, "--session", "s") as one,
            TerminalProcess.of(home, "--session", "s") as other,
        ):
            await one.until("(from ")
            await other.until("(from ")
            one.type("hello" + ENTER)
            await one.until("› hello\n\nSeen by both.\n\n›")
            await other.until("› hello\n\nSeen by both.\n\n›")
    assert len(server.requests) == 1


async def test_a_watching_terminal_takes_over_when_the_running_process_dies(home):
    async with ModelServer([Stall("Half"), Say("The whole answer.")]) as server:
        home.use(server)
        async with (
            TerminalProcess.of(home, "--session", "s") as one,
            TerminalProcess.of(home, "--session", "s") as other,
        ):
            await one.until("(from ")
            await other.until("(from ")
            one.type("hello" + ENTER)
            await one.until("Half")
            await other.until("Half")
            running, watching = (one, other) if one.pid == find_holder(home) else (other, one)
            running.signal(signal.SIGKILL)
            await watching.until("The whole answer.\n\n›")
            assert watching.text.count("The whole answer.") == 1
