"""What `alipes doctor` reports about MCP servers. None is started."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from alipes.config.settings import Settings
from alipes.features.mcp.client.catalog import ToolCatalog
from alipes.features.mcp.files import load_project
from alipes.kernel.checks import CheckResult
from alipes.kernel.formatting import format_count
from alipes.store.sql.store import Store


async def check(settings: Settings, _store: Store | None) -> tuple[CheckResult, ...]:
    return (*_check_mcp(settings), *_check_project_servers(settings))


def _check_mcp(settings: Settings) -> Iterator[CheckResult]:
    """What is known of MCP servers, without starting one."""
    catalog = ToolCatalog(settings.home / "mcp")
    for name, config in settings.mcp.servers.items():
        stored = catalog.find(name, config)
        if not config.enabled:
            yield CheckResult("mcp", "ok", f"{name} is off")
        elif config.problem:
            yield CheckResult("mcp", "wrong", f"{name} is off: {config.problem}", "set it, or remove the server")
        elif config.command and shutil.which(os.path.expanduser(config.command)) is None:
            fix = f"correct mcp.servers.{name}.command"
            yield CheckResult("mcp", "wrong", f"{name}: the command {config.command} was not found", fix)
        elif stored is None:
            yield CheckResult("mcp", "note", f"{name} was never connected", f"run `alipes mcp test {name}`")
        elif stored.pending_names:
            says = f"{name}: {', '.join(stored.pending_names[:5])} changed and not accepted"
            yield CheckResult("mcp", "note", says, f"look at them with /mcp, then /mcp accept {name}")
        else:
            yield CheckResult("mcp", "ok", f"{name}: {format_count(len(stored.tools), 'tool')}")


def _check_project_servers(settings: Settings) -> Iterator[CheckResult]:
    """MCP servers of this folder that are not used."""
    workdir = Path(settings.workdir or os.getcwd())
    for note in load_project(settings.home, settings.paths.env, workdir)[1]:
        yield CheckResult("mcp", "note", note)
