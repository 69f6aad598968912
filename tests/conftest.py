"""Fixtures and habits of every suite: async tests run as those of plugin authors do, by the shipped kit."""

import ctypes
import gc
import os
import shutil
import sys

import pytest
from hypothesis import settings

settings.register_profile("same", derandomize=True)
if "ALIPES_FUZZ" not in os.environ:  # the long pass looks for new cases, the short one tries the same again
    settings.load_profile("same")
pytest_plugins = ["alipes.testing.pytest_plugin"]

PR_SET_CHILD_SUBREAPER = 36
TIGHT = (
    "compat",
    "hook",
    "kit_",
    "loader",
    "offers",
    "plugin_commands",
    "remote",
    "stop_contract",
    "toolmaking",
)
"""Suites, by a part of their path, whose every test must close what it opens: those of plugins."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        place = str(item.path.relative_to(item.config.rootpath))
        if isinstance(item, pytest.Function) and any(part in place for part in TIGHT):
            item.fixturenames.insert(0, "leaks")


def pytest_runtest_teardown() -> None:
    """A test that ran child processes made this process adopt orphans; those of the next are not ours, or
    what died there would stay a zombie here, and look alive."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)


def require(program: str, why: str = "make services") -> str:
    """The path of `program`; where it is missing the test is skipped, or fails under ALIPES_REQUIRE_SERVICES=1."""
    if found := shutil.which(program):
        return found
    reason = f"{program} is not installed ({why})"
    if os.environ.get("ALIPES_REQUIRE_SERVICES") == "1":
        pytest.fail(reason)
    pytest.skip(reason)


def pytest_collection_finish() -> None:
    """What was loaded stays: whoever looks through all objects there are, such as the check for leaks, need
    not look at these."""
    gc.collect()
    gc.freeze()
