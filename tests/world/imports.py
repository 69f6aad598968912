"""Imports in this process: homes of other programs, imported into a home of a test, and what is in both."""

import hashlib
import json
import random
import shutil
import sqlite3
import tempfile
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path
from typing import Any

from alipes.config.loader import load_settings
from alipes.features.importer.importer import Importer, ImportResult, UndoResult, undo_import
from alipes.features.importer.plan import Plan
from alipes.features.importer.reader import load_reader
from alipes.features.importer.records import KINDS
from alipes.features.importer.report import write_report
from alipes.features.importer.source_home import SourceHome
from alipes.features.importer.targets.target import ImportOptions
from alipes.store.open import open_home_store

HOMES = Path(__file__).with_name("homes")
INTERNAL = ("sqlite_", "search_index_", "search_trigrams", "search_progress", "memory_changes_seq")
TIMES = {"imports": ("started", "finished"), "schedules": ("created", "updated", "due", "wake_at")}
"""Columns with the time of the import itself."""
TIMES |= {"memory_changes": ("number", "created"), "people": ("added",)}


def copy_home(name: str, folder: Path) -> Path:
    """A copy of a home in `homes`, which the test may change."""
    return Path(shutil.copytree(HOMES / name, folder / name))


def hash_tree(folder: Path) -> dict[str, str]:
    """The hash of every file, and every folder."""
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else "folder"
        for path in sorted(folder.rglob("*"))
    }


class ImportingHome:
    """A home of alipes into which a test imports."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.mkdir(parents=True, exist_ok=True, mode=0o700)

    async def run(
        self,
        program: str,
        source: Path,
        *,
        part: str = "",
        kinds: Iterable[str] = KINDS,
        secrets: bool = False,
        applies: bool = True,
        **options: Any,
    ) -> ImportResult:
        """Plan, and apply the plan."""
        settings = load_settings(self.path, {})
        with tempfile.TemporaryDirectory() as copies:
            reader = load_reader(program)(SourceHome(source, Path(copies)), part)
            async with open_home_store(settings) as store:
                importer = Importer(settings, store, reader, ImportOptions(**options), tuple(kinds))
                plan = await importer.plan(_ignore, secrets=secrets)
                result = await importer.apply(plan, _ignore) if applies else ImportResult("", plan)
        if result.id:
            write_report(self.path / "imports" / result.id, result)
        return result

    async def plan(self, program: str, source: Path, **options: Any) -> Plan:
        return (await self.run(program, source, applies=False, **options)).plan

    async def undo(self, id: str) -> UndoResult:
        settings = load_settings(self.path, {})
        async with open_home_store(settings) as store:
            return await undo_import(settings, store, id)

    def query(self, sql: str, *values: object) -> list[tuple[Any, ...]]:
        with closing(sqlite3.connect(self.path / "alipes.db")) as db:
            return db.execute(sql, values).fetchall()

    def tables(self, *, times: bool = True) -> dict[str, list[tuple[Any, ...]]]:
        """Every row of every table; `times`: with the columns that have the time of the import."""
        found = {}
        for (name,) in self.query("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name"):
            if name.startswith(INTERNAL):
                continue
            columns = [column for _, column, *_ in self.query(f"PRAGMA table_info({name})")]
            if name == "search_index":
                columns = ["rowid", "text"]
            chosen = [each for each in columns if times or each not in TIMES.get(name, ())]
            rows = self.query(f"SELECT {', '.join(chosen)} FROM {name}")
            if name in ("imported_items", "schedules") and not times:
                rows = [_without_times(row) for row in rows]
            found[name] = sorted(rows, key=repr)
        return found

    def files(self) -> dict[str, str]:
        """The files that an import may change, besides those in `imports`."""
        outside = ("alipes.db", "run", "logs", "imports", "spill")
        found = hash_tree(self.path)
        return {name: digest for name, digest in found.items() if not name.startswith(outside) and digest != "folder"}


def _without_times(row: tuple[Any, ...]) -> tuple[Any, ...]:
    """Without the number of a change of the memory, which another try may have taken, and without the moment from
    which a job counts its intervals, and hashes of that."""
    values: list[object] = []
    for value in row:
        if isinstance(value, str) and value.startswith("{"):
            table = {name: each for name, each in json.loads(value).items() if name != "number"}
            table.get("timetable", {}).pop("at", None)
            values.append(json.dumps(table))
        else:
            values.append(value)
    if "schedules" in row:
        values.pop()
        values.pop()
    return tuple(values)


def _ignore(*_: object) -> None:
    pass


def write_hermes(path: Path, sessions: int, messages: int, seed: int = 1) -> Path:
    """A home of Hermes with a database of that size."""
    path.mkdir(parents=True)
    with closing(sqlite3.connect(HOMES / "hermes" / "state.db")) as sample:
        schema = [
            sql
            for (sql,) in sample.execute(
                "SELECT sql FROM sqlite_master WHERE sql LIKE 'CREATE TABLE %' OR sql LIKE 'CREATE INDEX %'"
            )
        ]
    chance = random.Random(seed)
    words = [f"word{number}" for number in range(3000)]
    with closing(sqlite3.connect(path / "state.db")) as db, db:
        for sql in schema:
            if not any(name in sql for name in ("sqlite_", "_fts")):
                db.execute(sql)
        db.execute("INSERT INTO schema_version VALUES (22)")
        for number in range(sessions):
            started = 1_760_000_000.0 + number * 600
            values = (f"s{number:06}", "cli", "mock-1", started, started + 500, f"Conversation {number}", "/tmp")
            db.execute(
                "INSERT INTO sessions (id, source, model, started_at, ended_at, title, cwd) VALUES (?,?,?,?,?,?,?)",
                values,
            )
            for place in range(messages // sessions):
                role = ("user", "assistant", "tool", "assistant")[place % 4]
                calls = [
                    {
                        "id": f"c{place}",
                        "type": "function",
                        "function": {"name": "terminal", "arguments": '{"command":"ls"}'},
                    }
                ]
                text = " ".join(chance.choices(words, k=40))
                db.execute(
                    "INSERT INTO messages (session_id, role, content, tool_call_id, tool_calls, timestamp) VALUES (?,?,?,?,?,?)",
                    (
                        values[0],
                        role,
                        text,
                        f"c{place - 1}" if role == "tool" else None,
                        json.dumps(calls) if place % 4 == 1 else None,
                        started + place,
                    ),
                )
    return path
