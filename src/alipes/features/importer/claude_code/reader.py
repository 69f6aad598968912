"""Reads a home of Claude Code, and `.claude.json` beside it."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

from alipes.config.display import is_secret_name, looks_secret
from alipes.features.importer.claude_code.transcripts import FOLDER, list_files, read_transcript
from alipes.features.importer.formats import SourceError
from alipes.features.importer.found import key, read_memory, setting
from alipes.features.importer.json_lines import Row, get_row, get_text, get_texts, read_row
from alipes.features.importer.mcp_servers import read_server_keys, read_servers
from alipes.features.importer.reader import HomeReader
from alipes.features.importer.records import Kind, Record
from alipes.features.importer.skill_folders import read_prompts, read_skills
from alipes.features.importer.source_home import SourceHome

STATE = ".claude.json"
_SETTINGS = ("settings.json", "settings.local.json")
_MAX_STATE_BYTES = 50_000_000
_NEVER = "Permissions are never imported: alipes asks when it needs to."
_LOG_IN = "Logins are not copied, since two programs on one login lock each other out: log in again here."


class ClaudeCodeReader(HomeReader):
    program, title = "claude-code", "Claude Code"

    @classmethod
    def places(cls, environ: Mapping[str, str], user: Path) -> list[Path]:
        named = [Path(environ["CLAUDE_CONFIG_DIR"])] if environ.get("CLAUDE_CONFIG_DIR") else []
        return [*named, user / ".claude"]

    @classmethod
    def recognises(cls, path: Path) -> bool:
        return (path / FOLDER).is_dir() or (path.name == ".claude" and (path / "settings.json").is_file())

    def records(self, kind: Kind) -> Iterator[Record]:
        read: dict[Kind, Callable[[], Iterable[Record]]] = {
            "conversations": self._read_conversations,
            "memory": self._read_memory,
            "skills": lambda: (*read_skills(self.home, "skills"), *read_prompts(self.home, "commands")),
            "settings": self._read_settings,
            "mcp": self._read_servers,
            "keys": self._read_keys,
            "plugins": self._list_plugins,
            "permissions": self._list_permissions,
            "other": self._list_others,
        }
        yield from read[kind]() if kind in read else ()

    def _read_settings_files(self) -> Iterator[tuple[str, Row]]:
        """Raises `SourceError`."""
        for file in _SETTINGS:
            if self.home.has(file):
                yield file, _parse(file, self.home.read_text(file))

    def _read_state(self) -> Row:
        """`.claude.json`: in the home if that was chosen by a variable, else beside it. Raises `SourceError`."""
        if self.home.has(STATE):
            return _parse(STATE, self.home.read_text(STATE, _MAX_STATE_BYTES))
        if self.home.path.name != ".claude":
            return {}
        beside = SourceHome(self.home.path.parent, self.home.path.parent)
        return _parse(STATE, beside.read_text(STATE, _MAX_STATE_BYTES))

    def _read_conversations(self) -> Iterator[Record]:
        for file in list_files(self.home):
            try:
                if (found := read_transcript(self.home, file)) is not None:
                    yield found
            except SourceError as error:
                yield self.left_out("conversations", file, file, f"{error}.")

    def _read_memory(self) -> Iterator[Record]:
        if self.home.has("CLAUDE.md"):
            yield from read_memory(self.home, "CLAUDE.md", "user")
        for folder in self.home.list_names(FOLDER):
            if self.home.has(f"{FOLDER}/{folder}/memory/MEMORY.md"):
                yield from read_memory(self.home, f"{FOLDER}/{folder}/memory/MEMORY.md", "notes")

    def _read_settings(self) -> Iterator[Record]:
        for file, settings in self._read_settings_files():
            model = get_text(settings, "model")
            if model.startswith("claude-"):
                yield setting(file, "model", f"anthropic/{model}")
            elif model:
                yield self.left_out("settings", file, f"model {model}", "It names no version: choose one with /model.")

    def _read_servers(self) -> Iterator[Record]:
        state = self._read_state()
        yield from read_servers(get_row(state, "mcpServers"), STATE)
        for folder, project in get_row(state, "projects").items():
            for name in get_row(project, "mcpServers") if isinstance(project, dict) else ():
                why = f"It belongs to the project {folder[:200]}: put it into `.mcp.json` there."
                yield self.left_out("mcp", STATE, f"MCP server {name}", why)

    def _read_keys(self) -> Iterator[Record]:
        for file, settings in self._read_settings_files():
            variables = get_row(settings, "env")
            for name in variables:
                value = get_text(variables, name)
                if name.isidentifier() and value and (is_secret_name(name) or looks_secret(value)):
                    yield key(file, name, value)
            if settings.get("apiKeyHelper"):
                why = "It is a command that prints a key; commands are not run: set the key here."
                yield self.left_out("keys", file, "apiKeyHelper", why)
        state = self._read_state()
        if value := get_text(state, "primaryApiKey"):
            yield key(STATE, "ANTHROPIC_API_KEY", value, "providers.anthropic")
        if self.home.has(".credentials.json") or state.get("oauthAccount"):
            yield self.left_out("keys", ".credentials.json", "login at Anthropic", _LOG_IN)
        yield from read_server_keys(get_row(state, "mcpServers"), STATE)

    def _list_plugins(self) -> Iterator[Record]:
        for file, settings in self._read_settings_files():
            for event in get_row(settings, "hooks"):
                yield self.left_out("plugins", file, f"hooks of {event}", "Hooks of Claude Code do not run here.")
            for name, is_on in get_row(settings, "enabledPlugins").items():
                if is_on is True:
                    yield self.left_out("plugins", file, f"plugin {name}", "Plugins of Claude Code do not run here.")

    def _list_permissions(self) -> Iterator[Record]:
        for file, settings in self._read_settings_files():
            given = get_row(settings, "permissions")
            for what in ("allow", "ask", "deny"):
                for rule in get_texts(given, what):
                    yield self.left_out("permissions", file, f"{what} {rule[:100]}", _NEVER)
            if mode := get_text(given, "defaultMode"):
                yield self.left_out("permissions", file, f"mode {mode}", _NEVER)
        for folder, project in get_row(self._read_state(), "projects").items():
            for rule in get_texts(project, "allowedTools") if isinstance(project, dict) else ():
                yield self.left_out("permissions", STATE, f"allow {rule[:100]} in {folder[:200]}", _NEVER)

    def _list_others(self) -> Iterator[Record]:
        for name in self.home.list_names("agents"):
            why = "Subagents here have no descriptions of their own: make it a skill if you want it."
            yield self.left_out("other", f"agents/{name}", f"agent {name.removesuffix('.md')}", why)
        for name in ("output-styles", "keybindings.json", "statusline.sh", "plans", "todos"):
            if self.home.has(name) or self.home.list_names(name):
                yield self.left_out("other", name, name, "It is for Claude Code's own screen.")


def _parse(file: str, text: str | None) -> Row:
    found = {} if text is None else read_row(text, file)
    if found is None:
        raise SourceError(f"{file} is not valid JSON, so it was left out")
    return found


Reader = ClaudeCodeReader
