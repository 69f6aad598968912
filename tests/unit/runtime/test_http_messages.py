"""URLs, responses and their bodies, compared with httpx2's own."""

import gzip
import zlib

import httpx2
import pytest

from alipes.runtime.http.http1 import ResponseHead
from alipes.runtime.http.messages import HttpResponse, ResponseBody, absolute_url, parse_url

URLS = [
    "http://127.0.0.1:8080/v1/chat/completions",
    "https://api.example.com",
    "https://api.example.com?x=1",
    "https://api.example.com:443/a//b?q=a+b,c/d?e",
    "http://host:80",
    "http://1.2.3.4/bot12:AB-c_d/getMe",
    "http://a.b-c.d9/~x/@y$&()*+,;=:!",
    "https://Api.Example.com/UP",
    "https://user:word@example.com/",
    "https://müller.de/ü",
    "https://xn--mller-kva.de/",
    "http://[::1]:9/x",
    "http://host/a/../b/./c",
    "http://host/a%2Fb%20c?d=%20[e]",
    "http://host/a b#fragment",
    "http://host/?a='b'|c",
    "http://under_score/",
    "http://1.2.3/",
]


@pytest.mark.parametrize("url", URLS)
def test_urls_are_read_as_httpx2_reads_them(url):
    assert absolute_url("", url) == parse_url(httpx2.URL(url))


@pytest.mark.parametrize(
    ("base", "url", "whole"),
    [
        ("http://host/v1/", "/models", "http://host/v1/models"),
        ("http://host/v1", "models?x=1", "http://host/v1/models?x=1"),
        ("http://host", "//other/x", "http://host/other/x"),
        ("http://host/v1", "https://other/x", "https://other/x"),
        ("http://host/v1", "HTTP://other/x", "http://other/x"),
    ],
)
def test_a_relative_url_is_below_the_base(base, url, whole):
    assert absolute_url(base, url) == absolute_url("", whole)


@pytest.mark.parametrize("url", ["http://999.1.1.1/", "http://a\0b/", "http://host:x/"])
def test_invalid_urls_are_refused(url):
    with pytest.raises(httpx2.InvalidURL):
        absolute_url("", url)


@pytest.mark.parametrize("url", ["ftp://host/", "/relative", "host/x"])
def test_urls_of_other_schemes_are_refused(url):
    with pytest.raises(httpx2.UnsupportedProtocol):
        absolute_url("", url)


class Blocks(ResponseBody):
    def __init__(self, *blocks: bytes) -> None:
        self._blocks, self.closed = list(blocks), 0

    async def __anext__(self) -> bytes:
        if not self._blocks:
            raise StopAsyncIteration
        return self._blocks.pop(0)

    async def aclose(self) -> None:
        self.closed += 1


def respond(*blocks: bytes, status: int = 200, headers: tuple[tuple[bytes, bytes], ...] = ()) -> HttpResponse:
    return HttpResponse(ResponseHead(status, b"Fine", b"HTTP/1.1", list(headers)), Blocks(*blocks))


def deflate_bare(data: bytes) -> bytes:
    packer = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    return packer.compress(data) + packer.flush()


@pytest.mark.parametrize(
    ("encoding", "pack"),
    [("gzip", gzip.compress), ("X-GZIP", gzip.compress), ("deflate", zlib.compress), ("deflate", deflate_bare)],
)
@pytest.mark.parametrize("size", [1, 7, 100_000])
async def test_a_compressed_body_is_read_decompressed_however_it_is_cut(encoding, pack, size):
    text = b"hello there, " * 5_000
    packed = pack(text)
    blocks = [packed[start : start + size] for start in range(0, len(packed), size)]
    response = respond(*blocks, headers=((b"Content-Encoding", encoding.encode()),))
    assert await response.aread() == text == response.content
    assert response.is_closed


async def test_a_body_in_another_encoding_stays_as_it_is():
    response = respond(b"\x8b\x01", headers=((b"content-encoding", b"br"),))
    assert await response.aread() == b"\x8b\x01"


async def test_a_broken_compressed_body_is_an_error():
    with pytest.raises(httpx2.DecodingError):
        await respond(b"no gzip", headers=((b"content-encoding", b"gzip"),)).aread()


async def test_the_head_of_a_response():
    headers = ((b"X-One", b"1"), (b"x-one", b"2"), (b"Content-Type", b'text/plain; charset="latin-1"'))
    response = respond("é".encode("latin-1"), headers=headers)
    await response.aread()
    assert (response.status_code, response.reason_phrase, response.text) == (200, "Fine", "é")
    assert response.headers["X-ONE"] == "1, 2" and "x-ONE" in response.headers
    assert response.headers.get("missing", "none") == "none"
    assert response.is_success and not response.is_redirect and response.raise_for_status() is response


@pytest.mark.parametrize("status", [302, 404, 500])
async def test_another_status_is_raised_as_httpx2_raises_it(status):
    with pytest.raises(httpx2.HTTPStatusError) as raised:
        respond(status=status).raise_for_status()
    assert raised.value.response.status_code == status


async def test_json_and_an_unknown_charset():
    response = respond(b'{"a": "\xc3\xa9"}', headers=((b"content-type", b"application/json; charset=nonsense"),))
    await response.aread()
    assert response.json() == {"a": "é"} and response.text == '{"a": "é"}'
