"""What a model names is fetched from public places only, whatever a name or a redirect leads to."""

import asyncio
import logging
from contextlib import asynccontextmanager

import pytest

from alipes.kernel.models import Proxies
from alipes.runtime.http.clients import ClientScope
from alipes.runtime.http.egress import EgressCounts
from alipes.runtime.http.public_fetch import FetchError, PublicFetcher, is_public
from alipes.runtime.sandbox.backend import CommandScope

ROOM = 1000


@asynccontextmanager
async def site(answers, host="127.0.0.1"):
    """By path: the raw answer. What was asked for is kept."""
    asked = []

    async def serve(reader, writer):
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        path = head.split()[1]
        asked.append(path)
        answer = answers[path]
        if answer is not None:
            writer.write(answer)
            await writer.drain()
        else:
            await reader.read()  # until they hang up
        writer.close()

    server = await asyncio.start_server(serve, host, 0)
    async with server:
        yield f"{host}:{server.sockets[0].getsockname()[1]}", asked


def found(body, *headers):
    lines = ["HTTP/1.1 200 OK", f"content-length: {len(body)}", "connection: close", *headers]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


def leads(to):
    return f"HTTP/1.1 302 Found\r\nlocation: {to}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n".encode()


@pytest.mark.parametrize(
    "address",
    [
        *("127.0.0.1", "127.8.8.8", "0.0.0.0", "10.1.2.3", "172.16.0.1", "192.168.1.1", "169.254.169.254"),
        *("100.64.0.1", "100.100.100.200", "192.0.0.192", "198.18.0.1", "224.0.0.1", "255.255.255.255"),
        *("168.63.129.16", "::1", "::", "fe80::1%eth0", "fd00:ec2::254", "ff02::1", "::ffff:127.0.0.1"),
        *("::ffff:169.254.169.254", "64:ff9b::7f00:1", "64:ff9b::a9fe:a9fe", "2002:7f00:1::", "2001:db8::1"),
        *("fec0::1", "feff::1", "::7f00:1", "::a01:203", "::808:808", "64:ff9b:1::7f00:1", "64:ff9b:1::808:808"),
        *("fe80::5efe:7f00:1", "2001:470::5efe:a00:1", "2001:470::200:5efe:a00:1", "fe80::5efe:808:808"),
        *("::ffff:0:7f00:1", "100::1", "3fff::1", "5f00::1", "4000::1", "2001:0:7f00:1::", "2001::ffff:f5ff:fffe"),
    ],
)
def test_addresses_that_lead_inside_are_not_public(address):
    assert not is_public(address)


@pytest.mark.parametrize(
    "address", ["8.8.8.8", "93.184.216.34", "2606:4700::1111", "64:ff9b::808:808", "::ffff:8.8.8.8"]
)
def test_addresses_of_the_world_are_public(address):
    assert is_public(address)


async def test_what_the_operator_allowed_is_fetched_and_redirects_are_followed():
    answers = {"/a": leads("/b"), "/b": found(b"words", "content-type: Text/Plain; charset=utf-8")}
    async with site(answers) as (place, asked), ClientScope() as scope:
        fetched = await PublicFetcher(scope, [place]).fetch(f"http://{place}/a", largest=ROOM)
    assert (fetched.data, fetched.kind, fetched.url) == (b"words", "text/plain", f"http://{place}/b")
    assert asked == ["/a", "/b"]


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "0x7f000001", "2130706433", "0"])
async def test_this_machine_is_not_reached_by_any_of_its_names(host):
    async with site({"/": found(b"secret")}) as (place, asked), ClientScope() as scope:
        with pytest.raises(FetchError):
            await PublicFetcher(scope).fetch(f"http://{host}:{place.rpartition(':')[2]}/", largest=ROOM)
    assert asked == []


async def test_a_redirect_leads_nowhere_private():
    async with site({"/": found(b"secret")}, "127.0.0.2") as (inner, reached):
        async with site({"/": leads(f"http://{inner}/")}) as (place, _), ClientScope() as scope:
            with pytest.raises(FetchError, match="private network"):
                await PublicFetcher(scope, [place]).fetch(f"http://{place}/", largest=ROOM)
    assert reached == []


async def test_a_redirect_leads_to_no_other_kind_of_address():
    answers = {"/f": leads("file:///etc/passwd"), "/u": leads("http://me:pw@127.0.0.1/")}
    async with site(answers) as (place, _), ClientScope() as scope:
        fetcher = PublicFetcher(scope, [place])
        for path in answers:
            with pytest.raises(FetchError):
                await fetcher.fetch(f"http://{place}{path}", largest=ROOM)


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("file:///etc/passwd", "http or https"),
        ("gopher://example.org/", "http or https"),
        ("http:///nohost", "http or https"),
        ("http://a:b@example.org/", "password"),
        ("http://[::1", "not a URL"),
    ],
)
async def test_what_is_no_address_of_the_web_is_refused_in_words(url, why):
    async with ClientScope() as scope:
        with pytest.raises(FetchError, match=why):
            await PublicFetcher(scope).fetch(url, largest=ROOM)


async def test_what_is_too_large_missing_slow_or_endless_is_reported():
    answers = {
        "/large": found(b"x" * (ROOM + 1)),
        "/none": b"HTTP/1.1 404 No\r\ncontent-length: 0\r\nconnection: close\r\n\r\n",
        "/slow?key=secret": None,
        "/round": leads("/round"),
        "/broken": b"nonsense\r\n\r\n",
    }
    async with site(answers) as (place, asked), ClientScope() as scope:
        fetcher = PublicFetcher(scope, [place])
        for path, why in {
            "/large": "larger than 1,000",
            "/none": "returned status 404",
            "/slow?key=secret": "/slow did not answer",
            "/round": "redirects",
            "/broken": "could not be fetched",
        }.items():
            seconds = 0.3 if "slow" in path else 9.0
            with pytest.raises(FetchError, match=why) as raised:
                await fetcher.fetch(f"http://{place}{path}", largest=ROOM, seconds=seconds)
            assert "secret" not in str(raised.value)
    assert asked.count("/round") == 6


async def test_through_a_proxy_private_names_are_refused_before_it_is_asked():
    answers = {"http://10.0.0.1/": found(b"secret"), "http://8.8.8.8/": found(b"world")}
    async with site(answers) as (proxy, asked), ClientScope(Proxies(http=f"http://{proxy}")) as scope:
        fetcher = PublicFetcher(scope)
        with pytest.raises(FetchError, match="private network"):
            await fetcher.fetch("http://10.0.0.1/", largest=ROOM)
        assert asked == []
        assert (await fetcher.fetch("http://8.8.8.8/", largest=ROOM)).data == b"world"


async def test_every_host_is_decided_also_after_a_redirect():
    asked = []

    async def decide(request):
        asked.append((request.host, request.port, request.scope.session))
        return "" if request.host == "127.0.0.1" else "No."

    async with site({"/a": leads("http://other.example/secret")}) as (place, _), ClientScope() as scope:
        fetcher = PublicFetcher(scope, [place], decide=decide)
        with pytest.raises(FetchError, match=r"^http://other\.example/secret was not fetched\. No\.$"):
            await fetcher.fetch(f"http://{place}/a", largest=ROOM, caller=CommandScope("s1"))
    assert asked == [("127.0.0.1", int(place.rpartition(":")[2]), "s1"), ("other.example", 80, "s1")]


async def test_fetches_are_logged_without_their_path_and_counted(caplog):
    caplog.set_level(logging.INFO, logger="alipes")
    counts = EgressCounts()

    async def decide(request):
        return "" if request.host == "127.0.0.1" else "No."

    answers = {"/secret": found(b"words")}
    async with site(answers) as (place, _), ClientScope() as scope:
        fetcher = PublicFetcher(scope, [place], decide=decide, counts=counts)
        await fetcher.fetch(f"http://{place}/secret", largest=ROOM, caller=CommandScope("s1"))
        with pytest.raises(FetchError):
            await fetcher.fetch("http://x.example/secret", largest=ROOM)
    said = [each.getMessage() for each in caplog.records if each.name.endswith("public_fetch")]
    assert len(said) == 2 and f"from {place}, 5 bytes" in said[0] and "session s1" in said[0]
    assert "secret" not in "".join(said) and (counts.allowed, counts.refused, counts.bytes_in) == (1, 1, 5)


async def test_the_time_of_a_question_does_not_count():
    limit = 0.5

    async def decide(request):
        await asyncio.sleep(2 * limit)
        return ""

    answers = {"/": None}
    async with site(answers) as (place, asked), ClientScope() as scope:
        with pytest.raises(FetchError, match="did not answer"):
            fetcher = PublicFetcher(scope, [place], decide=decide)
            await fetcher.fetch(f"http://{place}/", largest=ROOM, seconds=limit)
    assert asked == ["/"], "the server was asked after the question took longer than the limit"


async def test_nobody_is_asked_about_a_private_address():
    async def decide(request):
        raise AssertionError(request)

    async with ClientScope() as scope:
        for host in ("127.0.0.1", "[::1]", "2130706433", "0x7f.1", "169.254.169.254"):
            with pytest.raises(FetchError, match="private network"):
                await PublicFetcher(scope, decide=decide).fetch(f"http://{host}/", largest=ROOM)
