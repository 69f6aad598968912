"""Shows the whole transcript in a pager: `$PAGER`, else `less`, else `more`, else in the scrollback."""

import asyncio
import shlex
import shutil
from collections.abc import Mapping

from alipes.cli.terminal.terminal import TerminalApp
from alipes.cli.terminal.view import SessionView
from alipes.config.environment import process_environment
from alipes.console.screen_diff import ERASE_REST

_PAGERS = (("less", "-R", "+G"), ("more",))


async def show_transcript(terminal: TerminalApp, view: SessionView) -> None:
    """Open the whole transcript in the pager, at its end; returns when it is closed."""
    rows = view.transcript.render_whole()
    if not rows:
        view.note("There is nothing to show yet.")
        return
    environ = process_environment()
    command = find_pager(environ)
    if command is None:
        view.transcript.add_block(rows)
        view.update()
        return
    text = "\n".join(rows).replace(ERASE_REST, "") + "\n"  # which `less` would print
    status = await terminal.run_in_foreground(lambda: _run(command, text, environ))
    if status == COULD_NOT_START:
        view.note(f"The pager {command[0]} could not be started; check PAGER.", bad=True)


def find_pager(environ: Mapping[str, str]) -> tuple[str, ...] | None:
    """The command of the pager; None if there is none."""
    path = environ.get("PATH")
    try:
        chosen = tuple(shlex.split(environ.get("PAGER", "")))
    except ValueError:  # unbalanced quotes
        chosen = ()
    if chosen and shutil.which(chosen[0], path=path):
        return chosen
    return next((each for each in _PAGERS if shutil.which(each[0], path=path)), None)


COULD_NOT_START = 127


async def _run(command: tuple[str, ...], text: str, environ: Mapping[str, str]) -> int:
    """Run the pager with the text as its input; its exit status."""
    env = {"LESS": "-R +G", "LESSCHARSET": "utf-8", **environ}
    try:
        child = await asyncio.create_subprocess_exec(*command, stdin=asyncio.subprocess.PIPE, env=env)
    except OSError:
        return COULD_NOT_START
    await child.communicate(text.encode("utf-8", "replace"))  # a pager that is closed early is no error
    return child.returncode or 0
