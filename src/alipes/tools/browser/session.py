"""The pages of one conversation: a browser context with its tabs, dialogs, console and downloads."""

import asyncio
import re
from collections import deque
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from alipes.config.browser import BrowserConfig, DialogAnswer
from alipes.kernel.errors import ToolError
from alipes.kernel.formatting import format_excerpt
from alipes.tools.browser.chromium import HIDE_DIRECT_CONNECTIONS
from alipes.tools.browser.guard import PageGuard, parse_place

if TYPE_CHECKING:
    from playwright.async_api import (
        Browser,
        BrowserContext,
        ConsoleMessage,
        Dialog,
        Download,
        Locator,
        Page,
        Request,
        Response,
        Route,
        StorageState,
        WebError,
        WebSocket,
    )

MAX_TABS = 8
MAX_MESSAGES = 200
MAX_MESSAGE_CHARS = 500
MAX_NOTES = 20
VIEWPORT_WIDTH, VIEWPORT_HEIGHT = 1280, 800
SETTLE_S = 0.15
"""Seconds after an act in which a page may start to load another one."""
NEW_TAB_S = 3.0
DOCUMENT_S = 10.0
"""Seconds that a page gets to arrive after an act that leads to it."""
LOAD_S = 5.0
"""Seconds that pictures and other parts of a page get after its text is there."""
CLOSE_S = 3.0
Spawn: TypeAlias = Callable[[Coroutine[Any, Any, None]], None]
"""Runs something beside the tools, in the scope that owns the browser."""


TakeRefusals: TypeAlias = Callable[[], tuple[str, ...]]
"""Sentences about connections that the egress proxy refused since the last time."""


class BrowserSession:
    """Used by one tool at a time, under `lock`."""

    def __init__(
        self,
        context: "BrowserContext",
        guard: PageGuard,
        config: BrowserConfig,
        *,
        spawn: Spawn,
        take_refusals: TakeRefusals,
        downloads: Path,
    ) -> None:
        """`downloads`: where Chromium puts files until they are saved."""
        self.context, self.guard, self.config, self._spawn = context, guard, config, spawn
        self.take_refusals, self.downloads = take_refusals, downloads
        self.lock = asyncio.Lock()
        self.last_used = 0.0
        self.pages: list[Page] = []
        self._current: Page | None = None
        self._documents: set[Request] = set()
        """Those that are being loaded."""
        self.last_status = 0
        """The HTTP status of the latest document."""
        self._opening_tabs = 0
        """Tabs that a page is opening, which takes a moment."""
        self._progressed = asyncio.Event()
        self._console: deque[str] = deque(maxlen=MAX_MESSAGES)
        self._notes: deque[str] = deque(maxlen=MAX_NOTES)
        self.dialog_answer: DialogAnswer = config.dialogs
        """For this act."""
        self.expected_download: asyncio.Future[Download] | None = None
        """Set while a tool waits for a file."""
        self.hosts_read: tuple[str, ...] = ()
        """Whose text the last result contained."""

    @property
    def has_page(self) -> bool:
        return self._current is not None

    @property
    def page(self) -> "Page":
        if self._current is None:
            raise ToolError("no page is open: use browser_navigate first")
        return self._current

    async def open_page(self) -> "Page":
        """The current tab, or a new one."""
        if self._current is None:
            self._add_page(await self.context.new_page())
        return self.page

    async def open_tab(self) -> "Page":
        """A new tab, which becomes the current one."""
        self._current = None
        return await self.open_page()

    async def leave_tab(self, page: "Page") -> None:
        """Close a tab that was only needed for one file, unless it is the only one."""
        if len(self.pages) > 1 and page in self.pages:
            await ignore_errors(page.close())

    def choose_tab(self, number: int) -> None:
        if not 1 <= number <= len(self.pages):
            raise ToolError(f"there is no tab {number}; open tabs: {len(self.pages)}")
        self._current = self.pages[number - 1]

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
        await self._wait_until(lambda: not self._opening_tabs, NEW_TAB_S)
        self._opening_tabs = 0
        await self.guard.wait_for_answers()
        if self.guard.document_requests == documents_before:
            return
        await self._wait_until(lambda: not self._is_loading(), DOCUMENT_S)
        if self.has_page:
            await self.wait_for_load()

    async def _wait_until(self, fact: Callable[[], bool], seconds: float) -> None:
        """Wait for something that the browser reports; not for long."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while not fact():
                    self._progressed.clear()
                    await self._progressed.wait()

    def _is_loading(self) -> bool:
        return any(_page_of(request) is self._current for request in self._documents)

    async def wait_for_load(self) -> None:
        from playwright.async_api import TimeoutError as PlaywrightTimeout  # noqa: PLC0415

        try:
            await self.page.wait_for_load_state("domcontentloaded")
            await self.page.wait_for_load_state("load", timeout=LOAD_S * 1000)
        except PlaywrightTimeout:
            self.add_note("the page is still loading")

    @contextmanager
    def expect_download(self) -> "Iterator[asyncio.Future[Download]]":
        """The next file that a page offers is for the caller."""
        self.expected_download = asyncio.get_running_loop().create_future()
        try:
            yield self.expected_download
        finally:
            self.expected_download = None

    async def forget_download(self, download: "Download") -> None:
        """Remove Chromium's own copy, also of an incomplete file."""
        self._do(download.cancel())
        self._do(download.delete())

    def add_note(self, text: str) -> None:
        """What happened besides, for the next result."""
        if text not in self._notes:
            self._notes.append(text)

    def take_notes(self) -> tuple[str, ...]:
        notes = tuple(self._notes)
        self._notes.clear()
        return notes

    def take_console(self) -> tuple[str, ...]:
        messages = tuple(self._console)
        self._console.clear()
        return messages

    def record_hosts(self) -> None:
        """Remember whose text the current page shows."""
        places = (_place_of(frame.url) for frame in self.page.frames)
        self.hosts_read = tuple(dict.fromkeys(host for host in places if host))

    async def stop_loading(self) -> None:
        """After a stop: the page does not go on loading."""
        from playwright.async_api import Error  # noqa: PLC0415

        with suppress(Error, TimeoutError):
            async with asyncio.timeout(CLOSE_S):
                if self._current is not None:
                    devtools = await self.context.new_cdp_session(self._current)
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

    # What happens in the pages

    async def listen(self) -> None:
        context = self.context
        context.on("page", self._add_page)
        context.on("request", self._on_request)
        context.on("response", self._on_response)
        context.on("requestfinished", self._on_request_ended)
        context.on("requestfailed", self._on_request_ended)
        context.on("console", self._on_console)
        context.on("weberror", self._on_error)
        context.on("dialog", self._on_dialog)
        await context.route("**/*", self._on_route)

    def _add_page(self, page: "Page") -> None:
        if page in self.pages:
            return
        self._opening_tabs = max(self._opening_tabs - 1, 0)
        self._progressed.set()
        page.on("close", self._on_close)
        page.on("crash", lambda _page: self.add_note("the page crashed; open it again with browser_navigate"))
        page.on("download", self._on_download)
        page.on("websocket", self._on_websocket)
        if len(self.pages) >= MAX_TABS:
            self.add_note(f"a new tab was closed, because {MAX_TABS} are open")
            self._do(page.close())
            return
        if self._current is not None:
            self.add_note("a new tab was opened, which is the current one now")
        self.pages.append(page)
        self._current = page
        self._do(self._watch_new_tabs(page))

    async def _watch_new_tabs(self, page: "Page") -> None:
        """Learn at once that a page opens a tab: the tab itself is known much later."""
        devtools = await self.context.new_cdp_session(page)
        devtools.on("Page.windowOpen", self._on_window_open)
        await devtools.send("Page.enable")

    def _on_window_open(self, _event: object) -> None:
        self._opening_tabs += 1

    def _on_close(self, page: "Page") -> None:
        if page in self.pages:
            self.pages.remove(page)
        if self._current is page:
            self._current = self.pages[-1] if self.pages else None

    async def _on_route(self, route: "Route") -> None:
        request = route.request
        why = await self.guard.check(request.url, document=_is_document(request))
        await ignore_errors(route.abort("blockedbyclient") if why else route.continue_())

    def _on_request(self, request: "Request") -> None:
        document = _is_document(request)
        self.guard.report_request(request.url, document=document)
        if document:
            self._documents.add(request)

    def _on_response(self, response: "Response") -> None:
        if response.request in self._documents:
            self.last_status = response.status

    def _on_request_ended(self, request: "Request") -> None:
        self._documents.discard(request)
        self._progressed.set()

    def _on_websocket(self, socket: "WebSocket") -> None:
        self.guard.report_request(socket.url, document=False)

    def _on_console(self, message: "ConsoleMessage") -> None:
        place = message.location
        line = int(place.get("lineNumber", 0)) + 1
        where = f" ({place['url'].rpartition('/')[2][:60]}:{line})" if place.get("url") else ""
        self._console.append(f"{message.type}: {_one_line(message.text)}{where}")

    def _on_error(self, error: "WebError") -> None:
        self._console.append(f"uncaught: {_one_line(str(error.error))}")

    def _on_dialog(self, dialog: "Dialog") -> None:
        accept = dialog.type in ("alert", "beforeunload") or self.dialog_answer == "accept"
        answer = "closed" if dialog.type == "alert" else "accepted" if accept else "dismissed"
        self.add_note(f"the page showed a dialog ({dialog.type}) {_quote(dialog.message)}, which was {answer}")
        self._do(dialog.accept() if accept else dialog.dismiss())

    def _on_download(self, download: "Download") -> None:
        expected = self.expected_download
        if expected is not None and not expected.done():
            expected.set_result(download)
            return
        name = _quote(download.suggested_filename)
        self.add_note(f"the page offered the file {name}, which was not saved; browser_download saves it")
        self._do(download.cancel())

    def _do(self, work: Coroutine[Any, Any, Any]) -> None:
        self._spawn(ignore_errors(work))


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


def _is_document(request: "Request") -> bool:
    """True for what a whole tab shows; a frame inside a page is a part of it."""
    from playwright.async_api import Error  # noqa: PLC0415

    if not request.is_navigation_request():
        return False
    try:
        return request.frame.parent_frame is None
    except Error:
        return True


def _page_of(request: "Request") -> "Page | None":
    """The tab of a document; None if it is not known yet."""
    from playwright.async_api import Error  # noqa: PLC0415

    try:
        return request.frame.page
    except Error:
        return None


async def ignore_errors(work: Coroutine[Any, Any, Any]) -> None:
    """Await something whose page may be gone meanwhile."""
    from playwright.async_api import Error  # noqa: PLC0415

    with suppress(Error):
        await work


def _place_of(url: str) -> str:
    try:
        place = parse_place(url)
    except ValueError:
        return ""
    return place[0] if place else ""


def _one_line(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= MAX_MESSAGE_CHARS else f"{line[:MAX_MESSAGE_CHARS]}…"


def _quote(text: str) -> str:
    return format_excerpt(" ".join(text.split()))
