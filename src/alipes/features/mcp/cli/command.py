"""`alipes mcp`: manages the MCP servers of the settings, and accepts those of a project."""

import argparse
import os
import re
import shlex
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

from msgspec import Struct, structs

from alipes.config.display import HIDDEN, is_secret_name, looks_secret
from alipes.config.environment import REFERENCE, current_variables, process_environment, read_variables
from alipes.config.loader import load_settings
from alipes.config.settings import Settings
from alipes.console.common import confirm, print_list
from alipes.console.options import OptionParser, print_config_errors, whole_number
from alipes.console.render import sanitize
from alipes.features.mcp.cli.help import MCP
from alipes.features.mcp.client.catalog import INSTRUCTIONS, ToolCatalog
from alipes.features.mcp.client.server_log import read_log
from alipes.features.mcp.client.token_store import make_store
from alipes.features.mcp.config_file import add_server, hide_nothing, remove_server, write_servers
from alipes.features.mcp.files import (
    PROGRAMS,
    FoundServer,
    ProjectServer,
    accept_server,
    add_project_servers,
    expand,
    find_server,
    list_files,
    read_project,
    read_servers,
    rewrite_references,
)
from alipes.features.mcp.settings import McpServerConfig
from alipes.kernel.errors import ConfigError
from alipes.kernel.formatting import did_you_mean, format_count

NONE = "No MCP servers. Add one with `alipes mcp add NAME -- COMMAND`, or `alipes mcp import`."


class McpArguments(Struct, frozen=True):
    """What an action was given."""

    options: argparse.Namespace
    words: list[str]
    """After the name of the action."""
    command: list[str]
    """After `--`."""
    parser: OptionParser

    def name(self) -> str:
        """The one NAME that the action takes."""
        if len(self.words) != 1:
            self.parser.error("this action takes one NAME")
        return self.words[0]


class ListedServer(Struct, frozen=True):
    """A server, as `alipes mcp list` shows it."""

    name: str
    state: str
    """`on`, `off`, `not accepted`, `changed` or `invalid`."""
    where: str
    source: str
    tools: int | None = None
    """None if it was never connected."""
    pending: tuple[str, ...] = ()
    """Tools that must be accepted."""
    logged_in: bool = False
    problem: str = ""


@print_config_errors
def run(argv: list[str]) -> int:
    end = argv.index("--") if "--" in argv else len(argv)
    details = {"lines": {"type": whole_number(1, 100_000, "a number of lines"), "default": 50}}
    parser = OptionParser("alipes mcp", MCP, details)
    options, words = parser.parse_with_words(argv[:end])
    action, *rest = words or ["list"]
    act = ACTIONS.get(action)
    if act is None:
        parser.error(f"unknown action: {action} (use {', '.join(ACTIONS)})")
    return act(McpArguments(options, rest, argv[end + 1 :], parser))


# --- the list


def _list(given: McpArguments) -> int:
    found = list_servers(load_settings(), Path.cwd())
    rows = [(each.name, _describe_state(each), _count_tools(each), each.where, each.source) for each in found]
    print_list(found, ("NAME", "STATE", "TOOLS", "WHERE", "FROM"), rows, json=given.options.json, empty=NONE)
    if not given.options.json and any(each.state in ("not accepted", "changed") or each.pending for each in found):
        print("`alipes mcp accept` shows and accepts what is new.")
    return 0


def list_servers(settings: Settings, workdir: Path) -> list[ListedServer]:
    """The servers of the settings, then those of the project's file that the settings do not name."""
    found = [_list_one(settings, name, config) for name, config in settings.mcp.servers.items()]
    for each in read_project(settings.home, workdir):
        if each.found.name in settings.mcp.servers:
            continue
        states = {"accepted": "on" if each.found.config.enabled else "off", "new": "not accepted"}
        listed = _list_one(settings, each.found.name, each.found.config)
        state = states.get(each.state, each.state)
        found.append(structs.replace(listed, state=state, problem=each.found.problem or _find_unset(settings, each)))
    return found


def _find_unset(settings: Settings, each: ProjectServer) -> str:
    """Why an accepted server of the project is off; empty if it is not."""
    if each.state != "accepted" or not each.found.config.enabled:
        return ""
    try:
        expand(each.found.config, current_variables(settings.paths), "")
    except ConfigError as error:
        return str(error)
    return ""


def _list_one(settings: Settings, name: str, config: McpServerConfig) -> ListedServer:
    stored = ToolCatalog(settings.home / "mcp").find(name, config)
    login = make_store(settings, hide_nothing).read(name, config.url) if config.url else None
    return ListedServer(
        name,
        "on" if config.is_on else "off",
        config.url or shlex.join((config.command, *config.args)),
        config.source,
        len(stored.tools) if stored else None,
        stored.pending_names if stored else (),
        login is not None,
        config.problem,
    )


def _describe_state(server: ListedServer) -> str:
    if server.problem:
        return f"{server.state}: {server.problem}"
    return f"{server.state}, logged in" if server.logged_in else server.state


def _count_tools(server: ListedServer) -> str:
    known = "-" if server.tools is None else str(server.tools)
    return f"{known}, {len(server.pending)} to accept" if server.pending else known


# --- adding and removing


def _add(given: McpArguments) -> int:
    settings, options, name = load_settings(), given.options, given.name()
    command, *args = given.command or [""]
    config = McpServerConfig(
        command=command,
        args=tuple(args),
        env=_parse_pairs(given, options.env, "--env", may_be_bare=True),
        cwd=os.path.abspath(os.path.expanduser(options.cwd)) if options.cwd else "",
        url=options.url,
        headers=_parse_pairs(given, options.header, "--header"),
    )
    add_server(settings, name, config)
    if options.no_test:
        print(f"Added {name}. Test it with `alipes mcp test {name}`.")
        return 0
    print(f"Added {name}.", flush=True)
    from alipes.features.mcp.cli import connect as mcp_connect  # noqa: PLC0415

    if mcp_connect.run_test(load_settings(), name, json=False, trusted=options.yes):
        sys.stderr.write(f"It is kept in config.toml. Correct what is wrong, then run `alipes mcp test {name}`.\n")
    return 0


def _parse_pairs(
    given: McpArguments, texts: Iterable[str], option: str, *, may_be_bare: bool = False
) -> dict[str, str]:
    pairs = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not name or not (equals or may_be_bare):
            given.parser.error(f"{option} takes NAME=TEXT")
        pairs[name] = value if equals else f"${{{name}}}"
    return pairs


def _remove(given: McpArguments) -> int:
    print(remove_server(load_settings(), given.name(), Path.cwd()))
    return 0


# --- other programs


def _import(given: McpArguments) -> int:
    settings = load_settings()
    source, *names = given.words or [""]
    if not source:
        return _list_importable(settings)
    files = _find_files(source)
    found = {each.name: each for file in files for each in read_servers(file) or ()}
    if not found:
        raise ConfigError(f"No MCP servers in {' or '.join(map(str, files))}.")
    if unknown := [name for name in names if name not in found]:
        raise ConfigError(f"{source} has no server {unknown[0]}.{did_you_mean(unknown[0], found)}")
    wanted = [found[name] for name in names] if names else list(found.values())
    servers: dict[str, McpServerConfig] = {}
    copied: dict[str, str] = {}
    for each in wanted:
        _take_over(settings, each, servers, copied)
    if not servers:
        print("Nothing was imported.")
        return 0
    if not given.options.yes and not confirm(f"Add {', '.join(servers)}? Their programs run as you.", "add them"):
        return 1
    secrets = write_servers(settings, servers, copied)
    saved = f" {format_count(len(secrets), 'secret')} saved in {settings.paths.env}." if secrets else ""
    print(f"Added {', '.join(servers)}.{saved} Test one with `alipes mcp test NAME`.")
    return 0


def _find_files(source: str) -> tuple[Path, ...]:
    if source not in PROGRAMS:
        file = Path(source).expanduser()
        if not file.exists():
            raise ConfigError(f"{source} is not a file, nor one of {', '.join(PROGRAMS)}.")
        return (file,)
    return _program_files(source)


def _program_files(program: str) -> tuple[Path, ...]:
    return list_files(program, Path(os.path.expanduser("~")), process_environment(), Path.cwd())


def _list_importable(settings: Settings) -> int:
    rows = []
    for program in PROGRAMS:
        for file in _program_files(program):
            for each in read_servers(file) or ():
                state = "added already" if each.name in settings.mcp.servers else each.problem or "new"
                rows.append((program, each.name, state, each.config.url or each.config.command, str(file)))
    empty = f"Nothing to import: none of {', '.join(PROGRAMS)} has MCP servers here."
    if print_list(rows, ("PROGRAM", "NAME", "STATE", "WHERE", "FILE"), rows, json=False, empty=empty):
        print("`alipes mcp import PROGRAM [NAME...]` adds them.")
    return 0


def _take_over(
    settings: Settings, each: FoundServer, servers: dict[str, McpServerConfig], copied: dict[str, str]
) -> None:
    """Add the server to `servers`, and variables that it takes from the other program's `.env` to `copied`."""
    if each.problem or each.name in settings.mcp.servers:
        print(f"{each.name} is left out: {each.problem or 'there is one of this name already'}")
        return
    ours = current_variables(settings.paths)
    theirs = read_variables(Path(each.config.source).with_name(".env"), {})
    for name in each.variables:
        if not ours.get(name) and theirs.get(name):
            copied[name] = theirs.get(name)
    known = {name: ours.get(name) or copied.get(name, "") for name in each.variables}
    config = rewrite_references(each.config, known)
    missing = [name for name in each.variables if not known[name] and f"${{{name}}}" in str(config)]
    servers[each.name] = config
    for line in describe_server(each.name, config):
        print(line)
    if missing:
        print(f"  off until {', '.join(missing)} is set in {settings.paths.env}")


def describe_server(name: str, config: McpServerConfig) -> list[str]:
    """What a person must see before a server is used: its command or its address. Values that may be secret are
    not shown."""
    lines = [f"{name}: {sanitize(config.url or shlex.join((config.command, *config.args)))}"]
    for what, table in (("variables", config.env), ("headers", config.headers)):
        if table:
            lines.append(f"  {what}: {', '.join(f'{key}={_show_value(key, text)}' for key, text in table.items())}")
    return lines if not config.cwd else [*lines, f"  in {sanitize(config.cwd)}"]


def _show_value(name: str, text: str) -> str:
    secret = is_secret_name(name) or looks_secret(text) or "auth" in name.lower()
    return sanitize(text) if re.search(REFERENCE, text) or not secret else HIDDEN


# --- consent


def _accept(given: McpArguments) -> int:
    settings = load_settings()
    entries = [each.found for each in read_project(settings.home, Path.cwd()) if each.state in ("new", "changed")]
    waiting = [each for each in entries if not given.words or each.name in given.words]
    for found in waiting:
        _accept_entry(given, settings, found)
    servers = add_project_servers(settings, os.getcwd()).mcp.servers
    chosen = [name for name in servers if not given.words or name in given.words]
    asked = [_accept_tools(given, settings, name, servers[name]) for name in chosen]
    known = {*servers, *(each.name for each in entries)}
    if unknown := [name for name in given.words if name not in known]:
        raise ConfigError(f"There is no MCP server {unknown[0]}.{did_you_mean(unknown[0], known)}")
    if not waiting and not any(asked):
        print("There is nothing to accept.")
    return 0


def _accept_entry(given: McpArguments, settings: Settings, found: FoundServer) -> None:
    for line in describe_server(found.name, found.config):
        print(line)
    if found.variables:
        print(f"  it gets these variables of yours: {', '.join(found.variables)}")
    if _agrees(given, f"Use {found.name} of {found.config.source}?", "accept it"):
        accept_server(settings.home, found)
        print(f"Accepted {found.name}.")


def _accept_tools(given: McpArguments, settings: Settings, name: str, config: McpServerConfig) -> bool:
    """Ask about the new and changed tools of a server; False if it has none."""
    catalog = ToolCatalog(settings.home / "mcp")
    stored = catalog.find(name, config)
    if stored is None or not stored.pending_names:
        return False
    for tool in stored.pending:
        print(f"{name}: {tool.name} ({'read' if tool.read_only else 'write'}): {sanitize(tool.description)}")
    if stored.has_new_instructions:
        print(f"{name}: {INSTRUCTIONS}: {sanitize(stored.info.instructions) or 'removed'}")
    if _agrees(given, f"Use these changes of {name}?", "accept them"):
        catalog.accept(name, config)
        print(f"Accepted {format_count(len(stored.pending_names), 'change')} of {name}.")
    return True


def _agrees(given: McpArguments, question: str, action: str) -> bool:
    return bool(given.options.yes) or confirm(question, action)


# --- logs and connections


def _logs(given: McpArguments) -> int:
    settings, name = load_settings(), given.name()
    folder = settings.paths.logs / "mcp"
    lines = list(read_log(folder, name)) if (folder / f"{name}.log").is_file() else []
    if not lines and name not in settings.mcp.servers and not _is_in_project(settings, name):
        find_server(settings, name)
    for line in lines[-given.options.lines :]:
        print(sanitize(line))
    if not lines:
        sys.stderr.write(f"{name} has not logged anything. Its log is {folder / name}.log.\n")
    return 0


def _is_in_project(settings: Settings, name: str) -> bool:
    return any(each.found.name == name for each in read_project(settings.home, Path.cwd()))


def _test(given: McpArguments) -> int:
    from alipes.features.mcp.cli import connect as mcp_connect  # noqa: PLC0415

    options = given.options
    return mcp_connect.run_test(load_settings(), given.name(), json=options.json, trusted=options.yes)


def _login(given: McpArguments) -> int:
    from alipes.features.mcp.cli import connect as mcp_connect  # noqa: PLC0415

    return mcp_connect.run_login(load_settings(), given.name(), browser=not given.options.no_browser)


def _logout(given: McpArguments) -> int:
    from alipes.features.mcp.cli import connect as mcp_connect  # noqa: PLC0415

    return mcp_connect.run_logout(load_settings(), given.name())


def _serve(given: McpArguments) -> int:
    from alipes.features.mcp.cli import serve as mcp_serve  # noqa: PLC0415

    if given.words:
        given.parser.error("serve takes no NAME")
    return mcp_serve.run(safe=given.options.safe)


ACTIONS: dict[str, Callable[[McpArguments], int]] = {
    "list": _list,
    "add": _add,
    "test": _test,
    "import": _import,
    "accept": _accept,
    "login": _login,
    "logout": _logout,
    "logs": _logs,
    "remove": _remove,
    "serve": _serve,
}
