"""Pictures are drawn by the operator's model or a plugin, saved, and on the bill."""

import asyncio
import base64
import io
from contextlib import asynccontextmanager

import msgspec
import PIL.Image
import pytest

from alipes.agent.budget import Spending
from alipes.agent.builtin_tools import Easel, available, draw
from alipes.kernel.errors import NotAuthorised, ProviderError, ToolError, Transient
from alipes.kernel.messages import Image
from alipes.kernel.models import Endpoint, Secret
from alipes.kernel.turns import Address, Inbound, Turn
from alipes.plugins.owner import Owner
from alipes.plugins.registry import Offers, ProviderOffer
from alipes.providers.image_generation import Painter
from alipes.runtime.http.clients import ClientScope
from alipes.runtime.http.public_fetch import Fetcher
from alipes.tools.media.image_generate import ImageGenerate


class Act:
    call_id, session, workdir = "c1", "s1", "/"


def png(colour="red"):
    file = io.BytesIO()
    PIL.Image.new("RGB", (8, 4), colour).save(file, "PNG")
    return file.getvalue()


TURN = Turn("t1", "s1", Inbound("i1", Address("terminal", "main"), "me", "draw"))


class Bill:
    def __init__(self):
        self.entries = []

    async def add(self, entry):
        self.entries.append(entry)

    async def root(self, turn):
        return turn


@asynccontextmanager
async def studio(*answers, path="/v1"):
    """A server like OpenAI's: gives the answers in turn, and keeps what it was asked."""
    asked, left = [], list(answers)

    async def serve(reader, writer):
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        length = int(
            next(line.split(":")[1] for line in head.lower().split("\r\n") if "content-length" in line)
        )
        asked.append((head, await reader.readexactly(length)))
        status, body = left.pop(0)
        if status:
            data = body if isinstance(body, bytes) else msgspec.json.encode(body)
            writer.write(
                f"HTTP/1.1 {status} X\r\ncontent-length: {len(data)}\r\nconnection: close\r\n\r\n".encode()
                + data
            )
            await writer.drain()
        else:
            await reader.read()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}{path}", asked


def painter(scope, url):
    endpoint = Endpoint(name="mine", api="openai-chat", base_url=url, key=Secret("k3y"), key_env="MINE")
    return Painter(endpoint, "brush-1", scope.http("mine", base_url=url))


def drawn(data):
    return 200, {
        "data": [{"b64_json": base64.b64encode(data).decode()}],
        "usage": {"input_tokens": 7, "output_tokens": 9},
    }


def easel(scope, painter=None, offers=None, bill=None, **more):
    return Easel(
        offers=offers or Offers(),
        painter=lambda: painter,
        spending=Spending(bill or Bill()),
        fetcher=Fetcher(scope),
        turn=lambda: TURN,
        **more,
    )


async def test_words_become_a_picture_that_is_paid_for():
    bill = Bill()
    async with studio(drawn(png())) as (url, asked), ClientScope() as scope:
        made = await draw(easel(scope, painter(scope, url), bill=bill), "a house", "portrait", ())
    assert made == png()
    head, body = asked[0]
    assert head.startswith("POST /v1/images/generations ") and "authorization: bearer k3y" in head.lower()
    assert msgspec.json.decode(body) == {"model": "brush-1", "prompt": "a house", "size": "1024x1536", "n": 1}
    (entry,) = bill.entries
    assert (entry.model, entry.tool, entry.usage.input, entry.usage.output) == (
        "mine/brush-1",
        "image_generate",
        7,
        9,
    )


async def test_pictures_to_go_by_are_sent_as_files():
    async with studio(drawn(png("blue"))) as (url, asked), ClientScope() as scope:
        after = (Image("image/png", png()), Image("image/jpeg", b"second"))
        assert await draw(easel(scope, painter(scope, url)), "bluer", "square", after) == png("blue")
    head, body = asked[0]
    assert (
        head.startswith("POST /v1/images/edits ")
        and "content-type: multipart/form-data; boundary=" in head.lower()
    )
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
async def test_what_goes_wrong_is_one_of_our_errors(answer, kind):
    async with studio(answer) as (url, _), ClientScope() as scope:
        with pytest.raises(kind) as told:
            await draw(easel(scope, painter(scope, url)), "x", "square", ())
    assert "k3y" not in str(told.value)


async def test_stopped_it_hangs_up():
    async with studio((0, b"")) as (url, asked), ClientScope() as scope:
        drawing = asyncio.create_task(draw(easel(scope, painter(scope, url)), "x", "square", ()))
        async with asyncio.timeout(5):
            while not asked:
                await asyncio.sleep(0.005)
        drawing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await drawing


def offered(thing):
    offers = Offers()
    offers.add(ProviderOffer(Owner("brushes"), "image_gen", "brush", thing))
    return offers


class Old:
    """As plugins written for Hermes do it: sync, a dict, and only some of the keywords."""

    def __init__(self, gives):
        self.gives = gives

    def generate(self, prompt, aspect_ratio):
        return self.gives


async def test_a_plugin_draws_in_its_own_way(tmp_path):
    (tmp_path / "a.png").write_bytes(png())

    async def new(prompt, aspect_ratio, images, **more):
        assert (prompt, aspect_ratio, images) == ("x", "square", ())
        return png()

    async with ClientScope() as scope:
        for thing in (
            new,
            Old(png()),
            Old(str(tmp_path / "a.png")),
            Old({"success": True, "image": str(tmp_path / "a.png")}),
        ):
            one = easel(scope, offers=offered(thing))
            assert available(one) and await draw(one, "x", "square", ()) == png()


async def test_a_plugin_that_does_not_draw_says_why(tmp_path):
    async with ClientScope() as scope:
        for gives, why in (
            ({"success": False, "error": "no paint"}, "no paint"),
            ({}, "no picture"),
            (None, "no picture"),
        ):
            with pytest.raises(ToolError, match=why):
                await draw(easel(scope, offers=offered(Old(gives))), "x", "square", ())
        with pytest.raises(ToolError, match="private network"):
            await draw(easel(scope, offers=offered(Old("http://127.0.0.1/a.png"))), "x", "square", ())


async def test_without_anybody_who_draws_that_is_said():
    async with ClientScope() as scope:
        assert not available(easel(scope))
        with pytest.raises(ToolError, match=r"images\.model"):
            await draw(easel(scope), "x", "square", ())


async def test_the_tool_saves_what_was_drawn_and_names_the_file(tmp_path):
    wished = []

    async def load(named, workdir):
        return png()

    async def drawing(prompt, ratio, after):
        wished.append((prompt, ratio, len(after)))
        return png("blue")

    tool = ImageGenerate(tmp_path / "out", load, drawing)
    args = {
        "prompt": "sea",
        "aspect_ratio": "portrait",
        "image_url": "a.png",
        "reference_image_urls": ["b.png"],
    }
    told = await tool.run(args, Act())
    path = told.partition("MEDIA: ")[2]
    assert (
        path.startswith(str(tmp_path / "out")) and open_bytes(path) == png("blue") and path.endswith(".png")
    )
    await tool.run({"prompt": "sea"}, Act())
    assert (
        wished == [("sea", "portrait", 2), ("sea", "landscape", 0)]
        and len(list((tmp_path / "out").iterdir())) == 2
    )


def open_bytes(path):
    with open(path, "rb") as file:
        return file.read()


async def test_the_tool_refuses_what_is_no_wish_and_no_picture(tmp_path):
    async def load(named, workdir):
        return b"<svg></svg>"

    async def drawing(prompt, ratio, after):
        return b"<html>"

    tool = ImageGenerate(tmp_path, load, drawing)
    for args, why in (
        ({"prompt": " "}, "what is to be drawn"),
        ({"prompt": "x"}, "no picture that can be shown"),
        ({"prompt": "x", "image_url": "a.svg"}, "pictures of points"),
    ):
        with pytest.raises(ToolError, match=why):
            await tool.run(args, Act())
