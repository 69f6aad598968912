"""Pictures over endpoints like OpenAI's: drawn from words, or changed after pictures. It saves nothing."""

import base64
import binascii
from collections.abc import Mapping

import httpx2
import msgspec
from msgspec import Struct

from alipes.kernel.errors import ProviderError
from alipes.kernel.messages import Image
from alipes.kernel.models import Endpoint
from alipes.kernel.turns import Usage
from alipes.providers.errors import Place, fault, network, ours, wait
from alipes.providers.streaming import outgoing
from alipes.runtime.http.clients import Http


class _Drawn(Struct):
    b64_json: str = ""
    url: str = ""


class _Counted(Struct):
    input_tokens: int = 0
    output_tokens: int = 0


class _Answer(Struct):
    data: list[_Drawn] = []
    usage: _Counted | None = None


class Painted(Struct, frozen=True):
    data: bytes
    """Empty where it has to be fetched."""
    url: str = ""
    usage: Usage = Usage()


_answers = msgspec.json.Decoder(_Answer)


class Painter:
    """One model that draws."""

    def __init__(self, endpoint: Endpoint, model: str, http: Http) -> None:
        self._place = Place(endpoint, model)
        self._endpoint, self._model, self._http = endpoint, model, http
        self.name = self._place.name

    async def paint(self, prompt: str, size: str, after: tuple[Image, ...], *, seconds: float) -> Painted:
        """`after`: pictures to go by, the first of which is changed. Raises `ProviderError` kinds."""
        wishes = {"model": self._model, "prompt": prompt, "size": size, "n": 1}
        path = "/images/edits" if after else "/images/generations"
        out = outgoing(self._endpoint, self._model, path, wishes)
        headers, content = dict(out.headers), out.content
        headers["accept"] = "application/json"
        if after:
            headers["content-type"], content = _form(out.url, {k: str(v) for k, v in wishes.items()}, after)
        try:
            response = await self._http.request(
                "POST", out.url, headers=headers, content=content, timeout=seconds, stall=seconds
            )
        except (httpx2.HTTPError, httpx2.InvalidURL) as error:
            raise network(self._place, error) from error
        if response.status_code != 200:
            told = _json(response.content)
            raise ours(self._place, fault(told, response.status_code, wait(response.headers)))
        return self._read(response.content)

    def _read(self, body: bytes) -> Painted:
        try:
            answer = _answers.decode(body)
            first = answer.data[0]
            data = base64.b64decode(first.b64_json, validate=True)
        except (msgspec.MsgspecError, IndexError, binascii.Error, UnicodeDecodeError) as error:
            raise ProviderError(f"{self.name} answered with something that is no picture") from error
        if not data and not first.url:
            raise ProviderError(f"{self.name} answered without a picture")
        counted = answer.usage or _Counted()
        return Painted(data, first.url, Usage(counted.input_tokens, counted.output_tokens))


def _form(url: str, wishes: Mapping[str, str], after: tuple[Image, ...]) -> tuple[str, bytes]:
    """A form with files: its media type and its bytes."""
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
