"""Copies a whole store from SQLite to PostgreSQL or back: the same rows with the same numbers.

The target is written in one transaction (PostgreSQL) or under another name (SQLite): an interrupted move leaves it
empty. The source is only read. Afterwards the rows of each table are counted and hashed on both sides.
"""

import hashlib
import os
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from itertools import islice
from pathlib import Path
from typing import Any, TypeAlias, cast

import msgspec
import psycopg
from msgspec import Struct
from psycopg import sql

from alipes.kernel.errors import StoreError
from alipes.store.postgres.migrate import list_migrations, migrate, schema_version
from alipes.store.sqlite.migrations import migrations as sqlite_migrations

Row: TypeAlias = tuple[Any, ...]
PgConnection: TypeAlias = "psycopg.Connection[Any]"
OnTable: TypeAlias = Callable[[str, int], None]
"""Called after each table with its name and its number of rows."""
BATCH = 1000
SEARCH_INDEX = "search_index"
_NOT_COPIED = frozenset({"search_progress", "search_trigrams", "schema_version", "workers"})
"""What each store derives or owns itself."""
_PARTS_OF_CLUSTER = frozenset({"worker_batches", "takeovers", "change_watchers"})
"""What has no meaning without workers."""
_NOBODY = {("leases", "holder"): None, ("outbox", "owner"): "", ("outbox", "sender"): ""}
"""Columns that name a process."""
_KINDS: Mapping[str, type] = {"double precision": float, "bigint": int, "integer": int, "text": str, "bytea": bytes}
_ACTIVE = """SELECT count(*) FROM pg_stat_activity
    WHERE datname = current_database() AND pid <> pg_backend_pid() AND application_name LIKE 'alipes %'"""


class Table(Struct, frozen=True):
    name: str
    columns: tuple[tuple[str, type], ...]

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(name for name, _ in self.columns)


class TableSum(Struct, frozen=True):
    """How many rows a table has, and a sum of their hashes that does not depend on their order."""

    rows: int = 0
    checksum: int = 0


class MovedStore(Struct, frozen=True):
    tables: dict[str, TableSum]
    left: dict[str, int] = {}
    """Tables of PostgreSQL with rows that SQLite has no place for, and how many; the state of messengers is a file
    there."""

    @property
    def rows(self) -> int:
        return sum(each.rows for each in self.tables.values())


def move_to_postgres(source: Path, url: str, on_table: OnTable) -> MovedStore:
    """Copy the SQLite file `source` into an empty schema. Raises `StoreError`."""
    with _open_source(source) as lite, _open_postgres(url) as pg:
        migrate(pg)
        _check_known(pg)
        _check_unused(pg)
        tables = _common_tables(lite, pg)
        with pg.transaction():
            _lock_tables(pg, tables)
            _check_empty(pg, tables)
            moved = {}
            for table in tables:
                moved[table.name] = _sum_rows(_copy_in(pg, table, _lite_rows(lite, table)))
                on_table(table.name, moved[table.name].rows)
            _set_sequences(lite, pg, tables)
            _compare(moved, {table.name: _sum_rows(_pg_rows(pg, table)) for table in tables})
    return MovedStore(moved)


def move_to_sqlite(url: str, target: Path, on_table: OnTable) -> MovedStore:
    """Copy a PostgreSQL store into the new file `target`. Raises `StoreError`."""
    if target.exists():
        raise StoreError(f"{target} already exists; move it away first")
    part = target.with_name(f".{target.name}.{os.urandom(4).hex()}.part")
    try:
        with _open_postgres(url) as pg, closing(sqlite3.connect(part, isolation_level=None)) as lite:
            part.chmod(0o600)
            sqlite_migrations.migrate(lite)
            _check_known(pg)
            _check_unused(pg)
            tables = _common_tables(lite, pg)
            moved = _fill_sqlite(lite, pg, tables, on_table)
            left = _count_left(pg)
        os.rename(part, target)
    except (sqlite3.Error, OSError) as error:
        raise StoreError(f"{target} cannot be written: {error}") from error
    finally:
        for each in (part, *part.parent.glob(f"{part.name}-*")):
            with suppress(FileNotFoundError):
                each.unlink()
    return MovedStore(moved, left)


def _fill_sqlite(
    lite: sqlite3.Connection, pg: PgConnection, tables: list[Table], on_table: OnTable
) -> dict[str, TableSum]:
    moved = {}
    lite.execute("PRAGMA foreign_keys = OFF")
    with pg.transaction():
        pg.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
        lite.execute("BEGIN IMMEDIATE")
        triggers = lite.execute("SELECT name, sql FROM sqlite_master WHERE type = 'trigger'").fetchall()
        for name, _ in triggers:
            lite.execute(f'DROP TRIGGER "{name}"')
        for table in tables:
            moved[table.name] = _sum_rows(_insert(lite, table, _pg_rows(pg, table)))
            on_table(table.name, moved[table.name].rows)
        for _, text in triggers:
            lite.execute(text)
        if lost := lite.execute("PRAGMA foreign_key_check").fetchone():
            raise StoreError(f"a row of {lost[0]} refers to a missing row of {lost[2]}; nothing was moved")
        _compare(moved, {table.name: _sum_rows(_lite_rows(lite, table)) for table in tables})
        _save_sequences(lite, pg, tables)
        lite.execute("COMMIT")
    return moved


@contextmanager
def _open_source(path: Path) -> Iterator[sqlite3.Connection]:
    """The file, which nobody else can write meanwhile."""
    try:
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=rw", uri=True, isolation_level=None)) as db:
            if sqlite_migrations.schema_version(db) != sqlite_migrations.SCHEMA:
                raise StoreError(f"{path} has an older schema; start alipes once, then move it")
            db.execute("BEGIN IMMEDIATE")
            try:
                yield db
            finally:
                db.execute("ROLLBACK")
    except sqlite3.Error as error:
        raise StoreError(f"{path} cannot be read: {error}") from error


@contextmanager
def _open_postgres(url: str) -> Iterator[PgConnection]:
    try:
        with psycopg.connect(url, autocommit=True, connect_timeout=10, application_name="alipes-move") as db:
            yield db
    except psycopg.Error as error:
        raise StoreError(f"PostgreSQL: {str(error).strip() or type(error).__name__}") from error


def _check_unused(pg: PgConnection) -> None:
    (count,) = cast("Row", pg.execute(_ACTIVE).fetchone())
    if count:
        raise StoreError(f"alipes is using this PostgreSQL store ({count} connections); stop all workers first")


def _check_known(pg: PgConnection) -> None:
    """A worker may use a store that is somewhat newer, but a copy would lack what only the newer alipes knows."""
    if schema_version(pg) > list_migrations()[-1][0]:
        raise StoreError("the PostgreSQL store was written by a newer alipes; upgrade this one to move it")


def _common_tables(lite: sqlite3.Connection, pg: PgConnection) -> list[Table]:
    """The tables of both stores with their columns, each after those it refers to."""
    query = """SELECT table_name, column_name, data_type FROM information_schema.columns
        WHERE table_schema = current_schema() AND is_generated = 'NEVER' ORDER BY table_name, ordinal_position"""
    columns: dict[str, dict[str, type]] = {}
    for name, column, kind in pg.execute(query):
        columns.setdefault(name, {})[column] = _KINDS.get(kind, str)
    found = {}
    names = """SELECT name FROM sqlite_master WHERE type = 'table'
        AND sql NOT LIKE 'CREATE VIRTUAL%' AND name NOT LIKE 'sqlite%'"""
    for (name,) in lite.execute(names).fetchall():
        if name in _NOT_COPIED or name.startswith((f"{SEARCH_INDEX}_", "search_trigrams_")):
            continue
        ours = [column for _, column, *_, hidden in lite.execute(f'PRAGMA table_xinfo("{name}")') if not hidden]
        if missing := [column for column in ours if column not in columns.get(name, {})]:
            raise StoreError(f"PostgreSQL has no column {missing[0]} in the table {name}: the schemas differ")
        found[name] = Table(name, tuple((column, columns[name][column]) for column in ours))
    if SEARCH_INDEX in columns:
        found[SEARCH_INDEX] = Table(SEARCH_INDEX, (("number", int), ("text", str)))
    return _in_order(pg, found)


def _in_order(pg: PgConnection, tables: dict[str, Table]) -> list[Table]:
    query = """SELECT child.relname, parent.relname FROM pg_constraint
        JOIN pg_class child ON child.oid = conrelid JOIN pg_class parent ON parent.oid = confrelid
        WHERE contype = 'f' AND connamespace = current_schema()::regnamespace AND conrelid <> confrelid"""
    before: dict[str, set[str]] = {name: set() for name in tables}
    for child, parent in pg.execute(query):
        if child in before and parent in before:
            before[child].add(parent)
    ordered: list[Table] = []
    while before:
        ready = sorted(name for name, needs in before.items() if not needs)
        if not ready:
            raise StoreError(f"the tables {', '.join(sorted(before))} refer to each other")
        for name in ready:
            ordered.append(tables[name])
            del before[name]
        for needs in before.values():
            needs.difference_update(ready)
    return ordered


def _lock_tables(pg: PgConnection, tables: list[Table]) -> None:
    """Nobody else can write them, and their triggers are off until the end of the transaction; those of the search
    index fill its other columns."""
    for table in tables:
        name = sql.Identifier(table.name)
        pg.execute(sql.SQL("LOCK TABLE {} IN EXCLUSIVE MODE").format(name))
        if table.name != SEARCH_INDEX:
            pg.execute(sql.SQL("ALTER TABLE {} DISABLE TRIGGER USER").format(name))


def _check_empty(pg: PgConnection, tables: list[Table]) -> None:
    for table in tables:
        if pg.execute(sql.SQL("SELECT 1 FROM {} LIMIT 1").format(sql.Identifier(table.name))).fetchone():
            raise StoreError(f"the PostgreSQL store is not empty (table {table.name}); use an empty schema or database")


def _copy_in(pg: PgConnection, table: Table, rows: Iterable[Row]) -> Iterator[Row]:
    columns = sql.SQL(", ").join(map(sql.Identifier, table.names))
    statement = sql.SQL("COPY {} ({}) FROM STDIN").format(sql.Identifier(table.name), columns)
    indexes = _drop_search_indexes(pg) if table.name == SEARCH_INDEX else []
    with pg.cursor() as cursor, cursor.copy(statement) as copy:
        for row in rows:
            copy.write_row(row)
            yield row
    for index in indexes:
        pg.execute(index.encode())
    if table.name != SEARCH_INDEX:
        pg.execute(sql.SQL("ALTER TABLE {} ENABLE TRIGGER USER").format(sql.Identifier(table.name)))


def _drop_search_indexes(pg: PgConnection) -> list[str]:
    """Building them at once after the rows is much faster. Returns the statements that do so."""
    pg.execute("SET LOCAL maintenance_work_mem = '256MB'")
    found = pg.execute(
        "SELECT indexname, indexdef FROM pg_indexes WHERE schemaname = current_schema() AND tablename = %s "
        "AND indexdef LIKE '%%USING gin%%'",
        (SEARCH_INDEX,),
    ).fetchall()
    for name, _ in found:
        pg.execute(sql.SQL("DROP INDEX {}").format(sql.Identifier(name)))
    return [definition for _, definition in found]


def _insert(lite: sqlite3.Connection, table: Table, rows: Iterator[Row]) -> Iterator[Row]:
    names = ", ".join(f'"{name}"' for name in _lite_names(table))
    marks = ", ".join("?" * len(table.columns))
    while batch := list(islice(rows, BATCH)):
        lite.executemany(f'INSERT INTO "{table.name}" ({names}) VALUES ({marks})', batch)
        yield from batch


def _lite_names(table: Table) -> tuple[str, ...]:
    return ("rowid", "text") if table.name == SEARCH_INDEX else table.names


def _lite_rows(lite: sqlite3.Connection, table: Table) -> Iterator[Row]:
    names = ", ".join(f'"{name}"' for name in _lite_names(table))
    for row in lite.execute(f'SELECT {names} FROM "{table.name}"'):
        yield _clean(table, row)


def _pg_rows(pg: PgConnection, table: Table) -> Iterator[Row]:
    columns = sql.SQL(", ").join(map(sql.Identifier, table.names))
    query = sql.SQL("SELECT {} FROM {}").format(columns, sql.Identifier(table.name))
    if table.name == "usage_sums":  # PostgreSQL has one row for each connection that wrote
        keys = [name for name, kind in table.columns if kind is str or name == "quarter"]
        parts = [
            sql.Identifier(each) if each in keys else sql.SQL("sum({})").format(sql.Identifier(each))
            for each in table.names
        ]
        query = sql.SQL("SELECT {} FROM {} GROUP BY {}").format(
            sql.SQL(", ").join(parts), sql.Identifier(table.name), sql.SQL(", ").join(map(sql.Identifier, keys))
        )
    with pg.cursor(name="move") as cursor:
        cursor.itersize = BATCH
        cursor.execute(query)
        for row in cursor:
            yield _clean(table, row)


def _clean(table: Table, row: Row) -> Row:
    """The row as both stores hold it. Leases and deliveries belong to nobody: nobody uses the source."""
    return tuple(
        _NOBODY[table.name, name] if (table.name, name) in _NOBODY else None if value is None else _convert(kind, value)
        for (name, kind), value in zip(table.columns, row, strict=True)
    )


def _convert(kind: type, value: Any) -> Any:
    if kind is str:
        return str(value).replace("\0", "")
    if kind is bytes:
        return value.encode() if isinstance(value, str) else bytes(value)
    return kind(value)


def _sum_rows(rows: Iterable[Row]) -> TableSum:
    count = checksum = 0
    for row in rows:
        digest = hashlib.blake2b(msgspec.msgpack.encode(row), digest_size=8).digest()
        count, checksum = count + 1, (checksum + int.from_bytes(digest)) % (1 << 64)
    return TableSum(count, checksum)


def _compare(expected: dict[str, TableSum], found: dict[str, TableSum]) -> None:
    for name, each in expected.items():
        if found[name] != each:
            raise StoreError(f"the table {name} differs after the move ({found[name].rows} of {each.rows} rows)")


def _count_left(pg: PgConnection) -> dict[str, int]:
    query = """SELECT table_name FROM information_schema.tables
        WHERE table_schema = current_schema() AND table_type = 'BASE TABLE'"""
    names = {name for (name,) in pg.execute(query)} - _NOT_COPIED - _PARTS_OF_CLUSTER - {SEARCH_INDEX}
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as lite:
        sqlite_migrations.migrate(lite)
        names -= {name for (name,) in lite.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    counts = {}
    for name in sorted(names):
        (counts[name],) = cast(
            "Row", pg.execute(sql.SQL("SELECT count(*) FROM {}").format(sql.Identifier(name))).fetchone()
        )
    return {name: count for name, count in counts.items() if count}


def _save_sequences(lite: sqlite3.Connection, pg: PgConnection, tables: list[Table]) -> None:
    """New rows get numbers above those that were ever used."""
    counted = {name for (name,) in lite.execute("SELECT name FROM sqlite_master WHERE sql LIKE '%AUTOINCREMENT%'")}
    for table in tables:
        if table.name not in counted:
            continue
        query = "SELECT last_value FROM pg_sequences WHERE format('%%I.%%I', schemaname, sequencename) = %s"
        name = cast("Row", pg.execute("SELECT pg_get_serial_sequence(%s, 'number')", (table.name,)).fetchone())[0]
        row = pg.execute(query, (name,)).fetchone()
        if row is not None and row[0] is not None:
            lite.execute("DELETE FROM sqlite_sequence WHERE name = ? AND seq <= ?", (table.name, row[0]))
            sql_text = """INSERT INTO sqlite_sequence (name, seq) SELECT ?1, ?2
                WHERE NOT EXISTS (SELECT 1 FROM sqlite_sequence WHERE name = ?1)"""
            lite.execute(sql_text, (table.name, row[0]))


def _set_sequences(lite: sqlite3.Connection, pg: PgConnection, tables: list[Table]) -> None:
    """New rows get numbers above those that were ever used."""
    used = dict(lite.execute("SELECT name, seq FROM sqlite_sequence").fetchall())
    for table in tables:
        if "number" not in table.names or table.name == SEARCH_INDEX:
            continue
        query = sql.SQL("""SELECT setval(sequence::regclass, greatest(last, {}))
            FROM pg_get_serial_sequence({}, 'number') sequence, (SELECT max(number) AS last FROM {}) AS newest
            WHERE sequence IS NOT NULL AND greatest(last, {}) > 0""")
        last, name = sql.Literal(used.get(table.name, 0)), sql.Identifier(table.name)
        pg.execute(query.format(last, sql.Literal(table.name), name, last))
