"""Objects are wired by their constructors and `add_*` methods: nobody assigns an attribute of another object."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.architecture.test_gates import FILES, FUNCTION, RULES, SRC, short

PLACES = ("app.py", "core", "sessions", "gateway", "features")
WAIVERS = RULES["assigned_attributes"]
Assignment = (
    ast.Assign | ast.AugAssign | ast.AnnAssign | ast.For | ast.AsyncFor | ast.withitem | ast.NamedExpr | ast.Delete
)


def targets(node: ast.AST) -> Iterator[ast.Attribute]:
    """The attributes that a statement assigns or deletes."""
    match node:
        case ast.Assign(targets=found) | ast.Delete(targets=found):
            places = list(found)
        case ast.AugAssign(target=one) | ast.AnnAssign(target=one) | ast.For(target=one) | ast.AsyncFor(target=one):
            places = [one]
        case ast.withitem(optional_vars=one) if one is not None:
            places = [one]
        case _:
            places = []
    while places:
        each = places.pop()
        if isinstance(each, ast.Tuple | ast.List):
            places += each.elts
        elif isinstance(each, ast.Starred):
            places.append(each.value)
        elif isinstance(each, ast.Attribute):
            yield each


def own_attributes(tree: ast.AST) -> set[str]:
    """Attributes of the classes of a module: it may change objects of its own classes."""
    names = set()
    for kind in (node for node in ast.walk(tree) if isinstance(node, ast.ClassDef)):
        fields = (each.target for each in kind.body if isinstance(each, ast.AnnAssign))
        names |= {each.id for each in fields if isinstance(each, ast.Name)}
        assigned = (target for node in ast.walk(kind) for target in targets(node))
        names |= {each.attr for each in assigned if isinstance(each.value, ast.Name) and each.value.id == "self"}
    return names


def made_here(function: ast.AST) -> set[str]:
    """Variables that hold what a constructor returned in this function."""
    names = set()
    for node in ast.walk(function):
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call):
            called = node.value.func
            name = called.attr if isinstance(called, ast.Attribute) else getattr(called, "id", "")
            if name.lstrip("_")[:1].isupper():
                names |= {each.id for each in node.targets if isinstance(each, ast.Name)}
    return names


def foreign_assignments(tree: ast.AST) -> Iterator[str]:
    """Assignments to attributes of objects of other modules, as `object.attribute`; `setattr` counts too."""
    own = own_attributes(tree)

    def visit(node: ast.AST, known: set[str]) -> Iterator[str]:
        if isinstance(node, FUNCTION):
            known = {"self", "cls", *made_here(node)}
        for each in targets(node):
            if each.attr not in own and not (isinstance(each.value, ast.Name) and each.value.id in known):
                yield ast.unparse(each)
        if isinstance(node, ast.Call) and ast.unparse(node.func) in ("setattr", "delattr"):
            yield ast.unparse(node.args[0])
        for child in ast.iter_child_nodes(node):
            yield from visit(child, known)

    return visit(tree, {"self", "cls"})


def files(*places: str) -> list[Path]:
    return [path for path in FILES if short(path).split("/")[0] in places]


def test_no_attribute_of_another_object_is_assigned():
    found = {
        f"{short(path)}:{each}" for path in files(*PLACES) for each in foreign_assignments(ast.parse(path.read_text()))
    }
    assert found == set(WAIVERS)


@pytest.mark.parametrize(
    ("code", "found"),
    [
        ("def f(app):\n    app.plugins = 1", ["app.plugins"]),
        ("def f(app):\n    x, app.a.b = 1, 2", ["app.a.b"]),
        ("def f(app):\n    app.n += 1", ["app.n"]),
        ("def f(app):\n    del app.n", ["app.n"]),
        ("def f(app):\n    setattr(app, 'n', 1)", ["app"]),
        ("async def f(app):\n    async with app.open() as app.opened:\n        pass", ["app.opened"]),
        ("class A:\n    async def f(self, app):\n        self.x = app.y = 1", ["app.y"]),
        ("class A:\n    def f(self):\n        self.x = 1", []),
        ("class A:\n    n: int = 0\ndef f(a):\n    a.n += 1", []),
        ("def f():\n    a = A()\n    a.n = 1", []),
        ("def f():\n    a = make()\n    a.n = 1", ["a.n"]),
    ],
)
def test_the_check_itself(code, found):
    assert list(foreign_assignments(ast.parse(code))) == found


def test_the_places_exist():
    assert all((SRC / place).exists() for place in PLACES)
