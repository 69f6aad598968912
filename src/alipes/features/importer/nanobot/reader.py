"""Reads a home of nanobot."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cached_property
from pathlib import Path

from alipes.config.messengers import MESSENGERS
from alipes.features.importer.formats import SourceError, content_hash
from alipes.features.importer.found import key, key_variable, provider_name, read_memory, read_provider, setting
from alipes.features.importer.json_lines import Row, get_row, get_text, get_texts, read_row
from alipes.features.importer.mcp_servers import read_server_keys, read_servers
from alipes.features.importer.nanobot.schedules import read_schedules
from alipes.features.importer.nanobot.sessions import is_of_the_system, list_files, read_key, read_session
from alipes.features.importer.reader import HomeReader
from alipes.features.importer.records import FoundPerson, Kind, Persona, Record, RecordSource
from alipes.features.importer.skill_folders import read_skills
from alipes.kernel.formatting import format_count

CONFIG, PAIRING = "config.json", "pairing.json"
DEFAULT_PERSONAS = frozenset(("47870cd0dd5d6795fa94481aa14795dc",))
"""`SOUL.md` as nanobot writes it."""
_DEFAULT_ENTRIES = (
    "This file stores important information that should persist across sessions.",
    "Information about the user to help personalize interactions.",
    *("[ ] Casual", "[ ] Professional", "[ ] Technical", "[ ] Brief and concise", "[ ] Detailed explanations"),
    *("[ ] Adaptive based on question", "[ ] Beginner", "[ ] Intermediate", "[ ] Expert"),
    *("Casual", "Professional", "Technical", "Brief and concise", "Detailed explanations"),
    *("Adaptive based on question", "Beginner", "Intermediate", "Expert"),
)
_PROVIDERS = {"lmStudio": "lmstudio", "azureOpenai": "azure-openai"}
_TOKENS = {
    "telegram": {"token": "TELEGRAM_BOT_TOKEN"},
    "discord": {"token": "DISCORD_BOT_TOKEN"},
    "slack": {"botToken": "SLACK_BOT_TOKEN", "appToken": "SLACK_APP_TOKEN"},
    "matrix": {"accessToken": "MATRIX_TOKEN", "password": "MATRIX_PASSWORD"},
    "email": {"imapPassword": "EMAIL_PASSWORD"},
}
_GROUPS = {"mention": "mention", "open": "all"}


class NanobotReader(HomeReader):
    program, title = "nanobot", "nanobot"

    @classmethod
    def places(cls, environ: Mapping[str, str], user: Path) -> list[Path]:
        return [user / ".nanobot"]

    @classmethod
    def recognises(cls, path: Path) -> bool:
        return (path / CONFIG).is_file() and ((path / "workspace").is_dir() or (path / "sessions").is_dir())

    @cached_property
    def config(self) -> Row:
        text = self.home.read_text(CONFIG)
        found = {} if text is None else read_row(text, CONFIG)
        if found is None:
            raise SourceError(f"{CONFIG} is not valid JSON, so the settings were left out")
        return found

    @property
    def defaults(self) -> Row:
        return get_row(self.config, "agents", "defaults")

    @property
    def workspace(self) -> str:
        """Within the home; `workspace` too if the settings cannot be read."""
        try:
            named = get_text(self.defaults, "workspace")
        except SourceError:
            named = ""
        inner = re.search(r"\.nanobot/(.+)$", named.replace("\\", "/").rstrip("/"))
        return inner[1] if inner else "workspace"

    def default_hashes(self) -> frozenset[str]:
        return DEFAULT_PERSONAS

    def records(self, kind: Kind) -> Iterator[Record]:
        read: dict[Kind, Callable[[], Iterable[Record]]] = {
            "conversations": self._read_conversations,
            "memory": self._read_memory,
            "persona": self._read_persona,
            "skills": lambda: read_skills(self.home, f"{self.workspace}/skills"),
            "schedules": lambda: read_schedules(self.home, self.workspace, get_text(self.defaults, "timezone")),
            "people": self._read_people,
            "settings": self._read_settings,
            "mcp": lambda: read_servers(get_row(self.config, "tools", "mcpServers"), CONFIG),
            "keys": self._read_keys,
            "permissions": self._list_permissions,
            "other": self._list_others,
        }
        yield from read[kind]() if kind in read else ()

    def _read_conversations(self) -> Iterator[Record]:
        own = 0
        for file in list_files(self.home):
            try:
                if is_of_the_system(read_key(self.home, file)):
                    own += 1
                elif (found := read_session(self.home, file)) is not None:
                    yield found
            except SourceError as error:
                yield self.left_out("conversations", file, file, f"{error}.")
        if own:
            what = f"{format_count(own, 'session')} of the system"
            yield self.left_out("conversations", "sessions", what, "Scheduled jobs wrote them, not a person.")

    def _read_memory(self) -> Iterator[Record]:
        yield from read_memory(self.home, f"{self.workspace}/memory/MEMORY.md", "notes", _DEFAULT_ENTRIES)
        yield from read_memory(self.home, f"{self.workspace}/USER.md", "user", _DEFAULT_ENTRIES)

    def _read_persona(self) -> Iterator[Persona]:
        file = f"{self.workspace}/SOUL.md"
        text = (self.home.read_text(file) or "").strip()
        if text and content_hash(" ".join(text.split())) not in DEFAULT_PERSONAS:
            yield Persona(source=RecordSource(file, "persona", content_hash(text)), text=text)

    def _read_people(self) -> Iterator[Record]:
        seen: set[tuple[str, str]] = set()
        text = self.home.read_text(PAIRING)
        pairing = read_row(text, PAIRING) or {} if text else {}
        allowed = [
            (CONFIG, name, each, "allowed")
            for name, given in get_row(self.config, "channels").items()
            if isinstance(given, dict)
            for each in get_texts(given, "allowFrom")
        ]
        approved = get_row(pairing, "approved")
        paired = [(PAIRING, name, each, "paired") for name in approved for each in get_texts(approved, name)]
        for file, platform, person, how in (*allowed, *paired):
            person = person.partition("|")[0]
            if (platform, person) not in seen:
                seen.add((platform, person))
                source = RecordSource(file, f"{platform}:{person}", content_hash(platform, person))
                kind = "paired" if how == "paired" else "allowed"
                yield FoundPerson(source=source, platform=platform, id=person, how=kind)  # type: ignore[arg-type]
        if waiting := len(get_row(pairing, "pending")):
            why = "They write again and get a code of alipes."
            yield self.left_out("people", PAIRING, format_count(waiting, "waiting code"), why)

    def _read_settings(self) -> Iterator[Record]:
        for name, given in get_row(self.config, "providers").items():
            address = get_text(given, "apiBase") if isinstance(given, dict) else ""
            if address and isinstance(given, dict):
                api = get_text(given, "apiType")
                yield from read_provider(CONFIG, _PROVIDERS.get(name, name), address, "" if api == "auto" else api)
        if model := self._name_model(self.defaults):
            yield setting(CONFIG, "model", model)
        presets = get_row(self.config, "modelPresets")
        named = [get_row(presets, name) for name in get_texts(self.defaults, "fallbackModels")]
        if fallback := [model for each in named if (model := self._name_model(each))]:
            yield setting(CONFIG, "fallback", [*fallback])
        if (zone := get_text(self.defaults, "timezone")) and zone != "UTC":
            yield setting(CONFIG, "timezone", zone)
        for platform, given in get_row(self.config, "channels").items():
            if isinstance(given, dict) and given.get("enabled") is True and platform != "websocket":
                yield from self._read_platform(platform, given)

    def _read_platform(self, platform: str, given: Row) -> Iterator[Record]:
        if platform not in MESSENGERS:
            yield self.left_out("settings", CONFIG, f"platform {platform}", f"alipes has no {platform}.")
        elif group := _GROUPS.get(get_text(given, "groupPolicy")):
            yield setting(CONFIG, f"{platform}.group", group)

    def _name_model(self, given: Row) -> str:
        """`provider/model`; with `auto` the model names its provider, or ours guesses it."""
        provider, model = get_text(given, "provider"), get_text(given, "model")
        if not model or provider in ("", "auto"):
            return model
        return f"{provider_name(_PROVIDERS.get(provider, provider))}/{model}"

    def _read_keys(self) -> Iterator[Record]:
        for name, given in get_row(self.config, "providers").items():
            if isinstance(given, dict) and (value := get_text(given, "apiKey")) and not value.startswith("${"):
                ours = _PROVIDERS.get(name, name)
                yield key(CONFIG, key_variable(ours), value, f"providers.{provider_name(ours)}")
        for platform, fields in _TOKENS.items():
            for field, variable in fields.items():
                value = get_text(get_row(self.config, "channels", platform), field)
                if value and not value.startswith("${"):
                    yield key(CONFIG, variable, value, platform)
        yield from read_server_keys(get_row(self.config, "tools", "mcpServers"), CONFIG)

    def _list_permissions(self) -> Iterator[Record]:
        for name, value in get_row(self.config, "tools", "exec").items():
            if "allow" in name.lower() and value not in (None, [], "", False):
                why = "Permissions are never imported: alipes asks when it needs to."
                yield self.left_out("permissions", CONFIG, f"tools.exec.{name} = {str(value)[:100]}", why)

    def _list_others(self) -> Iterator[Record]:
        for name in ("AGENTS.md", "HEARTBEAT.md", "prompts", "plugins", "memory/history.jsonl"):
            place = f"{self.workspace}/{name}"
            if self.home.has(place) or self.home.list_names(place):
                yield self.left_out("other", place, name, "It is for nanobot's own prompt and memory.")


Reader = NanobotReader
