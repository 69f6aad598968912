"""The egress proxy with real sockets: what it lets through, what it refuses, and how it ends."""

import asyncio
import logging
import os
import random
import socket
from contextlib import asynccontextmanager
from typing import ClassVar

import pytest

from alipes.kernel.models import Proxies
from alipes.kernel.turns import Address, Inbound, Turn
from alipes.runtime.http.egress import EgressRequest
from alipes.runtime.http.egress_proxy import EgressProxy, ProxyLimits
from alipes.runtime.http.proxies import TlsTrust
from alipes.runtime.http.public_fetch import AddressGuard
from alipes.runtime.http.upstream import UpstreamConnector
from alipes.runtime.sandbox.backend import CommandScope
from tests.unit.runtime.test_proxy_requests import client_hello
from tests.world.tls import client_context, server_context

OK = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\nok"
SCOPE = CommandScope("s1", "/work")


class Server:
    """A server on this machine that answers each connection with `reply` and keeps what it received."""

    def __init__(self, reply=OK, *, first=b"", until_end=False):
        self.reply, self.first, self.until_end = reply, first, until_end
        self.received, self.ended, self.connections = b"", asyncio.Event(), 0
        self._writers = []

    def stop(self):
        """End all connections."""
        for writer in self._writers:
            writer.transport.abort()

    async def handle(self, reader, writer):
        self.connections += 1
        self._writers.append(writer)
        try:
            writer.write(self.first)
            while data := await reader.read(65536):
                self.received += data
                if not self.until_end and b"\r\n\r\n" in self.received:
                    break
            writer.write(self.reply)
            await writer.drain()
            if self.until_end is None:
                await reader.read()
        except OSError:
            pass
        finally:
            self.ended.set()
            writer.close()

    @asynccontextmanager
    async def listen(self, tls=None, host="127.0.0.1"):
        server = await asyncio.start_server(self.handle, host, 0, ssl=tls)
        async with server:
            yield server.sockets[0].getsockname()[1]


class Decisions:
    """Decides by a table of hosts; keeps what was asked."""

    def __init__(self, **refused):
        self.refused, self.asked = refused, []

    async def __call__(self, request: EgressRequest) -> str:
        self.asked.append((request.host, request.port, request.scheme))
        return self.refused.get(request.host.partition(".")[0], "")


@asynccontextmanager
async def open_proxy(*allowed, decide=None, proxies=None, limits=None, trust=None, scope=SCOPE):
    """A proxy that serves one listener; its port."""
    connector = UpstreamConnector(AddressGuard(allowed), proxies, trust)
    async with EgressProxy(decide or Decisions(), connector, limits=limits) as proxy:
        listener = socket.create_server(("127.0.0.1", 0))
        port = listener.getsockname()[1]
        proxy.serve(listener, scope)
        yield proxy, port


async def exchange(port, data, *, end=False):
    """Everything the proxy sends back."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(data)
        if end:
            writer.write_eof()
        return await reader.read()
    finally:
        writer.close()


@asynccontextmanager
async def tunnel(port, authority):
    """An open tunnel."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(f"CONNECT {authority} HTTP/1.1\r\nHost: {authority}\r\n\r\n".encode())
        head = await reader.readuntil(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200 "), head
        yield reader, writer
    finally:
        writer.close()


# HTTP requests


async def test_a_request_reaches_the_server_and_is_decided_logged_and_counted(caplog):
    caplog.set_level(logging.INFO, logger="alipes")
    server, decide = Server(), Decisions()
    async with server.listen() as at, open_proxy(f"127.0.0.1:{at}", decide=decide) as (proxy, port):
        url = f"http://127.0.0.1:{at}/secret-path?q=secret"
        answer = await exchange(port, f"GET {url} HTTP/1.1\r\nHost: 127.0.0.1:{at}\r\n\r\n".encode())
    assert answer == OK and decide.asked == [("127.0.0.1", at, "http")]
    assert server.received.startswith(b"GET /secret-path?q=secret HTTP/1.1\r\nhost: 127.0.0.1")
    assert (proxy.counts.allowed, proxy.counts.bytes_in) == (1, len(OK))
    assert proxy.counts.bytes_out == len(server.received)
    [line] = [each.getMessage() for each in caplog.records if each.name.endswith("egress_proxy")]
    assert f"127.0.0.1:{at}" in line and "session s1" in line and "secret" not in line


@pytest.mark.parametrize("chunked", [True, False])
async def test_a_body_is_passed_on_and_a_second_request_is_not(chunked):
    server = Server(until_end=True)
    framing, body = (
        ("Transfer-Encoding: chunked", b"3\r\nabc\r\n0\r\n\r\n") if chunked else ("Content-Length: 3", b"abc")
    )
    async with server.listen() as at, open_proxy(f"127.0.0.1:{at}") as (_, port):
        head = f"POST http://127.0.0.1:{at}/ HTTP/1.1\r\n{framing}\r\n\r\n".encode()
        second = b"GET / HTTP/1.1\r\nHost: other.example\r\n\r\n"
        _reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(head + body + second)
        while not server.received.endswith(body):
            await asyncio.sleep(0.01)
        writer.close()
    assert b"other.example" not in server.received


async def test_a_refused_host_gets_a_sentence_in_status_and_body():
    why = "evil.example is not allowed. To allow it, add it to egress.allow in config.toml."
    async with open_proxy(decide=Decisions(evil=why)) as (proxy, port):
        for request in (b"GET http://evil.example/ HTTP/1.1\r\n\r\n", b"CONNECT evil.example:443 HTTP/1.1\r\n\r\n"):
            answer = await exchange(port, request)
            assert answer.startswith(f"HTTP/1.1 403 {why}\r\n".encode()) and answer.endswith(
                f"\r\n\r\n{why}\n".encode()
            )
        assert proxy.counts.refused == 2
        assert proxy.take_refusals("s1") == (why,) and proxy.take_refusals("s1") == ()


async def test_a_refusal_is_read_although_the_client_is_still_sending():
    async with open_proxy(decide=Decisions(evil="No.")) as (_, port):
        head = b"POST http://evil.example/ HTTP/1.1\r\nContent-Length: 1000000\r\n\r\n"
        assert (await exchange(port, head + bytes(1_000_000), end=True)).startswith(b"HTTP/1.1 403 No.")


async def test_an_unreachable_host_is_502():
    with socket.create_server(("127.0.0.1", 0)) as closed:
        at = closed.getsockname()[1]
    async with open_proxy("127.0.0.1") as (proxy, port):
        answer = await exchange(port, f"CONNECT 127.0.0.1:{at} HTTP/1.1\r\n\r\n".encode())
    assert answer.startswith(b"HTTP/1.1 502 ") and b"cannot be reached" in answer and proxy.counts.failed == 1


@pytest.mark.parametrize(
    "request_bytes",
    [
        b"nonsense\r\n\r\n",
        b"\x04\x01\x00\x50\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        b"CONNECT x HTTP/1.1\r\n\r\n",
        b"CONNECT x:99999 HTTP/1.1\r\n\r\n",
        b"GET ftp://x/ HTTP/1.1\r\n\r\n",
        b"GET http://x/ HTTP/1.1\r\n" + b"A: " + b"x" * 200_000,
    ],
)
async def test_nonsense_is_400_and_never_decided(request_bytes):
    decide = Decisions()
    async with open_proxy(decide=decide) as (proxy, port):
        assert (await exchange(port, request_bytes)).startswith(b"HTTP/1.1 400 Bad Request\r\n")
    assert decide.asked == [] and proxy.counts.invalid == 1


async def test_the_host_header_must_be_the_host_of_the_url():
    server = Server()
    async with server.listen() as at, open_proxy("127.0.0.1") as (_, port):
        request = f"GET http://127.0.0.1:{at}/ HTTP/1.1\r\nHost: other.example\r\n\r\n"
        assert (await exchange(port, request.encode())).startswith(b"HTTP/1.1 403 The Host header")
    assert server.connections == 0


UPGRADE = "Connection: Upgrade\r\nUpgrade: websocket\r\n\r\n"


@pytest.mark.parametrize(("status", "passed"), [("101 Switching Protocols", b"frame"), ("200 OK", b"")])
async def test_after_an_upgrade_bytes_pass_only_if_the_server_agreed(status, passed):
    async def handle(reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        writer.write(f"HTTP/1.1 {status}\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n".encode())
        await sent.wait()
        writer.write_eof()
        received.set_result(await reader.read())
        writer.close()

    sent, received = asyncio.Event(), asyncio.get_running_loop().create_future()
    server = await asyncio.start_server(handle, "127.0.0.1", 0)
    at = server.sockets[0].getsockname()[1]
    async with server, open_proxy("127.0.0.1") as (_, port):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(f"GET http://127.0.0.1:{at}/ HTTP/1.1\r\nHost: 127.0.0.1:{at}\r\n{UPGRADE}".encode())
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"frame")
        writer.write_eof()
        sent.set()
        assert await reader.read() == b""
        writer.close()
        assert await received == passed


# Tunnels


async def test_a_tunnel_passes_bytes_and_half_closes():
    server = Server(b"answer", until_end=True)
    async with server.listen() as at, open_proxy(f"127.0.0.1:{at}") as (proxy, port):
        async with tunnel(port, f"127.0.0.1:{at}") as (reader, writer):
            writer.write(b"\x00question")
            writer.write_eof()
            assert await reader.read() == b"answer"
    assert server.received == b"\x00question" and (proxy.counts.bytes_in, proxy.counts.bytes_out) == (6, 9)


async def test_a_server_that_speaks_first_is_heard():
    server = Server(b"bye", first=b"SSH-2.0-server\r\n", until_end=True)
    async with server.listen() as at, open_proxy(f"127.0.0.1:{at}") as (_, port):
        async with tunnel(port, f"127.0.0.1:{at}") as (reader, writer):
            assert await reader.readline() == b"SSH-2.0-server\r\n"
            writer.write(b"SSH-2.0-client\r\n")
            writer.write_eof()
            assert await reader.read() == b"bye"
    assert server.received == b"SSH-2.0-client\r\n"


async def test_the_client_sees_a_server_that_closes():
    server = Server(b"", until_end=True)
    async with server.listen() as at, open_proxy(f"127.0.0.1:{at}") as (_, port):
        async with tunnel(port, f"127.0.0.1:{at}") as (reader, writer):
            writer.write_eof()
            assert await reader.read() == b""


async def test_tls_passes_through_a_tunnel_unchanged():
    server = Server(OK)
    async with server.listen(server_context()) as at, open_proxy(f"localhost:{at}") as (_, port):
        async with tunnel(port, f"LOCALHOST.:{at}") as (reader, writer):
            await writer.start_tls(client_context(), server_hostname="localhost")
            writer.write(b"GET / HTTP/1.1\r\n\r\n")
            assert await reader.read() == OK


async def test_a_tls_server_name_of_another_host_is_refused():
    server = Server(until_end=True)
    async with server.listen() as at, open_proxy(f"127.0.0.1:{at}", f"localhost:{at}") as (proxy, port):
        for host in ("127.0.0.1", "localhost"):
            async with tunnel(port, f"{host}:{at}") as (reader, writer):
                for byte in client_hello("hidden.example"):
                    writer.write(bytes([byte]))
                assert await reader.read() == b""
        assert proxy.counts.refused == 2 and "hidden.example" in proxy.take_refusals("s1")[0]
    assert server.received == b"" and server.connections == 2


async def test_http_inside_a_tunnel_may_not_name_another_host():
    server = Server()
    async with server.listen() as at, open_proxy(f"localhost:{at}") as (_, port):
        async with tunnel(port, f"localhost:{at}") as (reader, writer):
            for part in (b"G", b"ET / HTTP/1.1\r\nHo", b"st: other.example\r\n\r\n"):
                writer.write(part)
            assert (await reader.read()).startswith(b"HTTP/1.1 403 The Host header names other.example")
        assert server.received == b""
        async with tunnel(port, f"localhost:{at}") as (reader, writer):
            writer.write(f"GET /x HTTP/1.1\r\nHost: localhost:{at}\r\n\r\n".encode())
            writer.write(b"GET /y HTTP/1.1\r\nHost: other.example\r\n\r\n")
            assert await reader.read() == OK
    assert server.received.startswith(b"GET /x HTTP/1.1\r\n") and b"other.example" not in server.received


# SOCKS


def socks_request(host, port, command=1):
    return b"\x05\x01\x00" + bytes((5, command, 0, 3, len(host))) + host.encode() + port.to_bytes(2)


async def test_socks_connects_by_name():
    server, decide = Server(b"answer", until_end=True), Decisions()
    async with server.listen() as at, open_proxy(f"localhost:{at}", decide=decide) as (_, port):
        answer = await exchange(port, socks_request("LocalHost.", at) + b"\x00question", end=True)
    assert answer == b"\x05\x00" + b"\x05\x00\x00\x01" + bytes(6) + b"answer"
    assert decide.asked == [("localhost", at, "socks")] and server.received == b"\x00question"


@pytest.mark.parametrize(
    ("request_bytes", "code"),
    [
        (socks_request("evil.example", 443), 2),
        (socks_request("127.0.0.1", 443), 2),
        (b"\x05\x01\x00\x05\x01\x00\x01\x7f\x00\x00\x01\x00\x50", 2),
        (socks_request("x.example", 443, command=2), 1),
        (socks_request("a b", 443), 1),
    ],
)
async def test_socks_refuses_with_a_code(request_bytes, code):
    async with open_proxy(decide=Decisions(evil="No.")) as (_, port):
        assert (await exchange(port, request_bytes))[2:4] == bytes((5, code))


async def test_socks_with_a_password_only_is_refused():
    async with open_proxy() as (_, port):
        assert await exchange(port, b"\x05\x01\x02") == b"\x05\xff"


# Addresses


async def test_a_private_address_is_refused_before_anybody_is_asked():
    decide = Decisions()
    async with open_proxy(decide=decide) as (_, port):
        for host in ("127.0.0.1", "0x7f.1", "10.0.0.1", "169.254.169.254", "[::1]", "[::ffff:127.0.0.1]", "0"):
            answer = await exchange(port, f"CONNECT {host}:443 HTTP/1.1\r\n\r\n".encode())
            assert answer.startswith(b"HTTP/1.1 403 ") and b"fetch.allow" in answer
    assert decide.asked == []


class NamesLoop(asyncio.SelectorEventLoop):
    """Resolves names from a table, others to nothing; another lookup of the same name gets the next answer."""

    names: ClassVar[dict[str, list[list[str]]]] = {}
    lookups: ClassVar[list[str]] = []

    async def getaddrinfo(self, host, port, **more):
        if host == "localhost" or not any(char.isalpha() for char in host):
            return await super().getaddrinfo(host, port, **more)
        NamesLoop.lookups.append(host)
        if not (answers := NamesLoop.names.get(host.rstrip("."))):
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        found = answers.pop(0) if len(answers) > 1 else answers[0]
        return [
            (socket.AF_INET6 if ":" in each else socket.AF_INET, socket.SOCK_STREAM, 6, "", (each, port))
            for each in found
        ]


def run_with_names(main, **names):
    NamesLoop.names = {f"{name}.test": answers for name, answers in names.items()}
    NamesLoop.lookups = []
    with asyncio.Runner(loop_factory=NamesLoop) as runner:
        return runner.run(main())


def test_a_name_that_leads_to_a_private_address_is_refused():
    async def main():
        server = Server()
        async with server.listen() as at, open_proxy() as (_, port):
            for name in ("inside", "six", "metadata"):
                for request in (f"CONNECT {name}.test:{at}", f"GET http://{name}.test:{at}/"):
                    answer = await exchange(port, f"{request} HTTP/1.1\r\n\r\n".encode())
                    assert answer.startswith(b"HTTP/1.1 403 ") and b"private network" in answer
        return server.connections

    names = {"inside": [["127.0.0.1"]], "six": [["::1"]], "metadata": [["169.254.169.254"]]}
    assert run_with_names(main, **names) == 0


def test_a_rebound_name_is_connected_to_the_address_that_was_checked():
    async def main():
        server = Server()
        async with server.listen() as at, open_proxy() as (proxy, port), asyncio.TaskGroup() as group:
            group.create_task(exchange(port, f"CONNECT rebound.test:{at} HTTP/1.1\r\n\r\n".encode()))
            while not NamesLoop.lookups:
                await asyncio.sleep(0.01)
            await proxy.close_scope("s1")
        return server.connections

    assert run_with_names(main, rebound=[["192.88.99.1"], ["127.0.0.1"]]) == 0
    assert NamesLoop.lookups == ["rebound.test"], "one lookup"


def test_a_refused_name_is_never_looked_up():
    async def main():
        async with open_proxy(decide=Decisions(secret="No.")) as (_, port):
            await exchange(port, b"CONNECT secret.test:443 HTTP/1.1\r\n\r\n")

    run_with_names(main, secret=[["8.8.8.8"]])
    assert NamesLoop.lookups == []


# The user's own proxy


async def test_connections_go_through_the_proxy_of_the_user():
    server = Server(b"HTTP/1.1 200 OK\r\n\r\nhello from upstream", until_end=None)
    async with server.listen() as at:
        proxies = Proxies(http=f"http://me:pw@127.0.0.1:{at}", https=f"http://127.0.0.1:{at}")
        async with open_proxy(proxies=proxies) as (_, port):
            answer = await exchange(port, b"GET http://8.8.8.8/x HTTP/1.1\r\nHost: 8.8.8.8\r\n\r\n", end=True)
            assert answer.endswith(b"hello from upstream")
            assert server.received.startswith(b"GET http://8.8.8.8/x HTTP/1.1\r\nhost: 8.8.8.8\r\n")
            assert b"proxy-authorization: Basic bWU6cHc=\r\n" in server.received
            server.received = b""
            async with tunnel(port, "8.8.8.8:443") as (reader, _writer):
                assert await reader.readexactly(5) == b"hello"
            assert server.received == b"CONNECT 8.8.8.8:443 HTTP/1.1\r\nhost: 8.8.8.8:443\r\n\r\n"


async def test_the_proxy_of_the_user_is_not_asked_for_private_addresses():
    server = Server(b"HTTP/1.1 200 OK\r\n\r\n")
    async with server.listen() as at, open_proxy(proxies=Proxies(all=f"http://127.0.0.1:{at}")) as (_, port):
        for host in ("10.0.0.1", "localhost"):
            answer = await exchange(port, f"CONNECT {host}:443 HTTP/1.1\r\n\r\n".encode())
            assert answer.startswith(b"HTTP/1.1 403 ")
    assert server.connections == 0


async def test_hosts_in_no_proxy_are_connected_to_directly():
    server, detour = Server(), Server(b"HTTP/1.1 200 OK\r\n\r\n")
    async with server.listen(host="127.0.0.2") as at, detour.listen() as there:
        proxies = Proxies(http=f"http://127.0.0.1:{there}", no=("127.0.0.2",))
        async with open_proxy("127.0.0.2", proxies=proxies) as (_, port):
            assert await exchange(port, f"GET http://127.0.0.2:{at}/ HTTP/1.1\r\n\r\n".encode()) == OK
    assert detour.connections == 0


async def test_a_refusal_of_the_users_proxy_is_502():
    server = Server(b"HTTP/1.1 407 Proxy Authentication Required\r\n\r\n")
    async with server.listen() as at, open_proxy(proxies=Proxies(https=f"http://127.0.0.1:{at}")) as (_, port):
        answer = await exchange(port, b"CONNECT 8.8.8.8:443 HTTP/1.1\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 502 ") and b"your proxy refused it with status 407" in answer


def test_a_socks_proxy_of_the_user_resolves_names_that_only_it_knows():
    decide = Decisions(far="No.")

    async def main():
        async with open_proxy(decide=decide) as (_, second):
            async with open_proxy(proxies=Proxies(all=f"socks5h://127.0.0.1:{second}")) as (_, port):
                return await exchange(port, b"CONNECT far.test:443 HTTP/1.1\r\n\r\n")

    answer = run_with_names(main, far=[])
    assert answer.startswith(b"HTTP/1.1 502 ") and b"your proxy refused it: not allowed" in answer
    assert decide.asked == [("far.test", 443, "socks")]


async def test_the_users_proxy_may_speak_tls():
    server = Server(b"HTTP/1.1 200 OK\r\n\r\n", until_end=None)
    trust = TlsTrust(client_context())
    async with server.listen(server_context()) as at:
        async with open_proxy(proxies=Proxies(https=f"https://127.0.0.1:{at}"), trust=trust) as (_, port):
            async with tunnel(port, "8.8.8.8:443"):
                assert server.received.startswith(b"CONNECT 8.8.8.8:443 ")


# Limits and ends


async def test_an_idle_tunnel_is_closed():
    server = Server(until_end=True)
    limits = ProxyLimits(idle_seconds=0.1)
    async with server.listen() as at, open_proxy(f"127.0.0.1:{at}", limits=limits) as (_, port):
        async with tunnel(port, f"127.0.0.1:{at}") as (reader, _):
            assert await reader.read() == b""


async def test_a_client_that_sends_no_request_is_closed():
    async with open_proxy(limits=ProxyLimits(head_seconds=0.1)) as (_, port):
        assert await exchange(port, b"") == b""
        assert await exchange(port, b"GET http://x") == b""


async def test_more_connections_than_the_limit_wait():
    server = Server(b"answer", until_end=True)
    limits = ProxyLimits(connections=1)
    async with server.listen() as at, open_proxy(f"127.0.0.1:{at}", limits=limits) as (_, port):
        async with tunnel(port, f"127.0.0.1:{at}") as (first, writer), asyncio.TaskGroup() as group:
            waiting = group.create_task(exchange(port, b"nonsense\r\n\r\n"))
            for _ in range(100):
                await asyncio.sleep(0)
            assert not waiting.done()
            writer.write_eof()
            assert await first.read() == b"answer"
            writer.close()
    assert waiting.result().startswith(b"HTTP/1.1 400 ")


async def test_closing_a_session_ends_its_connections_and_no_others():
    server = Server(until_end=True)
    async with server.listen() as at, open_proxy(f"127.0.0.1:{at}") as (proxy, port):
        other = socket.create_server(("127.0.0.1", 0))
        other_port = other.getsockname()[1]
        proxy.serve(other, CommandScope("s2"))
        async with tunnel(port, f"127.0.0.1:{at}") as (reader, _), tunnel(other_port, f"127.0.0.1:{at}") as (others, _):
            await proxy.close_scope("s1")
            assert await reader.read() == b""
            with pytest.raises(ConnectionRefusedError):
                await asyncio.open_connection("127.0.0.1", port)
            assert not others.at_eof()
            assert (await exchange(other_port, b"nonsense\r\n\r\n")).startswith(b"HTTP/1.1 400 ")
        await proxy.close_scope("unknown")


async def test_a_connection_that_waits_for_a_decision_ends_with_its_session():
    asked = asyncio.Event()

    async def wait(_request):
        asked.set()
        await asyncio.Event().wait()

    async with open_proxy(decide=wait) as (proxy, port), asyncio.TaskGroup() as group:
        client = group.create_task(exchange(port, b"CONNECT x.example:443 HTTP/1.1\r\n\r\n"))
        await asked.wait()
        await proxy.close_scope("s1")
    assert client.result() == b""


async def test_new_connections_belong_to_the_current_turn():
    seen = []

    async def decide(request):
        seen.append(request.scope)
        return "No."

    turn = Turn("t2", "s1", Inbound("m", Address("cli", "c"), "ann", "go"))
    async with open_proxy(decide=decide) as (proxy, port):
        proxy.set_turn("s1", turn)
        proxy.set_turn("unknown", turn)
        await exchange(port, b"CONNECT x.example:443 HTTP/1.1\r\n\r\n")
    assert seen == [CommandScope("s1", "/work", turn)]


async def test_a_unix_socket_is_served(tmp_path):
    server = Server()
    path = str(tmp_path / "s")
    async with server.listen() as at, open_proxy(f"127.0.0.1:{at}") as (proxy, _):
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(path)
        listener.listen()
        proxy.serve(listener, SCOPE)
        reader, writer = await asyncio.open_unix_connection(path)
        writer.write(f"GET http://127.0.0.1:{at}/ HTTP/1.1\r\n\r\n".encode())
        assert await reader.read() == OK
        writer.close()


async def test_a_slow_reader_slows_the_sender_down():
    data = os.urandom(1 << 20) * 64

    async def handle(reader, writer):
        writer.write(data)
        await writer.drain()
        drained.set()
        writer.close()

    drained = asyncio.Event()
    server = await asyncio.start_server(handle, "127.0.0.1", 0)
    at = server.sockets[0].getsockname()[1]
    async with server, open_proxy("127.0.0.1") as (proxy, port), tunnel(port, f"127.0.0.1:{at}") as (reader, _):
        for _ in range(100):
            await exchange(port, b"nonsense\r\n\r\n")
        assert not drained.is_set(), "the proxy does not buffer what nobody reads"
        assert await reader.read() == data
    assert proxy.counts.bytes_in == len(data)


@pytest.mark.parametrize("seed", range(20))
async def test_random_bytes_never_end_the_proxy(seed):
    dice = random.Random(seed)
    starts = [b"CONNECT ", b"GET http://", b"\x05", b"\x05\x01\x00\x05\x01\x00", b"", b"POST http://x/ HTTP/1.1\r\n"]
    async with open_proxy(decide=Decisions(x="No.")) as (_, port):
        for _ in range(10):
            data = dice.choice(starts) + dice.randbytes(dice.randrange(40)) + dice.choice([b"", b"\r\n\r\n"])
            await exchange(port, data, end=True)
        assert (await exchange(port, b"nonsense\r\n\r\n")).startswith(b"HTTP/1.1 400 ")


async def test_an_error_in_the_block_is_raised_as_it_is():
    with pytest.raises(KeyError):
        async with open_proxy():
            raise KeyError
