"""Hostile people: file names with paths."""

import os

import pytest

from tests.conformance.surface import File
from tests.world.model_server import Say

NAMES = ("../../../escape.txt", "..\\..\\escape.txt", "/etc/escape.env", ".env", "a]b.txt")


@pytest.mark.needs("files")
async def test_a_file_stays_in_its_folder_whatever_its_name(surface, room, fake_model):
    before = _tree(surface.home.path.parent)
    for number, name in enumerate(NAMES):
        fake_model.answers(Say(f"I have number {number}."))
        await room.say(f"take number {number}", file=File(name, "text/plain", b"canary %d" % number))
        await room.shows(f"I have number {number}.")
        path = fake_model.heard[0].rpartition(" saved at ")[2].rstrip("]")
        with open(path, "rb") as saved:
            assert saved.read() == b"canary %d" % number, name
    fresh = {path for path in _tree(surface.home.path.parent) - before if _holds(path, b"canary")}
    assert len(fresh) == len(NAMES), fresh
    (folder,) = {os.path.dirname(path) for path in fresh}
    assert folder.startswith((f"{surface.home.path}/files", f"{surface.home.path}/cache")), folder


def _tree(top) -> set[str]:
    return {os.path.join(folder, name) for folder, _, names in os.walk(top) for name in names}


def _holds(path: str, words: bytes) -> bool:
    """Small files; the store has the messages."""
    with open(path, "rb") as file:
        return os.path.getsize(path) < 100 and words in file.read()
