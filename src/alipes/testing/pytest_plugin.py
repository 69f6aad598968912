"""For pytest: async tests, a house for a plugin, a leak check. Nothing of alipes is loaded before it is used.

In your conftest.py: `pytest_plugins = ["alipes.testing.pytest_plugin"]`.
"""

import asyncio
from collections.abc import Callable, Coroutine, Generator, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, nullcontext
from functools import partial
from importlib import import_module
from inspect import iscoroutinefunction
from pathlib import Path
from typing import Any

import pytest

from alipes.testing.leaks import LeakCheck, Look, where

DEADLINE = 10.0


class Late(AssertionError):
    """A test took longer than it may; the message says where each of its tasks was waiting."""


def run_test(
    test: Coroutine[Any, Any, object],
    *,
    deadline: float = DEADLINE,
    around: AbstractAsyncContextManager[object] | None = None,
) -> None:
    """Run `test` to its end, inside `around`; raise what it raises, and `Late` after `deadline` seconds."""
    asyncio.run(_within(test, deadline, around or nullcontext()), debug=True)


async def _within(
    test: Coroutine[Any, Any, object], deadline: float, around: AbstractAsyncContextManager[object]
) -> None:
    stood: list[str] = []
    loop = asyncio.get_running_loop()
    loop.call_later(deadline, lambda: stood.extend(map(where, asyncio.all_tasks())))
    try:
        async with asyncio.timeout(deadline) as limit, around:
            await test
    except TimeoutError as error:
        if not limit.expired():
            raise
        tasks = "\n".join(f"  {each}" for each in sorted(stood))
        raise Late(f"not done after {deadline:g} s; these were waiting:\n{tasks}") from error


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
    open_agent = import_module("alipes.testing.agent").open_agent
    return partial(open_agent, home=tmp_path / "alipes")
