"""The harness, for every test of the Hermes door."""

import pytest

from tests.unit.compat.plugin_harness import PluginHarness


@pytest.fixture
def home(tmp_path):
    return tmp_path


@pytest.fixture
def harness(home):
    """Made inside the test's own loop by `await`-free code, so it may be a plain fixture."""
    return PluginHarness(home)
