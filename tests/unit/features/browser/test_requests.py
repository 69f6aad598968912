"""The request guard in real Chromium: what pages may connect to, and what people are asked."""

import asyncio
import socket

import pytest
from aiohttp import web

pytest.importorskip("playwright.async_api", reason="playwright is not installed (make test)")

from alipes.kernel.errors import ToolError
from tests.unit.features.browser.shared import in_browser, open_shared_browser
from tests.world.wait import until
from tests.world.web_pages import make_turn

pytestmark = pytest.mark.service("chromium")
METADATA = "http://169.254.169.254/latest/meta-data/"


@pytest.fixture(scope="module")
def shared():
    yield from open_shared_browser()


async def ask_page(shared, script):
    """Run a script in a page whose host is allowed; returns what it wrote."""
    html = (
        f"<p id=p>waiting</p><script>(async () => {{ {script} }})().then(t => p.textContent = 'ended: ' + t)</script>"
    )
    shown = await shared.show(html)
    async with asyncio.timeout(30):
        while "ended: " not in shown:
            shown = await shared.run("snapshot")
    return shown.partition("ended: ")[2].splitlines()[0].strip('"')


@in_browser
async def test_a_document_of_an_unknown_host_is_asked_about_once(shared):
    shared.server.add("/shop", "<h1>Shop</h1><a href=/shop2>more</a>")
    shared.server.add("/shop2", "<h1>More</h1>")
    shared.person.answers = {"shop.test": "once"}
    page = await shared.run("navigate", url="http://shop.test/shop")
    assert 'heading "Shop"' in page
    assert 'heading "More"' in await shared.run("click", ref=shared.ref(page, "more"))
    assert shared.person.asked == ["shop.test"]


@in_browser
async def test_a_denied_document_is_not_requested_and_the_error_names_the_host(shared):
    with pytest.raises(
        ToolError, match=r"loading http://shop.test/ was not possible. The user said no to a connection to shop.test"
    ):
        await shared.run("navigate", url="http://shop.test/?canary=1")
    assert shared.server.requested("shop.test") == []


@in_browser
async def test_a_page_of_an_earlier_turn_is_asked_about_again_before_an_act(shared):
    shared.server.add("/shop", "<button onclick=\"fetch('/buy')\">Buy</button>")
    shared.person.answers = {"shop.test": "once"}
    page = await shared.run("navigate", url="http://shop.test/shop", turn=make_turn("t1"))
    shared.person.answers = {"shop.test": "no"}
    with pytest.raises(ToolError, match=r"said no to a connection to shop.test"):
        await shared.run("click", ref=shared.ref(page, "Buy"), turn=make_turn("t2"))
    assert "/buy" not in shared.server.requested("shop.test")


@in_browser
async def test_other_sites_of_a_page_are_blocked_and_counted_without_questions(shared):
    hosts = "".join(f"<img src=http://ads{n}.test/pixel>" for n in range(30))
    shared.server.add("/shop", f"<h1>Shop</h1>{hosts}<script src=http://static.shop.test/s.js></script>")
    shared.server.add("/s.js", "document.title = 'with script'", "text/javascript")
    shared.person.answers = {"www.shop.test": "once"}
    page = await shared.run("navigate", url="http://www.shop.test/shop")
    assert "[blocked 30 requests to ads" in page and "27 other hosts" in page and "“with script”" in page
    assert shared.person.asked == ["www.shop.test"] and shared.server.requested("static.shop.test") == ["/s.js"]
    assert not [host for host, _ in shared.server.requests if host.startswith("ads")]


@in_browser
async def test_a_frame_of_another_site_is_blocked(shared):
    page = await shared.show("<iframe src=http://frame.test/shop></iframe><h1>Page</h1>")
    assert "[blocked 1 request to frame.test" in page and shared.server.requested("frame.test") == []


@in_browser
async def test_a_redirect_to_another_host_is_asked_about(shared):
    async def redirect(request):
        raise web.HTTPFound("http://other.test/final")

    shared.server.add("/go", redirect)
    shared.server.add("/final", "<h1>Final</h1>")
    shared.person.answers = {"other.test": "once"}
    assert 'heading "Final"' in await shared.run("navigate", url=shared.server.url("/go"))
    assert shared.person.asked == ["other.test"]
    shared.person.answers = {}
    with pytest.raises(ToolError, match=r"said no to a connection to other.test"):
        await shared.run("navigate", url=shared.server.url("/go"), turn=make_turn("t2"))


@in_browser
async def test_a_page_that_leads_to_many_hosts_stops_being_asked_about(shared):
    script = "for (let i = 0; i < 12; i++) window.open('http://spam' + i + '.test/')"
    page = await shared.show(f'<button onclick="{script}">Spam</button>')
    with pytest.raises(ToolError, match=r"leads to more than 5 other hosts|said no to a connection"):
        await shared.run("click", ref=shared.ref(page, "Spam"))
    assert len(shared.person.asked) <= 5


@pytest.mark.parametrize("way", ["redirect", "script", "link", "meta"])
def test_a_page_cannot_lead_to_the_metadata_address(shared, way):
    async def redirect(request):
        raise web.HTTPFound(METADATA)

    async def scenario(world):
        html = {
            "redirect": redirect,
            "script": f"<script>location = '{METADATA}'</script>",
            "link": f"<a href={METADATA}>Go</a>",
            "meta": f"<meta http-equiv=refresh content='0; url={METADATA}'>",
        }[way]
        world.server.add("/lead", html)
        with pytest.raises(ToolError, match=r"169.254.169.254 is an address of this machine or of a private network"):
            page = await world.run("navigate", url=world.server.url("/lead"))
            if way == "link":
                await world.run("click", ref=world.ref(page, "Go"))
            else:
                guard = world.sessions._sessions["s1"].guard
                await until(lambda: guard._refused)
                await world.run("snapshot")

    shared.run(scenario(shared.world))


@in_browser
async def test_fetch_and_pictures_cannot_reach_private_addresses(shared):
    for place in (METADATA, "http://10.0.0.1/", "http://[::1]:1/", "http://0x7f.1:1/", "http://2130706433:1/"):
        assert await ask_page(shared, f"return fetch('{place}').then(r => 'read', e => e.name)") == "TypeError", place
    result = await ask_page(
        shared,
        f"const i = new Image(); i.src = '{METADATA}'; return new Promise(r => {{ i.onload = i.onerror = e => r(e.type) }})",
    )
    assert result == "error"


@in_browser
async def test_a_name_that_resolves_to_a_private_address_is_refused(shared):
    shared.person.answers = {f"localhost:{shared.server.port}": "once"}
    with pytest.raises(ToolError, match=r"localhost is an address of this machine or of a private network"):
        await shared.run("navigate", url=shared.server.url("/shown", host="localhost"))
    assert shared.person.asked == [f"localhost:{shared.server.port}"]
    assert shared.server.requested("localhost") == []


@in_browser
async def test_a_websocket_to_a_private_address_or_another_site_is_refused(shared):
    listener = socket.create_server(("127.0.0.1", 0))
    listener.setblocking(False)
    port = listener.getsockname()[1]
    script = "return new Promise(r => { const s = new WebSocket('%s'); s.onopen = () => r('open'); s.onerror = () => r('error') })"
    try:
        for place in (
            f"ws://127.0.0.1:{port}/",
            f"ws://localhost:{port}/",
            "ws://169.254.169.254/",
            "ws://other.test/",
        ):
            assert await ask_page(shared, script % place) == "error"
        with pytest.raises(BlockingIOError):
            listener.accept()
    finally:
        listener.close()


@in_browser
async def test_a_websocket_of_the_pages_own_host_works(shared):
    async def echo(request):
        answer = web.WebSocketResponse()
        await answer.prepare(request)
        async for message in answer:
            await answer.send_str(f"echo {message.data}")
        return answer

    shared.server.add("/ws", echo)
    script = (
        "return new Promise(r => { const s = new WebSocket('ws://' + location.host + '/ws');"
        " s.onopen = () => s.send('hi'); s.onmessage = e => { r(e.data); s.close() }; s.onerror = () => r('error') })"
    )
    assert await ask_page(shared, script) == "echo hi"


@in_browser
async def test_a_worker_cannot_fetch_from_private_addresses_or_other_sites(shared):
    shared.server.add(
        "/worker.js",
        f"Promise.all(['{METADATA}', 'http://localhost:{shared.server.port}/shown', 'http://other.test/'].map("
        "u => fetch(u, {mode: 'no-cors'}).then(() => 'read', () => 'refused'))).then(a => postMessage(a.join()))",
        "text/javascript",
    )
    script = "return new Promise(r => { new Worker('/worker.js').onmessage = e => r(e.data) })"
    result = await ask_page(shared, script)
    assert shared.server.requested("other.test") == [] and shared.server.requested("localhost") == []
    assert result.startswith("refused,")


@in_browser
async def test_service_workers_are_not_registered(shared):
    shared.server.add("/sw.js", "onfetch = e => e.respondWith(new Response('from the worker'))", "text/javascript")
    script = (
        "const timer = new Promise(r => setTimeout(() => r('nothing'), 500));"
        "const ready = navigator.serviceWorker ? navigator.serviceWorker.register('/sw.js').then("
        "() => navigator.serviceWorker.ready).then(() => 'active', e => 'refused') : 'absent';"
        "return Promise.race([timer, ready])"
    )
    assert await ask_page(shared, script) in ("nothing", "refused", "absent")
    assert "/sw.js" not in shared.server.requested("127.0.0.1")


@in_browser
async def test_webrtc_sends_nothing(shared):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as listener:
        listener.bind(("127.0.0.1", 0))
        listener.setblocking(False)
        port = listener.getsockname()[1]
        frame = "document.body.append(Object.assign(document.createElement('iframe'), {srcdoc: '', id: 'f'}));"
        script = (
            f"{frame} await new Promise(r => setTimeout(r, 200));"
            "const make = window.RTCPeerConnection || f.contentWindow.RTCPeerConnection; if (!make) return 'absent';"
            f"const c = new make({{iceServers: [{{urls: 'stun:127.0.0.1:{port}'}}]}}); c.createDataChannel('x');"
            "await c.setLocalDescription(await c.createOffer()); await new Promise(r => setTimeout(r, 1000)); return 'sent'"
        )
        assert await ask_page(shared, script) == "absent"
        with pytest.raises(BlockingIOError):
            listener.recv(100)


@in_browser
async def test_a_page_cannot_open_other_hosts_between_acts(shared):
    opened = asyncio.Event()

    async def gate(request):
        await opened.wait()
        return web.Response(text="go")

    shared.server.add("/gate", gate)
    await shared.show("<script>fetch('/gate').then(() => location = 'http://later.test/')</script><h1>Now</h1>")
    opened.set()  # no tool uses the page now
    await until(lambda: shared.sessions._sessions["s1"].guard._refused)
    with pytest.raises(ToolError, match=r"tried to open later.test:80 by itself"):
        await shared.run("snapshot")
    assert shared.person.asked == []


@in_browser
async def test_text_of_a_page_is_recorded_under_its_host(shared):
    shared.server.add("/shop", "<h1>Shop</h1>")
    shared.person.answers = {"shop.test": "once"}
    await shared.run("navigate", url="http://shop.test/shop")
    assert shared.tools["browser_navigate"].hosts_read("s1") == ("shop.test",)
    assert shared.tools["browser_navigate"].hosts_read("unknown") == ()
