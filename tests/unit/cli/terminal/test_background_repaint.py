"""What others print while the prompt stands."""

import asyncio
import sys

import pytest

from alipes.cli.terminal.repaint import aside


async def test_whole_lines_are_told_from_the_loop_and_from_threads():
    told: list[str] = []
    out, err = sys.stdout, sys.stderr
    with aside(told.append):
        print("one\n\ntwo", end="")
        print(" goes on", file=sys.stderr)
        await asyncio.to_thread(print, "of a thread")
        await asyncio.sleep(0)
        assert told == ["one", " goes on", "twoof a thread"]
        assert sys.stdout.isatty() == out.isatty() and sys.stdout.encoding == out.encoding
        assert sys.stdout.writable()
    assert (sys.stdout, sys.stderr) == (out, err)


async def test_an_error_puts_everything_back():
    out = sys.stdout
    with pytest.raises(ValueError), aside(lambda _line: None):
        raise ValueError
    assert sys.stdout is out
