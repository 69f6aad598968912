"""What every provider promises when things go wrong: our errors, in time, and never half an answer as a whole one."""

import asyncio
import socket
import time
from contextlib import asynccontextmanager
from email.utils import formatdate

import msgspec
import pytest

from alipes.kernel.errors import ContextTooLong, NotAuthorised, OutOfCredit, ProviderError, Refused, Transient
from alipes.kernel.turns import TextDelta
from alipes.runtime.http.clients import ClientScope
from tests.world.model_calls import KEY, WIRES, ModelOutput, ask, converse, provider
from tests.world.model_server import Broken, Cut, Fail, ModelServer, Raw, Say, Stall
from tests.world.model_wires import frames

SSE = pytest.mark.parametrize("api", [api for api in WIRES if api != "bedrock"])
"""Server-sent events; Bedrock has frames of its own (tests/unit/providers/test_bedrock.py)."""
EVERY = pytest.mark.parametrize("api", WIRES)


@asynccontextmanager
async def talking(api, *script, **more):
    async with ModelServer(script) as server, ClientScope(trust=server.trust) as scope:
        yield provider(api, server.url(api), scope, **more), server


async def failure(api, reply, **more) -> ProviderError:
    """The error that `reply` becomes; after it the next question is answered."""
    async with talking(api, reply, Say("back again"), **more) as (acme, _):
        heard = ModelOutput()
        with pytest.raises(ProviderError) as caught:
            await converse(acme, "hello", heard)
        assert heard.reply is None
        assert (await converse(acme, "hello")).text == "back again"
    return caught.value


FAILURES = [
    (Fail(401, f"Incorrect API key provided: {KEY}"), NotAuthorised, "ACME_API_KEY"),
    (Fail(403, "no access for you"), NotAuthorised, "no access"),
    (Fail(400, "API key not valid. Please pass a valid API key."), NotAuthorised, "ACME_API_KEY"),
    (Fail(402, "pay first"), OutOfCredit, "pay first"),
    (Fail(429, "You exceeded your current quota", kind="insufficient_quota"), OutOfCredit, "quota"),
    (Fail(400, "Your credit balance is too low to access the API"), OutOfCredit, "credit"),
    (Fail(404, "model: m is not here"), ProviderError, "no model 'm'"),
    (Fail(404, "", body="<html>404</html>"), ProviderError, "base_url"),
    (Fail(400, "prompt is too long: 201000 tokens > 200000 maximum"), ContextTooLong, "too long for acme/m"),
    (Fail(400, "too long", kind="context_length_exceeded"), ContextTooLong, "too long"),
    (Fail(413, "Request exceeds the maximum size"), ContextTooLong, "413"),
    (Fail(500, "the request exceeds the available context size", kind="exceed_context_size_error"), ContextTooLong, ""),
    (Fail(400, "flagged as potentially violating our policy", kind="invalid_prompt"), Refused, "policy"),
    (Fail(400, "filtered", kind="content_filter"), Refused, "declined"),
    (Fail(429, "slow down", kind="rate_limit_error"), Transient, "slow down"),
    (Fail(408, "too slow"), Transient, "408"),
    (Fail(409, "in conflict"), Transient, "409"),
    (Fail(500, "oops"), Transient, "500"),
    (Fail(502, body="<html>Bad gateway</html>"), Transient, "web page"),
    (Fail(503, body="upstream connect error"), Transient, "upstream connect error"),
    (Fail(529, "Overloaded"), Transient, "Overloaded"),
    (Fail(400, "max_tokens: 99999 > 8192, the maximum allowed number of output tokens"), ProviderError, "max_tokens"),
    (Fail(422, body='{"detail": [{"msg": "Extra inputs are not permitted"}]}'), ProviderError, "Extra inputs"),
    (Fail(400, body="\xff\xfe nonsense"), ProviderError, "nonsense"),
    (Fail(301, "moved"), ProviderError, "rejected the request (301)"),
]


@EVERY
@pytest.mark.parametrize(("reply", "kind", "says"), FAILURES, ids=lambda value: str(value)[:40])
async def test_a_rejection_becomes_the_error_that_says_who_acts_next(api, reply, kind, says):
    error = await failure(api, reply)
    assert type(error) is kind, error
    assert says in str(error)
    assert "acme" in str(error)
    assert KEY not in str(error)


WISHES = [
    ({"retry-after": "7"}, 7),
    ({"retry-after": "0.5"}, 0.5),
    ({"retry-after-ms": "1500", "retry-after": "9"}, 1.5),
    (
        {"x-ratelimit-remaining-tokens": "0", "x-ratelimit-reset-tokens": "6m0s", "x-ratelimit-reset-requests": "1h"},
        360,
    ),
    ({"x-ratelimit-remaining-requests": "0", "x-ratelimit-reset-requests": "120ms"}, 0.12),
    ({"retry-after": "soon"}, None),
    ({"retry-after": "-3"}, None),
    ({}, None),
]


@EVERY
@pytest.mark.parametrize(("headers", "wanted"), WISHES, ids=lambda value: str(value)[:40])
async def test_the_wish_to_wait_is_passed_on(api, headers, wanted):
    error = await failure(api, Fail(429, "slow down", headers=headers))
    assert isinstance(error, Transient)
    assert error.retry_after == (wanted if wanted is None else pytest.approx(wanted))


@EVERY
async def test_a_date_to_wait_for_is_turned_into_seconds(api):
    error = await failure(api, Fail(503, "later", headers={"retry-after": formatdate(time.time() + 60, usegmt=True)}))
    assert 50 < error.retry_after <= 60
    stamp = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + 60))
    names = {"anthropic-ratelimit-tokens-remaining": "0", "anthropic-ratelimit-tokens-reset": stamp}
    assert 50 < (await failure(api, Fail(429, "later", headers=names))).retry_after <= 60


BREAKS = [
    Cut(where="head"),
    Cut(where="head", reset=True),
    Cut(""),
    Cut("half an answ"),
    Cut("half an answ", reset=True),
    Cut("I will", where="call"),
    Cut("all of it", where="no_end"),
    Cut("", where="no_end"),
]


@EVERY
@pytest.mark.parametrize("reply", BREAKS, ids=str)
async def test_a_stream_that_dies_is_an_error_and_never_an_answer(api, reply):
    assert isinstance(await failure(api, reply), Transient)


@EVERY
async def test_what_came_before_the_break_was_shown(api):
    async with talking(api, Cut("half an answ")) as (acme, _):
        heard = ModelOutput()
        with pytest.raises(Transient):
            await converse(acme, "hello", heard)
    assert heard.text == "half an answ"


@EVERY
@pytest.mark.parametrize("said", ["", "half"])
async def test_an_error_in_the_middle_of_a_stream_is_translated_too(api, said):
    assert isinstance(await failure(api, Broken(said, "Overloaded", "overloaded_error")), Transient)
    assert isinstance(await failure(api, Broken(said, "The server had an error", "server_error")), Transient)
    assert isinstance(await failure(api, Broken(said, "too long", "context_length_exceeded")), ContextTooLong)
    assert isinstance(await failure(api, Broken(said, "no more", "insufficient_quota")), OutOfCredit)
    assert isinstance(await failure(api, Broken(said, "bad idea", "content_policy_violation")), Refused)


@EVERY
@pytest.mark.parametrize("reply", [Stall(None), Stall(""), Stall("so far")], ids=str)
async def test_a_stall_is_transient_and_gives_the_connection_up(api, reply):
    async with talking(api, reply, Say("ok"), stall=0.5) as (acme, server):
        with pytest.raises(Transient, match=r"nothing for 0\.5 s"):
            await converse(acme, "hello")
        await server.closed_early()
        assert (await converse(acme, "hello")).text == "ok"


@EVERY
async def test_leaving_early_closes_the_connection_at_once(api):
    async with talking(api, Stall("so far"), Stall(None), Say("ok")) as (acme, server):
        async with acme.stream(ask("hello")) as deltas:
            await anext(deltas)
        await server.closed_early(1)
        async with acme.stream(ask("hello")):
            await server.asked(2)
        await server.closed_early(2)
        assert server.open_requests == 0
        assert (await converse(acme, "hello")).text == "ok"


@EVERY
@pytest.mark.parametrize("reply", [Stall(None), Stall("so far")], ids=str)
async def test_cancelling_the_owner_closes_the_connection_at_once(api, reply):
    async with talking(api, reply, Say("ok")) as (acme, server):
        async with asyncio.TaskGroup() as group:
            task = group.create_task(converse(acme, "hello"))
            await server.asked()
            task.cancel()
        assert task.cancelled()
        await server.closed_early()
        await server.disconnected()
        assert (await converse(acme, "hello")).text == "ok"


@EVERY
async def test_a_cancelled_owner_leaves_no_task_behind(api):
    async with talking(api, *[Stall("so far")] * 20) as (acme, server):
        before = asyncio.all_tasks()
        for n in range(20):
            async with asyncio.TaskGroup() as group:
                task = group.create_task(converse(acme, "hello"))
                for _ in range(n):
                    await asyncio.sleep(0)
                task.cancel()
            assert asyncio.all_tasks() - before <= {t for t in asyncio.all_tasks() if "serve" in str(t)}
        await server.disconnected()


@EVERY
async def test_the_owners_own_error_passes_through_as_it_is(api):
    async with talking(api, Stall("so far")) as (acme, server):
        with pytest.raises(ZeroDivisionError):
            async with acme.stream(ask("hello")) as deltas:
                await anext(deltas)
                raise ZeroDivisionError
        await server.closed_early()


@EVERY
async def test_a_server_that_is_not_there_is_transient_and_named(api, unused_port):
    async with ClientScope() as scope:
        with pytest.raises(Transient, match=f"127.0.0.1:{unused_port}"):
            await converse(provider(api, f"http://127.0.0.1:{unused_port}", scope), "hello")


@pytest.fixture
def unused_port():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return listener.getsockname()[1]


@EVERY
async def test_a_certificate_nobody_vouches_for_is_no_passing_trouble(api):
    async with ModelServer([], tls=True) as server, ClientScope() as scope:
        with pytest.raises(ProviderError, match="certificate") as caught:
            await converse(provider(api, server.url(api), scope), "hello")
    assert not isinstance(caught.value, Transient)


@EVERY
@pytest.mark.parametrize("key", ["sk-new\nline", "sk-“quoted”", "two words"])
async def test_a_key_that_no_server_takes_is_not_sent_and_not_shown(api, key):
    async with talking(api, key=key) as (acme, server):
        with pytest.raises(NotAuthorised, match="ACME_API_KEY") as caught:
            await converse(acme, "hello")
        assert server.connections == 0
    assert key not in str(caught.value)


@EVERY
async def test_what_cannot_be_sent_is_said(api):
    async with talking(api, headers={"X-Team": "grün"}) as (acme, server):
        with pytest.raises(ProviderError, match="X-Team"):
            await converse(acme, "hello")
        assert server.connections == 0
    async with talking(api) as (acme, _):
        with pytest.raises(ProviderError, match="invalid Unicode"):
            await converse(acme, "half a sign: \udcff")


GOOD = b'data: {"choices":[{"delta":{"content":"x"}}],"type":"ping"}\n\n'
HOSTILE = {
    "a web page": (Raw(b"<!doctype html><html>login</html>", content_type="text/html"), "web page"),
    "a page that calls itself a stream": (Raw(b"<html>\n<body>login</body>\n</html>\n"), "web page"),
    "a document": (Raw(b'{"id": "x", "choices": []}', content_type="application/json"), "event stream"),
    "an error as a document": (Raw(b'{"error": {"message": "nope", "code": 400}}'), "nope"),
    "nothing": (Raw(b""), "before the first character"),
    "blanks": (Raw(b"\n\n\n   \n"), ""),
    "random bytes": (Raw(bytes(range(256)) * 20), ""),
    "broken UTF-8": (
        Raw(
            b'data: {"choices":[{"delta":{"content":"\xff\xfe"}}],"candidates":[{"finishReason":"\xff"}],"type":"\xff"}\n\n'
        ),
        "invalid",
    ),
    "broken JSON": (Raw(b'data: {"choices": [{"del\n\n' + GOOD), "invalid"),
    "deep JSON": (Raw(b"data: " + b"[" * 100_000 + b"]" * 100_000 + b"\n\n"), ""),
    "an array": (Raw(b"data: [1, 2, 3]\n\n"), "unexpected event"),
    "a number": (Raw(b"data: 7\n\n"), "unexpected event"),
    "a line without end": (Raw(b"data: " + b"x" * (9 << 20)), "8 MiB"),
    "an event without end": (Raw(b"data: xxxxxxxx\n" * (1 << 20)), "8 MiB"),
    "a lone surrogate": (Raw(b'data: {"choices":[{"delta":{"content":"\\ud800"}}],"type":"\\ud800"}\n\n'), "invalid"),
    "wrong compression": (Raw(b"not gzip at all", encoding="gzip"), ""),
    "a redirect": (Fail(307, headers={"location": "http://127.0.0.1/elsewhere"}), "elsewhere"),
    "no content": (Fail(204, body=""), ""),
}


@SSE
@pytest.mark.parametrize("name", HOSTILE)
async def test_hostile_bytes_end_in_an_error_of_ours(api, name):
    reply, says = HOSTILE[name]
    error = await failure(api, reply)
    assert says in str(error), error
    assert len(str(error)) < 1000


WRONG = {
    "openai-chat": b'data: {"choices": [{"delta": {"tool_calls": "none"}}]}\n\n',
    "openai-responses": b'data: {"type": "response.output_text.delta", "delta": {"text": 1}}\n\n',
    "anthropic": b'data: {"type": "content_block_delta", "delta": ["text"]}\n\n',
    "gemini": b'data: {"candidates": [{"content": {"parts": "none"}}]}\n\n',
}


@SSE
async def test_an_event_of_the_wrong_shape_is_not_tried_again(api):
    error = await failure(api, Raw(WRONG[api]))
    assert not isinstance(error, Transient)
    assert "unexpected event" in str(error)


@SSE
async def test_events_nobody_knows_are_passed_over(api):
    """A new event between the old ones, of whatever shape."""
    good = frames(api, Say("as always", pieces=2))
    new = b'event: news\ndata: {"type": "news.from.tomorrow", "delta": [1], "index": "x", "new": {"a": []}}\n\n: hm\nfoo\n\n'
    new = new if api != "openai-chat" else b': hm\nfoo\n\ndata: {"object": "news", "new": [1]}\n\n'
    async with talking(api, Raw(b"".join(new + frame for frame in good))) as (acme, _):
        assert (await converse(acme, "hello")).text == "as always"


@EVERY
async def test_an_answer_that_never_stops_is_cut_off(api):
    async with talking(api, Say("word " * 10_000, pieces=100, delay=0.002)) as (acme, server):
        stream = acme.stream(ask("hello"))
        stream.largest = 10_000
        with pytest.raises(ProviderError, match="10000 characters"):
            async with stream as deltas:
                async for delta in deltas:
                    assert delta
        await server.disconnected()


@EVERY
async def test_a_server_that_lingers_after_the_end_does_not_hold_the_answer_back(api):
    async def never_closing(reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        body = b"".join(frames(api, Say("done")))
        head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
        writer.write(head + b"%x\r\n%s\r\n" % (len(body), body))
        await reader.read()
        writer.close()

    async with await asyncio.start_server(never_closing, "127.0.0.1", 0) as server, ClientScope() as scope:
        port = server.sockets[0].getsockname()[1]
        stream = provider(api, f"http://127.0.0.1:{port}", scope).stream(ask("hello"))
        stream.linger = 0.2
        async with stream as deltas:
            texts = [delta.text async for delta in deltas if isinstance(delta, TextDelta)]
        assert "".join(texts) == "done"


@EVERY
async def test_no_failure_shows_the_key(api):
    """Whatever the server echoes: the key, the whole request, its headers."""
    echo = msgspec.json.encode({"error": {"message": f"Bearer {KEY} / x-api-key: {KEY}", "type": KEY}}).decode()
    more = {"headers": {"Gateway-Auth": "Bearer a-gateways-secret"}}
    error = await failure(api, Fail(400, "your a-gateways-secret is not welcome"), **more)
    assert "a-gateways-secret" not in str(error)
    for reply in (Fail(400, body=echo), Fail(500, body=KEY), Broken("", f"bad {KEY}"), Raw(KEY.encode())):
        assert KEY not in str(await failure(api, reply))
