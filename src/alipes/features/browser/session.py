"""The pages of one conversation: a browser context that tools use one after the other."""

import asyncio
import re
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from alipes.features.browser.chromium import HIDE_DIRECT_CONNECTIONS
from alipes.features.browser.guard import PageGuard, parse_place
from alipes.features.browser.settings import BrowserConfig
from alipes.features.browser.tabs import Tabs, ignore_errors
from alipes.kernel.errors import ToolError

if TYPE_CHECKING:
    from playwright.async_api import Browser, BrowserContext, Download, Locator, Page, StorageState

VIEWPORT_WIDTH, VIEWPORT_HEIGHT = 1280, 800
SETTLE_S = 0.15
"""Seconds after an act in which a page may start to load another one."""
NEW_TAB_S = 10.0
DOCUMENT_S = 15.0
"""Seconds that a page gets to arrive after an act that leads to it."""
LOAD_S = 5.0
"""Seconds that pictures and other parts of a page get after its text is there."""
CLOSE_S = 3.0
TakeRefusals: TypeAlias = Callable[[], tuple[str, ...]]
"""Sentences about connections that the egress proxy refused since the last time."""


class BrowserSession:
    """Used by one tool at a time, under `lock`."""

    def __init__(
        self,
        context: "BrowserContext",
        tabs: Tabs,
        guard: PageGuard,
        config: BrowserConfig,
        *,
        take_refusals: TakeRefusals,
        downloads: Path,
    ) -> None:
        """`downloads`: where Chromium puts files until they are saved."""
        self.context, self.tabs, self.guard, self.config = context, tabs, guard, config
        self.take_refusals, self.downloads = take_refusals, downloads
        self.lock = asyncio.Lock()
        self.last_used = 0.0
        self.hosts_read: tuple[str, ...] = ()
        """Whose text the last result contained."""

    def mark_used(self) -> None:
        self.last_used = asyncio.get_running_loop().time()

    @property
    def has_page(self) -> bool:
        return self.tabs.current is not None

    @property
    def page(self) -> "Page":
        if self.tabs.current is None:
            raise ToolError("no page is open: use browser_navigate first")
        return self.tabs.current

    async def open_page(self) -> "Page":
        """The current tab, or a new one."""
        if self.tabs.current is None:
            self.tabs.add(await self.context.new_page())
        return self.page

    async def open_tab(self) -> "Page":
        """A new tab, which becomes the current one."""
        self.tabs.choose(None)
        return await self.open_page()

    async def leave_tab(self, page: "Page") -> None:
        """Close a tab that was only needed for one file, unless it is the only one."""
        if len(self.tabs.pages) > 1 and page in self.tabs.pages:
            await ignore_errors(page.close())

    def choose_tab(self, number: int) -> None:
        pages = self.tabs.pages
        if not 1 <= number <= len(pages):
            raise ToolError(f"there is no tab {number}; open tabs: {len(pages)}")
        self.tabs.choose(pages[number - 1])

    async def element(self, ref: str) -> "Locator":
        """The element with this reference. Raises `ToolError` if it is not in the latest snapshot."""
        name = ref.strip().removeprefix("[").removesuffix("]").removeprefix("ref=")
        if not re.fullmatch(r"(?:f\d+)?e\d+", name):
            raise ToolError(f"{ref[:40]!r} is not a ref: use one of the snapshot, such as e12")
        locator = self.page.get_by_ref(name)
        if not await locator.count():
            raise ToolError(f"the page has no element {name} now: take a new browser_snapshot and use its refs")
        return locator

    async def settle(self, documents_before: int) -> None:
        """After an act: wait until another page that it opened is loaded, also while a person is asked about it."""
        await asyncio.sleep(SETTLE_S)
        await self.tabs.wait_until(lambda: not self.tabs.opening, NEW_TAB_S)
        self.tabs.forget_opening()
        await self.guard.wait_for_answers()
        if self.guard.document_requests == documents_before:
            return
        await self.tabs.wait_until(lambda: not self.tabs.is_loading, DOCUMENT_S)
        if self.has_page:
            await self.wait_for_load()

    async def wait_for_load(self) -> None:
        from playwright.async_api import TimeoutError as PlaywrightTimeout  # noqa: PLC0415

        try:
            await self.page.wait_for_load_state("domcontentloaded")
            await self.page.wait_for_load_state("load", timeout=LOAD_S * 1000)
        except PlaywrightTimeout:
            self.tabs.add_note("the page is still loading")

    async def forget_download(self, download: "Download") -> None:
        """Remove Chromium's own copy, also of an incomplete file."""
        await ignore_errors(download.cancel())
        await ignore_errors(download.delete())

    def record_hosts(self) -> None:
        """Remember whose text the current page shows."""
        places = (_host_of(frame.url) for frame in self.page.frames)
        self.hosts_read = tuple(dict.fromkeys(host for host in places if host))

    async def stop_loading(self) -> None:
        """After a stop: the page does not go on loading."""
        from playwright.async_api import Error  # noqa: PLC0415

        with suppress(Error, TimeoutError):
            async with asyncio.timeout(CLOSE_S):
                if self.has_page:
                    devtools = await self.context.new_cdp_session(self.page)
                    await devtools.send("Page.stopLoading")
                    await devtools.detach()

    async def close(self) -> "StorageState | None":
        """Close all pages. Returns what a profile keeps, if there is one."""
        from playwright.async_api import Error  # noqa: PLC0415

        state: StorageState | None = None
        with suppress(Error, TimeoutError):  # the browser has ended, or does not answer and is killed
            async with asyncio.timeout(CLOSE_S):
                if self.config.profile:
                    state = await self.context.storage_state(indexed_db=True)
                await self.context.close()
        return state


async def open_context(browser: "Browser", config: BrowserConfig, *, proxy: str, state: Any) -> "BrowserContext":
    """A context whose connections all go through `proxy`. `state`: cookies and storage of a profile."""
    context = await browser.new_context(
        proxy={"server": proxy},
        service_workers="block",
        accept_downloads=True,
        viewport={"width": VIEWPORT_WIDTH, "height": VIEWPORT_HEIGHT},
        storage_state=state,
    )
    context.set_default_timeout(config.timeout * 1000)
    await context.add_init_script(HIDE_DIRECT_CONNECTIONS)
    return context


def _host_of(url: str) -> str:
    try:
        place = parse_place(url)
    except ValueError:
        return ""
    return place[0] if place else ""
