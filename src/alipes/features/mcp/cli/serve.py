"""`alipes mcp serve`: offers conversations to an MCP client over standard input and output."""

import asyncio
import sys
from contextlib import suppress
from functools import partial
from importlib import import_module
from os import devnull
from typing import Any, TextIO

from alipes.app import open_app
from alipes.config.loader import build_settings, with_plugins
from alipes.config.paths import LOCK_NAME
from alipes.config.reader import read_config
from alipes.config.settings import Settings
from alipes.console import caller as process_caller
from alipes.console.extras import offer_extra
from alipes.console.inbound import current_directory
from alipes.console.line_input import JsonLines
from alipes.console.stdio import divert_stdout, is_terminal
from alipes.core.app import App
from alipes.features.mcp.server.tools import ConversationTools
from alipes.gateway.outbound.target import resolve_target
from alipes.runtime import tasks
from alipes.runtime.log_file import open_log
from alipes.runtime.process_lock import find_holder
from alipes.runtime.processes.ancestors import name_agent_process
from alipes.web.admission import TurnAdmission
from alipes.web.endpoint import Caller, HttpProblem
from alipes.web.runs.events import LiveRuns

EXIT_STOPPED = 130
STOP_TIMEOUT_S = 5.0
"""How long turns may take to stop after the client disconnected."""
OWNER = Caller("mcp", frozenset({"admin"}))
"""The person whose client started this command."""
AGENT = Caller("mcp-agent", frozenset({"run"}))
"""A client inside alipes: it sees only the conversations that it started."""
HINT = "alipes mcp serve: waiting for an MCP client on standard input; see docs/mcp-server.md. Ctrl-D quits.\n"


def run(*, safe: bool) -> int:
    """Serve until the client disconnects. `safe`: without plugins."""
    if not offer_extra("mcp"):
        return 2
    settings = with_plugins(build_settings(read_config()), not safe)
    if is_terminal(sys.stdin):
        sys.stderr.write(HINT)
    by_agent = process_caller.is_agent_child()
    name_agent_process()
    with open_log(settings.paths.make().log, settings.log_level, settings.secrets()), divert_stdout() as out:
        try:
            tasks.run_event_loop(_serve(settings, out, by_agent=by_agent))
        except asyncio.CancelledError:  # by a signal; everything is closed
            return EXIT_STOPPED
    return 0


async def _serve(settings: Settings, out: TextIO | None, *, by_agent: bool) -> None:
    here, lines = settings.workdir or current_directory(), JsonLines(sys.stdin, out)
    sdk = await asyncio.to_thread(import_module, "alipes.features.mcp.server.server")
    with tasks.handle_uncaught_errors(lambda _line: None):
        # Interrupted turns are left to `alipes` in their folder.
        async with open_app(settings, interactive=not by_agent, workdir=devnull) as app:
            runs = LiveRuns(app, workdir=here)
            with tasks.cancel_on_signals(runs.disconnect_all):
                async with asyncio.TaskGroup() as group:
                    following = group.create_task(runs.run(resumed=False))
                    send = None if by_agent else partial(_send, app)
                    tools = ConversationTools(app, runs, TurnAdmission(app), send=send)
                    await sdk.serve_lines(sdk.make_server(tools, partial(_identify, by_agent)), lines)
                    if runs.stopping:
                        await _wait_for_stops(app)
                    following.cancel()


def _identify(by_agent: bool, _context: Any) -> tuple[Caller, Any]:
    return (AGENT if by_agent else OWNER), partial(_check_person, by_agent)


async def _check_person(by_agent: bool) -> None:
    if by_agent:
        raise HttpProblem(403, "refused: alipes started this client, and it may not act as a person", code="own_child")


async def _send(app: App, to: str, text: str) -> str:
    await app.store.outbox.enqueue(await resolve_target(app.store, to, text))
    serving = find_holder(app.settings.paths.run / LOCK_NAME)
    return "Queued." if serving is not None else "Queued; it will be sent when `alipes serve` is running."


async def _wait_for_stops(app: App) -> None:
    """The client disconnected: its calls were cancelled, which stops their turns."""
    with suppress(TimeoutError):
        async with asyncio.timeout(STOP_TIMEOUT_S):
            await asyncio.sleep(0)  # the stops are on their way
            await app.sessions.wait_idle()
