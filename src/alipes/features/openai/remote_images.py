"""Images that OpenAI clients name by URL: fetched from public addresses before the request is parsed."""

import asyncio
import base64
from collections.abc import Iterator
from typing import TypeVar

from msgspec import structs

from alipes.features.openai.requests import ChatRequest, Content, ContentPart, ImageUrl, ResponseRequest
from alipes.kernel.messages import MODEL_IMAGE_TYPES, image_type
from alipes.runtime.http.public_fetch import FetchError, PublicFetcher
from alipes.web.endpoint import HttpProblem

MAX_IMAGES = 16
"""Remote images of one request."""
MAX_IMAGE_BYTES = 10_000_000
FETCH_TIMEOUT_S = 20.0
Asked = TypeVar("Asked", ChatRequest, ResponseRequest)


async def fetch_images(request: Asked, fetcher: PublicFetcher) -> Asked:
    """The request with each remote image as a data URL. Raises `HttpProblem`."""
    urls = list(dict.fromkeys(_remote_urls(request)))
    if not urls:
        return request
    if len(urls) > MAX_IMAGES:
        raise HttpProblem(400, f"a request may name at most {MAX_IMAGES} remote images", code="image_url")
    fetched = {url: await _fetch(url, fetcher) for url in urls}
    if isinstance(request, ChatRequest):
        said = [structs.replace(each, content=_with_data(each.content, fetched)) for each in request.messages]
        return structs.replace(request, messages=said)
    if isinstance(request.input, str):
        return request
    items = [
        structs.replace(item, content=_with_data(item.content, fetched), output=_with_data(item.output, fetched))
        for item in request.input
    ]
    return structs.replace(request, input=items)


async def _fetch(url: str, fetcher: PublicFetcher) -> str:
    """The image as a data URL."""
    try:
        found = await fetcher.fetch(url, largest=MAX_IMAGE_BYTES, seconds=FETCH_TIMEOUT_S)
    except FetchError as error:
        raise HttpProblem(400, f"the image could not be fetched: {error}", code="image_url") from error
    if not (kind := image_type(found.data[:64])):
        types = ", ".join(MODEL_IMAGE_TYPES)
        raise HttpProblem(400, f"{url.partition('?')[0][:200]} is not an image of type {types}", code="image_type")
    encoded = await asyncio.to_thread(base64.b64encode, found.data)
    return f"data:{kind};base64,{encoded.decode()}"


def _remote_urls(request: ChatRequest | ResponseRequest) -> Iterator[str]:
    contents: list[Content]
    if isinstance(request, ChatRequest):
        contents = [message.content for message in request.messages]
    elif isinstance(request.input, str):
        contents = []
    else:
        contents = [content for item in request.input for content in (item.content, item.output)]
    for content in contents:
        for part in content if isinstance(content, list) else ():
            if (url := _url(part)).lower().startswith("https://"):
                yield url


def _url(part: ContentPart) -> str:
    image = part.image_url
    return image.url if isinstance(image, ImageUrl) else image or ""


def _with_data(content: Content, fetched: dict[str, str]) -> Content:
    if not isinstance(content, list):
        return content
    return [structs.replace(part, image_url=fetched.get(_url(part), part.image_url)) for part in content]
