"""Our scripted model server, judged by the vendors' own SDKs: what it sends is what they expect."""

import asyncio
import ssl
from importlib import import_module

import httpx2
import msgspec
import pytest

from tests.world.model_server import Call, Calls, Cut, Fail, ModelServer, Plan, Say, Stall, Tokens, serve

HELLO = [{"role": "user", "content": "hello"}]
APIS = pytest.mark.parametrize("api", ["openai-chat", "openai-responses", "anthropic"])
ANSWER = Say("a clear answer", thinking="hmm, let me see", usage=Tokens(100, 20, 60, 10, 5))
WORK = Calls((Call("look", {"at": "this"}), Call("look", {"at": "that"})), text="one moment")


class Sdk:
    """What the vendor's SDK made of one streamed answer: text, thinking, calls, tokens in."""

    def __init__(self, server, api, http):
        self.api, self.server, self.http = api, server, http

    async def ask(self, messages=HELLO):
        return await getattr(self, self.api.replace("-", "_"))(messages)

    def client(self, package, name):
        """Import the package only now: it takes seconds, and most processes of a test run do not need it."""
        kind = getattr(import_module(package), name)
        return kind(api_key="k", base_url=self.server.url(self.api), http_client=self.http, max_retries=0)

    async def openai_chat(self, messages):
        sdk = self.client("openai", "AsyncOpenAI")
        text, thinking, calls, tokens = "", "", {}, 0
        async for chunk in await sdk.chat.completions.create(model="m", messages=messages, stream=True):
            tokens = chunk.usage.prompt_tokens if chunk.usage else tokens
            for choice in chunk.choices:
                text += choice.delta.content or ""
                thinking += (choice.delta.model_extra or {}).get("reasoning_content", "")
                for call in choice.delta.tool_calls or ():
                    calls[call.index] = calls.get(call.index, "") + (call.function.arguments or "")
        return text, thinking, list(calls.values()), tokens

    async def openai_responses(self, messages):
        sdk = self.client("openai", "AsyncOpenAI")
        async with sdk.responses.stream(model="m", input=messages) as stream:
            final = await stream.get_final_response()
        thoughts = [part.text for item in final.output if item.type == "reasoning" for part in item.summary]
        calls = [item.arguments for item in final.output if item.type == "function_call"]
        return final.output_text, "".join(thoughts), calls, final.usage.input_tokens

    async def anthropic(self, messages):
        sdk = self.client("anthropic", "AsyncAnthropic")
        async with sdk.messages.stream(model="m", max_tokens=99, messages=messages) as stream:
            final = await stream.get_final_message()
        text = "".join(block.text for block in final.content if block.type == "text")
        thinking = "".join(block.thinking for block in final.content if block.type == "thinking")
        calls = [msgspec.json.encode(block.input).decode() for block in final.content if block.type == "tool_use"]
        usage = final.usage
        tokens = usage.input_tokens + usage.cache_read_input_tokens + usage.cache_creation_input_tokens
        return text, thinking, calls, tokens


@APIS
@pytest.mark.parametrize("tls", [False, True], ids=["plain", "tls"])
@pytest.mark.deadline(60)
async def test_the_vendors_sdk_understands_text_thinking_and_calls(api, tls):
    async with ModelServer([ANSWER, WORK], tls=tls) as server, httpx2.AsyncClient(verify=server.trust) as http:
        sdk = Sdk(server, api, http)
        assert await sdk.ask() == ("a clear answer", "hmm, let me see", [], 100)
        text, _, calls, _ = await sdk.ask()
        assert (text, calls) == ("one moment", ['{"at":"this"}', '{"at":"that"}'])
        assert server.connections == 1


@APIS
@pytest.mark.deadline(60)
async def test_the_vendors_sdk_knows_our_failures_as_its_own(api):
    vendor = import_module("anthropic" if api == "anthropic" else "openai")
    async with ModelServer([Fail(429, "slow down", retry_after=7), Cut("half an")]) as server:
        async with httpx2.AsyncClient() as http:
            with pytest.raises(vendor.RateLimitError, match="slow down") as caught:
                await Sdk(server, api, http).ask()
            assert caught.value.response.headers["retry-after"] == "7"
            with pytest.raises((httpx2.RemoteProtocolError, vendor.APIError)):
                await Sdk(server, api, http).ask()


def bodies(api: str, *, answered: bool) -> dict:
    """A transcript with one tool call, in the wire's own words."""
    ask = {"role": "user", "content": "look"}
    if api == "openai-chat":
        call = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": "{}"}}
        said = {"role": "assistant", "content": None, "tool_calls": [call]}
        result = [{"role": "tool", "tool_call_id": "c1", "content": "seen"}] if answered else []
        return {"model": "m", "stream": True, "messages": [ask, said, *result, ask]}
    if api == "openai-responses":
        made = {"type": "function_call", "call_id": "c1", "name": "look", "arguments": "{}"}
        result = [{"type": "function_call_output", "call_id": "c1", "output": "seen"}] if answered else []
        return {"model": "m", "stream": True, "input": [ask, made, *result, ask]}
    said = {"role": "assistant", "content": [{"type": "tool_use", "id": "c1", "name": "look", "input": {}}]}
    block = {"type": "tool_result", "tool_use_id": "c1", "content": "seen"}
    after = {"role": "user", "content": [*([block] if answered else []), {"type": "text", "text": "and?"}]}
    return {"model": "m", "stream": True, "max_tokens": 9, "messages": [ask, said, after]}


PATHS = {"openai-chat": "/chat/completions", "openai-responses": "/responses", "anthropic": "/v1/messages"}


async def post(http, url: str, api: str, body: dict) -> httpx2.Response:
    return await http.post(url + PATHS[api], json=body, headers={"anthropic-version": "2023-06-01"})


@APIS
async def test_a_call_without_its_result_and_a_result_without_its_call_are_rejected(api):
    async with ModelServer(Plan((Say("fine"),))) as server, httpx2.AsyncClient() as http:
        url = server.url(api)
        assert (await post(http, url, api, bodies(api, answered=True))).status_code == 200
        assert (await post(http, url, api, bodies(api, answered=False))).status_code == 400
        orphan = bodies(api, answered=True)
        del orphan["input" if api == "openai-responses" else "messages"][1]
        assert (await post(http, url, api, orphan)).status_code == 400


@APIS
async def test_a_plan_counts_what_was_said_since_the_user_spoke(api):
    plan = Plan((Call("first"), Say("second", pieces=1)), by={"different": (Say("other", pieces=1),)})
    async with ModelServer(plan) as server, httpx2.AsyncClient() as http:
        begun = bodies(api, answered=True)
        key = "input" if api == "openai-responses" else "messages"
        if api == "anthropic":
            begun[key][2]["content"].pop()
        else:
            begun[key].pop()
        assert "second" in (await post(http, server.url(api), api, begun)).text
        noticed = {**begun, key: [*begun[key], {"role": "user", "content": "<notice>go on</notice>"}]}
        assert "second" in (await post(http, server.url(api), api, noticed)).text
        fresh = {**begun, key: [{"role": "user", "content": "something different"}]}
        assert "other" in (await post(http, server.url(api), api, fresh)).text


async def test_who_leaves_in_the_middle_is_noticed():
    async with ModelServer([Stall("half"), Stall(None)]) as server, httpx2.AsyncClient() as http:
        body = {"model": "m", "stream": True, "messages": HELLO}
        async with http.stream("POST", server.url("openai-chat") + "/chat/completions", json=body) as response:
            await anext(response.aiter_bytes())
            assert server.open_requests == 1
        await server.closed_early(1)
        await server.idle()
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.1):
                await http.post(server.url("openai-chat") + "/chat/completions", json=body)
        await server.closed_early(2)
        await server.disconnected()
        assert [asked.body["messages"] for asked in server.requests] == [HELLO, HELLO]


@pytest.mark.deadline(30)
@pytest.mark.parametrize("tls", [False, True], ids=["plain", "tls"])
async def test_it_runs_as_a_process_of_its_own(tmp_path, tls):
    plan = '[{"type": "say", "text": "from afar"}]'
    async with serve(plan, tmp_path, tls=tls) as served:
        verify = httpx2.create_ssl_context() if not tls else ssl.create_default_context(cafile=served.ca)
        async with httpx2.AsyncClient(verify=verify) as http:
            assert (await http.get(served.url("openai-chat") + "/models")).json()["data"][0]["id"] == "scripted"
            body = {"model": "m", "messages": HELLO}
            answer = await http.post(served.url("openai-chat") + "/chat/completions", json=body)
        assert answer.json()["choices"][0]["message"]["content"] == "from afar"
        assert [line["body"] for line in served.log_lines("request")] == [body]
        assert len(served.log_lines("answered")) == 1
    assert (tmp_path / "port").read_text() == str(served.port)
