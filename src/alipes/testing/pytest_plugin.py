"""For pytest: async tests, a house for a plugin, a leak check. Nothing of alipes is loaded before it is used.

In your conftest.py: `pytest_plugins = ["alipes.testing.pytest_plugin"]`.
"""

from collections.abc import Callable, Generator, Iterator, Mapping
from functools import partial
from importlib import import_module
from inspect import iscoroutinefunction
from pathlib import Path
from typing import Any

import pytest

from alipes.testing.counting import Look
from alipes.testing.leaks import LeakCheck
from alipes.testing.running import DEADLINE, run_test

_FAILED = pytest.StashKey[bool]()


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers", f"deadline(seconds): how long an async test may take (default {DEADLINE:g})"
    )


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run an `async def` test; `@pytest.mark.deadline(60)` gives it longer than usual."""
    if not iscoroutinefunction(pyfuncitem.obj):
        return None
    wanted = pyfuncitem._fixtureinfo.argnames
    marker = pyfuncitem.get_closest_marker("deadline")
    check = pyfuncitem.funcargs.get("leaks")
    run_test(
        pyfuncitem.obj(**{name: pyfuncitem.funcargs[name] for name in wanted}),
        deadline=marker.args[0] if marker else DEADLINE,
        around=check.inside() if isinstance(check, LeakCheck) else None,
    )
    return True


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.failed:
        item.stash[_FAILED] = True
    return report


@pytest.fixture(scope="session")
def leak_looks() -> Mapping[str, Look]:
    """What `leaks` looks for beside its own kinds, by name. For a conftest.py to say otherwise."""
    return {}


@pytest.fixture
def leaks(request: pytest.FixtureRequest, leak_looks: Mapping[str, Look]) -> Iterator[LeakCheck]:
    """Whatever the test opens must be closed at its end. `leaks.allow("threads")` lets a kind pass.

    An async test is looked at twice: when it is done, and when its loop is closed. Of a test that failed,
    what it left open is not told too.
    """
    check = LeakCheck(also=leak_looks).begin()
    yield check
    if not request.node.stash.get(_FAILED, False):
        check.verify()


@pytest.fixture
def alipes(tmp_path: Path) -> Callable[..., Any]:
    """`open_agent` in a home of the test's own; opened again in the same test, it is the same home."""
    open_agent = import_module("alipes.testing.talking").open_agent
    return partial(open_agent, home=tmp_path / "alipes")
