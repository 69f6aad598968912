"""Fixtures and habits of every suite: async tests run as those of plugin authors do, by the shipped kit."""

import os
import shutil

import pytest

pytest_plugins = ["alipes.testing.pytest_plugin"]


def require(program: str, why: str = "make services") -> str:
    """The path of `program`; where it is missing the test is skipped, or fails under ALIPES_REQUIRE_SERVICES=1."""
    if found := shutil.which(program):
        return found
    reason = f"{program} is not installed ({why})"
    if os.environ.get("ALIPES_REQUIRE_SERVICES") == "1":
        pytest.fail(reason)
    pytest.skip(reason)
