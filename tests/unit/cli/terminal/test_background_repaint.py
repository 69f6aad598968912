"""Output of other code while the prompt is visible."""

import asyncio
import sys

import pytest

from alipes.cli.terminal.screen.repaint import redirect_output


async def test_whole_lines_are_shown_from_the_loop_and_from_threads():
    seen: list[str] = []
    out, err = sys.stdout, sys.stderr
    with redirect_output(seen.append):
        print("one\n\ntwo", end="")
        print(" continues", file=sys.stderr)
        await asyncio.to_thread(print, "of a thread")
        await asyncio.sleep(0)
        assert seen == ["one", " continues", "twoof a thread"]
        assert sys.stdout.isatty() == out.isatty() and sys.stdout.encoding == out.encoding
        assert sys.stdout.writable()
    assert (sys.stdout, sys.stderr) == (out, err)


async def test_an_error_restores_the_streams():
    out = sys.stdout
    with pytest.raises(ValueError), redirect_output(lambda _line: None):
        raise ValueError
    assert sys.stdout is out
