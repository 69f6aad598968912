"""Writes MCP servers into the settings, and takes them out again."""

from collections.abc import Mapping
from pathlib import Path

from alipes.config.display import toml_key, toml_string
from alipes.config.editor import change
from alipes.config.environment import current_variables
from alipes.config.reader import KeyPath
from alipes.config.settings import Settings
from alipes.features.mcp.client.catalog import ToolCatalog
from alipes.features.mcp.client.token_store import make_store
from alipes.features.mcp.files import FoundServer, find_server, forget_server, move_secrets, read_project
from alipes.features.mcp.settings import McpServerConfig, find_server_problem
from alipes.kernel.errors import ConfigError


def add_server(settings: Settings, name: str, config: McpServerConfig) -> None:
    """Add a server to config.toml, and its secrets to `.env`. Raises ConfigError."""
    if problem := find_server_problem(name, config):
        raise ConfigError(f"The server {problem}" if "name" in problem else f"{name} {problem}")
    if name in settings.mcp.servers:
        raise ConfigError(f"There is an MCP server {name} already. Remove it first with `alipes mcp remove {name}`.")
    known = current_variables(settings.paths)
    if unset := [each for each in FoundServer(name, config, "").variables if not known.get(each)]:
        missing = f"{', '.join(unset)}, which is not set: add it to {settings.paths.env}"
        raise ConfigError(f"{name} needs the variable {missing} or to the environment.")
    write_servers(settings, {name: config})


def remove_server(settings: Settings, name: str, workdir: Path) -> str:
    """Remove a server and its login, or no longer accept one of the project; what was done. Raises ConfigError."""
    project = {each.found.name: each.found for each in read_project(settings.home, workdir)}
    if name in settings.mcp.servers:
        change({("mcp", "servers", name): None}, home=settings.home)
    elif name in project:
        forget_server(settings.home, project[name])
    else:
        find_server(settings, name)
    make_store(settings, hide_nothing).remove(name)
    ToolCatalog(settings.home / "mcp").forget(name)
    if name in settings.mcp.servers:
        return f"Removed {name}. Variables that it used stay in {settings.paths.env}; see `alipes secrets list`."
    return f"{name} is no longer accepted. It is still in {project[name].config.source}."


def hide_nothing(*_secrets: str) -> None:
    """Nothing is shown that could contain a token."""


def write_servers(
    settings: Settings, servers: Mapping[str, McpServerConfig], copied: Mapping[str, str] | None = None
) -> dict[str, str]:
    """Write servers into config.toml, and their secrets and the `copied` variables into `.env`. Returns what was
    written there. Raises ConfigError."""
    variables = current_variables(settings.paths)
    values: dict[KeyPath, str | None] = {}
    secrets = dict(copied or {})

    def find_value(name: str) -> str:
        return secrets.get(name) or variables.get(name)

    for name, config in servers.items():
        plain, moved = move_secrets(name, config, find_value)
        secrets.update(moved)
        values |= {("mcp", "servers", name, field): text for field, text in _format_fields(plain)}
    new = {name: value for name, value in secrets.items() if variables.get(name) != value}
    change(values, new, home=settings.home)
    return new


def _format_fields(config: McpServerConfig) -> list[tuple[str, str]]:
    """The fields that are not the default, as `change` takes them."""
    fields = [(field, str(getattr(config, field))) for field in ("command", "cwd", "url") if getattr(config, field)]
    if config.args:
        fields.append(("args", f"[{', '.join(map(toml_string, config.args))}]"))
    for field, table in (("env", config.env), ("headers", config.headers)):
        if table:
            pairs = (f"{toml_key(key)} = {toml_string(text)}" for key, text in table.items())
            fields.append((field, f"{{ {', '.join(pairs)} }}"))
    return fields if config.enabled else [*fields, ("enabled", "false")]
