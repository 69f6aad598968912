"""The API's door over real sockets: keys, scopes, limits, forms, errors; what the rooms do is made up here."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated

import httpx2
import pytest
from msgspec import Meta, Struct
from starlette.responses import JSONResponse, Response, StreamingResponse

from alipes.kernel.errors import ConfigError, MessageRejected, NotAuthorised, SessionError, StoreError, Transient
from alipes.web.auth import OPERATOR, Authenticator, KeyHolder, RequestLimits, hash_key
from alipes.web.endpoint import ApiCall, ApiEndpoint, Caller, HttpProblem, ServerState
from alipes.web.health import ServiceRoutes
from alipes.web.rate_limit import RateLimiter
from alipes.web.router import ApiRouter, OpenRequests
from alipes.web.server import HostPolicy, bind_socket, open_server, server_url
from tests.unit.web.test_web import Parts

KEY = "the-operators-key"
USUAL = RequestLimits()


class Wish(Struct):
    text: str
    times: int = 1


class Page(Struct):
    limit: Annotated[int, Meta(ge=1, le=100)] = 20
    all: bool = False


class Room:
    """Endpoints of every kind, and what they were called with."""

    def __init__(self) -> None:
        self.calls: list[ApiCall] = []
        self.raises: Exception | None = None
        self.asked = asyncio.Event()

    async def tell(self, call: ApiCall) -> Response:
        self.calls.append(call)
        if self.raises:
            raise self.raises
        return JSONResponse({"caller": call.caller.name})

    async def stream(self, _call: ApiCall) -> Response:
        async def pieces() -> AsyncIterator[bytes]:
            yield b"data: one\n\n"
            await asyncio.Event().wait()

        return StreamingResponse(pieces(), media_type="text/event-stream")

    async def never(self, _call: ApiCall) -> Response:
        self.asked.set()
        await asyncio.Event().wait()
        raise AssertionError

    def endpoints(self) -> tuple[ApiEndpoint, ...]:
        return (
            ApiEndpoint(method="GET", path="/v1/things", scope="read", handle=self.tell, summary="a", query=Page),
            ApiEndpoint(
                method="POST",
                path="/v1/things",
                scope="run",
                handle=self.tell,
                summary="b",
                body=Wish,
                headers={"Idempotency-Key": "Once."},
            ),
            ApiEndpoint(method="GET", path="/v1/things/{id}", scope="read", handle=self.tell, summary="c"),
            ApiEndpoint(method="GET", path="/v1/things/all", scope="admin", handle=self.tell, summary="d"),
            ApiEndpoint(method="POST", path="/v1/things/{id}/stop", scope="run", handle=self.tell, summary="e"),
            ApiEndpoint(method="GET", path="/v1/never", scope="read", handle=self.never, summary="f"),
            ApiEndpoint(method="GET", path="/v1/stream", scope="read", handle=self.stream, summary="h", streams=True),
            ApiEndpoint(
                method="POST", path="/v1/chat/completions", scope="run", handle=self.tell, summary="g", body=Wish
            ),
        )


NAMED = {
    "reader": KeyHolder(Caller("reader", frozenset({"read"}))),
    "runner": KeyHolder(Caller("runner", frozenset({"run"}))),
    "keeper": KeyHolder(Caller("keeper", frozenset({"admin"}))),
    "rare": KeyHolder(Caller("rare", frozenset({"read"})), rate=2),
}


async def find(hash: bytes) -> KeyHolder | None:
    return {hash_key(f"key-{name}"): known for name, known in NAMED.items()}.get(hash)


@asynccontextmanager
async def serving(
    room: Room, limits: RequestLimits = USUAL, *, state: ServerState | None = None, **doorway: object
) -> AsyncIterator[httpx2.AsyncClient]:
    keys = Authenticator(KEY, find)
    api = ApiRouter(room.endpoints(), keys, limits, state=state)
    service: ServiceRoutes = Parts().service()
    door = bind_socket("127.0.0.1", 0)
    async with open_server(service.app(HostPolicy(**doorway), keys, api), door):
        headers = {"authorization": f"Bearer {KEY}"}
        async with httpx2.AsyncClient(base_url=server_url(door), headers=headers, trust_env=False) as client:
            yield client


def shown(name: str) -> dict[str, str]:
    return {"authorization": f"Bearer key-{name}"}


async def test_a_caller_is_known_by_the_key_and_what_was_asked_is_decoded():
    room = Room()
    async with serving(room) as client:
        assert (await client.get("/v1/things", params={"limit": 5, "all": "true"})).json() == {"caller": OPERATOR}
        assert (await client.post("/v1/things", json={"text": "hi", "times": 2})).status_code == 200
        assert (await client.get("/v1/things/7")).status_code == 200
        assert (await client.get("/v1/things/all", headers=shown("reader"))).status_code == 403
    asked, wished, one = room.calls
    assert asked.query == Page(5, True) and wished.body == Wish("hi", 2) and one.path == {"id": "7"}


@pytest.mark.parametrize("shown", ["", "Bearer", "Basic " + KEY, "Bearer wrong", KEY, "Bearer é"])
async def test_without_a_key_nothing_is_reported_on_this_machine_either(shown):
    async with serving(Room()) as client:
        answer = await client.get("/v1/things", headers={"authorization": shown.encode()})
        assert answer.status_code == 401 and answer.headers["www-authenticate"] == "Bearer"
        assert answer.headers["content-type"] == "application/problem+json"
        assert answer.json()["code"] == "invalid_api_key" and answer.json()["title"] == "Unauthorized"


@pytest.mark.parametrize(
    ("name", "reads", "runs", "rules"),
    [("reader", 200, 403, 403), ("runner", 200, 200, 403), ("keeper", 200, 200, 200)],
)
async def test_a_key_may_do_what_its_scope_says_and_no_more(name, reads, runs, rules):
    async with serving(Room()) as client:
        key = shown(name)
        assert (await client.get("/v1/things", headers=key)).status_code == reads
        assert (await client.post("/v1/things", headers=key, json={"text": "x"})).status_code == runs
        assert (await client.get("/v1/things/all", headers=key)).status_code == rules


@pytest.mark.parametrize(
    ("sent", "status", "code"),
    [
        ({"content": b"{"}, 400, "json"),
        ({"content": b"\xff\xfe"}, 400, "json"),
        ({"content": b'{"text":"\\ud800"}'}, 400, "json"),
        ({"content": b'{"else":' + b"[" * 100_000}, 400, "json"),
        ({"json": {}}, 422, "body"),
        ({"content": b""}, 422, "body"),
        ({"json": {"text": 1}}, 422, "body"),
        ({"json": ["text"]}, 422, "body"),
        ({"json": {"text": "x" * 5000}}, 413, "too_long"),
        ({"data": {"text": "x"}}, 415, "media_type"),
        ({"content": b'{"text":"x"}', "headers": {"content-type": "text/plain"}}, 415, "media_type"),
    ],
)
async def test_what_does_not_fit_is_refused_before_the_room_sees_it(sent, status, code):
    room = Room()
    async with serving(room, RequestLimits(body=4000 if code == "too_long" else 1_000_000)) as client:
        headers = {"content-type": "application/json"} if "content" in sent else {}
        sent = {**sent, "headers": {**headers, **sent.get("headers", {})}}
        answer = await client.post("/v1/things", **sent)
        assert (answer.status_code, answer.json()["code"]) == (status, code)
        assert answer.json()["status"] == status and answer.json()["detail"]
    assert room.calls == []


@pytest.mark.parametrize("query", ["limit=x", "limit=0", "limit=101", "all=perhaps", "limit=" + "9" * 400])
async def test_a_query_that_does_not_fit_is_refused(query):
    async with serving(Room()) as client:
        answer = await client.get(f"/v1/things?{query}")
        assert (answer.status_code, answer.json()["code"]) == (422, "query")
        assert (await client.get("/v1/things?else=1")).status_code == 200, "what nobody asked for is ignored"


async def test_wrong_addresses_and_methods_are_reported_as_problems():
    async with serving(Room()) as client:
        missing, wrong = await client.get("/v1/nothing"), await client.delete("/v1/things")
        assert (missing.status_code, missing.json()["code"]) == (404, "not_found")
        assert (wrong.status_code, wrong.json()["code"]) == (405, "method")
        assert set(wrong.headers["allow"].split(", ")) == {"GET", "HEAD", "OPTIONS", "POST"}


@pytest.mark.parametrize(
    ("raised", "status"),
    [
        (HttpProblem(409, "busy", code="busy"), 409),
        (MessageRejected("a plugin said no"), 422),
        (SessionError("two of this name"), 409),
        (StoreError("the disk is full"), 503),
        (Transient("overloaded", 7), 503),
        (Transient("overloaded"), 503),
        (NotAuthorised("the key is wrong"), 502),
        (ConfigError("no such model"), 503),
    ],
)
async def test_what_a_room_raises_is_described_in_the_shape_of_the_route(raised, status):
    room = Room()
    room.raises = raised
    async with serving(room) as client:
        plain = await client.get("/v1/things/1")
        assert (plain.status_code, plain.json()["detail"]) == (status, str(raised))
        openai = await client.post("/v1/chat/completions", json={"text": "x"})
        assert openai.status_code == status and openai.json()["error"]["message"] == str(raised)
        assert openai.headers["content-type"] == "application/json"
        if isinstance(raised, Transient) and raised.retry_after:
            assert plain.headers["retry-after"] == "7"


async def test_what_nobody_foresaw_is_reported_without_its_details(caplog):
    room = Room()
    room.raises = ZeroDivisionError("canary")
    async with serving(room) as client:
        answer = await client.get("/v1/things/1")
        assert answer.status_code == 500 and "canary" not in answer.text
        assert answer.json()["code"] == "internal"


async def test_openai_shaped_routes_tell_mistakes_as_openai_does():
    async with serving(Room()) as client:
        wrong = await client.post("/v1/chat/completions", json={})
        assert wrong.status_code == 400 and wrong.json()["error"]["type"] == "invalid_request_error"
        stranger = await client.post("/v1/chat/completions", json={}, headers={"authorization": "Bearer no"})
        assert stranger.status_code == 401 and stranger.json()["error"]["code"] == "invalid_api_key"
        for answer, status in (
            (await client.get("/v1/chat/completions"), 405),
            (await client.post("/v1/embeddings", json={}), 404),
            (await client.get("/v1/models", headers={"host": "rebound.example"}), 421),
        ):
            assert answer.status_code == status and answer.json()["error"]["message"]


async def test_who_asks_too_often_is_reported_when_to_come_again():
    async with serving(Room(), RequestLimits(rate=600)) as client:
        statuses = [(await client.get("/v1/things", headers=shown("rare"))).status_code for _ in range(3)]
        assert statuses == [200, 200, 429]
        late = await client.get("/v1/things", headers=shown("rare"))
        assert 1 <= int(late.headers["retry-after"]) <= 30 and late.json()["code"] == "rate_limited"
        assert (await client.get("/v1/things", headers=shown("reader"))).status_code == 200, "others may"


def test_the_pace_is_a_minutes_worth_at_once_and_then_a_share_of_it():
    now = 100.0
    pace = RateLimiter(clock=lambda: now)
    for _ in range(60):
        pace.check("a", 60)
    with pytest.raises(HttpProblem) as refused:
        pace.check("a", 60)
    assert refused.value.headers == {"retry-after": "1"}
    now += 1.0
    pace.check("a", 60)
    with pytest.raises(HttpProblem):
        pace.check("a", 60)
    for _ in range(1000):
        pace.check("b", 0)


async def test_a_body_that_comes_too_slowly_is_given_up():
    async with serving(Room(), RequestLimits(body_seconds=0.2)) as client:
        port = client.base_url.port
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        head = f"POST /v1/things HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {KEY}\r\n"
        writer.write(f"{head}content-type: application/json\r\ncontent-length: 100\r\n\r\n{{".encode())
        answer = await reader.read()
        assert answer.startswith(b"HTTP/1.1 408") and b"too_slow" in answer, "and the line is closed"
        writer.close()


async def test_an_answer_that_never_comes_is_given_up():
    async with serving(Room(), RequestLimits(wait=0.1)) as client:
        answer = await client.get("/v1/never")
        assert (answer.status_code, answer.json()["code"]) == (504, "timeout")


async def test_nothing_is_begun_while_we_leave_but_what_is_running_may_be_ended():
    state = ServerState()
    state.shutdown_reason = "alipes is shutting down"
    async with serving(Room(), state=state) as client:
        begun = await client.post("/v1/things", json={"text": "x"})
        assert begun.status_code == 503 and begun.headers["retry-after"] == "5"
        assert (await client.post("/v1/things/1/stop")).status_code == 200
        assert (await client.get("/v1/things")).status_code == 200


async def test_who_still_waits_when_we_go_is_let_go_at_once():
    room = Room()
    keys = Authenticator(KEY, find)
    api = ApiRouter(room.endpoints(), keys, USUAL)
    door = bind_socket("127.0.0.1", 0)
    async with open_server(Parts().service().app(HostPolicy(), keys, api), door):
        headers = {"authorization": f"Bearer {KEY}"}
        async with httpx2.AsyncClient(base_url=server_url(door), headers=headers, trust_env=False) as client:
            async with asyncio.TaskGroup() as group:
                waiting = group.create_task(client.get("/v1/never"))
                await room.asked.wait()
                async with client.stream("GET", "/v1/stream") as stream:
                    pieces = stream.aiter_bytes()
                    assert await anext(pieces) == b"data: one\n\n"
                    await api.disconnect_all()
                    with pytest.raises(httpx2.RemoteProtocolError):
                        await anext(pieces)
            assert waiting.result().status_code == 503 and waiting.result().json()["code"] == "leaving"
            assert (await client.get("/v1/never")).status_code == 503


async def test_lines_that_end_just_now_are_not_cut_once_more():
    lines, ended = OpenRequests(), asyncio.Event()

    async def wait() -> None:
        with pytest.raises(TimeoutError):
            async with lines.open(0.01):
                try:
                    await asyncio.Event().wait()
                finally:
                    ended.set()
                    await asyncio.sleep(0)

    async with asyncio.TaskGroup() as group:
        group.create_task(wait())
        await ended.wait()
        lines.cancel_all()
    with pytest.raises(TimeoutError):
        async with lines.open(None):
            await asyncio.Event().wait()


async def test_pages_that_are_allowed_may_ask_from_a_browser():
    page = "https://page.example"
    async with serving(Room(), origins=frozenset({page})) as client:
        asks = {"origin": page, "access-control-request-method": "POST"}
        asks["access-control-request-headers"] = "authorization,content-type"
        before = await client.options("/v1/things", headers=asks)
        assert before.status_code == 204 and before.headers["access-control-allow-origin"] == page
        assert before.headers["access-control-allow-headers"] == "authorization,content-type"
        answer = await client.get("/v1/things", headers={"origin": page, "sec-fetch-site": "cross-site"})
        assert answer.headers["access-control-allow-origin"] == page and answer.headers["vary"] == "origin"
        other = await client.options("/v1/things", headers={**asks, "origin": "https://evil.example"})
        assert other.status_code == 403 and "access-control-allow-origin" not in other.headers


async def test_a_door_that_others_can_reach_is_called_by_number_or_by_its_names():
    named = {"host": "0.0.0.0", "hosts": frozenset({"agent.example"})}
    async with serving(Room(), **named) as client:
        for host, status in (
            ("192.168.1.5:8742", 200),
            ("[2001:db8::1]:8742", 200),
            ("agent.example", 200),
            ("localhost", 200),
            ("rebound.example", 421),
        ):
            assert (await client.get("/v1/things", headers={"host": host})).status_code == status


async def test_the_document_tells_every_route_with_its_errors():
    async with serving(Room()) as client:
        seen = (await client.get("/openapi.json", headers={"authorization": ""})).json()
    assert seen["openapi"] == "3.1.0" and set(seen["paths"]["/v1/things"]) == {"get", "post"}
    post, get = seen["paths"]["/v1/things"]["post"], seen["paths"]["/v1/things"]["get"]
    assert post["requestBody"]["required"] and {"400", "401", "413", "415", "422"} <= set(post["responses"])
    limit = next(each for each in get["parameters"] if each["name"] == "limit")
    assert limit["schema"] == {"type": "integer", "minimum": 1, "maximum": 100, "default": 20}
    one = seen["paths"]["/v1/things/{id}"]["get"]
    assert [each["in"] for each in one["parameters"]] == ["path"]
    assert [each["in"] for each in post["parameters"]] == ["header"]
    for path, media in (("/v1/chat/completions", "application/json"), ("/v1/things", "application/problem+json")):
        reference = seen["paths"][path]["post"]["responses"]["401"]["$ref"]
        refusal = seen["components"]["responses"][reference.rpartition("/")[2]]
        assert list(refusal["content"]) == [media] and refusal["description"] == "Unauthorized"


async def test_head_and_options_are_answered_and_a_stream_has_no_head():
    room = Room()
    async with serving(room) as client:
        head = await client.head("/v1/things")
        assert (head.status_code, head.content) == (200, b"")
        options = await client.options("/v1/things", headers={"authorization": ""})
        assert options.status_code == 204
        assert options.headers["allow"] == "GET, HEAD, OPTIONS, POST"
        unknown = await client.get("/v1/files")
        assert unknown.json() == {
            "error": {"message": "not found", "type": "invalid_request_error", "param": None, "code": "not_found"}
        }
        assert (await client.get("/v1/modelsx")).headers["content-type"] == "application/problem+json"
