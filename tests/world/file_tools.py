"""Fixtures for file tools: a working folder, a home with secrets, and a context that records progress.

`tests/unit/conftest.py` imports the fixtures.
"""

import pytest

from alipes.tools.common import Places


class RecordingContext:
    """A tool context that records progress."""

    call_id, session = "c1", "s1"

    def __init__(self, workdir):
        self.workdir, self.shown = str(workdir), []

    async def progress(self, text):
        self.shown.append(text)


@pytest.fixture
def places(tmp_path):
    own = tmp_path / "home" / ".alipes"
    (own / "run").mkdir(parents=True)
    return Places(home=str(tmp_path / "home"), alipes_home=str(own))


@pytest.fixture
def work(tmp_path, places):
    folder = tmp_path / "work"
    folder.mkdir()
    return folder


@pytest.fixture
def call(work):
    return RecordingContext(work)
