"""What every provider promises when all goes well, over real sockets, plain and TLS."""

import asyncio
import base64
from contextlib import asynccontextmanager
from itertools import pairwise

import msgspec
import pytest

from alipes.kernel.errors import Refused
from alipes.kernel.messages import Image, Message, Text, Thinking, ToolCall, ToolResult, assistant, user
from alipes.kernel.turns import ModelReply, TextDelta, Usage
from alipes.providers.streaming import models
from alipes.runtime.http.clients import ClientScope
from tests.world.model_calls import KEY, LOOK, WIRES, ModelOutput, ask, converse, provider, results
from tests.world.model_server import Call, Calls, ModelServer, Refusal, Say, Stall, Tokens, Truncated

EVERY = pytest.mark.parametrize("api", WIRES)
PIXEL = Image("image/png", b"\x89PNG not really")


@asynccontextmanager
async def talking(api, *script, tls=False, **more):
    """A server with this script, and a provider that talks to it."""
    async with ModelServer(script, tls=tls, key=KEY) as server, ClientScope(trust=server.trust) as scope:
        yield provider(api, server.url(api), scope, **more), server


@EVERY
@pytest.mark.parametrize("tls", [False, True], ids=["plain", "tls"])
async def test_an_answer_streams_and_then_comes_whole(api, tls):
    said = "Grüße, 你好 😀, “quotes” and\nlines"
    async with talking(api, Say(said, pieces=7), tls=tls) as (acme, server):
        heard = await converse(acme, "hello")
    assert heard.text == said
    assert heard.message == assistant(Text(said))
    assert heard.reply.stop == "end"
    assert server.requests[0].headers["content-type"] == "application/json"


@EVERY
async def test_a_text_is_shown_as_soon_as_it_arrives(api):
    async with talking(api, Stall("the first words")) as (acme, _), acme.stream(ask("hello")) as deltas:
        got = ""
        while got != "the first words":
            got += (await anext(deltas)).text


@EVERY
@pytest.mark.parametrize("tls", [False, True], ids=["plain", "tls"])
async def test_nine_questions_use_one_connection(api, tls):
    async with talking(api, *[Say(f"answer {n}") for n in range(9)], tls=tls) as (acme, server):
        for n in range(9):
            assert (await converse(acme, "hello")).text == f"answer {n}"
        assert server.connections == 1


@EVERY
async def test_an_owner_that_leaves_at_the_reply_keeps_the_connection_too(api):
    async with talking(api, Say("one"), Say("two")) as (acme, server):
        for _ in range(2):
            async with acme.stream(ask("hello")) as deltas:
                async for delta in deltas:
                    if isinstance(delta, ModelReply):
                        break
        assert server.connections == 1


@EVERY
async def test_a_slow_owner_gets_what_came_meanwhile_as_one_delta(api):
    async with talking(api, Say("word " * 500, pieces=500)) as (acme, server):
        async with acme.stream(ask("hello")) as deltas:
            while server.open_requests or not server.answered:
                await asyncio.sleep(0.01)
            texts = [delta.text async for delta in deltas if isinstance(delta, TextDelta)]
    assert "".join(texts) == "word " * 500
    assert len(texts) <= 5


@EVERY
async def test_parallel_calls_arrive_in_pieces_and_their_results_go_back(api):
    asked = Calls((Call("look", {"at": "the moon"}, "c1"), Call("look", {"at": "[}\"'"}, "c2")), text="Let me see.")
    async with talking(api, asked, Say("Both seen.")) as (acme, server):
        first = await converse(acme, "look at both")
        assert first.reply.stop == "calls"
        assert first.text == "Let me see."
        calls = first.message.calls
        assert first.begun == ["look", "look"]
        assert calls == (ToolCall("c1", "look", {"at": "the moon"}), ToolCall("c2", "look", {"at": "[}\"'"}))
        second = await converse(acme, ask("look at both", first.message, results(*calls)))
    assert second.text == "Both seen."
    assert server.connections == 1


@pytest.mark.parametrize("api", [api for api in WIRES if api != "gemini"])  # whose calls are whole objects
async def test_arguments_that_are_no_object_are_handed_on_raw_and_can_be_replayed(api):
    bad = Calls((Call("look", raw='{"at": "unclosed', id="c1"), Call("look", raw="[1, 2]", id="c2"), Call("look")))
    async with talking(api, bad, Say("Sorry.")) as (acme, _):
        first = await converse(acme, "look")
        unclosed, array, empty = first.message.calls
        assert (unclosed.args, unclosed.raw) == ({}, '{"at": "unclosed')
        assert (array.args, array.raw) == ({}, "[1, 2]")
        assert (empty.args, empty.raw) == ({}, "")
        await converse(acme, ask("look", first.message, results(*first.message.calls)))


@EVERY
async def test_thinking_streams_and_goes_back_only_to_who_sealed_it(api):
    script = (Say("42", thinking="let me count …"), Say("yes"), Say("yes"), Say("yes"))
    async with talking(api, *script) as (acme, server):
        first = await converse(acme, "how many?")
        assert first.thinking == "let me count …"
        thought, text = first.message.parts
        assert (thought.text, thought.by, text) == ("let me count …", "acme/m", Text("42"))
        again = ask("how many?", first.message, "sure?")
        await converse(acme, again)
        assert b"let me count" in server.requests[1].raw
        await converse(acme, msgspec.structs.replace(again, model="another"))
        foreign = assistant(Thinking("their thoughts", "sealed elsewhere", "other/m"), Text("42"))
        await converse(acme, ask("how many?", foreign, "sure?"))
        for asked in server.requests[2:]:
            assert b"let me count" not in asked.raw
            assert b"their thoughts" not in asked.raw
            assert b"sealed" not in asked.raw


@EVERY
async def test_thinking_before_calls_goes_back_with_their_results(api):
    script = (Calls((Call("look", {"at": "it"}),), thinking="I should look"), Say("seen"))
    async with talking(api, *script) as (acme, server):
        first = await converse(acme, "look")
        await converse(acme, ask("look", first.message, results(*first.message.calls)))
        assert b"I should look" in server.requests[1].raw


@EVERY
async def test_thinking_that_led_to_nothing_is_not_replayed(api):
    cut = assistant(Thinking("so I", "sealed-by-the-scripted-model", "acme/m"))
    async with talking(api, Say("fine")) as (acme, _):
        assert (await converse(acme, ask("hello", cut, Message("notice", (Text("go on"),))))).text == "fine"


@EVERY
async def test_images_go_in_with_words_and_with_results(api):
    called = assistant(ToolCall("c1", "look", {}), ToolCall("c2", "look", {}))
    shown = Message("tool", (ToolResult("c1", "a picture", images=(PIXEL,)), ToolResult("c2", "")))
    async with talking(api, Say("pretty")) as (acme, server):
        await converse(acme, ask(user("what is this?", PIXEL), called, shown))
    assert server.requests[0].raw.count(base64.b64encode(PIXEL.data)) == 2
    assert b"a picture" in server.requests[0].raw


@EVERY
async def test_tokens_are_counted_alike(api):
    async with talking(api, Say("hi", usage=Tokens(1000, 200, 600, 100, 50))) as (acme, _):
        heard = await converse(acme, "hello")
    written = 0 if api == "gemini" else 100  # it has no price for writing to the cache, and does not count it
    reasoning = 0 if api == "bedrock" else 50  # it does not count it
    assert heard.reply.usage == Usage(1000, 200, 600, written, reasoning)


@EVERY
async def test_the_stop_reason_is_returned(api):
    async with talking(api, Truncated("half a sen"), Refusal("I will not.")) as (acme, _):
        assert (await converse(acme, "write")).reply.stop == "length"
        refused = await converse(acme, "be bad")
        assert (refused.reply.stop, refused.text) == ("refused", "I will not.")


@EVERY
async def test_a_refusal_without_a_word_is_an_error(api):
    async with talking(api, Refusal()) as (acme, server):
        with pytest.raises(Refused, match="acme/m declined"):
            await converse(acme, "be bad")
        assert server.connections == 1


@EVERY
async def test_a_notice_reaches_the_model_marked_as_the_houses_word(api):
    history = ("hello", assistant(Text("hi")), Message("notice", (Text("go on"),)), "please")
    async with talking(api, Say("ok")) as (acme, server):
        await converse(acme, ask(*history))
    assert b"<notice>go on</notice>" in server.requests[0].raw


@EVERY
async def test_empty_messages_and_texts_do_not_make_a_transcript_invalid(api):
    history = (
        "hello",
        assistant(),
        assistant(Text("")),
        assistant(Text(" "), ToolCall("c1", "look", {})),
        Message("tool", (ToolResult("c1", " ", "failed"),)),
        Message("notice", ()),
    )
    async with talking(api, Say("ok")) as (acme, _):
        assert (await converse(acme, ask(*history))).text == "ok"


@EVERY
async def test_ids_and_names_of_other_vendors_are_made_acceptable(api):
    odd = ToolCall("functions.look:0|" + "x" * 80, "look.at <it>", {"at": "x"})
    async with talking(api, Say("ok")) as (acme, server):
        await converse(acme, ask("look", assistant(odd), results(odd)))
    assert b"functions.look:0" not in server.requests[0].raw
    assert b"look_at__it_" in server.requests[0].raw


@EVERY
async def test_a_longer_conversation_begins_with_the_same_bytes(api):
    calls = tuple(ToolCall(f"c{n}", "look", {"at": str(n)}) for n in range(4))
    history = [
        "hello",
        assistant(Text("hm"), *calls),
        results(*calls),
        assistant(Text("done")),
        "thanks",
        assistant(Text("bye")),
    ]
    async with talking(api, *[Say("ok")] * 3) as (acme, server):
        for end in (1, 3, 5):
            await converse(acme, ask(*history[:end], session="abc"))
    key = {"openai-responses": "input", "gemini": "contents"}.get(api, "messages")
    seen = [[msgspec.json.encode(_unmarked(m)) for m in body[key]] for body in server.bodies]
    for shorter, longer in pairwise(seen):
        assert longer[: len(shorter)] == shorter
    fixed = [{k: v for k, v in body.items() if k != key} for body in server.bodies]
    assert fixed[0] == fixed[1] == fixed[2]


def _unmarked(value):
    """Without the marks of the prompt cache, which are not part of the prompt."""
    if isinstance(value, dict):
        return {k: _unmarked(v) for k, v in value.items() if k != "cache_control"}
    return [_unmarked(v) for v in value] if isinstance(value, list) else value


@EVERY
async def test_the_operators_headers_and_body_go_with_every_request(api):
    more = {"headers": {"X-Team": "blue", "Content-Type": "application/json; x=1"}, "body": {"service_tier": "flex"}}
    async with talking(api, Say("ok"), **more) as (acme, server):
        await converse(acme, "hello")
    asked = server.requests[0]
    assert asked.headers["x-team"] == "blue"
    assert asked.headers["content-type"] == "application/json; x=1"
    assert asked.body["service_tier"] == "flex"


@EVERY
async def test_without_a_key_none_is_sent(api):
    async with ModelServer([Say("ok")]) as server, ClientScope() as scope:
        await converse(provider(api, server.url(api), scope, key=""), "hello")
    assert not {"authorization", "x-api-key"} & server.requests[0].headers.keys()


@EVERY
async def test_tools_are_offered_with_their_schemas(api):
    async with talking(api, Say("ok")) as (acme, server):
        await converse(acme, ask("hello", tools=(LOOK,)))
    body = server.bodies[0]
    if api == "bedrock":
        (offered,) = body["toolConfig"]["tools"]
        expected = {"name": "look", "description": "Look at something.", "inputSchema": {"json": LOOK.schema}}
        assert offered == {"toolSpec": expected}
        return
    (offered,) = body["tools"]
    inner = offered["functionDeclarations"][0] if api == "gemini" else offered.get("function", offered)
    assert (inner["name"], inner["description"]) == ("look", "Look at something.")
    assert LOOK.schema in (inner.get(name) for name in ("parameters", "input_schema", "parametersJsonSchema"))


@pytest.mark.parametrize("api", [api for api in WIRES if api != "bedrock"])  # which cannot say so for all models
async def test_tools_may_be_shown_and_not_wanted(api):
    async with talking(api, Say("ok"), Say("ok")) as (acme, server):
        await converse(acme, ask("hello", tool_choice="none"))
        await converse(acme, ask("hello"))
    unwanted, wanted = server.bodies
    assert unwanted["tools"] == wanted["tools"]
    field = "toolConfig" if api == "gemini" else "tool_choice"
    assert unwanted[field] in ("none", {"type": "none"}, {"functionCallingConfig": {"mode": "NONE"}})
    assert field not in wanted


@EVERY
async def test_conversations_do_not_disturb_each_other(api):
    """Twenty at once; half of them are left in the middle."""

    def reply(body):
        number = next(iter(_numbers(body)))
        return Stall("never whole") if number % 2 else Say(f"answer {number}", pieces=5, delay=0.001)

    async with ModelServer(reply) as server, ClientScope() as scope:
        acme = provider(api, server.url(api), scope)
        heard = {n: ModelOutput() for n in range(20)}

        async with asyncio.TaskGroup() as group:
            asking = [group.create_task(converse(acme, ask(f"number {n} please"), heard[n])) for n in range(20)]
            await server.asked(20)
            for task in asking[1::2]:
                task.cancel()
        assert [heard[n].text for n in range(0, 20, 2)] == [f"answer {n}" for n in range(0, 20, 2)]
        await server.closed_early(10)
        assert server.open_requests == 0


def _numbers(body):
    for word in msgspec.json.encode(body).decode().split():
        if word.isdigit():
            yield int(word)


@EVERY
@pytest.mark.parametrize("tls", [False, True], ids=["plain", "tls"])
async def test_the_models_are_listed(api, tls):
    async with ModelServer([], tls=tls, models=["small", "large"]) as server, ClientScope(trust=server.trust) as scope:
        acme = provider(api, server.url(api), scope)
        assert await models(acme._endpoint, acme._http) == ("small", "large")
