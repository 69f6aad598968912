"""Reads a home of OpenClaw, since 2026.6 with databases, before with files."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from functools import cached_property
from pathlib import Path

from msgspec import structs

from alipes.features.importer.formats import SourceError
from alipes.features.importer.json_lines import get_text
from alipes.features.importer.openclaw import databases, files, keys, people, schedules, settings, workspace
from alipes.features.importer.openclaw.config import FILES, OpenClawConfig
from alipes.features.importer.openclaw.sessions import OpenClawSession, assign_chats, build_conversations
from alipes.features.importer.reader import HomeReader
from alipes.features.importer.records import Kind, Record
from alipes.kernel.formatting import format_count

_FOLDERS = (".openclaw", ".clawdbot", ".moltbot")
_BY_THE_SYSTEM = "Scheduled jobs, hooks and subagents wrote them, not a person."


class OpenClawReader(HomeReader):
    program, title, part = "openclaw", "OpenClaw", "agent"

    @classmethod
    def places(cls, environ: Mapping[str, str], user: Path) -> list[Path]:
        named = [Path(environ["OPENCLAW_STATE_DIR"])] if environ.get("OPENCLAW_STATE_DIR") else []
        return [*named, *(user / name for name in _FOLDERS)]

    @classmethod
    def recognises(cls, path: Path) -> bool:
        return any((path / name).is_file() for name in (*FILES, settings.STATE)) or (
            (path / "agents").is_dir() and (path / "workspace").is_dir()
        )

    @cached_property
    def config(self) -> OpenClawConfig:
        return OpenClawConfig(self.home)

    @property
    def agent(self) -> str:
        """The agent whose files become ours."""
        return self.chosen or self.config.main_agent()

    def list_parts(self) -> tuple[str, ...]:
        return tuple(self.config.agents())

    def version(self) -> str:
        return get_text(self.config.row("meta"), "lastTouchedVersion")

    def default_hashes(self) -> frozenset[str]:
        return workspace.DEFAULT_PERSONAS

    def records(self, kind: Kind) -> Iterator[Record]:
        folder = self.config.workspace(self.agent)
        read: dict[Kind, Callable[[], Iterator[Record]]] = {
            "conversations": self._read_conversations,
            "memory": lambda: workspace.read_memory(self.home, folder),
            "persona": lambda: workspace.read_persona(self.home, folder),
            "notes": lambda: workspace.read_notes(self.home, folder),
            "skills": lambda: workspace.read_all_skills(self.home, [f"{folder}/skills", "skills"]),
            "schedules": lambda: schedules.read_schedules(self.home, self.config),
            "people": lambda: people.read_people(self.home, self.config),
            "settings": lambda: settings.read_settings(self.config),
            "mcp": lambda: settings.read_mcp(self.config),
            "plugins": lambda: settings.read_plugins(self.config),
            "keys": lambda: keys.read_keys(self.home, self.config),
            "permissions": lambda: settings.read_permissions(self.home, self.config),
            "other": self._list_others,
        }
        return read[kind]()

    def _read_conversations(self) -> Iterator[Record]:
        system, sessions = 0, []
        for agent in [self.chosen] if self.chosen else self.config.agents():
            try:
                found = list(self._list_sessions(agent))
            except SourceError as error:
                yield self.left_out("conversations", f"agents/{agent}", f"conversations of {agent}", f"{error}.")
                continue
            system += sum(each.is_of_the_system for each in found)
            sessions += [each for each in found if not each.is_of_the_system]
        if system:
            yield self.left_out(
                "conversations", "agents", format_count(system, "session") + " of the system", _BY_THE_SYSTEM
            )
        yield from self._build(sessions)

    def _build(self, sessions: list[OpenClawSession]) -> Iterator[Record]:
        parents: dict[str, str] = {}
        chats = assign_chats(sessions)
        tables = (self.config.row("agents", "defaults"), *self.config.agents().values())
        own = {get_text(each, "workspace") for each in tables}
        for session in sessions:
            try:
                for found in build_conversations(session, parents, chats):
                    is_own = found.workdir in own or ".openclaw" in Path(found.workdir).parts
                    yield structs.replace(found, workdir="") if is_own else found
            except SourceError as error:
                yield self.left_out("conversations", f"agents/{session.agent}", session.key, f"{error}.")

    def _list_sessions(self, agent: str) -> Iterator[OpenClawSession]:
        file = f"agents/{agent}/agent/openclaw-agent.sqlite"
        if self.home.has(file):
            return databases.list_sessions(self.home, file, agent)
        return files.list_sessions(self.home, f"agents/{agent}/sessions", agent)

    def _list_others(self) -> Iterator[Record]:
        if self.config.problem:
            yield self.left_out("other", self.config.file, self.config.file, f"{self.config.problem}.")
        yield from self._list_newer()
        yield from workspace.list_others(self.home, self.config, self.config.workspace(self.agent), self.agent)
        for agent in self.config.agents():
            folder = self.config.workspace(agent)
            if agent != self.agent and folder and self.home.list_names(folder):
                why = f"Memory, persona and skills are those of one agent: choose it with --agent {agent}."
                yield self.left_out("other", folder, f"the workspace of the agent {agent}", why)
            if deleted := files.count_deleted(self.home, f"agents/{agent}/sessions"):
                what = format_count(deleted, "deleted transcript") + f" of {agent}"
                yield self.left_out("other", f"agents/{agent}/sessions", what, "They were deleted there.")

    def _list_newer(self) -> Iterator[Record]:
        """Databases of a later version than those that are known."""
        agents = [f"agents/{agent}/agent/openclaw-agent.sqlite" for agent in self.config.agents()]
        for file, known in ((settings.STATE, settings.SCHEMA), *((each, databases.SCHEMA) for each in agents)):
            if self.home.has(file):
                with suppress(SourceError), self.home.open_database(file) as db:
                    if (version := db.user_version()) > known:
                        why = f"Its version {version} is newer than {known}: what is known by its name was read."
                        yield self.left_out("other", file, f"{file} has a newer format", why)


Reader = OpenClawReader
