"""The folder with the copies of an import."""

import os
import tempfile
from pathlib import Path

import pytest

from alipes.config.loader import load_settings
from alipes.features.importer.copies import lock_imports, open_copies
from alipes.kernel.errors import ConfigError


@pytest.fixture
def place(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def test_what_killed_imports_left_is_removed_and_what_others_use_is_not(place):
    for name in ("alipes-import-left", "alipes-import-new", "alipes-other"):
        (place / name).mkdir()
    (place / "alipes-import-left/0").write_text("a conversation")
    os.utime(place / "alipes-import-left", (1, 1))
    (place / "alipes-import-link").symlink_to(place / "alipes-other")
    with open_copies() as first:
        Path(first, "0").write_text("mine")
        with open_copies():
            assert (first / "0").exists() and not (place / "alipes-import-left").exists()
    left = sorted(each.name for each in place.iterdir())
    assert left == ["alipes-import-link", "alipes-import-new", "alipes-other"]


def test_one_import_of_a_home_at_a_time(tmp_path):
    settings = load_settings(tmp_path, {})
    with (
        lock_imports(settings),
        pytest.raises(ConfigError, match=f"Another import of {tmp_path} is running"),
        lock_imports(settings),
    ):
        raise AssertionError
    with lock_imports(settings):
        pass
