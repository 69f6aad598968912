"""Reads a home of Codex."""

import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cached_property
from pathlib import Path

from alipes.features.importer.codex.rollouts import (
    is_of_the_system,
    list_files,
    read_header,
    read_names,
    read_rollout,
    session_of,
)
from alipes.features.importer.formats import SourceError, plain_value
from alipes.features.importer.found import key, key_variable, provider_name, read_memory, read_provider, setting
from alipes.features.importer.json_lines import Row, get_row, get_text, read_row
from alipes.features.importer.mcp_servers import read_server_keys, read_servers
from alipes.features.importer.reader import HomeReader
from alipes.features.importer.records import Kind, Record
from alipes.features.importer.skill_folders import read_prompts, read_skills
from alipes.kernel.formatting import format_count

CONFIG = "config.toml"
_INSTRUCTIONS = ("AGENTS.override.md", "AGENTS.md")
_NEVER = "Permissions are never imported: alipes asks when it needs to."
_LOG_IN = "Logins are not copied, since two programs on one login lock each other out: log in again here."
_PERMISSIONS = ("approval_policy", "sandbox_mode", "default_permissions")


class CodexReader(HomeReader):
    program, title = "codex", "Codex"

    @classmethod
    def places(cls, environ: Mapping[str, str], user: Path) -> list[Path]:
        named = [Path(environ["CODEX_HOME"])] if environ.get("CODEX_HOME") else []
        return [*named, user / ".codex"]

    @classmethod
    def recognises(cls, path: Path) -> bool:
        if (path / "pyproject.toml").exists() or (path / "models.json").exists():
            return False
        return ((path / "sessions").is_dir() and (path.name == ".codex" or (path / CONFIG).is_file())) or (
            path.name == ".codex" and (path / CONFIG).is_file()
        )

    @cached_property
    def config(self) -> Row:
        try:
            found = plain_value(tomllib.loads(self.home.read_text(CONFIG) or ""))
        except (tomllib.TOMLDecodeError, RecursionError) as error:
            raise SourceError(f"{CONFIG} is not valid TOML, so the settings were left out") from error
        return found if isinstance(found, dict) else {}

    def records(self, kind: Kind) -> Iterator[Record]:
        read: dict[Kind, Callable[[], Iterable[Record]]] = {
            "conversations": self._read_conversations,
            "memory": self._read_memory,
            "skills": lambda: (*read_skills(self.home, "skills"), *read_prompts(self.home, "prompts")),
            "settings": self._read_settings,
            "mcp": lambda: read_servers(self._list_servers(), CONFIG),
            "keys": self._read_keys,
            "plugins": self._list_hooks,
            "permissions": self._list_permissions,
        }
        yield from read[kind]() if kind in read else ()

    def _read_conversations(self) -> Iterator[Record]:
        names, own = read_names(self.home), 0
        files = {session_of(file): file for file in list_files(self.home)}
        for file in files.values():
            try:
                if is_of_the_system(read_header(self.home, file)):
                    own += 1
                elif (found := read_rollout(self.home, file, files, names)) is not None:
                    yield found
            except SourceError as error:
                yield self.left_out("conversations", file, file, f"{error}.")
        if own:
            what = f"{format_count(own, 'session')} of subagents"
            why = "Their results are in the sessions that started them."
            yield self.left_out("conversations", "sessions", what, why)

    def _read_memory(self) -> Iterator[Record]:
        file = next((name for name in _INSTRUCTIONS if self.home.has(name)), "")
        return read_memory(self.home, file, "user") if file else iter(())

    def _read_settings(self) -> Iterator[Record]:
        for name, given in get_row(self.config, "model_providers").items():
            if isinstance(given, dict):
                address, api = get_text(given, "base_url"), get_text(given, "wire_api")
                yield from read_provider(CONFIG, name, address, api or "chat", get_text(given, "env_key"))
        if model := get_text(self.config, "model"):
            provider = get_text(self.config, "model_provider") or "openai"
            yield setting(CONFIG, "model", f"{provider_name(provider)}/{model}")

    def _list_servers(self) -> Row:
        """With all their headers in one table."""
        servers: Row = {}
        for name, given in get_row(self.config, "mcp_servers").items():
            server = dict(given) if isinstance(given, dict) else {}
            headers = {**get_row(server, "http_headers")}
            if variable := get_text(server, "bearer_token_env_var"):
                headers["Authorization"] = f"Bearer ${{{variable}}}"
            variables = get_row(server, "env_http_headers")
            headers |= {field: f"${{{get_text(variables, field)}}}" for field in variables}
            servers[name] = {**server, "http_headers": headers}
        return servers

    def _read_keys(self) -> Iterator[Record]:
        text = self.home.read_text("auth.json")
        logins = read_row(text, "auth.json") or {} if text else {}
        if value := get_text(logins, "OPENAI_API_KEY"):
            yield key("auth.json", "OPENAI_API_KEY", value, "providers.openai")
        if logins.get("tokens"):
            yield self.left_out("keys", "auth.json", "login at ChatGPT", _LOG_IN)
        for name, given in get_row(self.config, "model_providers").items():
            value = get_text(given, "experimental_bearer_token") if isinstance(given, dict) else ""
            if value:
                yield key(CONFIG, key_variable(name), value, f"providers.{provider_name(name)}")
        yield from read_server_keys(self._list_servers(), CONFIG)

    def _list_hooks(self) -> Iterator[Record]:
        for name in ("notify", "hooks", "plugins"):
            if self.config.get(name):
                yield self.left_out("plugins", CONFIG, name, "Hooks and plugins of Codex do not run here.")

    def _list_permissions(self) -> Iterator[Record]:
        for name in _PERMISSIONS:
            if value := get_text(self.config, name):
                yield self.left_out("permissions", CONFIG, f"{name} = {value[:60]}", _NEVER)
        for folder, given in get_row(self.config, "projects").items():
            if isinstance(given, dict) and given.get("trust_level") == "trusted":
                yield self.left_out("permissions", CONFIG, f"trust in {folder[:200]}", _NEVER)
        for name in self.home.list_names("rules"):
            for line in (self.home.read_text(f"rules/{name}") or "").splitlines():
                if "allow" in line:
                    yield self.left_out("permissions", f"rules/{name}", line.strip()[:100], _NEVER)


Reader = CodexReader
