"""Embeddings by an optional package: similar texts score higher, and without the package there are none."""

import os
import subprocess
import sys

import pytest

from alipes.runtime.embeddings import compare_texts, find_package

TOOLS = (
    "list pull requests: List the pull requests of a repository.",
    "send mail: Send an email message to a person.",
    "weather: Forecast for a place.",
)


def test_without_the_weights_of_the_package_there_are_no_scores(tmp_path):
    (tmp_path / "wordllama").mkdir()
    (tmp_path / "wordllama" / "__init__.py").touch()
    code = """
import asyncio
from alipes.runtime.embeddings import compare_texts, embed_texts
assert asyncio.run(compare_texts("rain", ["weather"])) is None
assert asyncio.run(embed_texts(["rain"])) is None
"""
    environment = {"PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path])}
    assert subprocess.run([sys.executable, "-c", code], env=environment, check=False).returncode == 0


@pytest.mark.skipif(find_package() is None, reason="wordllama is not installed")
@pytest.mark.parametrize(
    ("query", "best"),
    [("will it rain tomorrow", 2), ("write a letter to Bob", 1), ("merge requests of our project", 0)],
)
async def test_what_means_the_same_is_similar_without_a_common_word(query, best):
    scores = await compare_texts(query, TOOLS)
    assert scores is not None and max(scores) == scores[best] > 0


@pytest.mark.skipif(find_package() is None, reason="wordllama is not installed")
async def test_a_text_without_meaning_is_similar_to_nothing():
    assert await compare_texts("xyzzy", TOOLS) == (0.0, 0.0, 0.0)


@pytest.mark.skipif(find_package() is None, reason="wordllama is not installed")
def test_the_installed_package_opens_no_connection():
    code = """
import asyncio, socket, sys
from alipes.runtime.embeddings import embed_texts
sys.addaudithook(lambda event, args: sys.exit("connected") if event in ("socket.connect", "socket.getaddrinfo") else None)
assert len(asyncio.run(embed_texts(["rain"]))[0]) == 256
"""
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_nothing_is_imported_before_the_first_comparison():
    code = "import sys, alipes.app; sys.exit(any(name in sys.modules for name in ('wordllama', 'numpy', 'tokenizers')))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
