"""One Chromium for all tests of a module: they run one after the other on the same event loop."""

import asyncio
import tempfile
from functools import wraps

from tests.world.environment import LIMIT_S, require
from tests.world.web_pages import open_browser_world


class SharedBrowser:
    """A loop that runs only inside tests, and the world on it."""

    def __init__(self, runner, world):
        self._runner, self.world = runner, world

    def run(self, test):
        async def within():
            try:
                async with asyncio.timeout(LIMIT_S):
                    await test
            finally:
                await self.world.forget()

        self._runner.run(within())


def open_shared_browser(**settings):
    """For a fixture of a module: yields the browser, already running."""
    require("chromium")
    with tempfile.TemporaryDirectory(prefix="alipes-browser-") as home, asyncio.Runner(debug=True) as runner:
        scope = open_browser_world(home, **settings)
        world = runner.run(scope.__aenter__())
        try:
            runner.run(world.show("ready", session="keeps the browser open"))
            yield SharedBrowser(runner, world)
        finally:
            runner.run(scope.__aexit__(None, None, None))


def in_browser(test):
    """An async test whose first parameter is the world of the fixture `shared`."""

    @wraps(test)
    def run(shared, **fixtures):
        shared.run(test(shared.world, **fixtures))

    return run
