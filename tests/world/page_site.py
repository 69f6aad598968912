"""A real `alipes serve` with a scripted model, opened in a real Chromium that is logged in to its page."""

import asyncio
import os
import signal
import tempfile
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Any

from playwright.async_api import Browser, BrowserContext, Page, async_playwright

from alipes.store.sql.browsers import BrowserScope, BrowserStore
from alipes.store.sqlite.database import open_database
from tests.e2e.program import Home, children
from tests.e2e.service import ServeProcess, open_serve, write_settings
from tests.world.environment import LIMIT_S, require
from tests.world.model_server import ModelServer, Reply
from tests.world.remote_tools import free_port

QUIET = ("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync")
ALONE = ("--disable-background-networking", "--disable-component-update")
EXPECTED = ("Failed to load resource", "net::ERR_")
"""Console errors that the browser writes for requests that a test makes fail on purpose."""


class PageSite:
    """The server, its model and the browser."""

    def __init__(self, home: Home, model: ModelServer, browser: Browser, port: int) -> None:
        self.home, self.model, self.browser, self.port = home, model, browser, port
        self.errors: list[str] = []
        """Uncaught errors, console errors and violations of the content policy."""
        self.requests: list[str] = []
        """The address of every request of every page."""
        self._serve: AsyncExitStack | None = None
        self.process: ServeProcess

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/"

    async def start(self) -> None:
        async with AsyncExitStack() as stack:
            self.process = await stack.enter_async_context(open_serve(self.home, "--port", str(self.port)))
            self._serve = stack.pop_all()

    async def stop(self, by: signal.Signals = signal.SIGKILL) -> None:
        """End the server: by default as `kill -9` does."""
        if self._serve is not None:
            await self.process.left(by=by)
            stack, self._serve = self._serve, None
            await stack.aclose()

    async def link(self, scope: BrowserScope = "admin") -> str:
        """A one-time link, as `alipes page` prints it."""
        async with open_database(self.home.path / "alipes.db") as database:
            return (await BrowserStore(database).add_code(scope)).link(self.url)

    async def open_context(self, **options: Any) -> BrowserContext:
        context = await self.browser.new_context(**{"viewport": {"width": 1280, "height": 800}, **options})
        context.on("request", lambda request: self.requests.append(request.url))
        context.on("weberror", lambda error: self.errors.append(str(error.error)))
        context.on("console", self._note)
        return context

    async def log_in(self, scope: BrowserScope = "admin", **options: Any) -> Page:
        """A page in a browser of its own, logged in by a link."""
        page = await (await self.open_context(**options)).new_page()
        await page.goto(await self.link(scope))
        await page.locator("#main textarea, #main .closed").first.wait_for()
        await page.wait_for_url(f"{self.url}#/**")
        return page

    def _note(self, message: Any) -> None:
        if message.type == "error" and not any(each in message.text for each in EXPECTED):
            self.errors.append(message.text)


@asynccontextmanager
async def reap_orphans() -> AsyncIterator[None]:
    """Reap the browser's orphans: this process may be a child subreaper (see `process_tree`)."""
    before = set(children(os.getpid()))
    try:
        yield
    finally:
        quiet = 0
        while quiet < 10:  # some arrive a little later
            left = set(children(os.getpid())) - before
            for pid in left:
                with suppress(ChildProcessError):
                    os.waitpid(pid, os.WNOHANG)
            quiet = 0 if left else quiet + 1
            await asyncio.sleep(0.02)


@asynccontextmanager
async def open_site(
    folder: Path, script: tuple[Reply, ...] | Callable[[dict[str, Any]], Reply] = (), **settings: Any
) -> AsyncIterator[PageSite]:
    """`script`: replies of the model. At the end no page may have had an error."""
    program = require("chromium")
    home = Home(folder / "home")
    with tempfile.TemporaryDirectory(prefix="b", ignore_cleanup_errors=True) as scratch:
        async with reap_orphans(), async_playwright() as driver, ModelServer(script) as model:
            write_settings(home, model, **settings)
            env = {**os.environ, "TMPDIR": scratch}  # its temporary files may outlive it for a moment
            browser = await driver.chromium.launch(executable_path=program, args=[*QUIET, *ALONE], env=env)
            site = PageSite(home, model, browser, free_port())
            try:
                async with asyncio.timeout(LIMIT_S):
                    await site.start()
                yield site
                assert site.errors == []
            finally:
                await browser.close()
                await site.stop()
