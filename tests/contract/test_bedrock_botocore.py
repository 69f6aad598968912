"""What we send to Amazon Bedrock and read from it, judged by Amazon's own library in a process of its own."""

import asyncio
import base64
import json
from pathlib import Path

import pytest

from alipes.kernel.messages import Image, Message, Text, Thinking, ToolCall, ToolResult, assistant, user
from alipes.kernel.models import Secret
from alipes.providers.event_frames import FrameParser
from alipes.runtime.http.clients import ClientScope
from alipes.runtime.http.sigv4 import SigningKey, sign
from tests.world.environment import SERVICES, environment
from tests.world.model_calls import ask, converse, provider
from tests.world.model_replies import Call, Calls, Say
from tests.world.model_server import ModelServer
from tests.world.model_wires import binary_frame, frames

PYTHON = SERVICES / "moto[server]" / "bin" / "python"
SCRIPT = Path(__file__).parents[1] / "clients" / "judge_bedrock.py"
NOW = 1_800_000_000.0
URL = "https://bedrock-runtime.eu-west-1.amazonaws.com/model"
MODELS = (
    *("eu.anthropic.claude-opus-5-5", "anthropic.claude-sonnet-4-20250514-v1:0", "amazon.nova-2-lite-v1:0"),
    *("openai.gpt-oss-120b-1:0", "openai.gpt-6-sol", "meta.llama4-scout-17b-instruct-v1:0"),
)

pytestmark = pytest.mark.skipif(not PYTHON.exists(), reason="botocore is not installed (make services)")


async def judge(**task):
    whole = {"requests": [], "streams": [], "signed": []} | task
    process = await asyncio.create_subprocess_exec(
        *(str(PYTHON), str(SCRIPT)), env=environment(SCRIPT.parent), stdin=-1, stdout=-1, stderr=-1
    )
    out, errors = await process.communicate(json.dumps(whole).encode())
    assert process.returncode == 0, errors.decode()
    return json.loads(out)


async def test_requests_have_the_shape_of_the_api():
    call, image = ToolCall("call_1", "look", {"at": [1, {"x": None}]}), Image("image/png", b"png")
    schema = {"type": "object", "properties": {}, "additionalProperties": False}
    async with ModelServer(lambda _body: Say("ok"), strict=False) as server, ClientScope() as scope:
        bedrock = provider("bedrock", server.url("bedrock"), scope, schemas="on")
        for model in MODELS:
            sealed = Thinking("hm", "c2VhbA==", f"acme/{model}")
            said = Message("assistant", (sealed, Text("wait"), call))
            answers = Message("tool", (ToolResult("call_1", "seen", images=(image,)),))
            for effort in ("", "off", "minimal", "low", "medium", "high", "xhigh", "max"):
                shown = Message("user", (*user("see").parts, image))
                asked = ask(shown, said, answers, model=model, effort=effort, max_tokens=9000, output_schema=schema)
                await converse(bedrock, asked)
            await converse(bedrock, ask("hi", assistant(call), answers, model=model, tools=(), tool_choice="none"))
        # the name of the model is in the address
        sent = [{"modelId": MODELS[at // 9], **json.loads(asked.raw)} for at, asked in enumerate(server.requests)]
    verdict = await judge(requests=sent)
    assert len(sent) == 9 * len(MODELS) and set(verdict["requests"]) == {""}


async def test_event_streams_are_read_as_the_library_reads_them():
    replies = (Say("héllo", thinking="hm", seal="c2VhbA=="), Calls((Call("look", {"at": "x"}), Call("look", {}))))
    streams = [b"".join(frames("bedrock", reply)) for reply in replies]
    slow = binary_frame("throttlingException", {"message": "slow down"}, "exception")
    streams.append(streams[0][: len(frames("bedrock", replies[0])[0])] + slow)
    ours = [[json.loads(event) for event in FrameParser().feed(stream)] for stream in streams]
    verdict = await judge(streams=[base64.b64encode(stream).decode() for stream in streams])
    for mine, theirs in zip(ours, verdict["streams"], strict=True):
        assert [
            ["exception" if each["fault"] else "event", each["fault"] or each["kind"], each["body"]] for each in mine
        ] == [[kind, name, json.loads(payload)] for kind, name, payload in theirs]


async def test_signatures_are_those_of_the_library():
    urls = (f"{URL}/eu.anthropic.claude-v1%3A0/converse-stream", f"{URL}/m/converse?b=2&a=1%20x&c=")
    cases, ours = [], []
    for url in urls:
        for token in ("", "a session's token/+="):
            known = {"key": "AKID", "secret": "s/+cret", "region": "eu-west-1", "service": "bedrock", "token": token}
            key = SigningKey(Secret("AKID"), Secret("s/+cret"), "eu-west-1", "bedrock", Secret(token))
            signed = sign(key, "POST", url, {"content-type": "application/json"}, b'{"a": 1}', now=NOW)
            ours.append(signed["authorization"].rpartition("Signature=")[2])
            content = base64.b64encode(b'{"a": 1}').decode()
            headers = {"content-type": "application/json"}
            cases.append({**known, "url": url, "headers": headers, "content": content, "date": signed["x-amz-date"]})
    assert (await judge(signed=cases))["signed"] == ours
