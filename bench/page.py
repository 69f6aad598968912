"""The page of the real `alipes serve` in headless Chromium: load, streaming, long conversations, stops, many pages."""

import asyncio
import sqlite3
import statistics
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any

import httpx2
from msgspec import Struct
from playwright.async_api import BrowserContext, CDPSession, Page
from tests.world.model_replies import Say, Stall
from tests.world.page_site import PageSite, open_site

from alipes.kernel.turns import Address
from bench.large_home import insert_session
from bench.measure import Row, bounded, p

TIMES = 5
SCREENS = ("inbox", "usage", "schedules", "skills", "memory", "mcp", "plugins", "people", "settings", "log", "doctor")
TOKEN = "token **and** `more` "
PARAGRAPH = 40
"""Tokens in a paragraph."""
RATES = ((20, 200), (200, 1500), (2000, 8000))
"""Tokens a second, and how many."""
PAGES = 100
STOPS = 100
IDLE_S = 60.0
EMPTY_PAGE = b"<!doctype html><title>empty</title><p>empty"
OBSERVE = """
window.seen = {blocked: 0, shift: 0, largest: 0};
const observe = (type, use) =>
  new PerformanceObserver((list) => list.getEntries().forEach(use)).observe({type, buffered: true});
observe("longtask", (entry) => { seen.blocked += Math.max(0, entry.duration - 50); });
observe("layout-shift", (entry) => { if (!entry.hadRecentInput) seen.shift += entry.value; });
observe("largest-contentful-paint", (entry) => { seen.largest = entry.startTime; });
"""
FIRST_PAINT = "() => ({...seen, first: performance.getEntriesByName('first-contentful-paint')[0]?.startTime ?? 0})"
COUNT_FRAMES = """() => {
  window.frames_seen = []; window.long_tasks = 0; let last = performance.now();
  const step = (now) => { frames_seen.push(now - last); last = now; requestAnimationFrame(step); };
  requestAnimationFrame(step);
  new PerformanceObserver((list) => { long_tasks += list.getEntries().length; }).observe({type: "longtask"});
}"""
OPEN = """async ([session, text]) => {
  const from = performance.now();
  location.hash = `#/c/${session}`;
  const shown = () => [...document.querySelectorAll(".msg .body")].at(-1)?.textContent === text;
  while (!shown()) await new Promise(requestAnimationFrame);
  return performance.now() - from;
}"""
SCROLL = """async () => {
  const log = document.querySelector(".log");
  for (let step = 0; step < 600; step++) { log.scrollTop -= 400; await new Promise(requestAnimationFrame); }
}"""


class LoadedPage(Struct, frozen=True):
    """One load of a page."""

    bytes: int
    program: int
    """Bytes of files, compressed, without data and without the heads of answers."""
    first: float
    """Milliseconds to the first and to the largest paint."""
    largest: float
    blocked: float
    shift: float


@asynccontextmanager
async def open_page_site(script: Any = ()) -> AsyncIterator[PageSite]:
    with tempfile.TemporaryDirectory() as name:
        async with open_site(Path(name), script) as site:
            yield site


def add_conversation(site: PageSite, number: int, messages: int) -> tuple[str, str]:
    """A conversation of that many messages: its id and its last text."""
    texts = [f"Message {n} says **something** that is about as long as messages are. " * 3 for n in range(messages)]
    texts[-1] = f"The end of {number}."
    with closing(sqlite3.connect(site.home.path / "alipes.db", isolation_level=None)) as db:
        db.execute("BEGIN")
        insert_session(db, number, Address("api", f"chat{number}", user="page"), iter(texts), time.time() - messages)
        db.execute("COMMIT")
    return f"{number:012x}", texts[-1]


async def open_cold(site: PageSite, page: Page) -> BrowserContext:
    """A logged-in browser that has nothing cached."""
    state = await page.context.storage_state()
    context = await site.open_context(storage_state=state, service_workers="block")
    await context.add_init_script(OBSERVE)
    return context


async def measure_load(context: BrowserContext, url: str, ready: Callable[[Page], Awaitable[None]]) -> LoadedPage:
    page = await context.new_page()
    cdp = await context.new_cdp_session(page)
    await cdp.send("Network.enable")
    kinds, total, program = dict[str, str](), 0, 0
    cdp.on("Network.responseReceived", lambda event: kinds.__setitem__(event["requestId"], event["response"]["url"]))

    def add(event: dict[str, Any]) -> None:
        nonlocal total
        total += int(event["encodedDataLength"])

    def add_body(event: dict[str, Any]) -> None:
        nonlocal program
        if "/v1/" not in kinds.get(event["requestId"], ""):
            program += int(event["encodedDataLength"])

    cdp.on("Network.loadingFinished", add)
    cdp.on("Network.dataReceived", add_body)
    await page.goto(url)
    await ready(page)
    await asyncio.sleep(1.0)  # late shifts and paints
    seen = await page.evaluate(FIRST_PAINT)
    await page.close()
    return LoadedPage(total, program, seen["first"], seen["largest"], seen["blocked"], seen["shift"])


async def load() -> list[Row]:
    """A chat with 50 messages, cold, beside an empty page; and what each other screen adds."""
    async with open_page_site() as site, serve_empty_page() as empty:
        first = await site.log_in()
        session, text = add_conversation(site, 1, 50)
        loads, bare = list[LoadedPage](), list[LoadedPage]()

        async def until_shown(page: Page) -> None:
            await page.get_by_text(text).wait_for()

        async def at_once(page: Page) -> None:
            await page.get_by_text("empty").wait_for()

        for _ in range(TIMES):
            context = await open_cold(site, first)
            loads.append(await measure_load(context, f"{site.url}#/c/{session}", until_shown))
            bare.append(await measure_load(context, empty, at_once))
            await context.close()
        more = {name: await _screen_bytes(site, first, name) for name in SCREENS}
    largest = max(more, key=lambda name: more[name])
    return [
        bounded("page: chat with 50 messages, cold", _median(loads, "bytes") / 1024, 100, "KB"),
        bounded("page: its program, compressed", _median(loads, "program") / 1024, 72, "KB"),
        bounded(f"page: what another screen adds ({largest})", more[largest] / 1024, 40, "KB"),
        bounded(_beside("first paint", bare, "first"), _median(loads, "first"), 200, "ms"),
        bounded(_beside("largest paint", bare, "largest"), _median(loads, "largest"), 500, "ms"),
        bounded("page: main thread blocked while loading", _median(loads, "blocked"), 50, "ms"),
        bounded("page: layout shift", _median(loads, "shift"), 0.05, ""),
    ]


def _beside(what: str, bare: list[LoadedPage], field: str) -> str:
    return f"page: {what} (an empty page: {_median(bare, field):.0f} ms)"


def _median(loads: list[LoadedPage], field: str) -> float:
    return statistics.median(getattr(each, field) for each in loads)


async def _screen_bytes(site: PageSite, logged_in: Page, name: str) -> int:
    """Bytes of files that are loaded when a person goes from the chat to this screen."""
    context = await open_cold(site, logged_in)
    page = await context.new_page()
    await page.goto(site.url)
    await page.locator("textarea").wait_for()
    cdp = await context.new_cdp_session(page)
    await cdp.send("Network.enable")
    urls, total = dict[str, str](), 0
    cdp.on("Network.responseReceived", lambda event: urls.__setitem__(event["requestId"], event["response"]["url"]))

    def add(event: dict[str, Any]) -> None:
        nonlocal total
        if "/v1/" not in urls.get(event["requestId"], ""):
            total += int(event["encodedDataLength"])

    cdp.on("Network.loadingFinished", add)
    await page.evaluate("(name) => { location.hash = `#/${name}`; }", name)
    await page.locator("h1").first.wait_for()
    await asyncio.sleep(1.0)
    await context.close()
    return total


@asynccontextmanager
async def serve_empty_page() -> AsyncIterator[str]:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        length = str(len(EMPTY_PAGE)).encode()
        head = b"HTTP/1.1 200 OK\r\ncontent-type: text/html\r\nconnection: close\r\ncontent-length: "
        writer.write(head + length + b"\r\n\r\n" + EMPTY_PAGE)
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/"


async def streaming() -> list[Row]:
    """Frames and main thread while an answer streams."""
    rows = []
    for rate, count in RATES:
        text = (TOKEN * PARAGRAPH + "\n\n") * (count // PARAGRAPH)
        async with open_page_site((Say(text, pieces=count, delay=1 / rate),)) as site:
            page = await site.log_in()
            rows += await _stream(page, rate, count)
    return rows


async def _stream(page: Page, rate: int, count: int) -> list[Row]:
    cdp = await page.context.new_cdp_session(page)
    await cdp.send("Performance.enable")
    await _send(page, "go")
    await page.locator(".msg.assistant .body, .live .body").first.wait_for()
    await page.evaluate(COUNT_FRAMES)
    before, began = await _task_seconds(cdp), time.monotonic()
    await page.locator(".composer .stop, button.stop").wait_for(state="detached", timeout=120_000)
    seconds, spent = time.monotonic() - began, await _task_seconds(cdp) - before
    frames, long_tasks = await page.evaluate("() => [frames_seen, long_tasks]")
    each = spent * 1000 / min(count, rate * seconds)
    what = f"page: {rate} tokens/s"
    rows = [
        bounded(f"{what}: frame, p99 ({len(frames) / seconds:.0f} frames/s)", p(frames, 99), 20, "ms"),
        bounded(f"{what}: long tasks", long_tasks, 0, ""),
    ]
    return [*rows, bounded(f"{what}: main thread a token", each, 4, "ms")] if rate == RATES[0][0] else rows


async def _task_seconds(cdp: CDPSession) -> float:
    found = (await cdp.send("Performance.getMetrics"))["metrics"]
    return float(next(each["value"] for each in found if each["name"] == "TaskDuration"))


async def _send(page: Page, text: str) -> None:
    await page.locator("textarea").fill(text)
    await page.locator("textarea").press("Enter")


async def long_conversation() -> list[Row]:
    """Opening 10,000 messages against 10, and scrolling through them."""
    async with open_page_site() as site:
        page = await site.log_in()
        short, long = add_conversation(site, 1, 10), add_conversation(site, 2, 10_000)
        opened = {short[0]: list[float](), long[0]: list[float]()}
        for _ in range(TIMES + 1):
            for session, text in (short, long):
                opened[session].append(await page.evaluate(OPEN, [session, text]))
        await page.evaluate(COUNT_FRAMES)
        await page.evaluate(SCROLL)
        frames = await page.evaluate("() => frames_seen")
    times = [statistics.median(opened[session][1:]) for session, _ in (short, long)]
    return [
        bounded(f"page: 10,000 messages open, more than 10 do ({times[0]:.0f} ms)", times[1] - times[0], 50, "ms"),
        bounded("page: scrolling in 10,000 messages, frame, p95", p(frames, 95), 20, "ms"),
    ]


async def stops() -> list[Row]:
    """From the click on stop until the model's connection is closed."""
    waits = list[float]()
    async with open_page_site(lambda _body: Stall("Some text, and more of it")) as site:
        page = await site.log_in()
        await _send(page, "go")
        for number in range(1, STOPS + 1):
            stop = page.locator("button.stop")
            await stop.wait_for()
            await page.get_by_text("Some text").last.wait_for()
            pressed = await page.evaluate(
                """() => { document.querySelector("button.stop").click(); return Date.now(); }"""
            )
            await site.model.closed_early(number)
            waits.append(max(0.0, time.time() * 1000 - pressed))
            await stop.wait_for(state="detached")
            if number < STOPS:
                await _send(page, f"go {number}")
    return [bounded(f"page: stop to closed model stream, p99 (p50 {p(waits, 50):.0f} ms)", p(waits, 99), 100, "ms")]


class Reader(asyncio.Protocol):
    """A connection that reads and ignores what arrives."""

    def __init__(self, request: bytes) -> None:
        self._request = request

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        transport.write(self._request)


async def many_pages() -> list[Row]:
    """100 readers of one streaming run and of the events, as 100 open pages have; the server's answers meanwhile."""
    count = 400
    async with open_page_site((Say(TOKEN * count, pieces=count, delay=0.02),)) as site:
        page = await site.log_in()
        await _send(page, "go")
        await page.locator("button.stop").wait_for()
        headers, readers = await _login_headers(page), list[asyncio.BaseTransport]()
        [run] = await _live_runs(site, headers)
        for path in (f"/v1/runs/{run}/events", "/v1/events"):
            request = _request(path, headers)
            readers += [await _connect(site, request) for _ in range(PAGES)]
        await asyncio.sleep(2.0)  # until all are connected
        waits = list[float]()
        while await page.locator("button.stop").count():
            waits += await _answer_times(site, 50)
        for each in readers:
            each.close()
    what = f"page: {PAGES} pages on one run: /health answered, p99 (p50 {p(waits, 50):.1f} ms), so lag is below"
    return [bounded(what, p(waits, 99), 20, "ms")]


async def _login_headers(page: Page) -> dict[str, str]:
    """The two halves of a browser's login."""
    state = await page.context.storage_state()
    cookie = "; ".join(f"{each['name']}={each['value']}" for each in state["cookies"])
    stored = {each["name"]: each["value"] for each in state["origins"][0]["localStorage"]}
    return {"cookie": cookie, "x-alipes-page": stored["alipes.secret"]}


async def _live_runs(site: PageSite, headers: dict[str, str]) -> list[str]:
    async with httpx2.AsyncClient(base_url=site.url, headers=headers, trust_env=False) as client:
        found = (await client.get("v1/runs", params={"status": "running"})).json()
    return [each["id"] for each in found["runs"]]


def _request(path: str, headers: dict[str, str]) -> bytes:
    lines = [f"GET {path} HTTP/1.1", "host: 127.0.0.1", *(f"{name}: {value}" for name, value in headers.items())]
    return "\r\n".join([*lines, "", ""]).encode()


async def _connect(site: PageSite, request: bytes) -> asyncio.BaseTransport:
    loop = asyncio.get_running_loop()
    transport, _ = await loop.create_connection(lambda: Reader(request), "127.0.0.1", site.port)
    return transport


async def _answer_times(site: PageSite, count: int) -> list[float]:
    """Milliseconds until a request that costs nothing is answered, on one connection."""
    reader, writer = await asyncio.open_connection("127.0.0.1", site.port)
    waits = []
    for _ in range(count):
        began = time.perf_counter()
        writer.write(_request("/health", {}))
        head = await reader.readuntil(b"\r\n\r\n")
        await reader.readexactly(int(head.lower().partition(b"content-length: ")[2].split(b"\r\n")[0]))
        waits.append((time.perf_counter() - began) * 1000)
        await asyncio.sleep(0.01)
    writer.close()
    return waits


async def idle_page() -> list[Row]:
    """Requests of an idle page in a minute, besides its stream."""
    async with open_page_site((Say("Hello."),)) as site:
        page = await site.log_in()
        await _send(page, "hi")
        await page.get_by_text("Hello.").wait_for()
        await asyncio.sleep(3.0)
        before = len(site.requests)
        await asyncio.sleep(IDLE_S)
        made = [url for url in site.requests[before:] if "/events" not in url]
    return [bounded("page: requests of an idle page in a minute", len(made), 0, "")]
