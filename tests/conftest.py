"""Fixtures and habits of every suite: async tests on a loop of their own, with a deadline, in debug mode."""

import asyncio
import os
import shutil

import pytest


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run an `async def` test; `@pytest.mark.deadline(60)` gives it longer than the usual 10 s."""
    if not asyncio.iscoroutinefunction(pyfuncitem.obj):
        return None
    wanted = pyfuncitem._fixtureinfo.argnames
    test = pyfuncitem.obj(**{name: pyfuncitem.funcargs[name] for name in wanted})
    marker = pyfuncitem.get_closest_marker("deadline")

    async def within() -> None:
        async with asyncio.timeout(marker.args[0] if marker else 10):
            await test

    asyncio.run(within(), debug=True)
    return True


def require(program: str, why: str = "make services") -> str:
    """The path of `program`; where it is missing the test is skipped, or fails under ALIPES_REQUIRE_SERVICES=1."""
    if found := shutil.which(program):
        return found
    reason = f"{program} is not installed ({why})"
    if os.environ.get("ALIPES_REQUIRE_SERVICES") == "1":
        pytest.fail(reason)
    pytest.skip(reason)
