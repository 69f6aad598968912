"""`alipes` at a terminal: the prompt first, everything else behind it. Talking itself is loaded later."""

import asyncio
import signal
import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeAlias

from alipes import __version__
from alipes.cli import options as arguments
from alipes.cli.options import TalkOptions
from alipes.cli.terminal.output import writes_utf8
from alipes.cli.terminal.repaint import aside
from alipes.cli.terminal.styles import look_around, shortened, styled
from alipes.cli.terminal.terminal import Terminal
from alipes.config.environment import Variables
from alipes.config.loader import read
from alipes.config.settings import Settings, build, with_plugins
from alipes.runtime import threads
from alipes.runtime.log_file import open_log
from alipes.runtime.unhandled import guarding

Serve: TypeAlias = Callable[[Terminal, Settings, TalkOptions, asyncio.Event], Awaitable[None]]


def run(argv: list[str], load: Callable[[], Serve], plain: Callable[[list[str]], int]) -> int:
    """Talk until the person leaves.

    `load` is called when the prompt stands, in a thread: it takes a moment. `plain` talks line
    by line instead, where the terminal can do no more.
    """
    options = arguments.talk(argv)
    reading = read()
    if reading.variables.get("TERM") in ("", "dumb"):
        return plain(argv)
    settings = with_plugins(build(reading), not options.safe)
    with open_log(settings.paths.make().log, settings.log_level, settings.secrets()):
        try:
            return threads.run(_run(settings, options, reading.variables, load))
        except asyncio.CancelledError:  # by a signal: what was being done is taken up at the next start
            return 130


async def _run(
    settings: Settings, options: TalkOptions, variables: Variables, load: Callable[[], Serve]
) -> int:
    around = look_around(variables, settings.terminal.theme, utf8=writes_utf8(sys.stdout))
    terminal = Terminal(around, settings.home / "history")
    terminal.append([_greeting(terminal)])
    left = asyncio.Event()
    with _signals(), guarding(lambda line: terminal.remark(line, bad=True)), aside(terminal.remark):
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(_serve(load, terminal, settings, options, left))
                await terminal.run()
                left.set()
        finally:
            await terminal.close()
    return 0


async def _serve(
    load: Callable[[], Serve],
    terminal: Terminal,
    settings: Settings,
    options: TalkOptions,
    left: asyncio.Event,
) -> None:
    """Load and serve; the person may leave while we still load."""
    await terminal.shown()
    serve = await asyncio.to_thread(load)
    if not left.is_set():
        await serve(terminal, settings, options, left)


def _greeting(terminal: Terminal) -> str:
    look = terminal.bottom.look
    rest = f" {__version__} · {_short(Path.cwd())} · /help shows the commands"
    fits = shortened(rest, max(1, terminal.columns - len("alipes")), look.more)
    return styled("alipes", look.strong) + styled(fits, look.faint)


def _short(path: Path) -> str:
    home = Path.home()
    return f"~/{path.relative_to(home)}".rstrip("/.") if path.is_relative_to(home) else str(path)


@contextmanager
def _signals() -> Iterator[None]:
    """SIGTERM and SIGHUP cancel us, once: the terminal is restored, and what is open closes."""
    main, loop = asyncio.current_task(), asyncio.get_running_loop()
    assert main is not None
    both = (signal.SIGTERM, signal.SIGHUP)
    numbers = [number for number in both if signal.getsignal(number) != signal.SIG_IGN]
    for number in numbers:
        loop.add_signal_handler(number, main.cancel)
    try:
        yield
    finally:
        for number in numbers:
            loop.remove_signal_handler(number)
