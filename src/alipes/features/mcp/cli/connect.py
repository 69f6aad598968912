"""`alipes mcp test`, `login` and `logout`: the actions that connect to a server."""

import asyncio
import os
import sys
import webbrowser
from collections.abc import Coroutine
from importlib import import_module
from typing import Any, TypeVar

from alipes.app import open_for_checks
from alipes.config.extras import explain_missing
from alipes.config.settings import Settings
from alipes.console.common import confirm, print_json
from alipes.console.render import sanitize
from alipes.console.stdio import is_terminal
from alipes.features.mcp.client.probe import ServerReport, probe
from alipes.features.mcp.client.token_store import TokenStore, make_store
from alipes.features.mcp.feature import McpFeature
from alipes.features.mcp.files import add_project_servers, find_server
from alipes.features.mcp.settings import McpServerConfig
from alipes.kernel.conversations import ApprovalDecision
from alipes.kernel.errors import ConfigError, MissingExtra, ToolError
from alipes.kernel.formatting import format_count
from alipes.kernel.messages import ToolCall
from alipes.kernel.turns import Turn
from alipes.runtime.http.clients import ClientScope
from alipes.runtime.log_file import log_secrets

T = TypeVar("T")
SHOWN = 20
"""Resources and prompts that are shown."""


def run_test(settings: Settings, name: str, *, json: bool, trusted: bool) -> int:
    try:
        report = asyncio.run(_test(settings, name, trusted=trusted))
    except ToolError as error:
        sys.stderr.write(f"{sanitize(str(error))}\n")
        log = settings.paths.logs / "mcp" / f"{name}.log"
        if log.exists():
            sys.stderr.write(f"`alipes mcp logs {name}` shows what it logged.\n")
        return 1
    if json:
        print_json(report)
    else:
        _print_report(report)
    return 0


async def _test(settings: Settings, name: str, *, trusted: bool) -> ServerReport:
    async with open_for_checks(settings, _ask_person) as app:
        config = find_server(app.settings, name)
        servers = app.features.get(McpFeature).servers
        assert servers is not None
        return await probe(servers, name, config, os.getcwd(), trusted=trusted)


async def _ask_person(call: ToolCall, reason: str, _turn: Turn) -> ApprovalDecision:
    if not is_terminal(sys.stdin):
        return None
    host = call.args.get("host") or call.args.get("group")
    agreed = await asyncio.to_thread(confirm, f"The server {sanitize(reason)} ({host}). Allow it?", "allow it")
    return "once" if agreed else "no"


def _print_report(report: ServerReport) -> None:
    server = report.server
    version = f" {server.version}" if server.version else ""
    name = sanitize(f"{server.name}{version}") or report.name
    print(f"{report.name} works: {name}, MCP {server.protocol} over {server.transport}, {report.seconds:.2f} s")
    print(f"\n{format_count(len(report.tools), 'tool')}")
    for tool in report.tools:
        print(f"  {tool.name} ({tool.effect}): {_first_line(tool.description)}")
    for noun, listed in (
        ("resource", [(each.uri, each.name or each.description) for each in report.resources]),
        ("prompt", [(each.name, each.description) for each in report.prompts]),
    ):
        if listed:
            print(f"\n{format_count(len(listed), noun)}")
        for key, about in listed[:SHOWN]:
            print(f"  {sanitize(key)}: {_first_line(about)}".rstrip(": "))
        if len(listed) > SHOWN:
            print(f"  and {len(listed) - SHOWN} more")


def _first_line(text: str) -> str:
    line = sanitize(text.strip().split("\n")[0])
    return line if len(line) <= 100 else f"{line[:99].rstrip()}…"


def _find_http_server(settings: Settings, name: str) -> McpServerConfig:
    config = find_server(add_project_servers(settings, os.getcwd()), name)
    if not config.url:
        raise ConfigError(f"{name} is a program that is started here: only servers with a URL have a login.")
    if any(header.lower() == "authorization" for header in config.headers):
        raise ConfigError(f"{name} has a key in its headers, which is used instead of a login.")
    return config


def _import_oauth() -> Any:
    """It needs the SDK. Raises ConfigError."""
    try:
        return import_module("alipes.features.mcp.client.oauth")
    except ModuleNotFoundError as missing:
        raise MissingExtra(explain_missing("mcp"), "mcp") from missing


def _run_oauth(work: Coroutine[Any, Any, T]) -> T | None:
    """Its result; None if it failed, which is printed."""
    try:
        return asyncio.run(work)
    except ToolError as error:
        sys.stderr.write(f"{sanitize(str(error))}\n")
        return None


def run_login(settings: Settings, name: str, *, browser: bool) -> int:
    config = _find_http_server(settings, name)
    store = make_store(settings, log_secrets().add)

    async def show(url: str) -> None:
        sys.stderr.write(f"Open this address in a browser on this machine to log in at {name}:\n{sanitize(url)}\n")
        sys.stderr.flush()
        if browser and is_terminal(sys.stdout):
            await asyncio.to_thread(webbrowser.open, url)

    async def log_in() -> bool:
        async with ClientScope(settings.proxies, trust=settings.ca_file or None) as clients:
            oauth = _import_oauth()
            return bool(await oauth.log_in(name, config, store, clients=clients, show=show))

    done = _run_oauth(log_in())
    if done is None:
        return 1
    where = "the keyring" if settings.secret_store == "keyring" else str(settings.paths.env)
    print(f"Logged in at {name}. The login is kept in {where}." if done else f"{name} needs no login.")
    return 0


def run_logout(settings: Settings, name: str) -> int:
    config = _find_http_server(settings, name)
    store: TokenStore = make_store(settings, log_secrets().add)

    async def log_out() -> str:
        async with ClientScope(settings.proxies, trust=settings.ca_file or None) as clients:
            oauth = _import_oauth()
            return str(await oauth.log_out(name, config, store, clients=clients))

    done = _run_oauth(log_out())
    if done is None:
        return 1
    says = {"revoked": f"Logged out at {name}.", "removed": f"The login at {name} is removed from this machine."}
    print(says.get(done, f"There was no login at {name}."))
    return 0
