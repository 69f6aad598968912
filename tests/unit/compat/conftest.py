"""The stage, for every test of the Hermes door."""

import pytest

from tests.unit.compat.stage import Stage


@pytest.fixture
def home(tmp_path):
    return tmp_path


@pytest.fixture
def stage(home):
    """Made inside the test's own loop by `await`-free code, so it may be a plain fixture."""
    return Stage(home)
