"""`alipes acp`: serves an editor over standard input and output (Agent Client Protocol)."""

import asyncio
import sys
from collections.abc import Callable, Coroutine
from importlib import import_module
from typing import Any, TextIO, TypeAlias, get_args

from msgspec import Struct

from alipes.cli.acp.handshake import EditorFeatures, shake_hands
from alipes.config.loader import build_settings, with_plugins
from alipes.config.reader import read_config
from alipes.config.settings import Settings
from alipes.console import help_text
from alipes.console.extras import offer_extra
from alipes.console.line_input import JsonLines
from alipes.console.options import OptionParser
from alipes.console.stdio import divert_stdout, is_terminal
from alipes.kernel.turns import PermissionMode
from alipes.runtime import tasks
from alipes.runtime.log_file import open_log
from alipes.runtime.processes.ancestors import name_agent_process

EXIT_STOPPED = 130
HINT = "alipes acp: waiting for an editor on standard input; see docs/editors.md. Ctrl-D quits.\n"


class EditorOptions(Struct, frozen=True):
    model: str = ""
    mode: str = ""
    """The permission mode of new conversations; empty: that of the settings."""
    safe: bool = False
    """Do not load plugins."""


ServeEditor: TypeAlias = Callable[[JsonLines, Settings, EditorOptions, EditorFeatures], Coroutine[Any, Any, None]]


def run(argv: list[str]) -> int:
    modes = {"choices": get_args(PermissionMode), "default": ""}
    args = OptionParser("alipes acp", help_text.ACP, {"mode": modes}).parse_args(argv)
    if not offer_extra("acp"):
        return 2
    options = EditorOptions(args.model, args.mode, args.safe)
    settings = with_plugins(build_settings(read_config()), not options.safe)
    if is_terminal(sys.stdin):
        sys.stderr.write(HINT)
    name_agent_process()
    with open_log(settings.paths.make().log, settings.log_level, settings.secrets()), divert_stdout() as out:
        try:
            return tasks.run_event_loop(_serve(settings, options, out))
        except asyncio.CancelledError:  # by a signal; everything is closed
            return EXIT_STOPPED


async def _serve(settings: Settings, options: EditorOptions, out: TextIO | None) -> int:
    lines = JsonLines(sys.stdin, out)
    with tasks.cancel_on_signals(), tasks.handle_uncaught_errors(lambda _line: None):
        features = await shake_hands(lines)
        if features is not None:
            serve = await asyncio.to_thread(_load_agent)
            await serve(lines, settings, options, features)
    return 0


def _load_agent() -> ServeEditor:
    """The slow imports, while the editor is already answered."""
    serve: ServeEditor = import_module("alipes.cli.acp.agent").serve_editor
    return serve
