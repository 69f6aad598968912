"""The HTTP server over real sockets: authentication, responses, and no leaks."""

import asyncio
import signal
from contextlib import asynccontextmanager

import httpx2
import pytest

from alipes.kernel.errors import ConfigError, NotAuthorised, Refused, StoreError, Transient
from alipes.plugins.dispatch import Hooks
from alipes.runtime.http.proxies import is_loopback
from alipes.web.auth import Authenticator
from alipes.web.endpoint import ServerState
from alipes.web.health import (
    MAX_PLATFORM_BODY_BYTES,
    MODEL_CHECK_INTERVAL_S,
    STORE_CHECK_INTERVAL_S,
    ModelHealth,
    PlatformHealth,
    Readiness,
    ServiceRoutes,
)
from alipes.web.metrics import QueueDepths, ServerMetrics
from alipes.web.server import HostPolicy, bind_socket, open_server, server_url
from tests.world.environment import LIMIT_S


class Parts:
    """What the door asks, each as it is to be in a test."""

    def __init__(self) -> None:
        self.now, self.platforms, self.writes, self.probes = 1000.0, [PlatformHealth("telegram", True)], 0, 0
        self.state = ServerState()
        self.broken: Exception | None = None
        self.why = ""
        self.model = ModelHealth(self.probe, clock=lambda: self.now)
        self.readiness = Readiness(
            platforms=lambda: self.platforms,
            write=self.write,
            model=self.model,
            state=self.state,
            clock=lambda: self.now,
        )

    async def probe(self) -> str:
        self.probes += 1
        return self.why

    async def write(self) -> None:
        self.writes += 1
        if self.broken:
            raise self.broken

    async def depths(self) -> QueueDepths:
        return QueueDepths(turns=1)

    def service(self, **more: object) -> ServiceRoutes:
        return ServiceRoutes(ServerMetrics("0"), self.readiness, self.depths, **more)


@asynccontextmanager
async def serving(service: ServiceRoutes, host: str = "127.0.0.1", key: str = "", **named: frozenset[str]):
    door = bind_socket("127.0.0.1", 0)
    async with open_server(service.app(HostPolicy(host, **named), Authenticator(key)), door):
        async with httpx2.AsyncClient(base_url=server_url(door), trust_env=False) as client:
            yield client


async def test_alive_ready_and_figures_are_reported():
    parts = Parts()
    async with serving(parts.service(messages=lambda: {("telegram", "in"): 3})) as client:
        alive = await client.get("/health")
        assert (alive.status_code, alive.json()) == (200, {"status": "alive"})
        ready = await client.get("/ready")
        assert (ready.status_code, ready.json()) == (200, {"status": "ready"})
        figures = await client.get("/metrics")
        assert figures.headers["content-type"].startswith("text/plain; version=0.0.4")
        assert 'alipes_messages_total{platform="telegram",fate="in"} 3' in figures.text
        assert 'alipes_platform_ready{platform="telegram"} 1' in figures.text
        assert (await client.get("/else")).status_code == 404
        assert (await client.post("/ready")).status_code == 405


async def test_each_part_that_does_not_work_says_why():
    parts = Parts()
    parts.platforms = [PlatformHealth("telegram", False, "409: another one polls"), PlatformHealth("discord", True)]
    parts.broken, parts.why = StoreError("the disk is full"), "connection refused"
    parts.state.shutdown_reason = "leaving"
    async with serving(parts.service()) as client:
        answer = await client.get("/ready")
    assert answer.status_code == 503
    assert answer.json()["because"] == {
        "serve": "leaving",
        "telegram": "409: another one polls",
        "store": "the disk is full",
        "model": "connection refused",
    }


async def test_what_is_known_is_not_asked_again_at_once():
    parts = Parts()
    for _ in range(3):
        assert await parts.readiness.find_problems() == {}
    assert (parts.writes, parts.probes) == (1, 1)
    parts.now += STORE_CHECK_INTERVAL_S
    await parts.readiness.find_problems()
    assert (parts.writes, parts.probes) == (2, 1)
    parts.now += MODEL_CHECK_INTERVAL_S
    parts.why = "no route"
    assert await parts.readiness.find_problems() == {"model": "no route"}


async def test_what_turns_find_out_about_the_model_counts():
    parts, hooks = Parts(), Hooks()
    parts.model.register(hooks)
    assert {"request_answered", "request_failed"} <= set(hooks._entries)
    await parts.model.request_answered()
    assert await parts.model.find_problem() == "" and parts.probes == 0
    await parts.model.request_failed(Transient("busy"), again=True)
    await parts.model.request_failed(Refused("no"), again=False)
    assert await parts.model.find_problem() == "", "it will be asked again; and a refusal is an answer"
    await parts.model.request_failed(Transient("overloaded"), again=False)
    assert await parts.model.find_problem() == "overloaded"
    parts.now += MODEL_CHECK_INTERVAL_S
    assert await parts.model.find_problem() == "", "its server can be reached again"
    await parts.model.request_failed(NotAuthorised("the key is wrong"), again=False)
    parts.now += MODEL_CHECK_INTERVAL_S
    assert await parts.model.find_problem() == "the key is wrong", "which no connection mends"
    await parts.model.request_answered()
    assert await parts.model.find_problem() == ""


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"host": "evil.example:8742"}, 421),
        ({"host": "127.0.0.1.evil.example"}, 421),
        ({"host": ""}, 421),
        ({"host": "localhost:1"}, 200),
        ({"host": "[::1]:8742"}, 200),
        ({"origin": "https://evil.example"}, 403),
        ({"origin": "null"}, 403),
        ({"sec-fetch-site": "cross-site"}, 403),
        ({"sec-fetch-site": "none"}, 200),
        ({"host": "ours.example:8742"}, 200),
        ({"host": "OURS.example"}, 200),
        ({"host": "192.168.1.5:8742"}, 421),
        ({"origin": "https://page.example"}, 200),
        ({"origin": "https://page.example:444"}, 403),
        ({"origin": "https://page.example", "sec-fetch-site": "cross-site"}, 200),
        ({"origin": "https://page.example", "host": "evil.example"}, 421),
        ({"origin": "http://localhost:1", "host": "localhost:1"}, 200),
        ({"origin": "http://localhost:2", "host": "localhost:1"}, 403),
        ({"host": "evil.example", "authorization": "Bearer right-key"}, 421),
        ({"origin": "https://evil.example", "authorization": "Bearer right-key"}, 403),
    ],
)
async def test_pages_of_others_and_rebound_names_are_turned_away(headers, status):
    hosts, origins = frozenset({"ours.example"}), frozenset({"https://page.example"})
    async with serving(Parts().service(), key="right-key", hosts=hosts, origins=origins) as client:
        for path in ("/health", "/ready", "/metrics"):
            assert (await client.get(path, headers=headers)).status_code == status


@pytest.mark.parametrize(
    ("shown", "status"),
    [
        ({}, 401),
        ({"authorization": "Bearer"}, 401),
        ({"authorization": "Basic right-key"}, 401),
        ({"authorization": "Bearer wrong"}, 401),
        ({"authorization": "bearer right-key"}, 200),
    ],
)
async def test_who_can_be_reached_from_elsewhere_asks_for_the_key(shown, status):
    async with serving(Parts().service(), host="0.0.0.0", key="right-key") as client:
        assert (await client.get("/metrics", headers=shown)).status_code == status
        assert (await client.get("/ready", headers=shown)).status_code == status
        assert (await client.get("/health", headers=shown)).status_code == 200, "which tells nothing"


async def test_an_empty_key_opens_nothing():
    async with serving(Parts().service(), host="0.0.0.0", key="") as client:
        answer = await client.get("/ready", headers={"authorization": "Bearer"})
        assert answer.status_code == 401


async def test_a_messenger_brings_what_arrived_and_is_reported_a_status():
    brought = []

    async def bring(headers, body):
        brought.append((headers.get("x-telegram-bot-api-secret-token"), body))
        return 200 if headers.get("x-telegram-bot-api-secret-token") == "s" else 403

    named = frozenset({"bot.example"})
    async with serving(Parts().service(webhooks={"/telegram": bring}), hosts=named) as client:
        public = {"host": "bot.example", "x-telegram-bot-api-secret-token": "s"}
        assert (await client.post("/telegram", content=b"{}", headers=public)).status_code == 200
        assert (await client.post("/telegram", content=b"{}")).status_code == 403
        assert (await client.get("/telegram")).status_code == 405
        assert (await client.post("/telegram", content=b"x" * (MAX_PLATFORM_BODY_BYTES + 1))).status_code == 413
    assert brought == [("s", b"{}"), (None, b"{}")]


async def test_the_door_leaves_signals_alone_and_no_task_behind():
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    mine = asyncio.all_tasks()
    async with serving(Parts().service()) as client:
        await client.get("/health")
        assert {number: signal.getsignal(number) for number in before} == before
    assert asyncio.all_tasks() == mine


async def test_an_idle_caller_does_not_keep_the_door_open():
    async with asyncio.timeout(LIMIT_S):
        door = bind_socket("127.0.0.1", 0)
        async with open_server(Parts().service().app(HostPolicy(), Authenticator("")), door):
            reader, writer = await asyncio.open_connection(*door.getsockname())
        assert await reader.read() == b""
        writer.close()
        await writer.wait_closed()


@pytest.mark.parametrize("said", [b"", b"GET /health HTTP/1.1\r\nhost: ", b"GET"])
async def test_who_does_not_say_what_they_want_is_not_waited_for(said):
    door = bind_socket("127.0.0.1", 0)
    async with open_server(Parts().service().app(HostPolicy(), Authenticator("")), door, patience=0.1):
        reader, writer = await asyncio.open_connection(*door.getsockname())
        writer.write(said)
        async with asyncio.timeout(LIMIT_S):
            assert await reader.read() == b""
        writer.close()
        await writer.wait_closed()


async def test_who_waits_for_an_answer_is_left_alone():
    parts, asked, answer = Parts(), asyncio.Event(), asyncio.Event()

    async def probe():
        asked.set()
        await answer.wait()
        return ""

    parts.model._probe = probe
    door = bind_socket("127.0.0.1", 0)
    async with open_server(parts.service().app(HostPolicy(), Authenticator("")), door, patience=0.05):
        async with httpx2.AsyncClient(base_url=server_url(door), trust_env=False) as client:
            async with asyncio.TaskGroup() as group:
                asking = group.create_task(client.get("/ready"))
                await asked.wait()
                await asyncio.sleep(0.3)
                answer.set()
            assert asking.result().status_code == 200


@pytest.mark.deadline(20)
async def test_a_request_that_never_ends_is_cut_off_when_we_leave():
    parts, asked, over = Parts(), asyncio.Event(), asyncio.Event()

    async def probe():
        asked.set()
        try:
            await asyncio.Event().wait()
        finally:
            over.set()

    parts.model._probe = probe
    door = bind_socket("127.0.0.1", 0)
    async with open_server(parts.service().app(HostPolicy(), Authenticator("")), door):
        _, writer = await asyncio.open_connection(*door.getsockname())
        writer.write(b"GET /ready HTTP/1.1\r\nhost: localhost\r\n\r\n")
        await asked.wait()
    assert over.is_set()
    writer.close()


def test_a_port_that_is_taken_is_reported():
    with bind_socket("127.0.0.1", 0) as door:
        door.listen()
        with pytest.raises(ConfigError, match=r"the port is in use: set serve\.port"):
            bind_socket("127.0.0.1", door.getsockname()[1])
    with pytest.raises(ConfigError, match=r"set serve\.host"):
        bind_socket("203.0.113.1", 0)


@pytest.mark.parametrize(
    ("host", "yes"),
    [("127.0.0.1", True), ("127.9.9.9", True), ("::1", True), ("[::1]", True), ("localhost", True),
     ("0.0.0.0", False), ("::", False), ("192.168.1.5", False), ("localhost.evil.example", False), ("", False)],
)  # fmt: skip
def test_what_is_this_machine_alone(host, yes):
    assert is_loopback(host) is yes
