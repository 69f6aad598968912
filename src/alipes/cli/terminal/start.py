"""`alipes` at a terminal: shows the prompt first, then loads the session."""

import asyncio
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeAlias

from alipes import __version__
from alipes.cli.terminal.screen.notifications import RESTORE_TITLE, SAVE_TITLE, format_title, shows_title
from alipes.cli.terminal.screen.output import writes_utf8
from alipes.cli.terminal.screen.repaint import redirect_output
from alipes.cli.terminal.terminal import TerminalApp
from alipes.config.environment import Variables
from alipes.config.loader import build_settings, with_plugins
from alipes.config.reader import read_config
from alipes.config.settings import Settings
from alipes.console.options import TalkOptions, parse_talk
from alipes.console.render import text_width, truncate
from alipes.console.styles import apply_style, detect_features, wrap_text
from alipes.runtime import tasks
from alipes.runtime.log_file import open_log
from alipes.runtime.processes.ancestors import name_agent_process
from alipes.runtime.tasks import cancel_on_signals, handle_uncaught_errors

WELCOME = "Your agent in this folder: ask a question, or give it a task. It asks before anything dangerous."
EXAMPLES = ("what can you do?", "find out why the tests fail, and fix it")
README_EXAMPLE, FOLDER_EXAMPLE = "summarise @README.md in three sentences", "what is in this folder?"
FIRST_KEYS = "/setup to connect a model · /help for commands · ? for keys"

RunSession: TypeAlias = Callable[[TerminalApp, Settings, TalkOptions, asyncio.Event], Awaitable[None]]


def run(argv: list[str], load: Callable[[], RunSession], plain: Callable[[list[str]], int]) -> int:
    """Run the conversation until the user quits.

    `load` is slow, so it is called in a thread once the prompt is visible. `plain` is used for
    terminals that can only show lines.
    """
    options = parse_talk(argv)
    reading = read_config()
    if reading.variables.get("TERM") in ("", "dumb"):
        return plain(argv)
    settings = with_plugins(build_settings(reading), not options.safe)
    if settings.browser.enabled:
        from alipes.console.extras import offer_browser  # noqa: PLC0415

        offer_browser(settings)
    name_agent_process()
    with open_log(settings.paths.make().log, settings.log_level, settings.secrets()):
        try:
            return tasks.run_event_loop(_run(settings, options, reading.variables, load))
        except asyncio.CancelledError:  # by a signal; an unfinished turn resumes at the next start
            return 130


async def _run(settings: Settings, options: TalkOptions, variables: Variables, load: Callable[[], RunSession]) -> int:
    features = detect_features(variables, settings.terminal.theme, utf8=writes_utf8(sys.stdout))
    vim = settings.terminal.editing == "vim"
    terminal = TerminalApp(features, settings.home / "history", keys=settings.keys, vim=vim)
    terminal.bottom.status.set_folder(Path.cwd())
    terminal.bottom.status.set_profile(settings.profile)
    terminal.append(_first_rows(terminal, new=not (settings.home / "history").exists()))
    titled = shows_title(settings.terminal, features)
    if titled:
        terminal.write(SAVE_TITLE + format_title(Path.cwd()))
    left = asyncio.Event()
    with (
        cancel_on_signals(),
        handle_uncaught_errors(lambda line: terminal.print_note(line, bad=True)),
        redirect_output(terminal.print_note),
    ):
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(_load_and_serve(load, terminal, settings, options, left))
                await terminal.run()
                left.set()
        finally:
            if titled:
                terminal.write(RESTORE_TITLE)
            await terminal.close()
    return 0


async def _load_and_serve(
    load: Callable[[], RunSession], terminal: TerminalApp, settings: Settings, options: TalkOptions, left: asyncio.Event
) -> None:
    """Load and run the session; the user may quit during loading."""
    await terminal.drawn.wait()
    serve = await asyncio.to_thread(load)
    if not left.is_set():
        await serve(terminal, settings, options, left)


def _first_rows(terminal: TerminalApp, *, new: bool) -> list[str]:
    """The header; for somebody who has typed nothing yet, also a welcome with examples."""
    style, columns = terminal.bottom.style, terminal.columns
    whose = "".join(f" · {each}" for each in (terminal.bottom.status.profile, terminal.bottom.status.folder) if each)
    rest, help = f" {__version__}{whose}", "" if new else " · /help for commands"
    room = max(1, columns - len("alipes"))
    fits = rest + help if text_width(rest + help) <= room else truncate(rest, room, style.more)
    name = ";".join(filter(None, (style.strong, style.accent if new else "")))
    header = apply_style("alipes", name) + apply_style(fits, style.faint)
    if not new:
        return [header]
    rows = [header, *wrap_text(WELCOME, columns), "", apply_style("Try:", style.faint)]
    for example in (*EXAMPLES, README_EXAMPLE if Path("README.md").is_file() else FOLDER_EXAMPLE):
        rows += wrap_text(example, columns, style.accent, "  ", "    ")
    return [*rows, "", *wrap_text(FIRST_KEYS, columns, style.faint), ""]
