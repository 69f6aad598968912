"""The `image_generate` tool: images of a model or a plugin, saved files, recorded cost."""

import asyncio
import base64
import io
from contextlib import asynccontextmanager

import msgspec
import PIL.Image
import pytest

from alipes.agent.budget import SpendingLimits
from alipes.agent.builtin_tools import ImageGenerator
from alipes.kernel.errors import NotAuthorised, ProviderError, ToolError, Transient
from alipes.kernel.messages import Image
from alipes.kernel.models import Endpoint, Secret
from alipes.kernel.turns import Address, Inbound, Turn
from alipes.plugins.interruption.attribution import TURN as CURRENT_TURN
from alipes.plugins.owner import PluginOwner
from alipes.plugins.registry import Contributions, ProviderContribution
from alipes.providers.image_generation import ImageModel
from alipes.runtime.http.clients import ClientScope
from alipes.runtime.http.public_fetch import PublicFetcher
from alipes.tools.images import ImageGenerate
from tests.world.environment import LIMIT_S


class FakeContext:
    call_id, session, workdir, turn = "c1", "s1", "/", None


def png(colour="red"):
    file = io.BytesIO()
    PIL.Image.new("RGB", (8, 4), colour).save(file, "PNG")
    return file.getvalue()


TURN = Turn("t1", "s1", Inbound("i1", Address("terminal", "main"), "me", "draw"))


class FakeUsage:
    def __init__(self):
        self.entries = []

    async def add(self, entry):
        self.entries.append(entry)

    async def root_turn(self, turn):
        return turn


@asynccontextmanager
async def image_server(*answers, path="/v1"):
    """A server like OpenAI's that returns the answers in order and records requests."""
    asked, left = [], list(answers)

    async def serve(reader, writer):
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        length = int(next(line.split(":")[1] for line in head.lower().split("\r\n") if "content-length" in line))
        asked.append((head, await reader.readexactly(length)))
        status, body = left.pop(0)
        if status:
            data = body if isinstance(body, bytes) else msgspec.json.encode(body)
            writer.write(
                f"HTTP/1.1 {status} X\r\ncontent-length: {len(data)}\r\nconnection: close\r\n\r\n".encode() + data
            )
            await writer.drain()
        else:
            await reader.read()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}{path}", asked


def image_model(scope, url):
    endpoint = Endpoint(name="mine", api="openai-chat", base_url=url, key=Secret("k3y"), key_env="MINE")
    return ImageModel(endpoint, "brush-1", scope.http("mine", base_url=url))


def image_reply(data):
    return 200, {
        "data": [{"b64_json": base64.b64encode(data).decode()}],
        "usage": {"input_tokens": 7, "output_tokens": 9},
    }


def make_generator(scope, model=None, contributions=None, usage=None):
    return ImageGenerator(
        contributions or Contributions(),
        lambda: model,
        spending=SpendingLimits(usage or FakeUsage()),
        fetcher=PublicFetcher(scope),
    )


async def generate(generator, *args):
    CURRENT_TURN.set(TURN)
    return await generator.generate(*args)


async def test_prompt_becomes_an_image_with_recorded_cost():
    usage = FakeUsage()
    async with image_server(image_reply(png())) as (url, asked), ClientScope() as scope:
        made = await generate(make_generator(scope, image_model(scope, url), usage=usage), "a house", "portrait", ())
    assert made == png()
    head, body = asked[0]
    assert head.startswith("POST /v1/images/generations ") and "authorization: bearer k3y" in head.lower()
    assert msgspec.json.decode(body) == {"model": "brush-1", "prompt": "a house", "size": "1024x1536", "n": 1}
    (entry,) = usage.entries
    assert (entry.model, entry.tool, entry.usage.input, entry.usage.output) == ("mine/brush-1", "image_generate", 7, 9)


async def test_reference_images_are_sent_as_files():
    async with image_server(image_reply(png("blue"))) as (url, asked), ClientScope() as scope:
        references = (Image("image/png", png()), Image("image/jpeg", b"second"))
        assert await generate(make_generator(scope, image_model(scope, url)), "bluer", "square", references) == png(
            "blue"
        )
    head, body = asked[0]
    assert head.startswith("POST /v1/images/edits ") and "content-type: multipart/form-data; boundary=" in head.lower()
    assert png() in body and b"second" in body and body.count(b'name="image[]"') == 2 and b"bluer" in body


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        ((401, {"error": {"message": "bad key"}}), NotAuthorised),
        ((429, {"error": {"message": "slow down"}}), Transient),
        ((500, b"<html>"), Transient),
        ((200, b"nothing"), ProviderError),
        ((200, {"data": []}), ProviderError),
        ((200, {"data": [{}]}), ProviderError),
        ((200, {"data": [{"b64_json": "***"}]}), ProviderError),
    ],
)
async def test_provider_failures_become_our_errors(answer, kind):
    async with image_server(answer) as (url, _), ClientScope() as scope:
        with pytest.raises(kind) as result:
            await generate(make_generator(scope, image_model(scope, url)), "x", "square", ())
    assert "k3y" not in str(result.value)


async def test_cancelling_closes_the_connection():
    async with image_server((0, b"")) as (url, asked), ClientScope() as scope:
        generating = asyncio.create_task(generate(make_generator(scope, image_model(scope, url)), "x", "square", ()))
        async with asyncio.timeout(LIMIT_S):
            while not asked:
                await asyncio.sleep(0.005)
        generating.cancel()
        with pytest.raises(asyncio.CancelledError):
            await generating


def contribute(thing):
    contributions = Contributions()
    contributions.add(ProviderContribution(PluginOwner("brushes"), "image_gen", "brush", thing))
    return contributions


class HermesPlugin:
    """Like a Hermes plugin: sync, returns a dict, takes only some keywords."""

    def __init__(self, gives):
        self.gives = gives

    def generate(self, prompt, aspect_ratio):
        return self.gives


async def test_plugin_generates_the_image(tmp_path):
    (tmp_path / "a.png").write_bytes(png())

    async def new(prompt, aspect_ratio, images, **more):
        assert (prompt, aspect_ratio, images) == ("x", "square", ())
        return png()

    async with ClientScope() as scope:
        for thing in (
            new,
            HermesPlugin(png()),
            HermesPlugin(str(tmp_path / "a.png")),
            HermesPlugin({"success": True, "image": str(tmp_path / "a.png")}),
        ):
            one = make_generator(scope, contributions=contribute(thing))
            assert await one.is_available() and await generate(one, "x", "square", ()) == png()


async def test_plugin_failure_is_reported(tmp_path):
    async with ClientScope() as scope:
        for gives, why in (
            ({"success": False, "error": "no paint"}, "no paint"),
            ({}, "returned no image"),
            (None, "returned no image"),
        ):
            with pytest.raises(ToolError, match=why):
                await generate(make_generator(scope, contributions=contribute(HermesPlugin(gives))), "x", "square", ())
        with pytest.raises(ToolError, match="private network"):
            await generate(
                make_generator(scope, contributions=contribute(HermesPlugin("http://127.0.0.1/a.png"))),
                "x",
                "square",
                (),
            )


async def test_missing_image_model_is_reported():
    async with ClientScope() as scope:
        assert not await make_generator(scope).is_available()
        with pytest.raises(ToolError, match=r"images\.model"):
            await generate(make_generator(scope), "x", "square", ())


async def test_tool_saves_the_image_and_returns_its_path(tmp_path):
    requests = []

    async def load(named, workdir):
        return png()

    async def generating(prompt, ratio, references):
        requests.append((prompt, ratio, len(references)))
        return png("blue")

    tool = ImageGenerate(tmp_path / "out", load, generating)
    args = {"prompt": "sea", "aspect_ratio": "portrait", "image_url": "a.png", "reference_image_urls": ["b.png"]}
    result = await tool.run(args, FakeContext())
    (path,) = result.files
    assert path.startswith(str(tmp_path / "out")) and open_bytes(path) == png("blue") and path.endswith(".png")
    await tool.run({"prompt": "sea"}, FakeContext())
    assert (
        requests == [("sea", "portrait", 2), ("sea", "landscape", 0)] and len(list((tmp_path / "out").iterdir())) == 2
    )


def open_bytes(path):
    with open(path, "rb") as file:
        return file.read()


async def test_tool_refuses_empty_prompts_and_invalid_images(tmp_path):
    async def load(named, workdir):
        return b"<svg></svg>"

    async def generating(prompt, ratio, references):
        return b"<html>"

    tool = ImageGenerate(tmp_path, load, generating)
    for args, why in (
        ({"prompt": " "}, "prompt is empty"),
        ({"prompt": "x"}, "not an image in a supported format"),
        ({"prompt": "x", "image_url": "a.svg"}, "only raster images"),
    ):
        with pytest.raises(ToolError, match=why):
            await tool.run(args, FakeContext())
