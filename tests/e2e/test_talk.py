"""Conversations without a terminal: over a pipe, from a file."""

import asyncio
import signal

import pytest

from tests.e2e.program import Home, read_until, wait_finished

pytestmark = pytest.mark.deadline(60)


@pytest.fixture
def home(tmp_path):
    return Home(tmp_path / "home")


async def test_over_a_pipe_each_line_is_answered(home):
    done = await home.run("-m", "scripted", stdin="hello\n\nzwölf".encode())
    assert (done.status, done.out) == (0, "You said: hello\nYou said: zwölf\n")


async def test_over_a_pipe_a_line_is_answered_before_the_next_comes(home):
    async with home.started("-m", "scripted", stdin=asyncio.subprocess.PIPE) as process:
        process.stdin.write(b"one\n")
        await read_until(process.stdout, "You said: one\n")
        process.stdin.write(b"two\n")
        await read_until(process.stdout, "You said: two\n")
        process.send_signal(signal.SIGINT)
        assert (await wait_finished(process)).status == 130


async def test_from_a_file_each_line_is_answered(home, tmp_path):
    (tmp_path / "lines").write_text("one\ntwo\n")
    with (tmp_path / "lines").open("rb") as lines:
        async with home.started("-m", "scripted", stdin=lines.fileno()) as process:
            assert (await wait_finished(process)).out == "You said: one\nYou said: two\n"


async def test_over_a_pipe_a_signal_stops_the_running_turn(home):
    async with home.started("-m", "scripted", stdin=asyncio.subprocess.PIPE) as process:
        process.stdin.write(b"!wait 100\nnever asked\n")
        while b"turn" not in (await _sessions(home)):
            await asyncio.sleep(0.05)
        process.send_signal(signal.SIGTERM)
        done = await wait_finished(process)
    assert done.status == 130 and "never" not in done.out


async def _sessions(home: Home) -> bytes:
    done = await home.run("sessions", "--json")
    return b"turn" if '"turns":1' in done.out else b""
