"""A loopback web site with ordinary and hostile pages."""

import asyncio
import gzip
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from aiohttp import web
from msgspec import Struct

from tests.world.loopback import open_site

ARTICLE = (
    "<!doctype html><html><head><title>Larks of Vienna</title></head><body><nav><a href='/x'>Menu</a></nav><article>"
    "<h1>Larks</h1><p>" + "The lark sings in the morning above the fields of the city. " * 8 + "</p>"
    "<p>See <a href='/song?a=1&amp;section=2'>its song</a>.</p></article></body></html>"
)


BOMB = gzip.compress(bytes(10_000_000))


class Redirect(Struct, frozen=True):
    location: str


class WebSite:
    """Serves `pages` by path: a text is HTML, then bytes with their type, a status, a redirect, or a handler."""

    def __init__(self) -> None:
        self.pages: dict[str, object] = {"/": ARTICLE}
        self.asked: list[str] = []
        self.running = self.most = 0
        """Requests under way, now and at most."""
        self.starts: list[float] = []
        self.held = asyncio.Event()
        """Set when a request waits in `hold`."""
        self.port = 0

    @property
    def place(self) -> str:
        return f"127.0.0.1:{self.port}"

    def url(self, path: str = "/") -> str:
        return f"http://{self.place}{path}"

    async def serve(self, request: web.Request) -> web.StreamResponse:
        self.asked.append(request.path_qs)
        self.starts.append(asyncio.get_running_loop().time())
        self.running += 1
        self.most = max(self.most, self.running)
        try:
            return await self._answer(request)
        finally:
            self.running -= 1

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        match self.pages.get(request.path):
            case str(text):
                return web.Response(text=text, content_type="text/html")
            case (str(kind), bytes(data)):
                return web.Response(body=data, headers={"content-type": kind})
            case Redirect(location):
                return web.Response(status=302, headers={"location": location})
            case int(status):
                return web.Response(status=status)
            case None:
                raise web.HTTPNotFound
            case handler:
                return await handler(request)  # type: ignore[operator]

    async def hold(self, request: web.Request) -> web.StreamResponse:
        """Never answer."""
        self.held.set()
        await asyncio.Event().wait()
        raise AssertionError

    async def drip(self, request: web.Request) -> web.StreamResponse:
        """An endless body."""
        response = web.StreamResponse(headers={"content-type": "text/html"})
        await response.prepare(request)
        while True:
            await response.write(b"<p>more</p>" * 5000)

    async def bomb(self, request: web.Request) -> web.StreamResponse:
        """A small body that is large when it is decompressed, sent although nobody asked for compression."""
        return web.Response(body=BOMB, headers={"content-type": "text/html", "content-encoding": "gzip"})

    async def squeeze(self, request: web.Request) -> web.StreamResponse:
        return web.Response(
            body=gzip.compress(ARTICLE.encode()), headers={"content-type": "text/html", "content-encoding": "gzip"}
        )


@asynccontextmanager
async def open_web_site() -> AsyncIterator[WebSite]:
    site = WebSite()
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", site.serve)
    runner, site.port = await open_site(app, 0)
    try:
        yield site
    finally:
        await runner.cleanup()


def make_pdf(*pages: str, title: str = "") -> bytes:
    """A PDF with a line of text on each page."""
    objects = [b"<< /Type /Catalog /Pages 2 0 R >>", b""]
    font = 3
    objects.append(b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>")
    kids = []
    for text in pages:
        stream = f"BT /F1 12 Tf 72 700 Td ({text}) Tj ET".encode()
        objects.append(b"<< /Length %d >>\nstream\n%b\nendstream" % (len(stream), stream))
        objects.append(
            b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] /Contents %d 0 R "
            b"/Resources << /Font << /F1 %d 0 R >> >> >>" % (len(objects), font)
        )
        kids.append(b"%d 0 R" % len(objects))
    objects[1] = b"<< /Type /Pages /Kids [%b] /Count %d >>" % (b" ".join(kids), len(kids))
    objects.append(b"<< /Title (%b) >>" % title.encode())
    out, places = bytearray(b"%PDF-1.4\n"), []
    for number, body in enumerate(objects, 1):
        places.append(len(out))
        out += b"%d 0 obj\n%b\nendobj\n" % (number, body)
    start = len(out)
    out += b"xref\n0 %d\n0000000000 65535 f \n" % (len(objects) + 1)
    out += b"".join(b"%010d 00000 n \n" % place for place in places)
    out += b"trailer\n<< /Size %d /Root 1 0 R /Info %d 0 R >>\nstartxref\n%d\n%%%%EOF\n" % (
        len(objects) + 1,
        len(objects),
        start,
    )
    return bytes(out)
