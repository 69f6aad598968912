"""Reads the MCP servers that other programs are configured with: Claude Desktop, Claude Code, Cursor, Hermes, and the
`.mcp.json` of a project. Nothing is started here.

A project's file may be a stranger's text. Its servers are used only after a person accepted each entry once; an entry
that changed must be accepted again (`alipes mcp accept`).
"""

import hashlib
import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct, structs

from alipes.config.display import is_secret_name, looks_secret
from alipes.config.environment import REFERENCE, Variables, current_variables, read_text
from alipes.config.extras import explain_missing
from alipes.config.paths import Paths
from alipes.config.settings import Settings
from alipes.features.mcp.settings import McpServerConfig, find_server_problem
from alipes.kernel.errors import ConfigError, MissingExtra
from alipes.kernel.formatting import did_you_mean
from alipes.kernel.lazy import lazy_pattern
from alipes.kernel.models import Secret

PROJECT_FILE = ".mcp.json"
PROGRAMS = ("claude-desktop", "claude-code", "cursor", "hermes")
_FIELDS = ("command", "args", "env", "cwd", "url", "headers", "type", "disabled", "enabled", "description")
"""What is understood of an entry; the rest is reported."""
_SCHEME = lazy_pattern(r"(?i)(bearer|basic|token) +(\S.*)")
_SECRET_HEADER = lazy_pattern(r"(?i)(proxy-)?authorization|cookie|.*(api-?key|token|secret|auth).*")
_VARIABLE = lazy_pattern(r"\$\{(?:env:)?([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}")
"""`${NAME}` and `${NAME:-default}` as in Claude Code and Hermes, `${env:NAME}` as in Cursor."""
_FOLDER = lazy_pattern(r"\$\{(?:workspaceFolder|CLAUDE_PROJECT_DIR)\}")


class FoundServer(Struct, frozen=True):
    """One entry of such a file."""

    name: str
    config: McpServerConfig
    digest: str
    """Changes with the entry."""
    problem: str = ""
    """Why it cannot be used; empty if it can."""
    ignored: tuple[str, ...] = ()
    """Fields that are not understood."""

    @property
    def variables(self) -> tuple[str, ...]:
        """The variables that it uses, in order."""
        config = self.config
        texts = (config.command, *config.args, config.url, config.cwd, *config.env.values(), *config.headers.values())
        return tuple(dict.fromkeys(found[1] for text in texts for found in _VARIABLE.finditer(text)))


def list_files(program: str, user: Path, environ: Mapping[str, str], workdir: Path) -> tuple[Path, ...]:
    """Where a program keeps its configuration, the likeliest place first. `user`: the home directory of the person."""
    config = Path(environ.get("XDG_CONFIG_HOME") or user / ".config")
    desktop = [config / "Claude"]
    if sys.platform == "darwin":
        desktop.insert(0, user / "Library" / "Application Support" / "Claude")
    if environ.get("APPDATA"):
        desktop.insert(0, Path(environ["APPDATA"]) / "Claude")
    hermes = Path(environ.get("HERMES_HOME") or user / ".hermes")
    places: dict[str, tuple[Path, ...]] = {
        "claude-desktop": tuple(folder / "claude_desktop_config.json" for folder in desktop),
        "claude-code": (user / ".claude.json", workdir / PROJECT_FILE),
        "cursor": (user / ".cursor" / "mcp.json", workdir / ".cursor" / "mcp.json"),
        "hermes": (hermes / "config.yaml",),
    }
    return places[program]


def read_servers(file: Path) -> tuple[FoundServer, ...] | None:
    """The servers in a JSON or YAML file; None if there is no such file. Raises ConfigError."""
    text = read_text(file)
    if text is None:
        return None
    tables = _parse_yaml(text, file) if file.suffix in (".yaml", ".yml") else _parse_json(text, file)
    if not isinstance(tables, dict):
        raise ConfigError(f"{file}: must be an object with `mcpServers`.")
    servers: Any = next((tables[name] for name in ("mcpServers", "mcp_servers", "servers") if tables.get(name)), {})
    if not isinstance(servers, dict):
        raise ConfigError(f"{file}: the servers must be an object: their names, and an object for each.")
    return tuple(_read_entry(str(name), entry, file) for name, entry in servers.items())


def _parse_json(text: str, file: Path) -> Any:
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError as error:
        raise ConfigError(f"{file}: invalid JSON ({error}).") from error


def _parse_yaml(text: str, file: Path) -> Any:
    try:
        yaml = import_module("yaml")
    except ModuleNotFoundError as missing:
        raise MissingExtra(f"{file}: {explain_missing('hermes')}", "hermes") from missing
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ConfigError(f"{file}: invalid YAML ({' '.join(str(error).split())[:200]}).") from error


def _read_entry(name: str, entry: object, file: Path) -> FoundServer:
    digest = hashlib.sha256(msgspec.json.encode(entry, order="sorted")).hexdigest()
    plain = clean_name(name)
    if not isinstance(entry, dict):
        return FoundServer(plain, McpServerConfig(source=str(file)), digest, "it is not an object")
    try:
        config = McpServerConfig(
            command=_text(entry, "command"),
            args=tuple(map(str, _list(entry, "args"))),
            env=_texts(entry, "env"),
            cwd=_text(entry, "cwd"),
            url=_text(entry, "url"),
            headers=_texts(entry, "headers"),
            enabled=entry.get("enabled") is not False and entry.get("disabled") is not True,
            source=str(file),
        )
    except ValueError as error:
        return FoundServer(plain, McpServerConfig(source=str(file)), digest, str(error))
    problem = find_server_problem(plain, config)
    ignored = tuple(str(field) for field in entry if field not in _FIELDS)
    return FoundServer(plain, config, digest, problem, ignored)


def _text(entry: dict[str, Any], field: str) -> str:
    value = entry.get(field) or ""
    if not isinstance(value, str) or not value.isprintable():
        raise ValueError(f"its {field} is not a text")
    return value


def _list(entry: dict[str, Any], field: str) -> list[Any]:
    value = entry.get(field) or []
    if not isinstance(value, list) or not all(isinstance(item, str | int | float) for item in value):
        raise ValueError(f"its {field} is not a list of texts")
    return value


def _texts(entry: dict[str, Any], field: str) -> dict[str, str]:
    value = entry.get(field) or {}
    if not isinstance(value, dict) or not all(isinstance(item, str | int | float) for item in value.values()):
        raise ValueError(f"its {field} is not an object with texts")
    return {str(name): str(item).lower() if isinstance(item, bool) else str(item) for name, item in value.items()}


def clean_name(name: str) -> str:
    """A name of our own for a server: `My Server` becomes `My-Server`."""
    return re.sub(r"_{2,}", "_", re.sub(r"[^A-Za-z0-9_-]+", "-", name)).strip("-_")[:32]


# --- variables and secrets


def expand(config: McpServerConfig, variables: Variables, folder: str) -> McpServerConfig:
    """The server with its variables filled in, as it is used. Raises ConfigError with the name of an unset one."""

    def value(found: re.Match[str]) -> str:
        if text := variables.get(found[1]):
            return text
        if found[2] is None:
            raise ConfigError(f"it needs the variable {found[1]}, which is not set: add it to {variables.file}")
        return found[2]

    return _map_texts(config, lambda text: _VARIABLE.sub(value, _FOLDER.sub(lambda _: folder, text)))


def _map_texts(config: McpServerConfig, change: Callable[[str], str]) -> McpServerConfig:
    return structs.replace(
        config,
        command=change(config.command),
        args=tuple(map(change, config.args)),
        env={name: change(text) for name, text in config.env.items()},
        cwd=change(config.cwd),
        url=change(config.url),
        headers={name: change(text) for name, text in config.headers.items()},
    )


def move_secrets(
    server: str, config: McpServerConfig, taken: Callable[[str], str]
) -> tuple[McpServerConfig, dict[str, str]]:
    """The server with `${NAME}` in place of literal secrets, and these by name. `taken(name)`: the present value of a
    variable, or empty."""
    secrets: dict[str, str] = {}

    def move(name: str, value: str) -> str:
        variable = name if taken(name) in ("", value) and secrets.get(name, value) == value else _own_name(server, name)
        secrets[variable] = value
        return f"${{{variable}}}"

    env, headers = dict(config.env), dict(config.headers)
    for name, text in env.items():
        if text and not re.search(REFERENCE, text) and (is_secret_name(name) or looks_secret(text)):
            env[name] = move(name, text)
    for name, text in headers.items():
        if re.search(REFERENCE, text) or not (_SECRET_HEADER.fullmatch(name) or looks_secret(text)):
            continue
        scheme = _SCHEME.fullmatch(text)
        variable = _own_name(server, "TOKEN" if scheme else name)
        headers[name] = f"{scheme[1]} {move(variable, scheme[2])}" if scheme else move(variable, text)
    return structs.replace(config, env=env, headers=headers), secrets


def _own_name(server: str, name: str) -> str:
    own = re.sub(r"[^A-Z0-9]+", "_", f"{server}_{name}".upper())
    return own if own[0].isalpha() else f"MCP_{own}"


def rewrite_references(config: McpServerConfig, variables: Mapping[str, str]) -> McpServerConfig:
    """The server as config.toml takes it: `${NAME}` stays in `env` and `headers`, and is filled in elsewhere, where
    settings have no variables. A default is used if the variable is not in `variables`."""

    def keep(found: re.Match[str]) -> str:
        return f"${{{found[1]}}}" if found[2] is None or variables.get(found[1]) else found[2]

    def fill(found: re.Match[str]) -> str:
        return variables.get(found[1]) or found[2] or found[0]

    filled = _map_texts(config, lambda text: _VARIABLE.sub(fill, text))
    kept = _map_texts(config, lambda text: _VARIABLE.sub(keep, text))
    return structs.replace(filled, env=kept.env, headers=kept.headers)


# --- the file of a project


class ProjectServer(Struct, frozen=True):
    """A server of a project's file, and whether it may be used."""

    found: FoundServer
    state: str
    """`accepted`, `new`, `changed` or `invalid`."""


class _Accepted(Struct, frozen=True):
    projects: dict[str, dict[str, str]] = {}
    """By the path of the file: the digest of each accepted entry."""
    format: int = 1


def read_project(home: Path, workdir: Path) -> tuple[ProjectServer, ...]:
    """The servers of the project's `.mcp.json`. Raises ConfigError."""
    file = workdir / PROJECT_FILE
    found = read_servers(file)
    if not found:
        return ()
    accepted = _read_accepted(home).projects.get(str(file), {})
    return tuple(ProjectServer(each, _state(each, accepted.get(each.name))) for each in found)


def _state(found: FoundServer, accepted: str | None) -> str:
    if found.problem:
        return "invalid"
    return "new" if accepted is None else "accepted" if accepted == found.digest else "changed"


def accept_server(home: Path, found: FoundServer) -> None:
    """Remember that a person accepted this entry. Raises ConfigError."""
    known = _read_accepted(home)
    entries = {**known.projects.get(found.config.source, {}), found.name: found.digest}
    _write_accepted(home, _Accepted({**known.projects, found.config.source: entries}))


def forget_server(home: Path, found: FoundServer) -> None:
    """It must be accepted again before it is used. Raises ConfigError."""
    known = _read_accepted(home)
    entries = {name: digest for name, digest in known.projects.get(found.config.source, {}).items()}
    if entries.pop(found.name, None) is not None:
        _write_accepted(home, _Accepted({**known.projects, found.config.source: entries}))


def load_project(home: Path, env: Path, workdir: Path) -> tuple[dict[str, McpServerConfig], tuple[str, ...]]:
    """The accepted servers of the project, ready to use, and sentences about the others. `env`: the `.env` file."""
    if not (workdir / PROJECT_FILE).exists():
        return {}, ()
    try:
        servers = read_project(home, workdir)
        variables = current_variables(Paths(env.parent))
    except ConfigError as error:
        return {}, (f"{error} Its MCP servers are not used.",)
    usable, notes = {}, list(_describe_unused(servers, workdir))
    for each in servers:
        if each.state == "accepted" and each.found.config.enabled:
            try:
                usable[each.found.name] = expand(each.found.config, variables, str(workdir))
            except ConfigError as error:
                usable[each.found.name] = structs.replace(each.found.config, problem=str(error))
                notes.append(f"The MCP server {each.found.name} of {workdir / PROJECT_FILE} is off: {error}.")
    return usable, tuple(notes)


def add_project_servers(settings: Settings, workdir: str) -> Settings:
    """The settings with the accepted MCP servers of the project, and notes about the others. Servers in config.toml
    come first."""
    servers, notes = load_project(settings.home, settings.paths.env, Path(workdir))
    if not servers and not notes:
        return settings
    secrets = (each for name, config in servers.items() for each in move_secrets(name, config, str)[1].values())
    return structs.replace(
        settings,
        mcp=structs.replace(settings.mcp, servers={**servers, **settings.mcp.servers}),
        notes=(*settings.notes, *notes),
        hidden=(*settings.hidden, *map(Secret, secrets)),
    )


def find_server(settings: Settings, name: str) -> McpServerConfig:
    """A server of the settings. Raises ConfigError."""
    if name not in settings.mcp.servers:
        raise ConfigError(f"There is no MCP server {name}.{did_you_mean(name, settings.mcp.servers)}")
    return settings.mcp.servers[name]


def _describe_unused(servers: tuple[ProjectServer, ...], workdir: Path) -> Iterator[str]:
    waiting = [each.found.name for each in servers if each.state in ("new", "changed")]
    if waiting:
        yield (
            f"{workdir / PROJECT_FILE} has MCP servers that you have not accepted: {', '.join(waiting)}. "
            "Look at them with `alipes mcp accept`."
        )
    for each in servers:
        if each.state == "invalid":
            name = each.found.name or "without a name"
            yield f"The MCP server {name} of {workdir / PROJECT_FILE} is not used: {each.found.problem}."


def list_sources(settings: Settings, workdir: str) -> tuple[Path, ...]:
    """The files that say which servers are used."""
    paths = settings.paths
    return (paths.config, paths.env, Path(workdir) / PROJECT_FILE, _accepted_file(settings.home))


def _accepted_file(home: Path) -> Path:
    return home / "mcp-projects.json"


def _read_accepted(home: Path) -> _Accepted:
    try:
        return msgspec.json.decode(_accepted_file(home).read_bytes(), type=_Accepted)
    except (OSError, msgspec.MsgspecError):
        return _Accepted()  # nothing is accepted


def _write_accepted(home: Path, accepted: _Accepted) -> None:
    file = _accepted_file(home)
    new = file.with_name(f".{file.name}.{os.getpid()}")
    try:
        home.mkdir(mode=0o700, parents=True, exist_ok=True)
        with open(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600), "wb") as opened:
            opened.write(msgspec.json.encode(accepted))
        new.replace(file)
    except OSError as error:
        raise ConfigError(f"{file} cannot be written: {error.strerror}.") from error
