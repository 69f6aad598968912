"""Nothing outside the store names its engine; each port has two implementations; each part has a contract suite."""

import ast
import re
from collections.abc import Iterable
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SRC = ROOT / "src" / "alipes"
STORE = SRC / "store"
PORTS = STORE / "ports"
OUTSIDE = sorted(path for path in SRC.rglob("*.py") if STORE not in path.parents)
ENGINES = ("alipes.store.sqlite", "alipes.store.postgres")
HELPERS = tuple(f"alipes.store.{name}" for name in ("search", "sql.connection", "sql.damage", "sql.errors", "sql.rows"))
"""For classes that use tables; others take the classes themselves."""
ABOUT_SQLITE = {"cli/commands/backup.py", "cli/commands/store.py", "cli/doctor.py"}
"""These commands are about the files and processes of a home in SQLite."""
NOT_PARTS = {"host", "clustered", "database", "processes"}
"""Of a store."""
ONE_IMPLEMENTATION = {"ClusterView": "only a cluster has one, and its class needs the driver of PostgreSQL"}


def find_engine_names(tree: ast.AST, *, about_sqlite: bool = False, has_tables: bool = False) -> list[str]:
    """What a file says about the engine of the store. `has_tables`: it is a store of a feature."""
    banned = (() if about_sqlite else ENGINES) + (() if has_tables else HELPERS)
    found = []
    for node in ast.walk(tree):
        match node:
            case ast.ImportFrom(module=str(module), names=names) if module.startswith("alipes.store"):
                imported = [f"{module}.{each.name}" for each in names]
                found += [name for name in imported if _is_in(name, banned)]
                found += [name for name in imported if "Sql" in name and not has_tables]
            case ast.Import(names=names):
                found += [each.name for each in names if _is_in(each.name, ENGINES + HELPERS)]
            case ast.Attribute(value=ast.Attribute(attr=owner) | ast.Name(id=owner), attr="database"):
                found += [f"{owner}.database"] if owner.endswith(("store", "paths")) else []
            case ast.Name(id="DATABASE_FILE"):
                found.append("DATABASE_FILE")
    return found


def _is_in(name: str, modules: tuple[str, ...]) -> bool:
    return any(f"{name}.".startswith(f"{module}.") for module in modules)


def test_nothing_outside_the_store_names_its_engine():
    found = {}
    for path in OUTSIDE:
        name = str(path.relative_to(SRC))
        if name == "platforms/matrix/client.py":
            continue  # the database of another library, which keeps the keys of encrypted rooms
        has_tables = path.match("features/*/store.py") or path.match("features/*/store/*.py")
        tree = ast.parse(path.read_text())
        if names := find_engine_names(tree, about_sqlite=name in ABOUT_SQLITE, has_tables=has_tables):
            found[name] = names
    assert found == {}


@pytest.mark.parametrize(
    "text",
    [
        "from alipes.store.sql.turns import SqlTurns",
        "from alipes.store.sql.rows import to_json",
        "from alipes.store.sql import connection",
        "from alipes.store.search.query import search_messages",
        "from alipes.store.sqlite.store import open_store",
        "from alipes.store.sqlite.store import SqliteStore",
        "import alipes.store.postgres.database",
        "import alipes.store.sql.rows",
        "from alipes.store import sqlite",
        "app.store.database.run(work)",
        "store.database",
        "settings.paths.database.exists()",
        "home / DATABASE_FILE",
    ],
)
def test_the_gate_finds_each_way_to_name_the_engine(text):
    assert find_engine_names(ast.parse(text))


@pytest.mark.parametrize(
    "text", ["from alipes.store.sql.people import PeopleStore", "from alipes.store.open import open_home_store"]
)
def test_the_gate_passes_the_classes_of_the_store(text):
    assert not find_engine_names(ast.parse(text))


def test_the_gate_lets_the_store_of_a_feature_use_tables_but_not_the_database_of_the_store():
    assert not find_engine_names(ast.parse("from alipes.store.sql.rows import SqlRows"), has_tables=True)
    assert find_engine_names(ast.parse("app.store.database.run(work)"), has_tables=True)
    assert find_engine_names(ast.parse("from alipes.store.sqlite import files"), has_tables=True)


def find_classes(paths: Iterable[Path]) -> dict[str, ast.ClassDef]:
    return {
        node.name: node for path in paths for node in ast.parse(path.read_text()).body if isinstance(node, ast.ClassDef)
    }


def find_members(node: ast.ClassDef, classes: dict[str, ast.ClassDef]) -> set[str]:
    """Public names that a class or its bases define: methods, fields, and attributes set in `__init__`."""
    found: set[str] = set()
    for each in ast.walk(node):
        match each:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                found.add(name)
            case (
                ast.AnnAssign(target=ast.Name(id=name))
                | ast.Attribute(value=ast.Name(id="self"), attr=name, ctx=ast.Store())
            ):
                found.add(name)
            case ast.Assign(targets=[ast.Name(id=name)]) if each in node.body:
                found.add(name)
    for base in node.bases:
        if (parent := classes.get(ast.unparse(base))) is not None:
            found |= find_members(parent, classes)
    return {name for name in found if not name.startswith("_")}


def find_protocols() -> dict[str, ast.ClassDef]:
    classes = find_classes(PORTS.glob("*.py"))
    return {name: each for name, each in classes.items() if "Protocol" in map(ast.unparse, each.bases)}


def find_methods(protocol: ast.ClassDef) -> set[str]:
    return {each.name for each in protocol.body if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)}


def find_implementations(protocol: ast.ClassDef, classes: dict[str, ast.ClassDef]) -> list[str]:
    """The classes that have all of its methods."""
    methods = find_methods(protocol)
    others = [each for each in classes.values() if "Protocol" not in map(ast.unparse, each.bases)]
    return [each.name for each in others if methods <= find_members(each, classes)]


def find_parts() -> set[str]:
    """The names of the parts of an open store."""
    classes = find_classes([STORE / "sql" / "store.py"])
    return find_members(classes["Store"], classes) - NOT_PARTS - {"check_lease", "tables"}


def find_tables() -> set[str]:
    """The classes that use tables of a feature."""
    classes = find_classes((SRC / "features").glob("*/store*/**/*.py"))
    classes |= find_classes((SRC / "features").glob("*/store.py"))
    return {name for name, each in classes.items() if "SqlRows" in map(ast.unparse, each.bases)}


def find_untested(parts: Iterable[str], suites: str) -> list[str]:
    """`parts`: parts of the store, and classes of features."""
    return [name for name in parts if not re.search(rf"\.{name}\.|\b{name}\(|\({name}\b", suites)]


def test_every_port_has_two_implementations_or_a_fake():
    tests = [path for part in ("unit", "world") for path in (ROOT / "tests" / part).rglob("*.py")]
    classes = find_classes([*STORE.rglob("*.py"), *tests])
    found = {name: find_implementations(each, classes) for name, each in find_protocols().items()}
    assert {name for name, names in found.items() if len(names) < 2} == set(ONE_IMPLEMENTATION), found


def test_a_port_with_one_implementation_is_found():
    text = """
class Port(Protocol):
    def read(self): ...
class One:
    def read(self): ...
    def write(self): ...
class Other:
    def write(self): ...
"""
    classes = {each.name: each for each in ast.parse(text).body if isinstance(each, ast.ClassDef)}
    assert find_implementations(classes["Port"], classes) == ["One"]
    classes["Second"] = ast.parse("class Second(One): ...").body[0]
    assert find_implementations(classes["Port"], classes) == ["One", "Second"]


def test_every_port_is_a_part_of_the_store():
    fields = ast.parse((STORE / "sql" / "store.py").read_text())
    names = {each.id for each in ast.walk(fields) if isinstance(each, ast.Name)}
    assert set(find_protocols()) <= names


def test_every_part_of_the_store_and_all_tables_of_features_have_a_contract_suite():
    paths = (ROOT / "tests" / "contract").glob("test_*.py")
    suites = "\n".join(text for path in paths if "(opened" in (text := path.read_text()))
    assert len(parts := find_parts() | find_tables()) > 35
    assert not find_untested(parts, suites)


def test_a_part_without_a_suite_is_found():
    assert find_untested(["turns", "outbox"], "await store.turns.accept(x)") == ["outbox"]
    text = "MemoryStore(store.database), store.tables(WebhookStore)"
    assert find_untested(["MemoryStore", "WebhookStore", "UsageReports"], text) == ["UsageReports"]
