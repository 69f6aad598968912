"""The house rules that a linter cannot say. The numbers and the waivers stand in `architecture.toml`."""

import ast
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SRC = ROOT / "src" / "alipes"
FILES = sorted(SRC.rglob("*.py"))
HOUSE = tomllib.loads((ROOT / "architecture.toml").read_text())
LIMITS = HOUSE["limits"]
TREES = {path: ast.parse(path.read_text()) for path in FILES}
EVERY_FILE = pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(SRC)))
FUNCTION = ast.FunctionDef | ast.AsyncFunctionDef


def room(path: Path) -> str:
    return str(path.relative_to(SRC))


def broad(node: ast.AST) -> bool:
    return isinstance(node, ast.ExceptHandler) and (
        node.type is None
        or any(
            isinstance(n, ast.Name) and n.id in {"Exception", "BaseException"} for n in ast.walk(node.type)
        )
    )


@EVERY_FILE
def test_a_file_fits_in_a_head(path):
    assert path.read_text().count("\n") <= LIMITS["file_lines"]


@EVERY_FILE
def test_a_function_fits_on_a_screen(path):
    for node in ast.walk(TREES[path]):
        if isinstance(node, FUNCTION):
            assert node.end_lineno - node.lineno < LIMITS["function_lines"], node.name
            args = node.args
            positional = [a for a in (*args.posonlyargs, *args.args) if a.arg not in {"self", "cls"}]
            wide = f"{room(path)}:{node.name}" in HOUSE["wide"]
            assert wide or len(positional) + len(args.kwonlyargs) <= LIMITS["parameters"], node.name


@EVERY_FILE
def test_a_class_has_few_methods(path):
    for node in ast.walk(TREES[path]):
        if isinstance(node, ast.ClassDef):
            large = f"{room(path)}:{node.name}" in HOUSE["large"]
            assert large or sum(isinstance(n, FUNCTION) for n in node.body) <= LIMITS["methods"], node.name


@EVERY_FILE
def test_a_module_says_what_it_is(path):
    if path.read_text().strip():
        assert ast.get_docstring(TREES[path]), "the first line says what the file is and where it ends"


def test_exceptions_are_swallowed_at_the_bulkheads_and_nowhere_else():
    found = {}
    for path, tree in TREES.items():
        if count := sum(broad(node) for node in ast.walk(tree)):
            found[room(path)] = count
    assert found == HOUSE["bulkheads"]


def test_only_its_session_cancels_a_turn():
    """Every `.cancel(` of the house is listed with what it cancels; and only sessions see a living turn."""
    found = {}
    for path, tree in TREES.items():
        calls = [node.func for node in ast.walk(tree) if isinstance(node, ast.Call)]
        if count := sum(isinstance(func, ast.Attribute) and func.attr == "cancel" for func in calls):
            found[room(path)] = count
    assert found == {path: count for path, (count, _what) in HOUSE["cancels"].items()}
    turns = {path for path, (_count, what) in HOUSE["cancels"].items() if what.startswith("the turn")}
    assert turns == {"sessions/session.py"}
    users = {
        room(path)
        for path, tree in TREES.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom)
        and node.module in ("alipes.sessions.turn_state", "alipes.sessions.turn_runner")
    }
    assert all(user.startswith("sessions/") for user in users), users


def test_a_hook_is_offered_what_its_spec_says():
    """Each call of the relay in the house names exactly the parameters of the spec, so no hook misses one."""
    specs = {
        node.name: [a.arg for a in node.args.args]
        for node in TREES[SRC / "hooks" / "specs.py"].body
        if isinstance(node, ast.AsyncFunctionDef)
    }
    seen = set()
    for path, tree in TREES.items():
        for node in ast.walk(tree):
            if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.args):
                continue
            spec, how = node.args[0], node.func.attr
            if how not in {"tell", "filter", "decide", "wrap"} or not ast.unparse(spec).startswith("specs."):
                continue
            given = {keyword.arg for keyword in node.keywords}
            wanted = set(specs[spec.attr]) - ({specs[spec.attr][0]} if how == "filter" else set())
            if how == "wrap":
                wanted -= set(specs[spec.attr][:2])  # the act, and what it is done with
            assert given == wanted, f"{room(path)}: {spec.attr}"
            seen.add(spec.attr)
    assert set(specs) - seen == set(HOUSE["unused_hooks"]), "called nowhere"


def test_functions_import_only_where_the_house_says_why():
    found = {
        room(path)
        for path, tree in TREES.items()
        for node in ast.walk(tree)
        if isinstance(node, FUNCTION)
        for inner in ast.walk(node)
        if isinstance(inner, ast.Import | ast.ImportFrom)
    }
    assert found == set(HOUSE["late_imports"])


def test_no_name_says_nothing():
    empty = ("Manager", "Helper", "Util", "Base", "Mixin", "Handler")
    names = [n.name for tree in TREES.values() for n in ast.walk(tree) if isinstance(n, ast.ClassDef)]
    assert [name for name in names if name.endswith(empty)] == []


def test_there_is_enough_test_for_the_code():
    lines = lambda root: sum(p.read_text().count("\n") for p in root.rglob("*.py"))  # noqa: E731
    assert lines(ROOT / "tests") >= LIMITS["test_ratio"] * lines(SRC)
