"""Reads a home of Hermes Agent, or of one of its profiles."""

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from functools import cached_property
from pathlib import Path

from alipes.features.importer.formats import SourceError, read_json, read_yaml
from alipes.features.importer.hermes import files, jobs, people, sessions
from alipes.features.importer.hermes.settings import CONFIG, ConfigReader, table
from alipes.features.importer.reader import HomeReader
from alipes.features.importer.records import Kind, Record
from alipes.features.importer.source_home import SourceHome

PROFILES = "profiles"


class Reader(HomeReader):
    program, title, part = "hermes", "Hermes Agent", "profile"

    def __init__(self, home: SourceHome, part: str = "") -> None:
        super().__init__(home.inside(f"{PROFILES}/{part}") if part else home, part)
        self._whole = home

    @classmethod
    def places(cls, environ: Mapping[str, str], user: Path) -> list[Path]:
        named = [Path(environ["HERMES_HOME"])] if environ.get("HERMES_HOME") else []
        local = [Path(environ["LOCALAPPDATA"], "hermes")] if environ.get("LOCALAPPDATA") else []
        return [*named, user / ".hermes", *local]

    @classmethod
    def recognises(cls, path: Path) -> bool:
        if (path / "openclaw.json").exists():
            return False
        files = ("state.db", CONFIG, "cron/jobs.json", "memories", "auth.json")
        return (path / "state.db").is_file() or sum((path / name).exists() for name in files) > 1

    def list_parts(self) -> tuple[str, ...]:
        return tuple(name for name in self._whole.list_names(PROFILES) if not name.startswith("."))

    def version(self) -> str:
        with suppress(SourceError), self.home.open_database(sessions.STATE) as db:
            row = next(db.rows("SELECT version FROM schema_version LIMIT 1"), None)
            return f"schema {row['version']}" if row else ""
        return ""

    def running(self) -> str:
        """The gateway writes its process id into a file."""
        with suppress(SourceError):
            found = read_json(self.home.read_text("gateway.pid") or "0", "gateway.pid")
            pid = found if isinstance(found, int) else table(found).get("pid")
            if isinstance(pid, int) and pid > 0 and os.path.isdir(f"/proc/{pid}"):
                return (
                    f"The gateway of Hermes seems to run (process {pid}). The copy is consistent, but stop it before "
                    "alipes serves the same chats: hermes gateway stop"
                )
        return ""

    def records(self, kind: Kind) -> Iterator[Record]:
        reader: Callable[[], Iterator[Record]] | None = getattr(self, f"_read_{kind}", None)
        return reader() if reader is not None else iter(())

    @cached_property
    def _read_config(self) -> ConfigReader | SourceError:
        try:
            content = self.home.read_text(CONFIG)
            return ConfigReader(table(read_yaml(content, CONFIG)) if content else {})
        except SourceError as error:
            return error

    @property
    def _config(self) -> ConfigReader:
        """Raises `SourceError`."""
        if isinstance(self._read_config, SourceError):
            raise self._read_config
        return self._read_config

    @property
    def _known_config(self) -> ConfigReader:
        """Without settings if they cannot be read."""
        return ConfigReader({}) if isinstance(self._read_config, SourceError) else self._read_config

    @cached_property
    def _env(self) -> dict[str, str]:
        return people.read_env(self.home.read_text(people.ENV) or "")

    def _read_conversations(self) -> Iterator[Record]:
        if not self.home.exists(sessions.STATE):
            return
        with self.home.open_database(sessions.STATE) as db:
            yield from sessions.SessionReader(db, self._known_config.model).records()

    def _read_memory(self) -> Iterator[Record]:
        return files.read_memory(self.home)

    def _read_persona(self) -> Iterator[Record]:
        return files.read_persona(self.home)

    def _read_skills(self) -> Iterator[Record]:
        return files.read_skills(self.home)

    def _read_schedules(self) -> Iterator[Record]:
        return jobs.read_jobs(self.home, self._known_config.zone)

    def _read_people(self) -> Iterator[Record]:
        return people.read_people(self.home, self._env)

    def _read_settings(self) -> Iterator[Record]:
        yield from people.read_env_settings(self._env)
        yield from self._config.settings()

    def _read_mcp(self) -> Iterator[Record]:
        return self._config.servers()

    def _read_plugins(self) -> Iterator[Record]:
        return files.read_plugins(self.home)

    def _read_keys(self) -> Iterator[Record]:
        yield from people.read_keys(self.home, self._env)
        yield from self._config.keys()

    def _read_permissions(self) -> Iterator[Record]:
        return self._config.permissions()

    def _read_other(self) -> Iterator[Record]:
        yield from files.read_others(self.home)
        yield from self._known_config.others()
        if not self.chosen:
            for name in self.list_parts():
                why = f"import it with --profile {name}"
                yield self.left_out("other", f"{PROFILES}/{name}", f"profile {name}", why)
