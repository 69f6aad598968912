"""Settings, MCP servers and permissions of Hermes, from `config.yaml`."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from alipes.config.known_providers import KNOWN
from alipes.config.messengers import MESSENGERS
from alipes.features.importer.formats import content_hash
from alipes.features.importer.mcp_servers import read_server_keys, read_servers
from alipes.features.importer.records import FoundKey, FoundSetting, LeftOut, Record, RecordSource
from alipes.kernel.messages import Json
from alipes.kernel.models import Secret

CONFIG = "config.yaml"
TASKS = {
    "compression": "compaction",
    "title_generation": "titles",
    "vision": "vision",
    "approval": "approval",
    "web_extract": "web",
}
"""Auxiliary tasks there and here."""
_BUSY = ("interrupt", "queue", "steer")
_READ = {
    *("model", "fallback_providers", "fallback_model", "auxiliary", "approvals", "command_allowlist", "terminal"),
    *("telegram", "platforms", "mcp_servers", "display", "timezone", "plugins", "providers", "custom_providers"),
    *("discord", "slack", "matrix", "hooks", "quick_commands", "personalities", "_config_version"),
}
_REFERENCE = re.compile(r"\$\{[A-Za-z_][A-Za-z0-9_]*\}")


def table(value: object, *way: str) -> dict[str, Any]:
    """A table within tables; empty if there is none."""
    for name in way:
        value = value.get(name) if isinstance(value, dict) else None
    return value if isinstance(value, dict) else {}


def items(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


def text(value: object) -> str:
    return value.strip() if isinstance(value, str) else str(value) if isinstance(value, int) else ""


class ConfigReader:
    """`config`: the parsed file."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        self._config = config
        self._providers: dict[str, str] = {}

    @property
    def model(self) -> str:
        """As `provider/model`; empty if none is set."""
        model = self._config.get("model")
        if isinstance(model, str):
            return model
        name = text(table(model).get("default")) or text(table(model).get("model"))
        provider = text(table(model).get("provider"))
        return f"{self._rename(provider)}/{name}" if provider and provider != "auto" and name else name

    @property
    def zone(self) -> str:
        return text(self._config.get("timezone"))

    def settings(self) -> Iterator[Record]:
        yield from self._read_providers()
        if self.model and "/" in self.model:
            yield self._setting("model", self.model)
        fallback = [name for each in items(self._config.get("fallback_providers")) if (name := self._choice(each))]
        fallback += [name for name in [self._choice(self._config.get("fallback_model"))] if name]
        if fallback:
            yield self._setting("fallback", fallback)
        yield from self._read_auxiliary()
        if (cwd := text(table(self._config, "terminal").get("cwd"))) and cwd not in (".", "auto"):
            yield self._setting("workdir", cwd)
        if self.zone:
            yield self._setting("timezone", self.zone)
        yield from self._read_platforms()
        for name in self._config:
            if name not in _READ:
                yield self._left(str(name), "it has no counterpart here")

    def _read_auxiliary(self) -> Iterator[Record]:
        for task, chosen in table(self._config, "auxiliary").items():
            if (name := self._choice(chosen)) and task in TASKS:
                yield self._setting(f"auxiliary.{TASKS[task]}.model", name)
            elif name:
                yield self._left(f"auxiliary.{task}", "alipes has no such task")

    def _read_platforms(self) -> Iterator[Record]:
        busy = text(table(self._config, "display").get("busy_input_mode"))
        if busy in _BUSY:
            yield self._setting("terminal.busy", busy)
        for name in sorted({*table(self._config, "platforms"), *(each for each in MESSENGERS if each in self._config)}):
            if name not in MESSENGERS:
                yield self._left(f"platforms.{name}", f"alipes has no {name}")
                continue
            own = {**table(self._config, "platforms", name), **table(self._config, name)}
            if busy in _BUSY:
                yield self._setting(f"{name}.busy", busy)
            if isinstance(mention := own.get("require_mention"), bool) and name not in ("email", "irc"):
                yield self._setting(f"{name}.group", "mention" if mention else "all")
            address = text(table(own, "extra").get("base_url")).rstrip("/")
            if name == "telegram" and address.endswith("/bot"):
                yield self._setting("telegram.base_url", address.removesuffix("/bot"))

    def _read_providers(self) -> Iterator[Record]:
        for name, (address, api) in self._list_providers().items():
            if name in KNOWN or not address:
                continue
            value: dict[str, Json] = {"api": api, "base_url": address}
            if self._key_of(name):
                value["key_env"] = key_name(name)
            yield self._setting(f"providers.{name}", value)

    def _list_providers(self) -> dict[str, tuple[str, str]]:
        """Base URL and API of the providers that are set up here, by our name."""
        found = {}
        for name, each in self._tables().items():
            address = text(each.get("base_url")) or text(each.get("api"))
            mode = text(each.get("api_mode")) or text(each.get("transport"))
            api = {"anthropic_messages": "anthropic", "codex_responses": "openai-responses"}.get(mode, "openai-chat")
            found[self._rename(name)] = (address if address.startswith("http") else "", api)
        return found

    def _tables(self) -> dict[str, dict[str, Any]]:
        model = table(self._config, "model")
        own = {text(model.get("provider")): model} if text(model.get("base_url")) and model.get("provider") else {}
        named = {str(name): each for name, each in table(self._config, "providers").items() if isinstance(each, dict)}
        listed = {
            text(each.get("name")): each
            for each in items(self._config.get("custom_providers"))
            if isinstance(each, dict) and text(each.get("name"))
        }
        return {**listed, **named, **own}

    def _rename(self, name: str) -> str:
        return re.sub(r"[^a-z0-9_-]+", "-", name.removeprefix("custom:").lower()).strip("-") or "custom"

    def _key_of(self, name: str) -> str:
        own = next((each for old, each in self._tables().items() if self._rename(old) == name), {})
        return text(own.get("api_key"))

    def keys(self) -> Iterator[Record]:
        """Keys in the file itself; references are left as they are."""
        for name in self._list_providers():
            key = self._key_of(name)
            if key and not _REFERENCE.search(key):
                yield make_key(CONFIG, key_name(name), key, f"providers.{name}")
        yield from read_server_keys(table(self._config, "mcp_servers"), CONFIG)

    def servers(self) -> Iterator[Record]:
        return read_servers(table(self._config, "mcp_servers"), CONFIG)

    def permissions(self) -> Iterator[LeftOut]:
        why = "permissions are not taken over: alipes asks you again, and remembers each call by itself"
        for name in items(self._config.get("command_allowlist")):
            yield self._left(f"command_allowlist: {text(name)}", why, kind="permissions")
        mode = text(table(self._config, "approvals").get("mode"))
        if mode and mode not in ("manual", "ask", "smart"):
            yield self._left(f"approvals.mode: {mode}", why, kind="permissions")

    def others(self) -> Iterator[LeftOut]:
        for name, why in (
            ("quick_commands", "write a skill or a template for it"),
            ("personalities", "write it into SOUL.md, or a template"),
            ("hooks", "a shell hook runs as you: look at it, and add it to [hooks] yourself"),
        ):
            for each in table(self._config, name):
                yield self._left(f"{name}.{each}", why, kind="other")

    def _choice(self, chosen: object) -> str:
        if isinstance(chosen, str):
            return chosen if "/" in chosen else ""
        provider, model = text(table(chosen).get("provider")), text(table(chosen).get("model"))
        return f"{self._rename(provider)}/{model}" if provider not in ("", "auto", "main") and model else ""

    def _setting(self, key: str, value: Any) -> FoundSetting:
        return FoundSetting(source=RecordSource(CONFIG, key, content_hash(value)), key=key, value=value)

    def _left(self, what: str, why: str, kind: Any = "settings") -> LeftOut:
        return LeftOut(source=RecordSource(CONFIG, f"{CONFIG}:{what}", ""), kind=kind, what=what, why=why)


def key_name(provider: str) -> str:
    known = KNOWN.get(provider)
    if known is not None and known.key_env:
        return known.key_env
    return f"{re.sub(r'[^A-Z0-9]+', '_', provider.upper())}_API_KEY"


def make_key(file: str, name: str, value: str, used_by: str = "") -> FoundKey:
    source = RecordSource(file, f"{file}:{name}", content_hash("key", name, value))
    return FoundKey(source=source, name=name, value=Secret(value), used_by=used_by)
