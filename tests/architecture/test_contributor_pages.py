"""The pages of contributors are followed: their edits are made in a copy of the source, and their tests pass there."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = sorted((ROOT / "docs" / "contributing").glob("*.md"))
BLOCK = re.compile(r"^```(\w+)\n(?:# (\S+)\n)?(.*?)^```$", re.MULTILINE | re.DOTALL)
SHOWN = ("toml",)
"""Blocks without a file: a configuration, which another test loads."""
FEATURE = ROOT / "docs" / "contributing" / "add-a-feature.md"

each_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)


class PageError(Exception):
    """A block of a page cannot be followed."""


def blocks(page: Path) -> list[tuple[str, str, str]]:
    """Language, file and text of each block, in order."""
    found = [match.groups(default="") for match in BLOCK.finditer(page.read_text())]
    if unnamed := [text for language, file, text in found if not file and language not in SHOWN]:
        raise PageError(f"{page.name}: a block has no file: {unnamed[0]!r}")
    return [each for each in found if each[1]]


def edit(text: str, changes: str, *, back: bool = False) -> str:
    """`text` with the hunks of a diff, or without them again. Each must be found exactly once."""
    for hunk in changes.split("@@\n"):
        lines = hunk.splitlines(keepends=True)
        before = "".join(line[1:] for line in lines if line[0] != "+")
        after = "".join(line[1:] for line in lines if line[0] != "-")
        if back:
            before, after = after, before
        found = list(re.finditer(f"^{re.escape(before)}", text, re.MULTILINE))
        if len(found) != 1:
            raise PageError(f"these lines are in the file {len(found)} times:\n{before}")
        text = text[: found[0].start()] + after + text[found[0].end() :]
    return text


def follow(page: Path, copy: Path) -> list[str]:
    """Make the edits of the page in a copy; returns the tests that it writes."""
    tests = []
    for language, name, text in blocks(page):
        file = copy / name
        if language == "diff":
            file.write_text(edit(file.read_text(), text))
            continue
        if file.exists():
            raise PageError(f"{page.name}: {name} exists already")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        tests += [name] if file.name.startswith("test_") else []
    return tests


def copy_source(folder: Path) -> Path:
    """With the bytecode, which is valid for files that keep their times."""
    shutil.copytree(ROOT / "src", folder / "src")
    shutil.copy(ROOT / "pyproject.toml", folder)
    return folder


def run(copy: Path, *argv: str | Path) -> str:
    """The output of a program in the copy, which must succeed."""
    env = {**os.environ, "PYTHONPATH": str(copy / "src")}
    done = subprocess.run(argv, cwd=copy, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@each_page
def test_what_a_page_says_works(page, tmp_path):
    tests = follow(page, copy_source(tmp_path))
    output = run(tmp_path, sys.executable, "-m", "pytest", "-rA", "-p", "alipes.testing.pytest_plugin", *tests)
    assert tests and all(f"PASSED {name}::" in output for name in tests), output
    ruff, files = Path(sys.executable).with_name("ruff"), {name for _, name, _ in blocks(page) if name.endswith(".py")}
    run(tmp_path, ruff, "check", "--no-cache", *files)
    run(tmp_path, ruff, "format", "--no-cache", "--check", "--diff", *files)


def test_a_feature_is_deleted_as_its_page_says(tmp_path):
    page = FEATURE.read_text()
    copy = copy_source(tmp_path)
    follow(FEATURE, copy)
    folders = re.findall(r"`([\w/]+)`", page.partition("## Delete it\n")[2].partition(", and take back")[0])
    for folder in folders:
        shutil.rmtree(copy / folder)
    for language, name, text in blocks(FEATURE):
        if language == "diff":
            file = copy / name
            file.write_text(edit(file.read_text(), text, back=True))
    changed = subprocess.run(
        ["diff", "-rq", "--exclude=__pycache__", ROOT / "src", copy / "src"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (changed.returncode, changed.stdout) == (0, "")
    assert [path for path in (copy / "tests").rglob("*") if path.is_file()] == []


@pytest.mark.parametrize(("changes", "why"), [(" def old():\n+    pass\n", "0 times"), (" twice\n+once\n", "2 times")])
def test_a_block_that_no_longer_applies_is_an_error(changes, why):
    with pytest.raises(PageError, match=why):
        edit("def new():\ntwice\ntwice\n", changes)


def test_an_edit_can_be_taken_back():
    changes = " one\n+two\n@@\n-three\n+four\n"
    edited = edit("one\nthree\nfive\n", changes)
    assert edited == "one\ntwo\nfour\nfive\n"
    assert edit(edited, changes, back=True) == "one\nthree\nfive\n"
