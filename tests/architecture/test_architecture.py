"""ARCHITECTURE.md tells the truth: its hops exist, its rooms are the rooms, and it fits on one page."""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
SRC = ROOT / "src" / "alipes"
PAGE = (ROOT / "ARCHITECTURE.md").read_text()


def test_every_hop_is_a_function_that_exists():
    hops = re.findall(r"^\| (\d) \| `([\w/.]+):(\w+)`", PAGE, re.MULTILINE)
    assert [int(number) for number, *_ in hops] == list(range(1, 9))
    for _, file, function in hops:
        names = {
            node.name
            for node in ast.walk(ast.parse((SRC / file).read_text()))
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        }
        assert function in names, f"{file} has no {function}"


def test_every_room_is_described_and_every_description_is_a_room():
    told = set(re.findall(r"^\| `(\w+)/` \|", PAGE, re.MULTILINE))
    rooms = {path.parent.name for path in SRC.glob("*/__init__.py")}
    assert told == rooms


def test_the_floors_told_are_the_floors_held():
    (told,) = re.findall(r"`(cli .*?kernel)`", PAGE, re.DOTALL)
    floors = [floor.strip() for floor in " ".join(told.split()).split(">")]
    held = re.search(r"layers = \[(.*?)\]", (ROOT / "pyproject.toml").read_text(), re.DOTALL).group(1)
    assert floors == [row.replace("alipes.", "") for row in re.findall(r'"(.*?)"', held)]


def test_it_is_one_page():
    assert PAGE.count("\n") <= 70
