"""Settings of OpenClaw in ours: model, providers, zone, platforms, MCP servers; permissions only as a list."""

from collections.abc import Iterator

from alipes.config.messengers import MESSENGERS
from alipes.features.importer.found import provider_name, read_provider, setting
from alipes.features.importer.json_lines import Row, get_row, get_rows, get_text, get_texts, read_row
from alipes.features.importer.mcp_servers import read_servers
from alipes.features.importer.openclaw.config import OpenClawConfig
from alipes.features.importer.openclaw.databases import read_table
from alipes.features.importer.records import FoundSetting, Kind, LeftOut, Record, RecordSource
from alipes.features.importer.source_home import SourceHome

STATE, SCHEMA = "state/openclaw.sqlite", 18
"""The database of the program, and the newest version of it that is known."""
_PROVIDERS = {"google": "gemini", "google-gemini": "gemini", "lm-studio": "lmstudio", "llama-cpp": "llamacpp"}
_BUSY = {"steer": "steer", "interrupt": "interrupt", "followup": "queue", "collect": "queue", "queue": "queue"}
_NEVER = "Permissions are never imported: answer the questions here, or allow calls with /permissions."
_KNOWN_PLUGINS = ("anthropic", "codex", "memory-core", "telegram", "discord", "slack", "matrix")


def read_settings(config: OpenClawConfig) -> Iterator[FoundSetting | LeftOut]:
    defaults, file = config.row("agents", "defaults"), config.file
    for name, given in config.row("models", "providers").items():
        if isinstance(given, dict):
            ours = _PROVIDERS.get(name, name)
            yield from read_provider(file, ours, get_text(given, "baseUrl"), get_text(given, "api"))
    if model := _name_model(_primary(defaults.get("model"))):
        yield setting(file, "model", model)
    if fallback := [_name_model(each) for each in get_texts(get_row(defaults, "model"), "fallbacks")]:
        yield setting(file, "fallback", [*fallback])
    if vision := _name_model(_primary(defaults.get("imageModel"))):
        yield setting(file, "auxiliary.vision.model", vision)
    if zone := get_text(defaults, "userTimezone"):
        yield setting(file, "timezone", zone)
    for platform, given in config.row("channels").items():
        if isinstance(given, dict) and platform != "defaults":
            yield from _read_platform(config, platform, given)


def _primary(model: object) -> str:
    return model if isinstance(model, str) else get_text(model, "primary") if isinstance(model, dict) else ""


def _name_model(name: str) -> str:
    provider, slash, model = name.partition("/")
    provider = _PROVIDERS.get(provider, provider)
    return f"{provider_name(provider)}/{model}" if slash else name


def _read_platform(config: OpenClawConfig, platform: str, given: Row) -> Iterator[FoundSetting | LeftOut]:
    file = config.file
    if platform not in MESSENGERS:
        yield _left_out(file, "settings", f"platform {platform}", f"alipes has no {platform}.")
        return
    if platform == "telegram" and (address := get_text(given, "apiRoot")):
        yield setting(file, "telegram.base_url", address)
    if (busy := _BUSY.get(get_text(config.row("messages", "queue"), "mode"))) and given.get("enabled") is not False:
        yield setting(file, f"{platform}.busy", busy)
    groups = get_row(given, "groups") or get_row(given, "guilds")
    everyone = get_row(groups, "*").get("requireMention")
    if isinstance(everyone, bool):
        yield setting(file, f"{platform}.group", "mention" if everyone else "all")
    for name, group in groups.items():
        if name != "*" and isinstance(group, dict) and group.get("requireMention") is False:
            why = f"Here {platform}.group is one setting for all groups."
            yield _left_out(file, "settings", f"group {name} on {platform} without mention", why)
    if len(get_row(given, "accounts")) > 1:
        why = "alipes has one bot for each messenger and home: use a profile for each further one."
        yield _left_out(file, "settings", f"further accounts on {platform}", why)


def read_mcp(config: OpenClawConfig) -> Iterator[Record]:
    yield from read_servers(config.row("mcp", "servers") or config.row("mcpServers"), config.file)


def read_permissions(home: SourceHome, config: OpenClawConfig) -> Iterator[LeftOut]:
    """What was allowed there once and for all."""
    for names in (("tools", "exec"), ("tools", "elevated"), ("tools", "sandbox")):
        for name, value in config.row(*names).items():
            if isinstance(value, str | bool | int):
                yield _left_out(config.file, "permissions", f"{'.'.join(names)}.{name} = {str(value)[:60]}", _NEVER)
    for agent, given in get_row(_read_approvals(home), "agents").items():
        rules = get_rows(given, "allowlist") if isinstance(given, dict) else []
        for rule in rules:
            what = f"{get_text(rule, 'pattern')[:100]} (agent {agent})"
            yield _left_out("exec-approvals.json", "permissions", what, _NEVER)


def _read_approvals(home: SourceHome) -> Row:
    if home.has("exec-approvals.json"):
        return read_row(home.read_text("exec-approvals.json") or "{}", "exec-approvals.json") or {}
    if not home.has(STATE):
        return {}
    with home.open_database(STATE) as db:
        rows = list(read_table(db, "exec_approvals_config", ("raw_json",)))
    return read_row(get_text(rows[0], "raw_json"), STATE) or {} if rows else {}


def read_plugins(config: OpenClawConfig) -> Iterator[LeftOut]:
    """Plugins are written for OpenClaw's own API."""
    for name, given in config.row("plugins", "entries").items():
        if isinstance(given, dict) and given.get("enabled") is not False and name not in _KNOWN_PLUGINS:
            why = "Plugins of OpenClaw do not run here."
            yield _left_out(config.file, "plugins", f"plugin {name}", why)
    for name, given in config.row("hooks", "internal", "entries").items():
        if isinstance(given, dict) and given.get("enabled") is not False:
            yield _left_out(config.file, "plugins", f"hook {name}", "Hooks of OpenClaw do not run here.")


def _left_out(file: str, kind: Kind, what: str, why: str) -> LeftOut:
    return LeftOut(source=RecordSource(file, what, ""), kind=kind, what=what, why=why)
