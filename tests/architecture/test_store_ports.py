"""Nothing outside the store names its engine, and every port of the store has a contract suite."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SRC = ROOT / "src" / "alipes"
PORTS = SRC / "kernel" / "store"
OUTSIDE = sorted(path for path in SRC.rglob("*.py") if (SRC / "store") not in path.parents)
OPENERS = {"open_store", "open_archive"}
COMPOSITION = ("core/resources.py", "cli/")
"""Only here is a store opened."""
ENGINE = ("alipes.store.database", "alipes.store.postgres")
NOT_ATTRIBUTES = {"Store", "EventSubscription", "ChangeSignal", "Liveness", "BlobStore"}
"""Protocols that are part of another port, or are opened beside the store."""
NOT_PORTS = {"host", "clustered", "check_lease"}


def find_engine_names(tree: ast.AST, *, may_open: bool) -> list[str]:
    """What a file says about the engine of the store."""
    found = []
    for node in ast.walk(tree):
        match node:
            case ast.ImportFrom(module=str(module), names=names) if module.startswith("alipes.store"):
                found += [module] if module.startswith(ENGINE) else []
                banned = set() if may_open else OPENERS
                found += [each.name for each in names if each.name.startswith("Sql") or each.name in banned]
                found += [
                    each.name for each in names if module == "alipes.store" and each.name in ("database", "postgres")
                ]
            case ast.Import(names=names):
                found += [each.name for each in names if each.name.startswith(ENGINE)]
            case ast.Attribute(value=ast.Attribute(attr=owner) | ast.Name(id=owner), attr="database"):
                found += [f"{owner}.database"] if owner.endswith(("store", "paths")) else []
            case ast.Name(id="DATABASE_FILE"):
                found.append("DATABASE_FILE")
    return found


@pytest.mark.parametrize("path", OUTSIDE, ids=lambda path: str(path.relative_to(SRC)))
def test_nothing_outside_the_store_names_its_engine(path):
    name = str(path.relative_to(SRC))
    if name == "platforms/matrix/client.py":
        return  # the database of another library, which keeps the keys of encrypted rooms
    assert not find_engine_names(ast.parse(path.read_text()), may_open=name.startswith(COMPOSITION))


@pytest.mark.parametrize(
    "text",
    [
        "from alipes.store.sql.turns import SqlTurns",
        "from alipes.store.sql.rows import to_json",
        "from alipes.store.sqlite.store import open_store",
        "import alipes.store.postgres.database",
        "from alipes.store import database",
        "app.store.database.run(work)",
        "store.database",
        "settings.paths.database.exists()",
        "home / DATABASE_FILE",
    ],
)
def test_the_gate_finds_each_way_to_name_the_engine(text):
    assert find_engine_names(ast.parse(text), may_open=False)


def find_ports() -> dict[str, str]:
    """By protocol: the attribute of the store."""
    (store,) = [
        node
        for node in ast.walk(ast.parse((PORTS / "store.py").read_text()))
        if isinstance(node, ast.ClassDef) and node.name == "Store"
    ]
    properties = [node for node in store.body if isinstance(node, ast.FunctionDef)]
    return {
        ast.unparse(each.returns).strip("'").removesuffix(" | None"): each.name
        for each in properties
        if each.returns and each.name not in NOT_PORTS
    }


def find_protocols() -> set[str]:
    return {
        node.name
        for path in PORTS.glob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ClassDef) and any(ast.unparse(base) == "Protocol" for base in node.bases)
    }


def find_untested(ports: dict[str, str], suites: str) -> list[str]:
    return [protocol for protocol, name in ports.items() if f".{name}." not in suites]


def test_every_protocol_is_a_part_of_the_store():
    assert find_protocols() - NOT_ATTRIBUTES <= set(find_ports())


def test_every_port_has_a_contract_suite():
    paths = (ROOT / "tests" / "contract").glob("test_*.py")
    suites = "\n".join(text for path in paths if "(opened" in (text := path.read_text()))
    assert not find_untested(find_ports(), suites)


def test_a_port_without_a_suite_is_found():
    assert find_untested({"TurnStore": "turns", "Outbox": "outbox"}, "await store.turns.accept(x)") == ["Outbox"]
