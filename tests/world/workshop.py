"""Where a file tool is tried: a working folder beside a home with secrets, and a call that remembers its progress.

`tests/unit/conftest.py` hands the fixtures out.
"""

import pytest

from alipes.tools.common import Places


class Call:
    """An `Act` of its own."""

    call_id, session = "c1", "s1"

    def __init__(self, workdir):
        self.workdir, self.shown = str(workdir), []

    async def progress(self, text):
        self.shown.append(text)


@pytest.fixture
def places(tmp_path):
    own = tmp_path / "home" / ".alipes"
    (own / "run").mkdir(parents=True)
    return Places(home=str(tmp_path / "home"), own=str(own))


@pytest.fixture
def work(tmp_path, places):
    folder = tmp_path / "work"
    folder.mkdir()
    return folder


@pytest.fixture
def call(work):
    return Call(work)
