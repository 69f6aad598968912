"""Fixtures of every suite. Async tests run with the pytest plugin that is shipped for plugin authors."""

import asyncio.constants
import ctypes
import gc
import itertools
import os
import sys
import traceback
from collections.abc import Iterator
from inspect import iscoroutinefunction

import pytest
from hypothesis import settings

import alipes.testing.scripted_provider  # noqa: F401 - adds the provider `scripted`, which the suites use
from alipes.testing.leaks import LeakCheck, LeakProbe, take_snapshot
from tests.world.environment import LIMIT_S, OPTIONAL, PATIENCE, isolate, program_path, require, reset_signals
from tests.world.leftovers import LASTING, Leftovers, own_temporary_folder

__all__ = ["require"]
os.environ.update(isolated := isolate(os.environ))
for name in os.environ.keys() - isolated.keys():
    del os.environ[name]
reset_signals()

settings.register_profile("same", derandomize=True)
if "ALIPES_FUZZ" not in os.environ:  # only the long pass tries new random cases
    settings.load_profile("same")
pytest_plugins = ["alipes.testing.pytest_plugin"]

# In debug mode asyncio records where each future was created: all frames, unlike for callbacks. That took a third of
# the time of async tests.
traceback.extract_stack.__defaults__ = (None, asyncio.constants.DEBUG_STACK_DEPTH)

PR_SET_CHILD_SUBREAPER = 36
LEAKS = "leaks"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run the leak check around every test, inside the fixtures of wider scopes."""
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
    """Give every async test a deadline that suits a loaded machine: it only ends tests that hang."""
    marker = item.get_closest_marker("deadline")
    seconds = max(2 * LIMIT_S, marker.args[0] * PATIENCE if marker else 0)
    item.add_marker(pytest.mark.deadline(seconds), append=False)


def _scope(item: pytest.Function, name: str) -> str:
    known = item._fixtureinfo.name2fixturedefs.get(name)
    return known[-1].scope if known else "function"


@pytest.fixture(scope="session", autouse=True)
def leak_probes(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, LeakProbe]]:
    """Opened first and closed last, so that shared fixtures are checked for leaks too."""
    tmp_path_factory.getbasetemp()
    with own_temporary_folder() as folder:
        looks = Leftovers(folder).looks
        program_path()  # shared by all tests, so created before the first leak check
        program_path(*OPTIONAL)
        check = LeakCheck("fds", also=looks).begin()  # libuv (under llmock) keeps a pipe open until exit
        yield looks
        LASTING.close()
        if not request.session.testsfailed:
            check.verify()


@pytest.fixture(scope="session")
def leak_grace() -> float:
    """Processes that a closed terminal ends need a while on a loaded machine."""
    return LIMIT_S


_NUMBERS = itertools.count(1)
FREEZE_INTERVAL = 25
"""Tests between two freezes of what is there to stay: modules imported late, caches, reports."""


def pytest_runtest_setup() -> None:
    """Keep the garbage collector and the leak check fast: they would look at everything again in each test."""
    if not next(_NUMBERS) % FREEZE_INTERVAL:
        gc.collect()
        gc.freeze()


def pytest_runtest_teardown() -> None:
    """Stop being a subreaper: running child processes made this process one, and orphans of the next test would
    stay here as zombies."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)


def pytest_collection_finish() -> None:
    """Freeze what was loaded: the leak check looks through all objects, and need not look at these."""
    gc.collect()
    take_snapshot()  # after this, clients created during import are not reported
    gc.freeze()
