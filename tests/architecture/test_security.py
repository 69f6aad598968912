"""SECURITY.md is true: each claim names a test, and each named test exists."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = re.sub(r"<!--.*?-->", "", (ROOT / "SECURITY.md").read_text(), flags=re.DOTALL)
TEST = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")
CLAIMS = [
    line.strip("|").split("|")
    for table in re.findall(r"\| claim \| test \|\n\|---\|---\|\n((?:\|.*\n)+)", PAGE)
    for line in table.splitlines()
]


@pytest.mark.parametrize("row", CLAIMS, ids=lambda row: row[0].strip())
def test_each_claim_names_a_test_that_exists(row):
    claim, *cells = row
    named = TEST.findall("|".join(cells))
    assert named, f"no test shows: {claim.strip()}"
    for file, name in named:
        body = ast.parse((ROOT / file).read_text()).body
        assert name in {node.name for node in body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}, name


def test_every_attacker_has_claims():
    assert len(CLAIMS) > 25 and PAGE.count("\n### ") == PAGE.count("| claim | test |")


def test_it_says_what_is_no_boundary_and_how_to_report():
    assert "## What is no boundary" in PAGE and "## Report a problem" in PAGE
