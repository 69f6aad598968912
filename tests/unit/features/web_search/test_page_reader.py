"""Reading pages: types, limits, politeness, cache, hostile servers."""

import asyncio
import gzip

import pytest
from aiohttp import web

from alipes.features.web_search.page_reader import HostLimits, PageCache, WebPage, check_url, recognise_kind
from alipes.kernel.errors import ToolError
from alipes.runtime.http.clients import ClientScope
from alipes.runtime.http.public_fetch import FetchRequest, PublicFetcher
from alipes.runtime.sandbox.backend import CommandScope
from tests.unit.features.web_search.context import open_reader
from tests.world.web_site import ARTICLE, Redirect, make_pdf, open_web_site

ME = CommandScope("s1")
PNG = b"\x89PNG\r\n\x1a\n" + bytes(40)


TEXTS = {
    "/article": ("text/html", ARTICLE.encode(), "# Larks"),
    "/tag": ("text/plain", b"<html> is a tag", "is a tag"),
    "/json": ("application/json", b'{"lark": 1}', '{"lark": 1}'),
    "/pdf": ("application/pdf", make_pdf("a lark"), "a lark"),
    "/file": ("application/octet-stream", make_pdf("a lark"), "a lark"),
    "/untyped": ("", b"just words", "just words"),
    "/feed": ("text/xml", b"<rss version='2.0'><channel><title>N</title></channel></rss>", "# N"),
    "/xml": ("application/xml", b"<data>words</data>", "<data>words</data>"),
    "/markdown": ("text/markdown", b"# Title", "# Title"),
}
UNREADABLE = {
    "/program": (
        ("application/x-elf", b"\x7fELF" + bytes(100)),
        "it is application/x-elf (104 bytes), which is not text",
    ),
    "/damaged": (("application/pdf", b"%PDF-1.4 nonsense"), "it is a broken PDF"),
    "/zeros": (("application/octet-stream", bytes(100)), "it is application/octet-stream"),
    "/binary": (("text/plain", b"\0\1" * 3000), "it is not text"),
    "/empty": (("text/html", b""), "it is empty"),
    "/app": ("<html><body><script>app()</script></body></html>", "may need JavaScript"),
    "/missing": (404, "returned status 404: there is no such page"),
    "/forbidden": (403, "refuses programs"),
    "/busy": (429, "wants fewer requests"),
    "/inside": (Redirect("http://169.254.169.254/latest/meta-data"), "private network"),
    "/local": (Redirect("file:///etc/passwd"), "give an http or https URL"),
    "/odd": (Redirect("http://[bad"), "could not be fetched"),
    "/bomb": ("bomb", "is larger than 100,000 bytes"),
    "/drip": ("drip", "is larger than 100,000 bytes"),
}


async def test_every_kind_of_text_is_read():
    async with open_web_site() as site, open_reader(site) as reader:
        site.pages |= {path: (kind, data) for path, (kind, data, _) in TEXTS.items()}
        texts = {path: (await reader.read(site.url(path), ME)).text for path in TEXTS}
    assert {path for path, (_, _, found) in TEXTS.items() if found not in texts[path]} == set()


async def test_an_image_is_handed_over_as_it_is():
    async with open_web_site() as site, open_reader(site) as reader:
        site.pages |= {"/png": ("image/png", PNG), "/file": ("application/octet-stream", PNG)}
        for path in ("/png", "/file"):
            assert (await reader.read(site.url(path), ME)).image == PNG


async def test_what_cannot_be_read_says_why():
    said = {}
    async with open_web_site() as site, open_reader(site, max_bytes=100_000) as reader:
        for path, (page, _) in UNREADABLE.items():
            site.pages[path] = getattr(site, page) if path in ("/bomb", "/drip") else page
            with pytest.raises(ToolError) as raised:
                await reader.read(site.url(path), ME)
            said[path] = str(raised.value)
    assert {path: said[path] for path, (_, why) in UNREADABLE.items() if why not in said[path]} == {}


async def test_a_server_that_does_not_answer_is_given_up():
    async with open_web_site() as site, open_reader(site, timeout=1.0) as reader:
        site.pages["/x"] = site.hold
        with pytest.raises(ToolError, match="did not answer within 1 s"):
            await reader.read(site.url("/x"), ME)


async def test_a_page_that_hangs_the_converter_is_given_up():
    async with open_web_site() as site, open_reader(site, seconds=1.0) as reader:
        site.pages["/x"] = ("text/html", b"<a href=x>" * 300_000)
        with pytest.raises(ToolError, match="took longer than"):
            await reader.read(site.url("/x"), ME)


async def test_compressed_and_redirected_pages_are_read_and_the_final_address_kept():
    async with open_web_site() as site, open_reader(site) as reader:
        site.pages |= {"/old": Redirect("/new"), "/new": site.squeeze}
        page = await reader.read(site.url("/old#part"), ME)
    assert "# Larks" in page.text and page.url == site.url("/new") and site.asked == ["/old", "/new"]


@pytest.mark.parametrize("url", ["ftp://x.example/a", "example.org", "", "http://", "javascript:1", "http://[x"])
def test_what_is_not_a_web_address_is_refused(url):
    with pytest.raises(ToolError, match=r"is not a (web address|URL)"):
        check_url(url)


async def test_a_private_address_is_refused():
    async with open_web_site() as site, open_reader(site) as reader:
        for url in ("http://127.0.0.1:1/", "http://localhost/", "http://10.0.0.1/", "http://[::1]/"):
            with pytest.raises(ToolError, match="private network"):
                await reader.read(url, ME)
    assert site.asked == []


async def test_every_host_needs_the_right_to_connect():
    async def decide(request):
        return f"{request.host} is not allowed in {request.scope.session}."

    async with open_web_site() as site, open_reader(site) as reader, ClientScope() as scope:
        reader._fetcher = PublicFetcher(scope, [site.place], decide=decide)
        with pytest.raises(ToolError, match=r"127\.0\.0\.1 is not allowed in s1\."):
            await reader.read(site.url(), ME)
    assert site.asked == []


async def test_a_page_is_fetched_once_per_conversation_while_it_is_fresh():
    now = [0.0]
    async with open_web_site() as site, open_reader(site, cache=100.0) as reader:
        reader._cache = PageCache(100.0, lambda: now[0])
        await reader.read(site.url(), ME)
        await reader.read(site.url("/#x"), ME)
        assert len(site.asked) == 1
        await reader.read(site.url(), CommandScope("s2"))
        now[0] = 101.0
        await reader.read(site.url(), ME)
        assert len(site.asked) == 3
        await reader.session_left("s1")
        await reader.read(site.url(), ME)
        assert len(site.asked) == 4


def test_the_cache_is_limited_in_pages_characters_and_conversations():
    cache = PageCache(100.0, lambda: 0.0)
    for number in range(40):
        cache.add("s1", f"u{number}", WebPage("u", "x"))
    assert cache.find("s1", "u7") is None and cache.find("s1", "u8") is not None
    cache.add("s1", "long", WebPage("u", "x" * 3_999_999))
    assert cache.find("s1", "u39") is not None and cache.find("s1", "u38") is None
    cache.add("s1", "longer", WebPage("u", "x" * 5_000_000))
    assert cache.find("s1", "longer") is None
    for number in range(70):
        cache.add(f"other{number}", "u", WebPage("u", "x"))
    assert cache.find("s1", "u39") is None and cache.find("other69", "u") is not None


async def test_one_host_gets_few_requests_at_the_same_time():
    async with open_web_site() as site, open_reader(site, parallel=2) as reader:
        gate = asyncio.Event()

        async def wait(request):
            await gate.wait()
            return web.Response(text="words", content_type="text/plain")

        site.pages |= {f"/{number}": wait for number in range(6)}
        async with asyncio.TaskGroup() as group:
            for number in range(6):
                group.create_task(reader.read(site.url(f"/{number}"), ME))
            while site.running < 2:
                await asyncio.sleep(0.01)
            for _ in range(20):
                await asyncio.sleep(0)
            gate.set()
        assert site.most == 2 and len(site.asked) == 6


async def test_requests_to_one_host_start_with_a_delay_and_other_hosts_do_not_wait():
    limits, clock = HostLimits(4, 0.15), asyncio.get_running_loop().time
    starts = []

    async def use(host):
        async with limits.reserve(host):
            starts.append((host, clock() - begun))

    begun = clock()
    async with asyncio.TaskGroup() as group:
        for host in ("a", "a", "a", "b"):
            group.create_task(use(host))
    assert [host for host, _ in starts] == ["a", "b", "a", "a"]
    assert starts[2][1] >= 0.14 and starts[3][1] >= 0.29


async def test_a_host_that_is_not_used_is_forgotten():
    limits = HostLimits(1, 0.0)
    for number in range(5):
        async with limits.reserve(f"h{number}"):
            pass
    async with limits.reserve("last"):
        assert [*limits._hosts] == ["last"]


async def test_a_cancelled_wait_frees_its_place():
    limits = HostLimits(1, 0.0)
    async with limits.reserve("a"):
        waiting = asyncio.create_task(limits.reserve("a").__aenter__())
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.wait([waiting])
    async with limits.reserve("a"), asyncio.timeout(5):
        pass


@pytest.mark.parametrize(
    ("media_type", "data", "kind"),
    [
        ("application/rss+xml", b"x", "feed"),
        ("text/plain", b"<!DOCTYPE html><p>", "html"),
        ("application/xhtml+xml", b"x", "html"),
        ("application/ld+json", b"{}", "text"),
        ("application/x-ndjson", b"{}", "text"),
        ("application/octet-stream", "grün".encode() * 1000, "text"),
        ("application/octet-stream", b"\xff\xfe\xfa", None),
        ("video/mp4", b"words", None),
        ("", b"", None),
    ],
)
def test_the_kind_is_recognised(media_type, data, kind):
    assert recognise_kind(media_type, data) == kind


async def test_a_fetch_posts_a_body_and_keeps_headers_from_other_hosts():
    seen = []

    async def show(request):
        seen.append((request.method, request.headers.get("x-key"), await request.text()))
        return web.Response(body=gzip.compress(b"done"), headers={"content-encoding": "gzip"})

    async with open_web_site() as site, open_web_site() as other, ClientScope() as scope:
        site.pages |= {"/post": show, "/away": Redirect(other.url("/end")), "/near": Redirect("/post")}
        other.pages["/end"] = show
        fetcher = PublicFetcher(scope, [site.place, other.place])
        request = FetchRequest({"x-key": "k"}, b"body")
        assert (await fetcher.fetch(site.url("/post"), largest=99, request=request)).data == b"done"
        for path in ("/near", "/away"):
            await fetcher.fetch(site.url(path), largest=99, request=FetchRequest({"x-key": "k"}))
    assert seen == [("POST", "k", "body"), ("GET", "k", ""), ("GET", None, "")]
