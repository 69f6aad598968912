"""pytest plugin: async tests, the `alipes` fixture, and the `leaks` fixture.

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

from alipes.testing.leaks import GRACE_S, LeakCheck, LeakProbe, describe_task

DEADLINE = 60.0


class DeadlineExceeded(AssertionError):
    """A test exceeded its deadline; the message says where each of its tasks was waiting."""


def run_test(
    test: Coroutine[Any, Any, object],
    *,
    deadline: float = DEADLINE,
    around: AbstractAsyncContextManager[object] | None = None,
) -> None:
    """Run `test` inside `around`. Raises what it raises, and `DeadlineExceeded` after `deadline` seconds."""
    asyncio.run(_run_with_deadline(test, deadline, around or nullcontext()), debug=True)


async def _run_with_deadline(
    test: Coroutine[Any, Any, object], deadline: float, around: AbstractAsyncContextManager[object]
) -> None:
    stood: list[str] = []
    loop = asyncio.get_running_loop()
    loop.call_later(deadline, lambda: stood.extend(map(describe_task, asyncio.all_tasks())))
    try:
        async with asyncio.timeout(deadline) as limit, around:
            await test
    except TimeoutError as error:
        if not limit.expired():
            raise
        tasks = "\n".join(f"  {each}" for each in sorted(stood))
        raise DeadlineExceeded(f"not done after {deadline:g} s; waiting tasks:\n{tasks}") from error


_FAILED = pytest.StashKey[bool]()


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", f"deadline(seconds): how long an async test may take (default {DEADLINE:g})")


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run an `async def` test; `@pytest.mark.deadline(60)` changes its deadline."""
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
def leak_probes() -> Mapping[str, LeakProbe]:
    """Further probes for `leaks` by kind; override it in a conftest.py."""
    return {}


@pytest.fixture(scope="session")
def leak_grace() -> float:
    """Seconds that closing may take after a test; override it in a conftest.py."""
    return GRACE_S


@pytest.fixture
def leaks(
    request: pytest.FixtureRequest, leak_probes: Mapping[str, LeakProbe], leak_grace: float
) -> Iterator[LeakCheck]:
    """Everything the test opens must be closed at its end. `leaks.allow("threads")` exempts a kind.

    An async test is checked twice: when it is done, and when its loop is closed. Failed tests are not checked.
    """
    check = LeakCheck(within=leak_grace, also=leak_probes).begin()
    yield check
    if not request.node.stash.get(_FAILED, False):
        check.verify()


@pytest.fixture
def alipes(tmp_path: Path) -> Callable[..., Any]:
    """`open_agent` with a home of the test's own; opened again in the same test, it is the same home."""
    open_agent = import_module("alipes.testing.agent").open_agent
    return partial(open_agent, home=tmp_path / "alipes")
