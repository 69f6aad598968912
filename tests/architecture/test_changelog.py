"""CHANGELOG.md contains every fragment of changelog.d/. `python tools/changelog.py` writes it."""

from pathlib import Path

import pytest
from tools import changelog

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "CHANGELOG.md"


def test_the_changelog_is_assembled_from_the_fragments():
    assert PAGE.read_text() == changelog.assemble(), "run: python tools/changelog.py"


@pytest.mark.parametrize("path", sorted((ROOT / "changelog.d").rglob("*.md")), ids=lambda path: path.name)
def test_every_fragment_is_in_the_changelog(path):
    assert path.suffix == ".md" and path.read_text().startswith("- ")
    assert path.read_text().strip() in PAGE.read_text()
