"""`ClientScope` over real sockets: what the server sees is what counts."""

import asyncio
import gc
import os
import random
import ssl
import subprocess
import sys

import httpx2
import pytest

from alipes.kernel.errors import ConfigError
from alipes.kernel.models import Endpoint, Proxies, Secret
from alipes.providers.errors import ModelTarget, translate_network_error
from alipes.runtime.http.clients import ClientScope, OpenClient
from alipes.runtime.http.httpx_transport import _pattern
from alipes.runtime.http.proxies import TlsTrust, system_trust
from tests.conftest import require
from tests.world.tls import (
    SeenConnection,
    always_json,
    ca_file,
    chunked,
    client_context,
    open_loopback,
    reply,
    status_line,
)

PLAIN_AND_TLS = pytest.mark.parametrize("tls", [False, True], ids=["plain", "tls"])


async def half_a_stream(seen: SeenConnection) -> None:
    seen.send(chunked(b"data: one\n\n", ending=False))
    await seen.wait_gone()


async def short_stream(seen: SeenConnection) -> None:
    seen.send(chunked(b"data: one\n\n", b"data: [DONE]\n\n"))


def by_path(**answers):
    async def answer(seen: SeenConnection) -> None:
        path = status_line(seen.requests[-1]).split("/")[-1]
        await answers[path](seen)

    return answer


@PLAIN_AND_TLS
async def test_nine_calls_of_a_conversation_open_one_connection(tls):
    async with open_loopback(short_stream, tls=tls) as server, ClientScope(trust=client_context()) as scope:
        for _ in range(9):
            http = scope.http("model", base_url=server.url)
            async with http.stream("POST", "/v1/chat", content=b"{}") as response:
                assert b"[DONE]" in b"".join([piece async for piece in response.aiter_raw()])
        assert len(server.requests) == 9
        assert len(server.connections) == 1
        assert [(c.name, c.kind, c.requests) for c in scope.open_clients()] == [("model", "http", 9)]


@PLAIN_AND_TLS
async def test_leaving_a_stream_half_read_closes_its_connection_at_once(tls):
    async with open_loopback(by_path(half=half_a_stream, whole=short_stream), tls=tls) as server:
        async with ClientScope(trust=client_context()) as scope:
            http = scope.http("model", base_url=server.url)
            async with http.stream("GET", "/half") as response:
                async for _ in response.aiter_raw():
                    break
            await server.connections[0].closed.wait()
            assert (await http.request("GET", "/whole")).status_code == 200
            assert len(server.connections) == 2


@PLAIN_AND_TLS
async def test_a_cancelled_request_does_not_disturb_another_on_the_same_pool(tls):
    go_on = asyncio.Event()

    async def slow(seen: SeenConnection) -> None:
        seen.send(chunked(b"first ", ending=False))
        await go_on.wait()
        seen.send(b"4\r\nlast\r\n0\r\n\r\n")

    async with open_loopback(by_path(slow=slow, half=half_a_stream), tls=tls) as server:
        async with ClientScope(trust=client_context()) as scope, asyncio.TaskGroup() as group:
            http = scope.http("model", base_url=server.url)
            patient = group.create_task(http.request("GET", "/slow"))
            hasty = group.create_task(http.request("GET", "/half"))
            while len(server.requests) < 2:
                await server.arrived.wait()
                server.arrived.clear()
            hasty.cancel()
            await server.connections[[r[0] for r in server.requests].index("GET /half HTTP/1.1")].closed.wait()
            go_on.set()
            assert (await patient).content == b"first last"


async def test_a_request_cancelled_inside_the_tls_handshake_leaves_no_socket_open():
    closed = asyncio.Event()
    hello = asyncio.Event()

    async def mute(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        hello.set()
        while await reader.read(65536):
            pass
        closed.set()
        writer.close()

    server = await asyncio.start_server(mute, "127.0.0.1", 0)
    gc.disable()  # the collector would close it too, some day
    try:
        async with ClientScope(trust=client_context()) as scope, asyncio.TaskGroup() as group:
            http = scope.http("model", base_url=f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}")
            task = group.create_task(http.request("GET", "/"))
            await hello.wait()
            task.cancel()
            await closed.wait()
    finally:
        gc.enable()
        server.close()


async def test_a_stream_cancelled_twice_leaves_nothing_in_the_pool():
    async with open_loopback(half_a_stream) as server, ClientScope() as scope:
        http = scope.http("model", base_url=server.url)
        inside = asyncio.Event()

        async def read() -> None:
            async with http.stream("GET", "/"):
                inside.set()
                await asyncio.Event().wait()

        async with asyncio.TaskGroup() as group:
            task = group.create_task(read())
            await inside.wait()
            task.cancel()
            await asyncio.sleep(0)
            task.cancel()
        assert task.cancelled()
        assert not http._direct.busy


@pytest.mark.deadline(60)
async def test_turns_stopped_at_any_moment_leave_no_file_open():
    dice = random.Random(7)
    async with open_loopback(half_a_stream, tls=True) as server, ClientScope(trust=client_context()) as scope:
        http = scope.http("model", base_url=server.url)
        open_files = lambda: len(os.listdir("/proc/self/fd"))  # noqa: E731
        before = open_files()
        gc.disable()  # what only the collector closes was left open
        try:
            for turn in range(80):
                async with asyncio.TaskGroup() as group:
                    task = group.create_task(http.request("POST", "/", content=b"x" * 1000))
                    await asyncio.sleep(dice.random() * 0.02)
                    task.cancel()
                    if turn % 3 == 0:
                        await asyncio.sleep(0)
                        task.cancel()
            while open_files() > before:
                await asyncio.sleep(0.01)
        finally:
            gc.enable()
        assert server.connections


async def test_a_request_that_fails_does_not_disturb_the_next():
    async def cut(seen: SeenConnection) -> None:
        seen.send(chunked(b"half", ending=False))
        seen.writer.close()

    async with open_loopback(by_path(cut=cut, whole=short_stream)) as server, ClientScope() as scope:
        http = scope.http("model", base_url=server.url)
        with pytest.raises(httpx2.RemoteProtocolError):
            await http.request("GET", "/cut")
        assert (await http.request("GET", "/whole")).status_code == 200


async def test_a_silent_server_is_a_timeout_and_a_dripping_one_too_when_the_whole_is_limited():
    async def drip(seen: SeenConnection) -> None:
        seen.send(chunked(b"x", ending=False))
        while not seen.writer.is_closing():
            seen.send(b"1\r\nx\r\n")
            await asyncio.sleep(0.02)

    async with open_loopback(by_path(drip=drip, half=half_a_stream)) as server, ClientScope() as scope:
        with pytest.raises(httpx2.ReadTimeout):
            await scope.http("stalls", base_url=server.url, stall=0.1).request("GET", "/half")
        with pytest.raises(httpx2.ReadTimeout, match=r"within 0\.2 s"):
            await scope.http("drips", base_url=server.url).request("GET", "/drip", timeout=0.2)
        for connection in server.connections[:1]:
            await connection.closed.wait()


async def test_the_same_arguments_give_the_same_handle_and_others_another():
    async with ClientScope() as scope:
        assert scope.http("a", base_url="http://x") is scope.http("a", base_url="http://x")
        assert scope.http("a", base_url="http://x") is not scope.http("a", base_url="http://x", stall=1)


async def test_a_cookie_given_to_one_conversation_is_not_sent_by_another():
    async def sweet(seen: SeenConnection) -> None:
        seen.send(reply(more="set-cookie: who=alice; path=/\r\n"))

    async with open_loopback(sweet) as server, ClientScope() as scope:
        for _ in range(2):
            await scope.http("web", base_url=server.url).request("GET", "/")
        assert [headers.get("cookie") for _, headers, _ in server.requests] == [None, None]


async def test_a_scope_is_used_only_while_open_and_only_on_its_own_loop():
    scope = ClientScope()
    with pytest.raises(RuntimeError, match="not open"):
        scope.http("early")
    async with scope:
        http = scope.http("model", base_url="http://127.0.0.1:9")
        with pytest.raises(RuntimeError, match="open already"):
            await scope.__aenter__()
        with pytest.raises(RuntimeError, match="another event loop"):
            await asyncio.to_thread(scope.http, "thread")
        with pytest.raises(RuntimeError, match="another event loop"):
            await asyncio.to_thread(lambda: asyncio.run(http.request("GET", "/")))
    with pytest.raises(RuntimeError, match="not open"):
        await http.request("GET", "/")


async def test_a_scope_that_is_dropped_while_open_warns_and_does_nothing_else():
    scope = ClientScope()
    await scope.__aenter__()
    before = asyncio.all_tasks()
    with pytest.warns(ResourceWarning, match="dropped while open"):
        del scope
        gc.collect()
    assert asyncio.all_tasks() == before


async def test_everything_is_closed_when_the_body_fails_or_is_cancelled():
    for ending in (ValueError, asyncio.CancelledError):
        async with open_loopback() as server:
            with pytest.raises(ending):
                async with ClientScope() as scope:
                    await scope.http("a", base_url=server.url).request("GET", "/")
                    await scope.http("b", base_url=server.url).request("GET", "/")
                    raise ending
            for connection in server.connections:
                await connection.closed.wait()
            assert len(server.connections) == 2


class Stubborn:
    """A way out that takes its time to close, and then fails."""

    def __init__(self, name: str, closed: list[str], error: type[Exception] | None = OSError) -> None:
        self.name, self.closed, self.error = name, closed, error
        self.requests = 0
        self.began = asyncio.Event()

    async def aclose(self) -> None:
        self.began.set()
        for _ in range(3):
            await asyncio.sleep(0)
        if self.name not in self.closed:
            self.closed.append(self.name)
        if self.error:
            raise self.error(self.name)


def add(scope: ClientScope, wire: Stubborn) -> None:
    """Put a client on `wire` under the scope's care."""
    scope._owned[wire] = OpenClient(wire.name, "http", "", 0.0, (wire,))


async def test_closing_continues_newest_first_when_one_fails_and_the_first_failure_is_raised(caplog):
    closed: list[str] = []
    with pytest.raises(OSError, match="c"):
        async with ClientScope() as scope:
            for name, error in (("a", OSError), ("b", None), ("c", OSError)):
                add(scope, Stubborn(name, closed, error))
    assert closed == ["c", "b", "a"]
    assert "'a' failed" in caplog.text


async def test_a_failure_to_close_does_not_hide_why_the_body_failed():
    with pytest.raises(ValueError, match="the body"):
        async with ClientScope() as scope:
            add(scope, Stubborn("a", []))
            raise ValueError("the body")


async def test_closing_is_finished_even_when_the_closing_task_is_cancelled_again_and_again():
    closed: list[str] = []
    wires = [Stubborn(name, closed, None) for name in "abc"]

    async def live() -> None:
        async with ClientScope() as scope:
            for wire in wires:
                add(scope, wire)

    async with asyncio.TaskGroup() as group:
        task = group.create_task(live())
        await wires[-1].began.wait()
        for _ in range(3):
            task.cancel()
            await asyncio.sleep(0)
    assert task.cancelled()
    assert closed == ["c", "b", "a"]


# TLS


async def test_plain_requests_build_no_tls_context_and_tls_ones_build_one_per_scope():
    async with open_loopback() as server, open_loopback(tls=True) as secure:
        async with ClientScope(trust=client_context()) as scope:
            await scope.http("a", base_url=server.url).request("GET", "/")
            assert "tls" not in vars(scope._trust)
            await scope.http("a").request("GET", secure.url)
            assert "tls" in vars(scope._trust)


async def test_a_certificate_nobody_vouches_for_is_refused(tmp_path):
    async with open_loopback(tls=True) as server:
        async with ClientScope() as scope:
            with pytest.raises(httpx2.ConnectError, match="certificate verify failed"):
                await scope.http("model", base_url=server.url).request("GET", "/")
        async with ClientScope(trust=str(ca_file(tmp_path))) as scope:
            assert (await scope.http("model", base_url=server.url).request("GET", "/")).status_code == 200
            with pytest.raises(httpx2.ConnectError, match="verify failed"):
                await scope.http("model").request("GET", server.url.replace("127.0.0.1", "127.1"))


def test_the_system_trust_checks_names_and_certificates():
    context = TlsTrust().tls
    assert context.verify_mode is ssl.CERT_REQUIRED
    assert context.check_hostname


async def test_a_system_that_hashes_its_cas_is_believed_without_reading_them_all(tmp_path):
    openssl = require("openssl", "the package openssl")
    bundle, folder = ca_file(tmp_path), tmp_path / "certs"
    folder.mkdir()
    argv = [openssl, "x509", "-hash", "-noout", "-in", str(bundle)]
    name = subprocess.run(argv, check=True, capture_output=True, text=True).stdout.strip()
    link = folder / f"{name}.0"
    link.symlink_to(bundle)
    paths = ssl.get_default_verify_paths()._replace(openssl_cafile=str(bundle), openssl_capath=str(folder))
    context = system_trust(paths)
    assert context.cert_store_stats()["x509_ca"] == 0, "nothing is read before a handshake asks for it"
    async with open_loopback(tls=True) as server, ClientScope(trust=context) as scope:
        assert (await scope.http("model", base_url=server.url).request("GET", "/")).is_success
    link.unlink()
    link.symlink_to(tmp_path / "gone.pem")
    assert system_trust(paths).cert_store_stats()["x509_ca"] > 0, "dangling names are no CAs: read the bundle"


def test_a_ca_file_that_is_none_is_the_operators_to_mend(tmp_path):
    (tmp_path / "empty.pem").write_text("")
    for name in ("missing.pem", "empty.pem"):
        with pytest.raises(ConfigError, match=name):
            TlsTrust(str(tmp_path / name)).tls  # noqa: B018


# Proxies


async def forward(seen: SeenConnection) -> None:
    """A proxy that answers itself, or turns into the TLS server it was asked to reach."""
    line = status_line(seen.requests[-1])
    if not line.startswith("CONNECT"):
        seen.send(reply(b"by proxy"))
        return
    seen.send(b"HTTP/1.1 200 Connected\r\n\r\n")
    port = int(line.rpartition(":")[2])
    reader, writer = await asyncio.open_connection("127.0.0.1", port)

    async def pump(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        try:
            while data := await source.read(65536):
                sink.write(data)
        except ConnectionError:
            pass
        sink.close()

    async with asyncio.TaskGroup() as group:
        group.create_task(pump(seen.reader, writer))
        group.create_task(pump(reader, seen.writer))


async def test_a_proxy_is_used_for_strangers_and_not_for_this_machine_nor_for_no_proxy():
    async with open_loopback(forward) as proxy, open_loopback() as server:
        for proxies in (Proxies(http=proxy.url), Proxies(all=proxy.url.removeprefix("http://"))):
            async with ClientScope(proxies) as scope:
                http = scope.http("web")
                assert (await http.request("GET", "http://model.test/x")).content == b"by proxy"
                assert (await http.request("GET", server.url)).content != b"by proxy"
        assert [status_line(request) for request in proxy.requests] == ["GET http://model.test/x"] * 2
        async with ClientScope(Proxies(http=proxy.url, no=("192.0.2.0/24",))) as scope:
            with pytest.raises(httpx2.TransportError):
                await scope.http("web").request("GET", "http://192.0.2.1/", timeout=0.3)
        assert len(proxy.requests) == 2
        async with ClientScope(Proxies(http="http://127.0.0.1:9", no=("*",))) as scope:
            assert (await scope.http("web").request("GET", server.url)).status_code == 200


async def test_tls_goes_through_a_tunnel_and_is_verified_inside_it():
    async with open_loopback(forward) as proxy, open_loopback(tls=True) as server:
        proxies = Proxies(https=proxy.url.replace("http://", "http://user:pass%40word@"))
        async with ClientScope(proxies, trust=client_context()) as scope:
            for _ in range(2):
                answer = await scope.http("web").request("GET", f"https://model.test:{server.port}/")
                assert answer.status_code == 200
        assert [status_line(r) for r in proxy.requests] == [f"CONNECT model.test:{server.port}"]
        assert proxy.requests[0][1]["proxy-authorization"] == "Basic dXNlcjpwYXNzQHdvcmQ="


async def no_tunnel(seen: SeenConnection) -> None:
    seen.send(b"HTTP/1.1 502 Bad Gateway\r\n\r\n")


async def drop(seen: SeenConnection) -> None:
    seen.writer.close()


@pytest.mark.parametrize(
    ("respond", "said"),
    [(None, "connect"), (no_tunnel, "502 Bad Gateway"), (drop, "Server disconnected")],
    ids=["not there", "refuses", "closes"],
)
async def test_a_broken_proxy_is_named_in_the_error_without_its_password(respond, said):
    async with open_loopback(respond or drop) as proxy:
        place = proxy.url.removeprefix("http://") if respond else "127.0.0.1:9"
        async with ClientScope(Proxies(https=f"http://me:secret@{place}")) as scope:
            with pytest.raises(httpx2.ProxyError, match=said) as broken:
                await scope.http("web").request("GET", "https://model.test/")
    assert str(broken.value).startswith(f"the proxy {place}: ") and "secret" not in str(broken.value)
    error = translate_network_error(
        ModelTarget(Endpoint("x", "openai-chat", base_url="https://model.test/v1"), "m"), broken.value
    )
    assert str(error).startswith(f"x: no connection to model.test/v1: the proxy {place}: ")


async def test_an_error_of_the_server_behind_a_proxy_does_not_blame_the_proxy():
    async with open_loopback(forward) as proxy, open_loopback(tls=True) as server:
        async with ClientScope(Proxies(https=proxy.url)) as scope:
            with pytest.raises(httpx2.ConnectError, match="certificate"):
                await scope.http("web").request("GET", f"https://model.test:{server.port}/")


async def test_the_library_reads_no_environment(monkeypatch):
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    monkeypatch.setenv("SSL_CERT_FILE", "/nonexistent")
    async with open_loopback() as server, ClientScope() as scope:
        assert (await scope.http("web").request("GET", server.url.replace("127.0.0.1", "localhost"))).is_success
        assert TlsTrust().tls


async def test_a_socks_proxy_without_its_package_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "socksio", None)
    async with ClientScope(Proxies(all="socks5://127.0.0.1:9")) as scope:
        with pytest.raises(ConfigError, match="pip install socksio"):
            await scope.http("web").request("GET", "http://model.test/")


@pytest.mark.parametrize(
    ("word", "pattern"),
    [
        ("example.com", "all://*example.com"),
        (".example.com", "all://*.example.com"),
        ("*.example.com", "all://*.example.com"),
        ("example.com:8080", "all://*example.com:8080"),
        ("localhost", "all://localhost"),
        ("10.0.0.7", "all://10.0.0.7"),
        ("10.0.0.0/8", "all://10.0.0.0/8"),
        ("::1", "all://[::1]"),
        ("[fd00::]/8", "all://[fd00::]/8"),
        ("fd00::/8", "all://[fd00::]/8"),
        ("https://only.example.com", "https://only.example.com"),
    ],
)
def test_words_of_no_proxy_become_patterns(word, pattern):
    assert _pattern(word) == pattern


# Vendor SDK objects

ENDPOINT = Endpoint("vendor", "openai-chat", "http://127.0.0.1:9/v1", Secret("sk-1"), headers={"x-mine": "yes"})


def make(scope: ClientScope, kind: str, url: str, **more):
    endpoint = Endpoint("vendor", "openai-chat", f"{url}/v1", Secret("sk-1"), headers={"x-mine": "yes"}, **more)
    return endpoint, getattr(scope, kind)(endpoint)


SDKS = pytest.mark.parametrize("kind", ["openai", "anthropic"])


@SDKS
@pytest.mark.deadline(60)
async def test_an_sdk_object_speaks_through_a_client_of_the_scope(kind):
    async with open_loopback(tls=True) as server:
        async with ClientScope(trust=client_context()) as scope:
            endpoint, sdk = make(scope, kind, server.url)
            for _ in range(3):
                await sdk.models.list()
            assert status_line(server.requests[0]).startswith("GET /v1/models")
            assert server.requests[0][1]["x-mine"] == "yes"
            assert len(server.connections) == 1
            assert [(c.name, c.kind, c.requests) for c in scope.open_clients()] == [("vendor", kind, 3)]
            assert endpoint.headers == {"x-mine": "yes"}
        await server.connections[0].closed.wait()


@SDKS
@pytest.mark.deadline(60)
async def test_an_sdk_object_does_not_retry(kind):
    async def broken(seen: SeenConnection) -> None:
        seen.send(reply(b'{"error": {"message": "down"}}', status="503 Down"))

    async with open_loopback(broken) as server, ClientScope() as scope:
        _, sdk = make(scope, kind, server.url)
        with pytest.raises(Exception, match="503"):
            await sdk.models.list()
        assert len(server.requests) == 1


@SDKS
@pytest.mark.deadline(60)
async def test_closing_one_sdk_object_closes_only_itself_and_is_tolerated_at_the_end(kind):
    async with open_loopback() as server, ClientScope() as scope:
        endpoint, one = make(scope, kind, server.url)
        other = getattr(scope, kind)(endpoint)
        await one.models.list()
        await other.models.list()
        await one.close()
        await server.connections[0].closed.wait()
        await other.models.list()
        assert len(server.connections) == 2
        assert [c.requests for c in scope.open_clients()] == [2]


@SDKS
@pytest.mark.deadline(60)
async def test_collecting_an_sdk_object_schedules_nothing_and_its_connection_is_closed_later(kind):
    async with open_loopback() as server, ClientScope() as scope:
        _, sdk = make(scope, kind, server.url)
        await sdk.models.list()
        before = asyncio.all_tasks()
        del sdk
        gc.collect()
        assert asyncio.all_tasks() == before
        assert len(scope.open_clients()) == 1
        await scope.http("web").request("GET", server.url)
        await server.connections[0].closed.wait()
        assert [c.kind for c in scope.open_clients()] == ["http"]


@SDKS
@pytest.mark.deadline(60)
async def test_a_collected_or_half_closed_sdk_object_leaves_no_connection_when_the_scope_ends(kind):
    async with open_loopback() as server:
        async with ClientScope() as scope:
            endpoint, dropped = make(scope, kind, server.url)
            half_closed = getattr(scope, kind)(endpoint)
            await dropped.models.list()
            await half_closed.models.list()
            del dropped
            gc.collect()
            half_closed._client._state = type(half_closed._client._state).CLOSED
        for connection in server.connections:
            await connection.closed.wait()
        assert len(server.connections) == 2


@pytest.mark.deadline(60)
async def test_a_stream_outlives_the_name_of_the_sdk_object_it_came_from():
    go_on = asyncio.Event()

    async def slow(seen: SeenConnection) -> None:
        if "chat" not in seen.requests[-1][0]:
            return await always_json(seen)
        seen.send(chunked(b'data: {"id": "1", "choices": []}\n\n', ending=False))
        await go_on.wait()
        seen.send(b"e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n")
        return None

    async with open_loopback(slow) as server, ClientScope() as scope:
        _, sdk = make(scope, "openai", server.url)
        stream = await sdk.with_options(timeout=5).chat.completions.create(model="m", messages=[], stream=True)
        del sdk
        gc.collect()
        await scope.http("web").request("GET", server.url)
        go_on.set()
        assert [chunk.id async for chunk in stream] == ["1"]


@SDKS
async def test_a_missing_sdk_says_what_to_install(kind, monkeypatch):
    monkeypatch.setitem(sys.modules, kind, None)
    async with ClientScope() as scope:
        with pytest.raises(ConfigError, match="alipes install sdk"):
            getattr(scope, kind)(ENDPOINT)
        assert scope.open_clients() == ()


@pytest.mark.deadline(60)
async def test_an_endpoint_without_a_key_still_gives_an_sdk_object(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-of-another")
    monkeypatch.setenv("OPENAI_ORG_ID", "org-of-another")
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-of-another")
    async with open_loopback() as server, ClientScope() as scope:
        for kind in ("openai", "anthropic"):
            await getattr(scope, kind)(Endpoint("local", "openai-chat", server.url)).models.list()
        assert "another" not in str(server.requests)
