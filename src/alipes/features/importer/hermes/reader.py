"""Reads a home of Hermes Agent."""

from collections.abc import Iterator, Mapping
from pathlib import Path

from alipes.features.importer.reader import HomeReader
from alipes.features.importer.records import Kind, Record


class Reader(HomeReader):
    program, title, part = "hermes", "Hermes Agent", "profile"

    @classmethod
    def places(cls, environ: Mapping[str, str], user: Path) -> list[Path]:
        named = [Path(environ["HERMES_HOME"])] if environ.get("HERMES_HOME") else []
        local = [Path(environ["LOCALAPPDATA"], "hermes")] if environ.get("LOCALAPPDATA") else []
        return [*named, user / ".hermes", *local]

    @classmethod
    def recognises(cls, path: Path) -> bool:
        return (path / "state.db").is_file() or ((path / "config.yaml").is_file() and (path / "memories").is_dir())

    def records(self, kind: Kind) -> Iterator[Record]:
        return iter(())
