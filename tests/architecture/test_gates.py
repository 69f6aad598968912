"""Rules that a linter cannot check. Limits and waivers are in `architecture.toml`."""

import ast
import re
import tomllib
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
SRC = ROOT / "src" / "alipes"
FILES = sorted(SRC.rglob("*.py"))
RULES = tomllib.loads((ROOT / "architecture.toml").read_text())
LIMITS = RULES["limits"]
TREES = {path: ast.parse(path.read_text()) for path in FILES}
FUNCTION = ast.FunctionDef | ast.AsyncFunctionDef


def short(path: Path) -> str:
    return str(path.relative_to(SRC))


def is_broad(node: ast.AST) -> bool:
    return isinstance(node, ast.ExceptHandler) and (
        node.type is None
        or any(isinstance(n, ast.Name) and n.id in {"Exception", "BaseException"} for n in ast.walk(node.type))
    )


def functions() -> Iterator[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef]]:
    for path, tree in TREES.items():
        yield from ((short(path), node) for node in ast.walk(tree) if isinstance(node, FUNCTION))


def test_function_length():
    """A long `__init__` is a list of what is open."""
    checked = [(file, each) for file, each in functions() if each.name != "__init__"]
    limit = LIMITS["function_lines"]
    long = [f"{file}:{each.name}" for file, each in checked if each.end_lineno - each.lineno >= limit]
    assert long == []


def count_parameters(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    args = node.args
    return len([each for each in (*args.posonlyargs, *args.args) if each.arg not in {"self", "cls"}]) + len(
        args.kwonlyargs
    )


def test_number_of_parameters():
    many = {f"{file}:{each.name}" for file, each in functions() if count_parameters(each) > LIMITS["parameters"]}
    assert many == set(RULES["many_parameters"])


def test_each_module_has_a_docstring():
    """Its first line says what the file does."""
    assert [
        short(path) for path, tree in TREES.items() if path.read_text().strip() and not ast.get_docstring(tree)
    ] == []


def test_exception_is_caught_only_at_the_bulkheads():
    found = {}
    for path, tree in TREES.items():
        if count := sum(is_broad(node) for node in ast.walk(tree)):
            found[short(path)] = count
    assert found == RULES["bulkheads"]


def test_only_its_session_cancels_a_turn():
    """Every `.cancel(` is listed with what it cancels, and only sessions see a running turn."""
    found = {}
    for path, tree in TREES.items():
        calls = [node.func for node in ast.walk(tree) if isinstance(node, ast.Call)]
        if count := sum(isinstance(func, ast.Attribute) and func.attr == "cancel" for func in calls):
            found[short(path)] = count
    assert found == {path: count for path, (count, _what) in RULES["cancels"].items()}
    turns = {path for path, (_count, what) in RULES["cancels"].items() if what.startswith("the turn")}
    assert turns == {"sessions/session.py"}
    users = {
        short(path)
        for path, tree in TREES.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom)
        and node.module in ("alipes.sessions.turn_state", "alipes.sessions.turn_runner")
    }
    assert all(user.startswith("sessions/") for user in users), users


def test_hook_calls_pass_exactly_the_parameters_of_their_spec():
    specs = {
        node.name: [a.arg for a in node.args.args]
        for node in TREES[SRC / "plugins" / "specs.py"].body
        if isinstance(node, ast.AsyncFunctionDef)
    }
    seen = set()
    for path, tree in TREES.items():
        for node in ast.walk(tree):
            if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.args):
                continue
            spec, how = node.args[0], node.func.attr
            if how not in RULES["hook_calls"] or not ast.unparse(spec).startswith("specs."):
                continue
            given = {keyword.arg for keyword in node.keywords}
            expected = set(specs[spec.attr]) - ({specs[spec.attr][0]} if how == "filter" else set())
            if how == "wrap":
                expected -= set(specs[spec.attr][:2])  # the wrapped call and its argument
            assert given == expected, f"{short(path)}: {spec.attr}"
            seen.add(spec.attr)
    assert set(specs) - seen == set(RULES["unused_hooks"]), "never called"


def test_late_imports_are_listed_with_their_reason():
    lazy = re.compile(r"features/\w+/(feature|tool|hooks)\.py")  # they import what they use with its first use
    found = {
        short(path)
        for path, tree in TREES.items()
        if not lazy.fullmatch(short(path))
        for node in ast.walk(tree)
        if isinstance(node, FUNCTION)
        for inner in ast.walk(node)
        if isinstance(inner, ast.Import | ast.ImportFrom)
    }
    joins = {name for name in found if re.fullmatch(r"features/\w+/(feature|tool|hooks)\.py", name)}
    assert found - joins == set(RULES["late_imports"])  # a feature that is not used costs no start


def test_class_names_say_something():
    empty = ("Manager", "Helper", "Util", "Base", "Mixin")
    names = [n.name for tree in TREES.values() for n in ast.walk(tree) if isinstance(n, ast.ClassDef)]
    assert [name for name in names if name.endswith(empty)] == []


def test_no_public_class_name_is_defined_twice():
    names = Counter(
        node.name
        for tree in TREES.values()
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
    )
    assert {name for name, count in names.items() if count > 1} == set(RULES["classes_twice"])


def test_no_module_is_named_by_a_gerund():
    found = {path.stem for path in FILES if path.stem.endswith("ing")}
    assert found <= set(RULES["gerunds"]["allowed"]), found


def test_there_is_no_import_cycle_even_with_late_imports():
    modules = {".".join(("alipes", *path.relative_to(SRC).with_suffix("").parts)): path for path in FILES}
    modules = {name.removesuffix(".__init__"): path for name, path in modules.items()}
    imports = defaultdict(set)
    for name, path in modules.items():
        for node in ast.walk(TREES[path]):
            if isinstance(node, ast.ImportFrom) and node.module:
                for alias in node.names:
                    full = f"{node.module}.{alias.name}"
                    imports[name].add(full if full in modules else node.module)
    remaining = {name: {other for other in imports[name] if other in modules} for name in modules}
    while leaves := [name for name, others in remaining.items() if not others & remaining.keys()]:
        for name in leaves:
            del remaining[name]
    assert sorted(remaining) == [], "these modules are in a cycle, or import one that is"


def test_there_is_enough_test_code():
    lines = lambda root: sum(p.read_text().count("\n") for p in root.rglob("*.py"))  # noqa: E731
    assert lines(ROOT / "tests") >= LIMITS["test_ratio"] * lines(SRC)
