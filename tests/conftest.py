"""Fixtures and habits of every suite: async tests run as those of plugin authors do, by the shipped kit."""

import ctypes
import gc
import os
import sys
from collections.abc import Iterator
from inspect import iscoroutinefunction

import pytest
from hypothesis import settings

from alipes.testing.leaks import LeakCheck, Look, census
from tests.world.environment import LIMIT_S, OPTIONAL, PATIENCE, isolate, program_path, require, reset_signals
from tests.world.leftovers import LASTING, Leftovers, own_temporary_folder

__all__ = ["require"]
os.environ.update(isolated := isolate(os.environ))
for name in os.environ.keys() - isolated.keys():
    del os.environ[name]
reset_signals()

settings.register_profile("same", derandomize=True)
if "ALIPES_FUZZ" not in os.environ:  # the long pass looks for new cases, the short one tries the same again
    settings.load_profile("same")
pytest_plugins = ["alipes.testing.pytest_plugin"]

PR_SET_CHILD_SUBREAPER = 36
LEAKS = "leaks"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Every test closes what it opens. What outlives it, fixtures of a wider scope open before it begins."""
    for item in items:
        if isinstance(item, pytest.Function):
            if iscoroutinefunction(item.obj):
                _extend_deadline(item)
            if LEAKS in item.fixturenames:
                item.fixturenames.remove(LEAKS)
            wide = [name for name in item.fixturenames if _scope(item, name) != "function"]
            last = max(map(item.fixturenames.index, wide), default=-1)
            item.fixturenames.insert(last + 1, LEAKS)


def _extend_deadline(item: pytest.Function) -> None:
    """A deadline ends a test that hangs; it is long enough for a loaded machine, however short the test is."""
    marker = item.get_closest_marker("deadline")
    seconds = max(2 * LIMIT_S, marker.args[0] * PATIENCE if marker else 0)
    item.add_marker(pytest.mark.deadline(seconds), append=False)


def _scope(item: pytest.Function, name: str) -> str:
    known = item._fixtureinfo.name2fixturedefs.get(name)
    return known[-1].scope if known else "function"


@pytest.fixture(scope="session", autouse=True)
def leak_looks(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, Look]]:
    """Opened before everything else and closed after it: worlds that tests share leave nothing either."""
    tmp_path_factory.getbasetemp()
    with own_temporary_folder() as folder:
        looks = Leftovers(folder).looks
        program_path()  # shared by all tests: made before the first is looked at
        program_path(*OPTIONAL)
        check = LeakCheck(
            "fds", also=looks
        ).begin()  # libuv, under llmock, keeps a pipe as long as the process
        yield looks
        LASTING.close()
        if not request.session.testsfailed:
            check.verify()


def pytest_runtest_teardown() -> None:
    """A test that ran child processes made this process adopt orphans; those of the next are not ours, or
    what died there would stay a zombie here, and look alive."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)


def pytest_collection_finish() -> None:
    """What was loaded stays: whoever looks through all objects there are, such as the check for leaks, need
    not look at these."""
    gc.collect()
    census()  # after this, the collector does not tell of clients that were made while loading
    gc.freeze()
