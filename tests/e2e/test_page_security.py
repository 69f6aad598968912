"""Attacks on the page: by raw requests to every route of a real `alipes serve`, and by pages in a real Chromium."""

import re
import sqlite3
from contextlib import asynccontextmanager, closing

import httpx2
import pytest

pytest.importorskip("playwright.async_api", reason="playwright is not installed (make test)")

from playwright.async_api import async_playwright
from starlette.requests import Request
from starlette.responses import HTMLResponse

from alipes.web.server import bind_socket, open_server, server_url
from tests.e2e.program import Home
from tests.e2e.service import open_serve, write_settings
from tests.e2e.test_remote_page import ALONE, QUIET, reap_orphans
from tests.world.environment import LIMIT_S, require
from tests.world.model_server import ModelServer
from tests.world.page_harness import open_page

PUBLIC = ("/", "/install", "/sw.js", "/manifest.webmanifest", "/health")
"""Paths that anybody may read: they hold no data."""
LOCAL = ("/ready", "/metrics", "/openapi.json")
"""Paths that anybody on this machine may read."""
JSON = {"content-type": "application/json"}
LOG_IN = """async code => {
    const answer = await fetch("page/login", {
        method: "POST", headers: {"content-type": "application/json"}, body: JSON.stringify({code})});
    const login = await answer.json();
    localStorage.setItem("alipes.secret", login.secret);
    return answer.status;
}"""
ASK = """async path => {
    const headers = {"x-alipes-page": localStorage.getItem("alipes.secret") ?? ""};
    return (await fetch(path, {headers})).status;
}"""


class Login:
    """What a browser holds."""

    def __init__(self, answer: httpx2.Response) -> None:
        assert answer.status_code == 200, answer.text
        ((name, value),) = answer.cookies.items()
        self.cookie, self.secret = f"{name}={value}", answer.json()["secret"]
        self.id = self.secret.partition(".")[0]

    def both(self) -> dict[str, str]:
        return {"cookie": self.cookie, "x-alipes-page": self.secret}


class Service:
    """A running `alipes serve`, and requests to it."""

    def __init__(self, home: Home, address: str) -> None:
        self.home, self.address = home, address
        self.routes: list[tuple[str, str]] = []

    async def code(self, *words: str) -> str:
        made = await self.home.run("page", *words)
        assert made.status == 0, made.err
        return made.out.strip().partition("#login=")[2]

    async def log_in(self) -> Login:
        return Login(await self.ask("POST", "/page/login", **JSON, content=f'{{"code": "{await self.code()}"}}'))

    async def ask(self, method: str, path: str, *, source: str = "", content: str = "{}", **headers: str):
        """`source`: our own address; wrong secrets of one are delayed."""
        transport = httpx2.AsyncHTTPTransport(local_address=source or None, verify=False)  # no TLS
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        async with httpx2.AsyncClient(base_url=self.address, transport=transport, timeout=LIMIT_S) as client:
            body = None if method == "GET" else content
            if method == "GET" and path.endswith(("/events", "/stream")):  # it would not end if it were allowed
                async with client.stream(method, path, headers=named) as answer:
                    return answer
            return await client.request(method, path, content=body, headers={**JSON, **named})


@asynccontextmanager
async def open_service(tmp_path):
    home = Home(tmp_path / "home")
    async with ModelServer() as model:
        write_settings(home, model)
        async with open_serve(home) as served:
            service = Service(home, served.address)
            document = (await service.ask("GET", "/openapi.json")).json()
            service.routes = [
                (method.upper(), re.sub(r"\{\w+\}", "x", path))
                for path, methods in document["paths"].items()
                for method in methods
                if method in ("get", "post", "put", "patch", "delete")
            ]
            service.routes += [("POST", "/mcp"), ("POST", "/page/logout")]
            assert len(service.routes) > 40
            yield service
        assert model.requests == [], "no attack reached the model"


def closed_routes(service: Service) -> list[tuple[str, str]]:
    return [(method, path) for method, path in service.routes if path not in (*PUBLIC, *LOCAL)]


async def refused(service: Service, expected: tuple[int, ...], **headers: str) -> list[str]:
    """The routes that answer such a request with another status."""
    wrong = []
    for number, (method, path) in enumerate(closed_routes(service), 1):
        answer = await service.ask(method, path, source=f"127.0.2.{number}", **headers)
        if answer.status_code not in expected:
            wrong.append(f"{method} {path}: {answer.status_code}")
    return wrong


@pytest.mark.deadline(120)
async def test_every_route_refuses_half_a_login_and_a_login_that_has_ended(tmp_path):
    async with open_service(tmp_path) as service:
        login, revoked, expired = [await service.log_in() for _ in range(3)]
        assert (await service.ask("GET", "/v1/sessions", **login.both())).status_code == 200
        assert (await service.home.run("page", "revoke", revoked.id)).status == 0
        with closing(sqlite3.connect(service.home.path / "alipes.db")) as db, db:
            db.execute("UPDATE browsers SET last_seen = last_seen - 31 * 86400 WHERE id = ?", (expired.id,))
        assert await refused(service, (401,), cookie=login.cookie) == []
        assert await refused(service, (401,), x_alipes_page=login.secret) == []
        assert await refused(service, (401,), cookie=login.cookie, x_alipes_page=expired.secret) == []
        assert await refused(service, (401,), **revoked.both()) == []
        assert await refused(service, (401,), **expired.both()) == []


@pytest.mark.deadline(120)
async def test_every_route_refuses_another_page_even_with_both_halves(tmp_path):
    async with open_service(tmp_path) as service:
        both = (await service.log_in()).both()
        port = {"origin": "http://127.0.0.1:1", "sec-fetch-site": "same-site"}
        foreign = {"origin": "https://evil.example", "sec-fetch-site": "cross-site"}
        frame = {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate", "sec-fetch-dest": "iframe"}
        for headers in (port, foreign, {"origin": "null"}, {"sec-fetch-site": "same-site"}, frame):
            assert await refused(service, (403,), **both, **headers) == [], headers
            for path in (*PUBLIC, *LOCAL):
                assert (await service.ask("GET", path, **headers)).status_code == 403, (path, headers)
        assert await refused(service, (421,), **both, host="rebound.example") == []
        for path in (*PUBLIC, *LOCAL, "/page/login"):
            assert (await service.ask("GET", path, host="rebound.example")).status_code == 421, path


@pytest.mark.deadline(60)
async def test_a_code_is_refused_if_it_is_wrong_or_used_or_comes_from_another_page(tmp_path):
    async with open_service(tmp_path) as service:
        code = await service.code()
        body = f'{{"code": "{code}"}}'
        foreign = await service.ask("POST", "/page/login", content=body, origin="http://127.0.0.1:1")
        assert (foreign.status_code, foreign.json()["code"]) == (403, "origin")
        assert (await service.ask("POST", "/page/login", content=body)).status_code == 200
        for tried in (body, '{"code": "wrong"}', '{"code": ""}'):
            answer = await service.ask("POST", "/page/login", content=tried)
            assert (answer.status_code, answer.json()["code"]) == (403, "login_code")
            assert "Run `alipes page`" in answer.json()["detail"]
        read_only = await service.ask(
            "POST", "/page/login", content=f'{{"code": "{await service.code("--scope", "read")}"}}'
        )
        login = Login(read_only)
        for method, path in closed_routes(service):
            if method != "GET" and path not in (
                "/page/logout",
                "/mcp",
                "/v1/schedules/preview",
            ):  # which change nothing
                answer = await service.ask(method, path, **login.both())
                assert answer.status_code in (403, 404), (method, path, answer.status_code)


class Attacker:
    """Another program on another port of this machine, and the requests that it got."""

    def __init__(self) -> None:
        self.cookies: list[str] = []
        self.url = ""

    async def __call__(self, scope, receive, send) -> None:
        self.cookies.append(Request(scope).headers.get("cookie", ""))
        # Our server would add a policy under which it could not attack.
        headers = {"content-security-policy": "", "cross-origin-resource-policy": "cross-origin"}
        await HTMLResponse("<!doctype html><title>other</title>", headers=headers)(scope, receive, send)


@asynccontextmanager
async def open_attacker():
    attacker = Attacker()
    with bind_socket("127.0.0.1", 0) as door:
        async with open_server(attacker, door):
            attacker.url = server_url(door)
            yield attacker


@asynccontextmanager
async def open_browser(*more: str):
    program = require("chromium")
    async with reap_orphans(), async_playwright() as driver:
        browser = await driver.chromium.launch(executable_path=program, args=[*QUIET, *ALONE, *more])
        try:
            yield await browser.new_context()
        finally:
            await browser.close()


@pytest.fixture
def chromium():
    """Required before anything is open: a skip raised inside a task group would be an error."""
    return require("chromium")


@pytest.mark.service("chromium")
@pytest.mark.deadline(120)
async def test_a_page_of_another_port_gets_our_cookie_and_nothing_with_it(tmp_path, chromium):
    async with open_service(tmp_path) as service, open_attacker() as attacker, open_browser() as context:
        ours = await context.new_page()
        await ours.goto(service.address)
        assert await ours.evaluate(LOG_IN, await service.code()) == 200
        assert await ours.evaluate(ASK, "v1/sessions") == 200
        other = await context.new_page()
        await other.goto(attacker.url)
        stolen = attacker.cookies[-1]
        assert stolen.startswith("alipes_page_"), "browsers send a cookie of this host to every port"
        assert await other.evaluate("() => [document.cookie, localStorage.length]") == ["", 0]
        assert await refused(service, (401,), cookie=stolen) == []
        statuses: list[int] = []
        network = await context.new_cdp_session(other)
        await network.send("Network.enable")
        network.on("Network.responseReceivedExtraInfo", lambda event: statuses.append(event["statusCode"]))
        read = """([url, method]) => fetch(url, {method, credentials: "include", headers: {"x-alipes-page": "x"}})
            .then(() => "read", error => error.name)"""
        blind = """([url, method]) => fetch(url, {method, mode: "no-cors", credentials: "include", body: method === "POST"
            ? "{}" : undefined}).then(answer => answer.type, error => error.name)"""
        for method, path in [*service.routes, ("POST", "/page/login"), ("GET", "/"), ("GET", "/sw.js")]:
            assert await other.evaluate(read, [service.address + path, method]) == "TypeError", path
            if method in ("GET", "POST"):
                await other.evaluate(blind, [service.address + path, method])
        assert len(statuses) > 40 and set(statuses) == {403}, statuses
        assert await ours.evaluate(ASK, "v1/sessions") == 200, "and the login still works"


@pytest.mark.service("chromium")
@pytest.mark.deadline(120)
async def test_a_frame_a_window_and_a_rebound_name_show_nothing(tmp_path, chromium):
    rules = "--host-resolver-rules=MAP rebound.example 127.0.0.1"
    async with open_page(tmp_path) as site, open_attacker() as attacker, open_browser(rules) as context:
        page = await context.new_page()
        await page.goto(attacker.url)
        frame = """url => new Promise(done => { const frame = document.createElement("iframe");
            frame.onload = done; frame.src = url; document.body.append(frame); }).then(() => 0)"""
        for path in ("/", "/install", "/v1/key", "/health"):
            await page.evaluate(frame, site.url + path)
            assert page.frames[-1].url == "chrome-error://chromewebdata/"
        async with context.expect_page() as opening:
            await page.evaluate("url => { window.opened = window.open(url); }", site.url + "/")
        opened = await opening.value
        await opened.wait_for_load_state()
        assert await opened.title() == "alipes", "a link may open the page"
        assert await opened.evaluate("() => window.opener") is None
        assert await page.evaluate("() => window.opened.closed"), "and the page that opened it has no hold on it"
        rebound = await page.goto(site.url.replace("127.0.0.1", "rebound.example") + "/")
        assert rebound.status == 421
        assert site.room.calls == []


@pytest.mark.service("chromium")
@pytest.mark.deadline(60)
async def test_no_text_becomes_a_script_and_nothing_is_loaded_from_elsewhere(tmp_path, chromium):
    async with open_page(tmp_path) as site, open_attacker() as attacker, open_browser() as context:
        page = await context.new_page()
        await page.goto(site.url)
        tries = """async url => {
            const seen = [];
            const attempt = async (name, act) => {
                try { await act(); seen.push(name); } catch (error) { if (!(error instanceof TypeError || error instanceof EvalError)) seen.push(`${name} ${error}`); }
            };
            window.ran = 0;
            await attempt("innerHTML", () => { document.body.innerHTML = "<img src=x onerror='window.ran=1'>"; });
            await attempt("outerHTML", () => { document.body.outerHTML = "<p>x</p>"; });
            await attempt("insertAdjacentHTML", () => document.body.insertAdjacentHTML("beforeend", "<p>x</p>"));
            await attempt("write", () => document.write("<p>x</p>"));
            await attempt("srcdoc", () => { document.createElement("iframe").srcdoc = "<p>x</p>"; });
            await attempt("script src", () => { document.createElement("script").src = url; });
            await attempt("script text", () => { document.createElement("script").text = "window.ran = 2"; });
            await attempt("handler", () => document.body.setAttribute("onclick", "window.ran = 3"));
            await attempt("policy", () => trustedTypes.createPolicy("x", {}));
            await attempt("default policy", () => trustedTypes.createPolicy("default", {}));
            await attempt("worker", () => new Worker(url));
            await attempt("service worker", () => navigator.serviceWorker.register("sw.js"));
            await attempt("fetch elsewhere", () => fetch(url));
            await new Promise(done => setTimeout(done));  // a debugger may evaluate, so leave its call
            await attempt("eval", () => window.eval("1"));
            await attempt("Function", () => new Function("return 1"));
            const image = new Image();
            const loaded = await new Promise(done => { image.onload = () => done(1); image.onerror = () => done(0); image.src = url; });
            const form = document.createElement("form");
            form.action = url; document.body.append(form); form.submit();
            const frame = document.createElement("iframe");
            frame.src = url; document.body.append(frame);
            await new Promise(done => setTimeout(done, 100));
            return [seen, window.ran, loaded];
        }"""
        assert await page.evaluate(tries, attacker.url) == [[], 0, 0]
        assert attacker.cookies == [], "no request left"
        assert page.url == f"{site.url}/"


@pytest.mark.service("chromium")
@pytest.mark.deadline(60)
async def test_the_service_worker_is_registered_beside_the_page_and_controls_it(tmp_path, chromium):
    async with open_page(tmp_path) as site, open_browser() as context:
        page = await context.new_page()
        await page.goto(f"{site.url}/install#/inbox")
        await page.wait_for_url(re.compile(rf"^{site.url}/#/inbox"))
        scope = "() => navigator.serviceWorker.ready.then(worker => [worker.scope, worker.active.scriptURL])"
        assert await page.evaluate(scope) == [f"{site.url}/", f"{site.url}/sw.js"]


class StripPrefix:
    """A proxy that shows the page in a folder and hides everything else."""

    def __init__(self, app) -> None:
        self._app, self.paths = app, []

    async def __call__(self, scope, receive, send) -> None:
        self.paths.append(scope["path"])
        if not scope["path"].startswith("/agent/"):
            return await HTMLResponse("not here", 404)(scope, receive, send)
        path = scope["path"].removeprefix("/agent")
        return await self._app({**scope, "path": path, "raw_path": path.encode()}, receive, send)


@pytest.mark.service("chromium")
@pytest.mark.deadline(60)
async def test_behind_a_folder_of_a_proxy_every_file_loads_and_the_login_works(tmp_path, chromium):
    proxies = []

    def wrap(app):
        proxies.append(StripPrefix(app))
        return proxies[0]

    headers = {"x-forwarded-prefix": "/agent", "x-forwarded-proto": "http"}
    async with open_page(tmp_path, wrap=wrap, trusted=("127.0.0.1",)) as site, open_browser() as context:
        await context.set_extra_http_headers(headers)
        page = await context.new_page()
        failed = []
        page.on(
            "response", lambda answer: answer.status >= 400 and "/v1/" not in answer.url and failed.append(answer.url)
        )
        await page.goto(f"{site.url}/agent/")
        assert await page.evaluate(LOG_IN, (await site.browsers.add_code("admin")).code) == 200
        assert await page.evaluate(ASK, "v1/key") == 200
        (cookie,) = await context.cookies()
        assert (cookie["path"], cookie["httpOnly"], cookie["sameSite"]) == ("/agent/", True, "Strict")
        await page.goto(f"{site.url}/agent/install")
        await page.wait_for_url(re.compile(rf"^{site.url}/agent/(#.*)?$"))
        assert failed == []
        assert {path for path in proxies[0].paths if not path.startswith("/agent/")} <= {"/favicon.ico"}


@pytest.mark.service("chromium")
@pytest.mark.deadline(60)
async def test_a_browser_that_the_agent_started_cannot_log_in(tmp_path, chromium):
    """The browser of the tests is a child of this process, which also serves."""
    async with open_page(tmp_path, run=tmp_path / "run") as site, open_browser() as context:
        page = await context.new_page()
        await page.goto(site.url)
        assert await page.evaluate(LOG_IN, (await site.browsers.add_code("admin")).code) == 403
        assert await site.browsers.all() == ()
