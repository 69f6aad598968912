"""The browser tools: navigate, look, click, type, download and upload."""

import asyncio
import os
import shutil
import stat
import tempfile
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from alipes.features.browser import specs
from alipes.features.browser.downloads import FETCH_AS_DOWNLOAD, FOLDER, save_file, wait_for_file
from alipes.features.browser.guard import parse_place
from alipes.features.browser.report import describe_page
from alipes.features.browser.session import BrowserSession
from alipes.features.browser.sessions import BrowserSessions
from alipes.kernel.errors import ToolError
from alipes.kernel.messages import Image, Json, image_type
from alipes.kernel.ports import Tool, ToolContext, ToolOutput
from alipes.tools.boundary import CallScope, FileBoundary, reading
from alipes.tools.common import int_argument
from alipes.tools.images import MAX_PROVIDER_BYTES, prepare_image

if TYPE_CHECKING:
    from playwright.async_api import Download, Locator

MAX_UPLOAD_BYTES = 200_000_000
_SCROLL_PARTS = 0.8
_CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL
_POSITION = "() => [Math.round(scrollY), innerHeight, document.documentElement.scrollHeight]"
ElementAct: TypeAlias = "Callable[[Locator], Awaitable[object]]"


def browser_tools(
    sessions: BrowserSessions, boundary: FileBoundary, mask: Callable[[str], str] = str
) -> tuple[Tool, ...]:
    """All of them. `mask` replaces known secrets."""
    kinds = (
        *(BrowserNavigate, BrowserSnapshot, BrowserClick, BrowserType, BrowserPress, BrowserSelect, BrowserScroll),
        *(BrowserBack, BrowserScreenshot, BrowserDownload, BrowserConsole),
    )
    return (*(kind(sessions, mask) for kind in kinds), BrowserUpload(sessions, mask, boundary))


class BrowserTool:
    """What the browser tools share."""

    def __init__(self, sessions: BrowserSessions, mask: Callable[[str], str] = str) -> None:
        self._sessions, self._mask = sessions, mask

    @property
    def _element_ms(self) -> float:
        return self._sessions.element_timeout_s * 1000

    def why_unavailable(self) -> str:
        return self._sessions.why_unavailable()

    def hosts_read(self, session: str) -> tuple[str, ...]:
        """The hosts whose text the last result contained."""
        return self._sessions.hosts_read(session)

    def _refuse_secrets(self, text: str) -> None:
        if self._mask(text) != text:
            raise ToolError("this text contains a secret of this machine, which is never given to a web page")

    async def _act(self, act: ToolContext, ref: str, what: str, work: ElementAct, *, accept: bool = False) -> str:
        """Do something with an element; the result shows the page that it led to."""
        async with self._sessions.use(act, what) as session:
            page = session.page
            await allow_page(session)
            if accept:
                session.tabs.answer_dialogs("accept")
            before, url = session.guard.document_requests, page.url
            await work(await session.element(ref))
            await session.settle(before)
            moved = session.has_page and (session.page is not page or page.url != url)
            return await describe_page(session, with_snapshot=moved, done=what)


async def allow_page(session: BrowserSession) -> None:
    """Before an act in a later turn: the page may send requests, so its host must be allowed in this turn, too."""
    url = session.page.url
    if not url.startswith(("http://", "https://")):
        return
    if not session.guard.is_approved(url) and (why := await session.guard.check(url, document=True)):
        session.guard.take_report()
        raise ToolError(why)


class BrowserNavigate(BrowserTool):
    spec = specs.NAVIGATE

    async def run(self, args: Mapping[str, Json], act: ToolContext) -> str:
        url = normalise_url(str(args["url"]))
        self._refuse_secrets(url)
        what = f"loading {url.partition('?')[0][:200]}"
        async with self._sessions.use(act, what) as session:
            if args.get("new_tab"):
                await session.open_tab()
            page = await session.open_page()
            await act.progress(f"Loading {url.partition('?')[0][:200]}")
            await load_page(session, lambda: page.goto(url, wait_until="domcontentloaded", timeout=0), what)
            await session.wait_for_load()
            return await describe_page(session, with_snapshot=True, done=what)


async def load_page(session: BrowserSession, load: Callable[[], Awaitable[object]], what: str) -> None:
    """Load a document; if the guard refused it, the error says why."""
    from playwright.async_api import Error  # noqa: PLC0415

    try:
        await load()
    except Error:
        if refused := (*session.guard.take_report().documents, *session.take_refusals()):
            raise ToolError(f"{what} was not possible. {' '.join(refused)}") from None
        raise


def normalise_url(text: str) -> str:
    """An http or https URL. Raises `ToolError`."""
    url = text.strip()
    if "://" not in url and not url.startswith(("data:", "javascript:", "about:", "file:")):
        url = f"https://{url}"
    try:
        place = parse_place(url)
    except ValueError as error:
        raise ToolError(f"{text[:200]!r} cannot be opened: {error}; give an http or https URL") from error
    if place is None or not url.startswith(("http://", "https://")):
        raise ToolError(f"{text[:200]!r} cannot be opened: give an http or https URL")
    if "@" in url.partition("://")[2].partition("/")[0]:
        raise ToolError("URLs with a user name or password are not opened")
    return url


class BrowserSnapshot(BrowserTool):
    spec = specs.SNAPSHOT

    async def run(self, args: Mapping[str, Json], act: ToolContext) -> str:
        async with self._sessions.use(act, "the snapshot") as session:
            if tab := int_argument(args, "tab"):
                session.choose_tab(tab)
            ref, first = str(args.get("ref") or ""), int_argument(args, "line", 1)
            assert session.page
            return await describe_page(session, with_snapshot=True, ref=ref, first=first)


class BrowserClick(BrowserTool):
    spec = specs.CLICK

    async def run(self, args: Mapping[str, Json], act: ToolContext) -> str:
        ref = str(args["ref"])
        accept = bool(args.get("accept_dialog"))
        return await self._act(
            act, ref, f"clicking {ref[:20]}", lambda element: element.click(timeout=self._element_ms), accept=accept
        )


class BrowserType(BrowserTool):
    spec = specs.TYPE

    async def run(self, args: Mapping[str, Json], act: ToolContext) -> str:
        ref, text = str(args["ref"]), str(args["text"])
        self._refuse_secrets(text)

        async def fill(element: "Locator") -> None:
            if (await element.get_attribute("type") or "").lower() == "file":
                raise ToolError(f"{ref[:20]} is a field for files: use {specs.UPLOAD.name}")
            await element.fill(text, timeout=self._element_ms)
            if args.get("submit"):
                await element.press("Enter", timeout=self._element_ms)

        return await self._act(act, ref, f"typing into {ref[:20]}", fill)


class BrowserPress(BrowserTool):
    spec = specs.PRESS

    async def run(self, args: Mapping[str, Json], act: ToolContext) -> str:
        key, what = str(args["key"]), f"pressing {str(args['key'])[:30]}"
        if len(key) > 30:
            raise ToolError("this is not one key: use browser_type for text")
        if ref := str(args.get("ref") or ""):
            return await self._act(act, ref, what, lambda element: element.press(key, timeout=self._element_ms))
        async with self._sessions.use(act, what) as session:
            page = session.page
            await allow_page(session)
            before, url = session.guard.document_requests, page.url
            await page.keyboard.press(key)
            await session.settle(before)
            moved = session.has_page and (session.page is not page or page.url != url)
            return await describe_page(session, with_snapshot=moved, done=what)


class BrowserSelect(BrowserTool):
    spec = specs.SELECT

    async def run(self, args: Mapping[str, Json], act: ToolContext) -> str:
        ref, given = str(args["ref"]), args["options"]
        options = [str(each) for each in given] if isinstance(given, list) else []
        return await self._act(
            *(act, ref, f"choosing {', '.join(options)[:60] or 'nothing'}"),
            lambda element: element.select_option(options, timeout=self._element_ms),
        )


class BrowserScroll(BrowserTool):
    spec = specs.SCROLL

    async def run(self, args: Mapping[str, Json], act: ToolContext) -> str:
        direction, ref = str(args.get("direction") or "down"), str(args.get("ref") or "")
        async with self._sessions.use(act, "scrolling") as session:
            page = session.page
            if ref:
                await (await session.element(ref)).scroll_into_view_if_needed(timeout=self._element_ms)
            elif direction in ("top", "bottom"):
                await page.keyboard.press("Home" if direction == "top" else "End")
            else:
                height = (await page.evaluate(_POSITION))[1] * _SCROLL_PARTS
                await page.mouse.wheel(0, height if direction == "down" else -height)
            await session.settle(session.guard.document_requests)
            top, height, total = await page.evaluate(_POSITION)
            session.tabs.add_note(f"pixels {top}-{top + height} of {total} are visible")
            return await describe_page(session, with_snapshot=False)


class BrowserBack(BrowserTool):
    spec = specs.BACK

    async def run(self, args: Mapping[str, Json], act: ToolContext) -> str:
        async with self._sessions.use(act, "going back") as session:
            page = session.page
            before = page.url
            await load_page(session, lambda: page.go_back(wait_until="domcontentloaded", timeout=0), "going back")
            if page.url in (before, "about:blank"):
                if len(session.tabs.pages) < 2:
                    raise ToolError("there is no previous page")
                await page.close()
            await session.wait_for_load()
            return await describe_page(session, with_snapshot=True)


class BrowserScreenshot(BrowserTool):
    spec = specs.SCREENSHOT

    async def run(self, args: Mapping[str, Json], act: ToolContext) -> ToolOutput:
        async with self._sessions.use(act, "the screenshot") as session:
            page = session.page
            if ref := str(args.get("ref") or ""):
                data = await (await session.element(ref)).screenshot(animations="disabled", timeout=self._element_ms)
            else:
                data = await page.screenshot(animations="disabled", full_page=bool(args.get("full_page")))
            text = await describe_page(session, with_snapshot=False)
        image, note = await asyncio.to_thread(_to_image, data)
        return ToolOutput(f"{text}\n[screenshot: {note}]", (image,))


def _to_image(data: bytes) -> tuple[Image, str]:
    """The screenshot for a model; without Pillow it can only be used as it is."""
    if len(data) <= MAX_PROVIDER_BYTES and image_type(data[:64]):
        with suppress(ToolError):
            prepared = prepare_image(data)
            if prepared.image is not None:
                return prepared.image, prepared.note
        return Image("image/png", data), f"{len(data):,} bytes"
    prepared = prepare_image(data)
    if prepared.image is None:
        raise ToolError("the screenshot is not an image")
    return prepared.image, prepared.note


class BrowserDownload(BrowserTool):
    spec = specs.DOWNLOAD

    async def run(self, args: Mapping[str, Json], act: ToolContext) -> str:
        ref, given = str(args.get("ref") or ""), str(args.get("url") or "")
        if bool(ref) == bool(given):
            raise ToolError("give either ref or url")
        url = normalise_url(given) if given else ""
        self._refuse_secrets(url)
        largest = self._sessions.config.download_mb * 1_000_000
        async with self._sessions.use(act, "the download") as session:
            download = await (self._open_url(session, url, largest) if url else self._click(session, ref))
            try:
                await act.progress("Downloading.")
                source = await wait_for_file(session, download, largest)
                path = await save_file(source, act.workdir, download.suggested_filename, download.url)
                size = path.stat().st_size
            finally:
                await session.forget_download(download)
            session.tabs.add_note(f"saved {FOLDER}/{path.name} ({size:,} bytes)")
            return await describe_page(session, with_snapshot=False)

    async def _click(self, session: BrowserSession, ref: str) -> "Download":
        await allow_page(session)
        element = await session.element(ref)
        with session.tabs.expect_download() as expected:
            await element.click(timeout=self._element_ms)
            try:
                async with asyncio.timeout(self._sessions.element_timeout_s):
                    return await expected
            except TimeoutError:
                why = " ".join(session.guard.take_report().documents)
                raise ToolError(
                    why or f"clicking {ref[:20]} did not start a download; give the url of the file"
                ) from None

    async def _open_url(self, session: BrowserSession, url: str, largest: int) -> "Download":
        """Open the URL; a file that Chromium shows instead of saving it is fetched by its own page."""
        from playwright.async_api import Error  # noqa: PLC0415

        page = await session.open_tab() if session.has_page else await session.open_page()
        try:
            with session.tabs.expect_download() as expected:
                is_attachment = False
                try:
                    await page.goto(url, wait_until="commit", timeout=0)
                except Error as error:
                    is_attachment = "Download is starting" in error.message or "ERR_ABORTED" in error.message
                if refused := (*session.guard.take_report().documents, *session.take_refusals()):
                    raise ToolError(" ".join(refused))
                if not is_attachment and (why := await page.evaluate(FETCH_AS_DOWNLOAD, [url, largest])):
                    raise ToolError(f"{url.partition('?')[0][:200]} was not downloaded: {why}")
                return await expected
        finally:
            await session.leave_tab(page)


class BrowserConsole(BrowserTool):
    spec = specs.CONSOLE

    async def run(self, args: Mapping[str, Json], act: ToolContext) -> str:
        async with self._sessions.use(act, "reading the console") as session:
            assert session.page
            session.record_hosts()
            return "\n".join(f"- {message}" for message in session.tabs.take_console()) or "(no messages)"


class BrowserUpload(BrowserTool):
    spec = specs.UPLOAD

    def __init__(self, sessions: BrowserSessions, mask: Callable[[str], str], boundary: FileBoundary) -> None:
        super().__init__(sessions, mask)
        self._boundary = boundary

    async def run(self, args: Mapping[str, Json], act: ToolContext) -> str:
        ref, site = str(args["ref"]), str(args["site"])
        if (host := self._sessions.current_host(act.session)) != site.strip().lower():
            raise ToolError(f"the page is of {host or 'no host'}, not of {site[:100]}: nothing was uploaded")
        async with self._sessions.use(act, "uploading") as session:
            folder = session.downloads.with_name("uploads")
        path = await asyncio.to_thread(self._copy, str(args["path"]), act, folder)

        async def choose(element: "Locator") -> None:
            if (await element.get_attribute("type") or "").lower() == "file":
                await element.set_input_files(str(path), timeout=self._element_ms)
                return
            async with element.page.expect_file_chooser(timeout=self._element_ms) as chooser:
                await element.click(timeout=self._element_ms)
            await (await chooser.value).set_files(str(path))

        return await self._act(act, ref, f"uploading {path.name}", choose)

    def _copy(self, given: str, act: CallScope, folder: Path) -> Path:
        """A copy of what was opened when it was asked about: Chromium reads it later, when the form is sent."""
        with self._boundary.opened(given, act) as opened:
            if opened.facts is None:
                raise ToolError(f"{given[:200]} cannot be read: No such file or directory")
            if not stat.S_ISREG(opened.facts.st_mode):
                raise ToolError(f"{given[:200]} is not a file")
            if self._boundary.is_withheld(opened):
                raise ToolError(f"{given[:200]} holds secrets and is never uploaded")
            if opened.facts.st_size > MAX_UPLOAD_BYTES:
                raise ToolError(
                    f"{given[:200]} has {opened.facts.st_size:,} bytes; the maximum is {MAX_UPLOAD_BYTES:,}"
                )
            folder.mkdir(mode=0o700, exist_ok=True)
            copy = Path(tempfile.mkdtemp(dir=folder), opened.name)
            try:
                with reading(opened) as source, open(os.open(copy, _CREATE, 0o600), "wb") as target:
                    shutil.copyfileobj(source, target, 1 << 20)
            except OSError as error:
                raise ToolError(f"{given[:200]} cannot be read: {error.strerror}") from error
            return copy
