"""Every way out leaves the terminal as it was, nothing running, and what was promised on disk."""

import os
import signal
import sqlite3
from pathlib import Path

import pytest

from tests.e2e.program import Home, children
from tests.world.glass import CTRL_D, ENTER, Glass
from tests.world.model_server import Call, Calls, ModelServer, Say, Stall

pytestmark = pytest.mark.deadline(90)
PASTE_OFF = b"\x1b[?2004l"


@pytest.fixture
def home(tmp_path):
    return Home(tmp_path / "home")


def restored(glass: Glass) -> bool:
    """Keys are echoed again, pastes are not marked any more, and the cursor stands on a line of its own."""
    return not glass.is_raw() and glass.raw.rfind(PASTE_OFF) > glass.raw.rfind(b"\x1b[?2004h")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
async def test_a_signal_leaves_and_the_turn_is_kept_for_the_next_start(home, number):
    async with ModelServer([Stall("Once"), Say("The end.")]) as server:
        home.use(server)
        async with Glass.of(home) as glass:
            glass.type("a tale" + ENTER)
            await glass.until("Once")
            glass.type("draft")
            await glass.until("› draft")
            glass.signal(number)
            assert await glass.ended() == 130
            assert restored(glass) and "Traceback" not in glass.text
        await server.closed_early()
        assert list((home.path / "run").iterdir()) == []
        async with Glass.of(home) as glass:
            await glass.until("The end.")


async def test_a_terminal_that_goes_away_ends_the_program_and_its_children(home):
    command = {"command": "sleep 1000"}
    async with ModelServer([Calls((Call("terminal", command),))]) as server:
        home.use(server)
        async with Glass.of(home) as glass:
            glass.type("wait" + ENTER)
            await glass.until("• terminal sleep 1000")
            below = [pid for child in children(glass.pid) for pid in (child, *children(child))]
            assert below
            glass.hang_up()
            assert await glass.ended() in (0, 130)
            await glass.until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in below))


async def test_a_store_that_breaks_ends_with_a_sentence_and_a_usable_terminal(home):
    async with ModelServer([Say("Fine."), Say("Never seen.")]) as server:
        home.use(server)
        async with Glass.of(home) as glass:
            glass.type("one" + ENTER)
            await glass.until("Fine.")
            with sqlite3.connect(home.path / "alipes.db") as database:
                for (table,) in database.execute(
                    "SELECT name FROM sqlite_master WHERE type = 'table'"
                ).fetchall():
                    if table in ("turns", "said"):
                        database.execute(f"ALTER TABLE {table} RENAME TO {table}_away")
            database.close()
            glass.type("two" + ENTER)
            assert await glass.ended() == 1
            assert restored(glass)
            assert "alipes: " in glass.text and "Traceback" not in glass.text


async def test_leaving_while_everything_still_loads(home):
    async with Glass.of(home, "-m", "scripted") as glass:
        await glass.until("›")
        glass.type(CTRL_D)
        assert await glass.ended() == 0
        assert restored(glass)


async def test_what_is_printed_by_others_stands_above_the_prompt(home, tmp_path):
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
    async with Glass.of(home, "-m", "scripted", PYTHONPATH=path) as glass:
        await glass.until("answers, as asked")
        glass.type("a draft")
        (tmp_path / "go").touch()
        await glass.until("noise 0\nnoise 1\nnoise 2\nmore [31mnoise\n\n› a draft")
        glass.type(ENTER)
        await glass.until("You said: a draft")


async def test_a_second_terminal_on_the_same_conversation_sees_it_too(home):
    async with ModelServer([Say("Seen by both.", pieces=4, delay=0.1)]) as server:
        home.use(server)
        async with Glass.of(home, "--session", "s") as one, Glass.of(home, "--session", "s") as other:
            await one.until("answers.")
            await other.until("answers.")
            one.type("hello" + ENTER)
            await one.until("› hello\n\nSeen by both.\n\n›")
            await other.until("› hello\n\nSeen by both.\n\n›")
    assert len(server.requests) == 1


async def test_when_the_process_that_lives_a_turn_dies_the_one_that_watches_goes_on(home):
    async with ModelServer([Stall("Half"), Say("The whole answer.")]) as server:
        home.use(server)
        async with Glass.of(home, "--session", "s") as one, Glass.of(home, "--session", "s") as other:
            await one.until("answers.")
            await other.until("answers.")
            one.type("hello" + ENTER)
            await one.until("Half")
            await other.until("Half")
            one.signal(signal.SIGKILL)
            await other.until("The whole answer.\n\n›")
            assert other.text.count("The whole answer.") == 1
