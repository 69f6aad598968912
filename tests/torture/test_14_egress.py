"""Hostile addresses against the egress proxy and the fetcher: no internal server is ever connected to."""

import asyncio
import socket
from collections.abc import Iterator
from contextlib import asynccontextmanager

import pytest

from alipes.runtime.http.clients import ClientScope
from alipes.runtime.http.public_fetch import FetchError, PublicFetcher
from tests.torture.test_14_names_and_addresses import ADDRESSES
from tests.unit.runtime.test_egress_proxy import NamesLoop, exchange, open_proxy, run_with_names, socks_request

HOSTS = (
    "localhost", "LOCALHOST", "localhost.", "127.1", "127.0.1", "2130706433", "0x7f000001", "0x7f.0.0.1", "0x7F.1",
    "0177.0.0.1", "0177.1", "017700000001", "127.0.0.1.", "127.127.127.127", "0", "0.0.0.0", "00", "0x0", "[::1]", "[::]",
    "[0:0:0:0:0:0:0:1]", "[::ffff:7f00:1]", "[::ffff:127.0.0.1]", "[64:ff9b::7f00:1]", "[2002:7f00:1::]",
    "127。0。0。1", "127.0.0.1%00.example.com", "%31%32%37.0.0.1", "[::1%25lo]", "[fe80::1%lo]", "①②⑦.⓪.⓪.①",
    "six.test", "mapped.test", "inside.test", "dotted.test.", "user@127.0.0.1", "127.0.0.1#@example.org",
    "127.0.0.1\\@example.org", "example.org@127.0.0.1", "127.0.0.1 ", "\t127.0.0.1", "127.0.0.1\0", "0300.0250.1",
    "4294967295", "4294967296", "99999999999", "0x100000000", "127.0.0.0x1", "127.0.0.08", "1.2.3.4.5",
)  # fmt: skip
NAMES = {"six": [["::1"]], "mapped": [["::ffff:127.0.0.1"]], "inside": [["127.0.0.1"]], "dotted": [["127.0.0.1"]]}
REDIRECTS = (
    "http://[::1]:{port}/a",
    "//127.0.0.1:{port}/a",
    "http://localhost:{port}/a",
    "gopher://127.0.0.1/",
    "/again",
)


@asynccontextmanager
async def open_canary():
    """A server on all addresses of this machine that must see no connection: its port, and who connected."""
    connected = []

    async def take(reader, writer):
        connected.append(writer.get_extra_info("sockname"))
        writer.close()

    listener = socket.create_server(("::", 0), family=socket.AF_INET6, dualstack_ipv6=True)
    server = await asyncio.start_server(take, sock=listener)
    async with server:
        yield listener.getsockname()[1], connected


def requests_for(host: str, port: int) -> Iterator[bytes]:
    """The same host in every protocol of the proxy."""
    yield f"CONNECT {host}:{port} HTTP/1.1\r\nHost: {host}:{port}\r\n\r\n".encode()
    yield f"GET http://{host}:{port}/a.png HTTP/1.1\r\nHost: {host}:{port}\r\n\r\n".encode()
    yield f"GET http://{host}:{port}/a.png HTTP/1.1\r\n\r\n".encode()
    name = host.strip("[]").encode()
    yield b"\x05\x01\x00" + bytes((5, 1, 0, 3, len(name))) + name + port.to_bytes(2)


def test_no_host_in_any_protocol_of_the_proxy_reaches_an_internal_server(figures):
    async def main():
        tried = 0
        async with open_canary() as (port, connected), open_proxy() as (proxy, at):
            for host in HOSTS:
                for request in requests_for(host, port):
                    answer = await exchange(at, request, end=True)
                    refused = answer.startswith(
                        (b"HTTP/1.1 403 ", b"HTTP/1.1 400 ", b"\x05\x00\x05\x01", b"\x05\x00\x05\x02")
                    )
                    assert refused, (host, request, answer)
                    tried += 1
            assert proxy.counts.allowed == 0
        assert connected == []
        return tried

    figures.tried(run_with_names(main, **NAMES))


def test_of_a_name_with_public_and_internal_addresses_only_the_public_one_is_tried():
    async def main():
        async with open_canary() as (port, connected), open_proxy() as (proxy, at), asyncio.TaskGroup() as group:
            for request in (*requests_for("mixed.test", port), socks_request("mixed.test", port)):
                group.create_task(exchange(at, request))
            while len(NamesLoop.lookups) < 5:
                await asyncio.sleep(0.01)
            await proxy.close_scope("s1")
        return connected

    assert run_with_names(main, mixed=[["192.88.99.1", "127.0.0.1", "::1"]]) == []


def test_no_address_reaches_an_internal_server_through_the_fetcher(figures):
    async def allow(_request):
        return ""

    async def main():
        async with open_canary() as (port, connected), ClientScope() as scope:
            names = {"port": port, "stair": port, "hostname": "inside.test"}
            addresses = [each.format(**names) for each in ADDRESSES] + [f"http://{host}:{port}/a.png" for host in HOSTS]
            fetcher = PublicFetcher(scope, decide=allow)
            for address in addresses:
                with pytest.raises(FetchError):
                    await fetcher.fetch(address, largest=1000, seconds=5)
        assert connected == []
        return len(addresses)

    names = {**NAMES, "metadata": [["169.254.169.254"]]}
    figures.tried(run_with_names(main, **names))


@pytest.mark.parametrize("redirect", REDIRECTS)
async def test_no_redirect_leads_to_an_internal_server(redirect):
    async def take(reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        writer.write(f"HTTP/1.1 302 Found\r\nlocation: {redirect.format(port=port)}\r\n".encode())
        writer.write(b"content-length: 0\r\nconnection: close\r\n\r\n")
        writer.close()

    async with open_canary() as (port, connected), ClientScope() as scope:
        server = await asyncio.start_server(take, "127.0.0.1", 0)
        async with server:
            place = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
            with pytest.raises(FetchError):
                await PublicFetcher(scope, [place]).fetch(f"http://{place}/", largest=1000)
    assert connected == []
