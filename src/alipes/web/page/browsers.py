"""Login of browsers to the page: one-time codes, the two halves that a browser shows, and the list of browsers."""

import hashlib
import re
from typing import Literal

import msgspec
from msgspec import Struct
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from alipes.runtime.redaction import SecretRegistry
from alipes.store.sql.browsers import Browser, BrowserScope, BrowserStore
from alipes.web.auth import Authenticator, KeyHolder, RequestLimits, read_body
from alipes.web.endpoint import ApiCall, ApiEndpoint, Caller, HttpProblem, answer_errors, json_response, no_content
from alipes.web.page.location import PageLocation, PageLocator

PAGE = "page"
"""Caller name of all browsers: they are one person's."""
SECRET_HEADER = "x-alipes-page"
_COOKIE_AGE_S = 400 * 86_400
"""The longest that browsers keep a cookie. Until then, the last use decides."""
_LOGIN_LIMITS = RequestLimits(body=4096, body_seconds=10.0)
NOT_LOGGED_IN = "This browser is not logged in. Run `alipes page` in a terminal and open its link."
WRONG_CODE = "This link was used already, has expired, or is for another alipes. Run `alipes page` for a new one."


class LoginRequest(Struct, frozen=True):
    code: str


class LoginAnswer(Struct, frozen=True):
    """`secret` is one half; the other one is in the cookie."""

    secret: str
    name: str
    scope: BrowserScope
    expires: float


class BrowserLogins:
    """Recognises browsers and logs them in and out. `home`: keeps the cookies of several homes on one host apart.

    A cookie of 127.0.0.1 is sent to every port, so whatever listens there could use it. The other half is in the
    storage of our origin, which no other port can read.
    """

    def __init__(
        self,
        browsers: BrowserStore,
        keys: Authenticator,
        locator: PageLocator,
        *,
        home: str = "",
        secrets: SecretRegistry | None = None,
    ) -> None:
        self.browsers, self._keys, self.locator = browsers, keys, locator
        self._secrets = secrets or SecretRegistry()
        self.cookie = f"alipes_page_{hashlib.sha256(home.encode()).hexdigest()[:8]}"

    def is_browser(self, request: Request) -> bool:
        """True if the request shows at least one half, valid or not."""
        return SECRET_HEADER in request.headers or self.cookie in request.cookies

    async def authenticate(self, request: Request) -> KeyHolder:
        """The holder of both halves. Raises `HttpProblem` if one is missing, wrong, revoked or expired."""
        browser = await self._find(request)
        if browser is None:
            if SECRET_HEADER in request.headers:
                await self._keys.delay.wait(self.locator.locate(request).peer)
            raise HttpProblem(401, NOT_LOGGED_IN, code="not_logged_in")
        return KeyHolder(Caller(PAGE, frozenset({browser.scope}), sees_all=True, browser=browser.id))

    def routes(self) -> list[Route]:
        async def log_in(request: Request) -> Response:
            return await answer_errors(self._log_in(request))

        async def log_out(request: Request) -> Response:
            return await answer_errors(self._log_out(request))

        return [Route("/page/login", log_in, methods=["POST"]), Route("/page/logout", log_out, methods=["POST"])]

    async def refuse_agent(self, request: Request) -> None:
        """Raises `HttpProblem` if the agent or one of its processes sent this request."""
        await self._keys.refuse_own_child(request.scope, agents=True)

    async def delay_wrong(self, request: Request) -> None:
        """Delay the answer to a wrong token, like that to a wrong key."""
        await self._keys.delay.wait(self.locator.locate(request).peer)

    async def _find(self, request: Request) -> Browser | None:
        cookie, secret = request.cookies.get(self.cookie, ""), request.headers.get(SECRET_HEADER, "")
        found = await self.browsers.find(cookie, secret) if cookie and secret else None
        if found is not None:
            self._secrets.add(cookie, secret)
        return found

    async def _log_in(self, request: Request) -> Response:
        wanted = _decode_login(request, await read_body(request, _LOGIN_LIMITS))
        await self.refuse_agent(request)
        place = self.locator.locate(request)
        login = await self.browsers.log_in(wanted.code, name_browser(request))
        if login is None:
            await self._keys.delay.wait(place.peer)
            raise HttpProblem(403, WRONG_CODE, code="login_code")
        self._secrets.add(login.cookie, login.secret)
        if (before := await self._find(request)) is not None:
            await self.browsers.revoke(before.id)  # the same browser: its old login is replaced
        browser = login.browser
        answer = json_response(LoginAnswer(login.secret, browser.name, browser.scope, browser.expires))
        self._set_cookie(answer, place, login.cookie, _COOKIE_AGE_S)
        return answer

    async def _log_out(self, request: Request) -> Response:
        browser = await self._find(request)
        if browser is None:
            raise HttpProblem(401, NOT_LOGGED_IN, code="not_logged_in")
        await self.refuse_agent(request)
        await self.browsers.revoke(browser.id)
        answer = no_content()
        self._set_cookie(answer, self.locator.locate(request), "", 0)
        return answer

    def _set_cookie(self, answer: Response, place: PageLocation, value: str, age_s: int) -> None:
        answer.set_cookie(
            self.cookie, value, max_age=age_s, path=place.path, secure=place.secure, httponly=True, samesite="strict"
        )


def _decode_login(request: Request, body: bytes) -> LoginRequest:
    media = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if media != "application/json":  # a form of another page could send any other type
        raise HttpProblem(415, "the request body must be JSON (Content-Type: application/json)", code="media_type")
    try:
        return msgspec.json.decode(body, type=LoginRequest)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise HttpProblem(422, f"invalid request body: {error}", code="body") from error


_BROWSERS = (
    ("Edg", "Edge"),
    ("OPR/", "Opera"),
    ("SamsungBrowser", "Samsung Internet"),
    ("FxiOS", "Firefox"),
    ("Firefox/", "Firefox"),
    ("CriOS", "Chrome"),
    ("HeadlessChrome", "Chromium"),
    ("Chromium/", "Chromium"),
    ("Chrome/", "Chrome"),
    ("Safari/", "Safari"),
)
_SYSTEMS = (
    ("iPhone", "iPhone"),
    ("iPad", "iPad"),
    ("Android", "Android"),
    ("Windows", "Windows"),
    ("Mac OS X", "macOS"),
    ("CrOS", "ChromeOS"),
    ("Linux", "Linux"),
)


def name_browser(request: Request) -> str:
    """The browser and its system in plain words, as in "Chromium on Linux", from what it says about itself."""
    agent, brands = request.headers.get("user-agent", ""), request.headers.get("sec-ch-ua", "")
    name = next((name for mark, name in _BROWSERS if mark in agent), "")
    if name == "Chrome" and brands and "Google Chrome" not in brands:
        others = re.findall(r'"(Brave|Vivaldi|Chromium)"', brands)
        name = min(others, key=("Brave", "Vivaldi", "Chromium").index, default="Chrome")
    system = next((name for mark, name in _SYSTEMS if mark in agent), "")
    return " on ".join(filter(None, (name, system))) or "Unknown browser"


class BrowserInfo(Struct, frozen=True, omit_defaults=True):
    """A browser that is logged in. Times are seconds since the epoch."""

    id: str
    name: str
    scope: BrowserScope
    created: float
    last_seen: float
    expires: float
    """When it has to log in again, unless it is used before."""
    current: bool = False
    """True for the browser that asks."""


class BrowserList(Struct, frozen=True):
    browsers: list[BrowserInfo]


class NewBrowser(Struct, frozen=True):
    """Which rights the browser will have, and its name; empty: what it says about itself."""

    scope: Literal["read", "admin"] = "admin"
    name: str = ""


class LoginLink(Struct, frozen=True):
    """A link that logs one browser in, once."""

    link: str
    code: str
    expires: float


class BrowserEndpoints:
    def __init__(self, logins: BrowserLogins, address: str = "") -> None:
        self._logins, self._address = logins, address

    @ApiEndpoint("GET", "/v1/browsers", "read", answer=BrowserList)
    async def list(self, call: ApiCall) -> Response:
        """Browsers that are logged in to the page."""
        if not (call.caller.sees_all or call.caller.may("admin")):
            raise HttpProblem(403, "this key lacks the scope admin", code="scope")
        found = await self._logins.browsers.all()
        return json_response(BrowserList([_describe(each, call.caller) for each in found]))

    @ApiEndpoint("POST", "/v1/browsers", "admin", body=NewBrowser, answer=LoginLink, status=201)
    async def add(self, call: ApiCall) -> Response:
        """A one-time link that logs another browser in."""
        await self._logins.refuse_agent(call.request)
        code = await self._logins.browsers.add_code(call.body.scope, call.body.name)
        base = self._address or self._logins.locator.locate(call.request).url
        return json_response(LoginLink(code.link(base), code.code, code.expires), 201)

    @ApiEndpoint("DELETE", "/v1/browsers/{id}", "admin", status=204)
    async def revoke(self, call: ApiCall) -> Response:
        """Log a browser out."""
        if not await self._logins.browsers.revoke(call.path["id"]):
            raise HttpProblem(404, "there is no such browser; it may have been logged out already", code="not_found")
        return no_content()


def _describe(browser: Browser, caller: Caller) -> BrowserInfo:
    return BrowserInfo(
        browser.id,
        browser.name,
        browser.scope,
        browser.created,
        browser.last_seen,
        browser.expires,
        current=browser.id == caller.browser,
    )
