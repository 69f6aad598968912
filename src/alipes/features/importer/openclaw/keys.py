"""Keys of OpenClaw: from `.env`, the configuration, and the logins of its agents."""

from collections.abc import Iterator

from alipes.features.importer.found import key, key_variable, provider_name, read_env
from alipes.features.importer.json_lines import Row, get_row, get_text, read_row
from alipes.features.importer.mcp_servers import read_server_keys
from alipes.features.importer.openclaw.config import OpenClawConfig
from alipes.features.importer.openclaw.databases import read_table
from alipes.features.importer.openclaw.settings import STATE
from alipes.features.importer.records import FoundKey, LeftOut, RecordSource
from alipes.features.importer.source_home import SourceHome

_TOKENS = {
    "telegram": {"botToken": "TELEGRAM_BOT_TOKEN"},
    "discord": {"token": "DISCORD_BOT_TOKEN"},
    "slack": {"botToken": "SLACK_BOT_TOKEN", "appToken": "SLACK_APP_TOKEN"},
    "matrix": {"accessToken": "MATRIX_TOKEN", "password": "MATRIX_PASSWORD"},
}
_LOG_IN = "Logins are not copied, since two programs on one login lock each other out: log in again here."
_REFERENCE = "It refers to a key that is kept elsewhere; references are not followed: set the key here."
_OTHER = "It has another value than a key of this name that was found before."
_SERVER = "It opens OpenClaw's own server, which is not used here."


def read_keys(home: SourceHome, config: OpenClawConfig) -> Iterator[FoundKey | LeftOut]:
    """Each variable once; a second value for it is left out with a sentence."""
    seen: dict[str, str] = {}
    for found in _read_all(home, config):
        if isinstance(found, LeftOut):
            yield found
        elif found.name not in seen:
            seen[found.name] = found.value.reveal()
            yield found
        elif seen[found.name] != found.value.reveal():
            yield _left_out(found.source.file, f"{found.name}, once more", _OTHER)


def _read_all(home: SourceHome, config: OpenClawConfig) -> Iterator[FoundKey | LeftOut]:
    yield from read_env(home, ".env")
    for name, given in config.row("models", "providers").items():
        if isinstance(given, dict):
            used_by = f"providers.{provider_name(name)}"
            yield from _read_value(config.file, given.get("apiKey"), key_variable(name), used_by)
    for platform, fields in _TOKENS.items():
        for field, variable in fields.items():
            yield from _read_value(config.file, config.row("channels", platform).get(field), variable, platform)
    servers = config.row("mcp", "servers") or config.row("mcpServers")
    yield from read_server_keys(servers, config.file)
    for field in ("token", "password"):
        if config.row("gateway", "auth").get(field):
            yield _left_out(config.file, f"gateway.auth.{field}", _SERVER)
    for file, store in _list_logins(home, config):
        yield from _read_logins(file, store)


def _read_value(file: str, value: object, variable: str, used_by: str) -> Iterator[FoundKey | LeftOut]:
    if isinstance(value, str) and value and not value.startswith("${"):
        yield key(file, variable, value, used_by)
    elif value and not isinstance(value, str):
        yield _left_out(file, f"{variable} for {used_by}", _REFERENCE)


def _list_logins(home: SourceHome, config: OpenClawConfig) -> Iterator[tuple[str, Row]]:
    if home.has(STATE):
        with home.open_database(STATE) as db:
            rows = list(read_table(db, "config_machine_state", ("state_key", "value_json")))
        for row in rows:
            if row["state_key"] == "authProfiles.store":
                yield STATE, read_row(get_text(row, "value_json"), STATE) or {}
    for agent in config.agents():
        file = f"agents/{agent}/agent/auth-profiles.json"
        if home.has(file):
            yield file, read_row(home.read_text(file) or "{}", file) or {}


def _read_logins(file: str, store: Row) -> Iterator[FoundKey | LeftOut]:
    for name, given in get_row(store, "profiles").items():
        login = given if isinstance(given, dict) else {}
        provider = get_text(login, "provider") or name.partition(":")[0]
        if login.get("type") == "api_key":
            value = login.get("key") or login.get("keyRef")
            yield from _read_value(file, value, key_variable(provider), f"providers.{provider_name(provider)}")
        elif login:
            yield _left_out(file, f"login {name}", _LOG_IN)


def _left_out(file: str, what: str, why: str) -> LeftOut:
    return LeftOut(source=RecordSource(file, what, ""), kind="keys", what=what, why=why)
