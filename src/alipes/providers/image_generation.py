"""Image generation and editing over OpenAI-compatible endpoints."""

import base64
import binascii
from collections.abc import Mapping

import msgspec
from msgspec import Struct

from alipes.kernel.errors import ProviderError
from alipes.kernel.messages import Image
from alipes.kernel.models import Endpoint
from alipes.kernel.turns import Usage
from alipes.providers import errors
from alipes.providers.streaming import build_request
from alipes.runtime.http.clients import HttpClient
from alipes.runtime.http.lazy_httpx import httpx2


class _Drawn(Struct):
    b64_json: str = ""
    url: str = ""


class _Counted(Struct):
    input_tokens: int = 0
    output_tokens: int = 0


class _Answer(Struct):
    data: list[_Drawn] = []
    usage: _Counted | None = None


class GeneratedImage(Struct, frozen=True):
    data: bytes
    """Empty if it must be fetched from `url`."""
    url: str = ""
    usage: Usage = Usage()


_answers = msgspec.json.Decoder(_Answer)


class ImageModel:
    def __init__(self, endpoint: Endpoint, model: str, http: HttpClient) -> None:
        self._place = errors.ModelTarget(endpoint, model)
        self._http = http
        self.name = self._place.name

    async def generate(self, prompt: str, size: str, after: tuple[Image, ...], *, seconds: float) -> GeneratedImage:
        """`after`: reference images, the first of which is edited. Raises ProviderError."""
        wishes = {"model": self._place.model, "prompt": prompt, "size": size, "n": 1}
        path = "/images/edits" if after else "/images/generations"
        out = build_request(self._place, path, wishes)
        headers, content = dict(out.headers), out.content
        headers["accept"] = "application/json"
        if after:
            headers["content-type"], content = _form(out.url, {k: str(v) for k, v in wishes.items()}, after)
        try:
            limits = {"timeout": seconds, "stall": seconds}
            response = await self._http.request("POST", out.url, headers=headers, content=content, **limits)
        except (httpx2.HTTPError, httpx2.InvalidURL) as error:
            raise errors.translate_network_error(self._place, error) from error
        if response.status_code != 200:
            wait = errors.retry_after_seconds(response.headers)
            fault = errors.parse_error(_json(response.content), response.status_code, wait)
            raise errors.translate_error(self._place, fault)
        return self._read(response.content)

    def _read(self, body: bytes) -> GeneratedImage:
        try:
            answer = _answers.decode(body)
            first = answer.data[0]
            data = base64.b64decode(first.b64_json, validate=True)
        except (msgspec.MsgspecError, IndexError, binascii.Error, UnicodeDecodeError) as error:
            raise ProviderError(f"{self.name} answered with something that is no picture") from error
        if not data and not first.url:
            raise ProviderError(f"{self.name} answered without a picture")
        counted = answer.usage or _Counted()
        return GeneratedImage(data, first.url, Usage(counted.input_tokens, counted.output_tokens))


def _form(url: str, wishes: Mapping[str, str], after: tuple[Image, ...]) -> tuple[str, bytes]:
    """A multipart form with files: its content type and bytes."""
    name = "image" if len(after) == 1 else "image[]"
    files = [
        (name, (f"{number}.{each.media_type.rpartition('/')[2]}", each.data, each.media_type))
        for number, each in enumerate(after, 1)
    ]
    request = httpx2.Request("POST", url, data=dict(wishes), files=files)
    return str(request.headers["content-type"]), request.read()


def _json(body: bytes) -> object:
    try:
        return msgspec.json.decode(body)
    except msgspec.DecodeError:
        return body.decode("utf-8", "replace")
