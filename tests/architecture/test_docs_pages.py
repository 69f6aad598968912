"""Every page tells the truth: links lead somewhere, commands and options exist, messages and figures are ours."""

import re
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = sorted(
    [*(ROOT / "docs").glob("*.md"), ROOT / "README.md", ROOT / "ARCHITECTURE.md", ROOT / "CONTRIBUTING.md"]
)
BLOCK = re.compile(r"^```(?:\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)
COMMAND = re.compile(r"(?:^|\| |&& |\$ )alipes((?: [^\s#|>&]+)*)", re.MULTILINE)
NAMES = ("-", "--")


@cache
def help_of(*words):
    """What `alipes WORDS --help` prints; nothing where there is no such command."""
    done = subprocess.run(
        [sys.executable, "-m", "alipes", *words, "--help"],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
    )
    return done.stdout if done.returncode == 0 else ""


def lines():
    """Each use of a command on a page, once."""
    found = {}
    for page in PAGES:
        for block in BLOCK.findall(page.read_text()):
            for given in COMMAND.findall(block):
                words = given.split()
                if words and re.fullmatch(r"[a-z]+", words[0]):
                    found.setdefault(" ".join(words), page.name)
    return sorted(found)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_link_of_a_page_leads_somewhere(page):
    for target in re.findall(r"\]\((?!http|mailto)([^)\s]+)\)", BLOCK.sub("", page.read_text())):
        path, _, anchor = target.partition("#")
        there = (page.parent / path).resolve() if path else page
        assert there.exists(), target
        if anchor and there.suffix == ".md":
            titles = re.findall(r"^#+ (.*)$", there.read_text(), re.MULTILINE)
            assert anchor in {_anchor(title) for title in titles}, target


def _anchor(title):
    return re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")


@pytest.mark.parametrize("line", lines())
def test_every_command_on_a_page_is_one_we_have(line):
    name, *words = line.split()
    told = help_of(name)
    assert told, f"alipes {name}"
    for option in (word.partition("=")[0] for word in words if re.fullmatch(r"--[a-z][a-z-]*(?:=.*)?", word)):
        assert option in told, f"{option} of alipes {name}"


def test_every_message_that_is_explained_is_one_of_ours():
    source = "\n".join(path.read_text() for path in (ROOT / "src" / "alipes").rglob("*.py"))
    flat = re.sub(r'"\s*\n?\s*f?"', "", source)
    page = (ROOT / "docs" / "errors.md").read_text()
    explained = re.findall(r"^\| `([^`]+)` \|", page, re.MULTILINE)
    assert len(explained) > 12
    assert [each for each in explained if each not in flat] == []


def test_every_figure_of_the_operations_page_is_measured():
    tally = (ROOT / "src" / "alipes" / "web" / "tally.py").read_text()
    page = (ROOT / "docs" / "operations.md").read_text()
    assert {name for name in re.findall(r"`(alipes_\w+)`", page) if f'"{name}"' not in tally} == set()
