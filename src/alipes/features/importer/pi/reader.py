"""Reads a home of pi, which is the folder of its agent."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

from alipes.features.importer.formats import SourceError
from alipes.features.importer.found import key, key_variable, provider_name, read_memory, read_provider, setting
from alipes.features.importer.json_lines import Row, get_row, get_text, get_texts, read_row
from alipes.features.importer.mcp_servers import read_server_keys, read_servers
from alipes.features.importer.pi.sessions import FOLDER, list_files, read_session
from alipes.features.importer.reader import HomeReader
from alipes.features.importer.records import FoundKey, Kind, LeftOut, Record
from alipes.features.importer.skill_folders import read_prompts, read_skills

_INSTRUCTIONS = ("AGENTS.override.md", "AGENTS.md", "AGENTS.MD", "CLAUDE.md", "CLAUDE.MD")
_OWN_FILES = ("models.json", "models-store.json", "keybindings.json", "extensions", "prompts", "themes")
_ENV = ("!", "$")
_LOG_IN = "Logins are not copied, since two programs on one login lock each other out: log in again here."
_REFERENCE = "It refers to a variable or a command, which are not followed: set the key here."


class PiReader(HomeReader):
    program, title = "pi", "pi"

    @classmethod
    def places(cls, environ: Mapping[str, str], user: Path) -> list[Path]:
        named = [Path(environ["PI_CODING_AGENT_DIR"])] if environ.get("PI_CODING_AGENT_DIR") else []
        return [*named, user / ".pi" / "agent"]

    @classmethod
    def recognises(cls, path: Path) -> bool:
        is_ours = path.name == "agent" and path.parent.name == ".pi"
        has_ours = any((path / name).exists() for name in _OWN_FILES) and not (path / "config.toml").exists()
        return ((path / FOLDER).is_dir() and (is_ours or has_ours)) or (path / "models-store.json").is_file()

    def records(self, kind: Kind) -> Iterator[Record]:
        read: dict[Kind, Callable[[], Iterable[Record]]] = {
            "conversations": self._read_conversations,
            "memory": self._read_memory,
            "skills": lambda: (*read_skills(self.home, "skills"), *read_prompts(self.home, "prompts")),
            "settings": self._read_settings,
            "mcp": self._read_servers,
            "keys": self._read_keys,
            "plugins": self._list_extensions,
            "permissions": self._list_permissions,
            "other": self._list_others,
        }
        yield from read[kind]() if kind in read else ()

    def _read_memory(self) -> Iterator[Record]:
        file = next((name for name in _INSTRUCTIONS if self.home.has(name)), "")
        return read_memory(self.home, file, "user") if file else iter(())

    def _read_servers(self) -> Iterator[Record]:
        return read_servers(get_row(self._read("mcp.json"), "mcpServers"), "mcp.json")

    def _list_extensions(self) -> Iterator[Record]:
        for name in self.home.list_names("extensions"):
            yield self.left_out("plugins", f"extensions/{name}", name, "Extensions of pi do not run here.")

    def _list_permissions(self) -> Iterator[Record]:
        for folder in self._read("trust.json"):
            why = "Permissions are never imported: alipes asks when it needs to."
            yield self.left_out("permissions", "trust.json", f"trust in {folder[:200]}", why)

    def _list_others(self) -> Iterator[Record]:
        for name in ("SYSTEM.md", "APPEND_SYSTEM.md", "themes", "keybindings.json"):
            if self.home.has(name) or self.home.list_names(name):
                yield self.left_out("other", name, name, "It is for pi's own screen and prompt.")

    def _read(self, file: str) -> Row:
        """A file of settings; empty if there is none. Raises `SourceError`."""
        text = self.home.read_text(file)
        found = {} if text is None else read_row(text, file)
        if found is None:
            raise SourceError(f"{file} is not valid JSON, so it was left out")
        return found

    def _read_conversations(self) -> Iterator[Record]:
        for file in list_files(self.home):
            try:
                yield from read_session(self.home, file)
            except SourceError as error:
                yield self.left_out("conversations", file, file, f"{error}.")

    def _read_settings(self) -> Iterator[Record]:
        file, settings = "settings.json", self._read("settings.json")
        for name, given in get_row(self._read("models.json"), "providers").items():
            if isinstance(given, dict):
                yield from read_provider("models.json", _ours(name), get_text(given, "baseUrl"), get_text(given, "api"))
        provider, model = get_text(settings, "defaultProvider"), get_text(settings, "defaultModel")
        if provider and model:
            yield setting(file, "model", f"{_ours(provider)}/{model}")
        if packages := get_texts(settings, "packages"):
            what = f"packages {', '.join(packages)[:200]}"
            yield self.left_out("settings", file, what, "Packages of pi do not run here.")

    def _read_keys(self) -> Iterator[FoundKey | LeftOut]:
        for name, given in get_row(self._read("models.json"), "providers").items():
            value = get_text(given, "apiKey") if isinstance(given, dict) else ""
            yield from self._read_key("models.json", name, value)
        for name, given in self._read("auth.json").items():
            login = given if isinstance(given, dict) else {}
            if login.get("type") == "api_key":
                yield from self._read_key("auth.json", name, get_text(login, "key"))
            else:
                yield self.left_out("keys", "auth.json", f"login {name}", _LOG_IN)
        yield from read_server_keys(get_row(self._read("mcp.json"), "mcpServers"), "mcp.json")

    def _read_key(self, file: str, provider: str, value: str) -> Iterator[FoundKey | LeftOut]:
        ours = _ours(provider)
        if value.startswith(_ENV):
            yield self.left_out("keys", file, f"the key of {provider}", _REFERENCE)
        elif value:
            yield key(file, key_variable(ours), value, f"providers.{provider_name(ours)}")


def _ours(provider: str) -> str:
    """Our name of a provider."""
    return {"google": "gemini"}.get(provider, provider)


Reader = PiReader
