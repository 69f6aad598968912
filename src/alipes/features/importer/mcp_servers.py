"""MCP servers as most programs configure them: a command with arguments and variables, or an address with headers."""

import re
from collections.abc import Iterator

from alipes.config.display import is_secret_name, looks_secret
from alipes.features.importer.formats import content_hash
from alipes.features.importer.json_lines import Row, get_row, get_text, get_texts
from alipes.features.importer.records import FoundKey, FoundMcpServer, LeftOut, RecordSource
from alipes.kernel.messages import Json
from alipes.kernel.models import Secret

_REFERENCE = re.compile(r"\$\{(?:env:)?([A-Za-z_][A-Za-z0-9_]*)(?::-[^}]*)?\}")
_SECRET_ADDRESS = re.compile(r"://[^/@\s]*:[^/@\s]+@|[?&#][^=&]*(?:key|token|secret|passw|auth)[^=&]*=[^&]", re.I)
_SCHEMES = ("Bearer ", "Basic ", "Token ", "token ")
_HIDDEN = "Its address or arguments seem to contain a key: add it with `alipes mcp add`, with the key in `.env`."


def read_servers(servers: Row, file: str) -> Iterator[FoundMcpServer | LeftOut]:
    """The servers of a table by name; a key in one becomes a reference to `.env`."""
    return (found for found in _read_all(servers, file) if not isinstance(found, FoundKey))


def read_server_keys(servers: Row, file: str) -> Iterator[FoundKey]:
    """The keys that are written into servers."""
    return (found for found in _read_all(servers, file) if isinstance(found, FoundKey))


def _read_all(servers: Row, file: str) -> Iterator[FoundMcpServer | FoundKey | LeftOut]:
    for name, given in servers.items():
        if isinstance(given, dict):
            yield from _read_server(name, given, file)
        else:
            yield _left_out(file, name, "It is not a table of settings.")


def _read_server(name: str, given: Row, file: str) -> Iterator[FoundMcpServer | FoundKey | LeftOut]:
    keys: list[FoundKey] = []
    config: dict[str, Json] = {}
    command, args = given.get("command"), get_texts(given, "args")
    if isinstance(command, list):
        command, *args = [str(each) for each in command] or [""]
    if isinstance(command, str) and command:
        config = {"command": command, "args": [*args], "cwd": get_text(given, "cwd")}
        config["env"] = _read_variables(name, get_row(given, "env") or get_row(given, "environment"), file, keys)
    elif address := get_text(given, "url", "httpUrl", "serverUrl"):
        headers = {**get_row(given, "http_headers"), **get_row(given, "headers")}
        config = {"url": address, "headers": _read_variables(name, headers, file, keys)}
    else:
        yield _left_out(file, name, "It has neither a command nor an address.")
        return
    if has_secret(args) or _SECRET_ADDRESS.search(get_text(config, "url")):
        yield _left_out(file, name, _HIDDEN)
        return
    yield from keys
    config = {field: value for field, value in config.items() if value}
    yield FoundMcpServer(source=RecordSource(file, name, content_hash(config)), name=name, config=config)


def has_secret(args: list[str]) -> bool:
    """True if one of these arguments is probably a key."""
    for before, word in zip(["", *args], args, strict=False):
        flag, _, value = word.partition("=")
        if flag.startswith("-") and value and is_secret_name(flag):
            return True
        if before.startswith("-") and not word.startswith("-") and is_secret_name(before):
            return True
        if looks_secret(value or word) or any(scheme in word for scheme in _SCHEMES) or _SECRET_ADDRESS.search(word):
            return True
    return False


def _read_variables(server: str, given: Row, file: str, keys: list[FoundKey]) -> dict[str, Json]:
    values: dict[str, Json] = {}
    for field in given:
        value = get_text(given, field)
        is_key = is_secret_name(field) or looks_secret(value)
        if _REFERENCE.search(value):
            value = _REFERENCE.sub(r"${\1}", value)
        elif value and is_key:
            scheme = next((each for each in _SCHEMES if value.startswith(each)), "")
            variable = re.sub(r"[^A-Z0-9]+", "_", f"MCP_{server}_{field}".upper())
            secret = Secret(value.removeprefix(scheme))
            source = RecordSource(file, f"{server}.{field}", content_hash(secret.reveal()))
            keys.append(FoundKey(source=source, name=variable, value=secret, used_by=f"mcp.servers.{server}"))
            value = f"{scheme}${{{variable}}}"
        values[field] = value
    return values


def _left_out(file: str, name: str, why: str) -> LeftOut:
    return LeftOut(source=RecordSource(file, f"mcp:{name}", ""), kind="mcp", what=f"MCP server {name}", why=why)
