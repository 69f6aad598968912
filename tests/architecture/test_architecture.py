"""ARCHITECTURE.md is true: its hops and packages exist, its layers are those of import-linter, it is one page."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SRC = ROOT / "src" / "alipes"
PAGE = (ROOT / "ARCHITECTURE.md").read_text()
HOP = re.compile(r"^\| (\d) \| [^|]+ \| `([\w/.]+):(\w+)` \| `([\w/.]+):(\w+)` \|", re.MULTILINE)
MAX_LINES = 70


def hops() -> list[tuple[int, str, str]]:
    """Number, file and function, for the terminal and for Telegram."""
    found = HOP.findall(PAGE)
    return [(int(row[0]), *row[at : at + 2]) for row in found for at in (1, 3)]


def test_there_are_eight_hops_for_the_terminal_and_for_telegram():
    assert [number for number, *_ in hops()] == [number for number in range(1, 9) for _ in range(2)]


@pytest.mark.parametrize(("file", "name"), sorted({(file, name) for _, file, name in hops()}))
def test_every_hop_exists(file, name):
    defined = (ast.FunctionDef, ast.AsyncFunctionDef)
    tree = ast.parse((SRC / file).read_text())
    assert name in {node.name for node in ast.walk(tree) if isinstance(node, defined)}


def test_every_package_is_described():
    described = set(re.findall(r"^\| `(\w+)/` \|", PAGE, re.MULTILINE))
    assert described == {path.parent.name for path in SRC.glob("*/__init__.py")}


def test_the_layers_are_those_of_import_linter():
    (described,) = re.findall(r"`(cli .*?kernel)`", PAGE, re.DOTALL)
    layers = [layer.strip() for layer in " ".join(described.split()).split(">")]
    checked = re.search(r"layers = \[(.*?)\]", (ROOT / "pyproject.toml").read_text(), re.DOTALL)
    assert checked and layers == [row.replace("alipes.", "") for row in re.findall(r'"(.*?)"', checked[1])]


def test_it_is_one_page():
    assert PAGE.count("\n") <= MAX_LINES
