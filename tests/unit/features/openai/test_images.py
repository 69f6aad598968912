"""Images that OpenAI clients name by URL: fetched from public addresses only, within limits, from a real TLS server."""

import asyncio
import base64
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from alipes.features.openai import remote_images
from tests.unit.features.openai.openai_harness import open_desk
from tests.world import tls

PNG = b"\x89PNG\r\n\x1a\n...."


@asynccontextmanager
async def image_server(data: bytes) -> AsyncIterator[str]:
    """`https://127.0.0.1:PORT`, which answers every request with `data`."""

    async def answer(reader, writer) -> None:
        await reader.readuntil(b"\r\n\r\n")
        head = f"HTTP/1.1 200 OK\r\ncontent-type: image/png\r\ncontent-length: {len(data)}\r\nconnection: close\r\n\r\n"
        writer.write(head.encode() + data)
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0, ssl=tls.server_context())
    async with server:
        yield f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}"


def chat_message(url: str) -> dict[str, object]:
    return {"role": "user", "content": [{"type": "image_url", "image_url": {"url": url}}]}


def response_item(url: str) -> dict[str, object]:
    return {"role": "user", "content": [{"type": "input_image", "image_url": url}]}


def request(kind: str, url: str) -> tuple[str, dict[str, object]]:
    if kind == "chat":
        return "/v1/chat/completions", {"messages": [chat_message(url)]}
    return "/v1/responses", {"input": [response_item(url)]}


@pytest.mark.parametrize("kind", ["chat", "response"])
async def test_an_image_behind_a_url_is_fetched_and_sent_to_the_model(tmp_path, kind):
    async with image_server(PNG) as url:
        settings = {"fetch_from": ("127.0.0.1",), "trust": tls.client_context()}
        async with open_desk(tmp_path, ["A cat."], **settings) as desk:
            path, body = request(kind, f"{url}/cat.png")
            answer = await desk.post(path, **body)
            assert answer.status_code == 200, answer.text
            (image,) = desk.provider.asked[0].messages[-1].parts
            assert (image.media_type, image.data) == ("image/png", PNG)


@pytest.mark.parametrize("kind", ["chat", "response"])
async def test_an_image_on_this_machine_is_not_fetched(tmp_path, kind):
    async with image_server(PNG) as url, open_desk(tmp_path, ["A cat."], trust=tls.client_context()) as desk:
        path, body = request(kind, f"{url}/cat.png")
        answer = await desk.post(path, **body)
        assert (answer.status_code, answer.json()["error"]["code"]) == (400, "image_url")
        assert "private network" in answer.json()["error"]["message"] and not desk.provider.asked


async def test_an_image_that_is_too_large_is_refused(tmp_path):
    async with image_server(PNG + bytes(remote_images.MAX_IMAGE_BYTES)) as url:
        settings = {"fetch_from": ("127.0.0.1",), "trust": tls.client_context()}
        async with open_desk(tmp_path, ["A cat."], **settings) as desk:
            answer = await desk.post("/v1/chat/completions", messages=[chat_message(url)])
            assert answer.status_code == 400 and "larger than" in answer.json()["error"]["message"]


async def test_what_is_no_image_is_refused(tmp_path):
    async with image_server(b"<html>") as url:
        settings = {"fetch_from": ("127.0.0.1",), "trust": tls.client_context()}
        async with open_desk(tmp_path, ["A cat."], **settings) as desk:
            answer = await desk.post("/v1/chat/completions", messages=[chat_message(url)])
            assert (answer.status_code, answer.json()["error"]["code"]) == (400, "image_type")


async def test_a_request_with_many_remote_images_is_refused(tmp_path):
    urls = [f"https://pictures.example/{n}.png" for n in range(remote_images.MAX_IMAGES + 1)]
    async with open_desk(tmp_path, ["A cat."]) as desk:
        answer = await desk.post("/v1/chat/completions", messages=[chat_message(url) for url in urls])
        assert answer.status_code == 400 and "at most" in answer.json()["error"]["message"]


@pytest.mark.parametrize("url", ["http://pictures.example/cat.png", "file:///etc/passwd", "cat.png"])
async def test_other_urls_of_images_are_refused(tmp_path, url):
    async with open_desk(tmp_path, ["A cat."]) as desk:
        answer = await desk.post("/v1/chat/completions", messages=[chat_message(url)])
        assert (answer.status_code, answer.json()["error"]["code"]) == (400, "image_url")


async def test_data_urls_are_still_accepted(tmp_path):
    async with open_desk(tmp_path, ["A cat."]) as desk:
        url = f"data:image/png;base64,{base64.b64encode(PNG).decode()}"
        answer = await desk.post("/v1/chat/completions", messages=[chat_message(url)])
        assert answer.status_code == 200
