"""The tabs of one conversation, and what happens in them: requests, dialogs, messages, downloads."""

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, TypeAlias

from alipes.features.browser.guard import PageGuard
from alipes.features.browser.settings import DialogAnswer
from alipes.kernel.formatting import format_excerpt

if TYPE_CHECKING:
    from playwright.async_api import (
        BrowserContext,
        ConsoleMessage,
        Dialog,
        Download,
        Page,
        Request,
        Response,
        Route,
        WebSocket,
    )

MAX_TABS = 8
MAX_MESSAGES = 200
MAX_MESSAGE_CHARS = 500
MAX_NOTES = 20
Spawn: TypeAlias = Callable[[Coroutine[Any, Any, None]], None]
"""Runs something beside the tools, in the scope that owns the browser."""


class Tabs:
    """Follows the events of a browser context."""

    def __init__(self, context: "BrowserContext", guard: PageGuard, spawn: Spawn) -> None:
        self._context, self._guard, self._spawn = context, guard, spawn
        self.pages: list[Page] = []
        self.current: Page | None = None
        self.opening = 0
        """Tabs that a page is opening, which takes a moment."""
        self.last_status = 0
        """The HTTP status of the latest document."""
        self.dialog_answer: DialogAnswer = "dismiss"
        self._documents: set[Request] = set()
        """Those that are being loaded."""
        self._expected_download: asyncio.Future[Download] | None = None
        self._progressed = asyncio.Event()
        self._console: deque[str] = deque(maxlen=MAX_MESSAGES)
        self._notes: deque[str] = deque(maxlen=MAX_NOTES)

    async def listen(self) -> None:
        context = self._context
        context.on("page", self.add)
        context.on("request", self._on_request)
        context.on("response", self._on_response)
        context.on("requestfinished", self._on_request_ended)
        context.on("requestfailed", self._on_request_ended)
        context.on("console", self._on_console)
        context.on("weberror", lambda error: self._console.append(f"uncaught: {_one_line(str(error.error))}"))
        context.on("dialog", self._on_dialog)
        await context.route("**/*", self._on_route)

    def add(self, page: "Page") -> None:
        """A new tab, which becomes the current one."""
        if page in self.pages:
            return
        self.opening = max(self.opening - 1, 0)
        self._progressed.set()
        page.on("close", self._on_close)
        page.on("crash", lambda _page: self.add_note("the page crashed; open it again with browser_navigate"))
        page.on("download", self._on_download)
        page.on("websocket", self._on_websocket)
        if len(self.pages) >= MAX_TABS:
            self.add_note(f"a new tab was closed, because {MAX_TABS} are open")
            self._spawn(ignore_errors(page.close()))
            return
        if self.current is not None:
            self.add_note("a new tab was opened, which is the current one now")
        self.pages.append(page)
        self.current = page
        self._spawn(ignore_errors(self._watch_new_tabs(page)))

    def choose(self, page: "Page | None") -> None:
        """It is the current one from now on; None: the next one that is opened."""
        self.current = page

    def forget_opening(self) -> None:
        """No longer wait for tabs that a page began to open."""
        self.opening = 0

    def answer_dialogs(self, answer: DialogAnswer) -> None:
        self.dialog_answer = answer

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

    @property
    def is_loading(self) -> bool:
        """True while the document of the current tab is being loaded."""
        return any(_page_of(request) is self.current for request in self._documents)

    async def wait_until(self, fact: Callable[[], bool], seconds: float) -> None:
        """Wait for something that the browser reports; not longer than this."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while not fact():
                    self._progressed.clear()
                    await self._progressed.wait()

    @contextmanager
    def expect_download(self) -> "Iterator[asyncio.Future[Download]]":
        """The next file that a page offers is for the caller."""
        self._expected_download = asyncio.get_running_loop().create_future()
        try:
            yield self._expected_download
        finally:
            self._expected_download = None

    async def _watch_new_tabs(self, page: "Page") -> None:
        """Learn at once that a page opens a tab: the tab itself is known much later."""

        def count(_event: object) -> None:
            self.opening += 1

        devtools = await self._context.new_cdp_session(page)
        devtools.on("Page.windowOpen", count)
        await devtools.send("Page.enable")

    def _on_close(self, page: "Page") -> None:
        if page in self.pages:
            self.pages.remove(page)
        if self.current is page:
            self.current = self.pages[-1] if self.pages else None

    async def _on_route(self, route: "Route") -> None:
        request = route.request
        why = await self._guard.check(request.url, document=_is_document(request))
        await ignore_errors(route.abort("blockedbyclient") if why else route.continue_())

    def _on_request(self, request: "Request") -> None:
        document = _is_document(request)
        self._guard.report_request(request.url, document=document)
        if document:
            self._documents.add(request)

    def _on_response(self, response: "Response") -> None:
        if response.request in self._documents:
            self.last_status = response.status

    def _on_request_ended(self, request: "Request") -> None:
        self._documents.discard(request)
        self._progressed.set()

    def _on_websocket(self, socket: "WebSocket") -> None:
        self._guard.report_request(socket.url, document=False)

    def _on_console(self, message: "ConsoleMessage") -> None:
        place = message.location
        line = int(place.get("lineNumber", 0)) + 1
        where = f" ({place['url'].rpartition('/')[2][:60]}:{line})" if place.get("url") else ""
        self._console.append(f"{message.type}: {_one_line(message.text)}{where}")

    def _on_dialog(self, dialog: "Dialog") -> None:
        accept = dialog.type in ("alert", "beforeunload") or self.dialog_answer == "accept"
        answer = "closed" if dialog.type == "alert" else "accepted" if accept else "dismissed"
        self.add_note(f"the page showed a dialog ({dialog.type}) {format_excerpt(dialog.message)}, which was {answer}")
        self._spawn(ignore_errors(dialog.accept() if accept else dialog.dismiss()))

    def _on_download(self, download: "Download") -> None:
        expected = self._expected_download
        if expected is not None and not expected.done():
            expected.set_result(download)
            return
        name = format_excerpt(download.suggested_filename)
        self.add_note(f"the page offered the file {name}, which was not saved; browser_download saves it")
        self._spawn(ignore_errors(download.cancel()))


def _is_document(request: "Request") -> bool:
    """True for what a whole tab shows; a frame inside a page is a part of it."""
    from playwright.async_api import Error  # noqa: PLC0415

    if not request.is_navigation_request():
        return False
    try:
        return request.frame.parent_frame is None
    except Error:  # of a new tab, which is not known yet
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


def _one_line(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= MAX_MESSAGE_CHARS else f"{line[:MAX_MESSAGE_CHARS]}…"
