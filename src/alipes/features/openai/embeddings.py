"""Embeddings in OpenAI's form: by the provider that a model names, or by the provider of embeddings of alipes."""

import base64
from array import array
from collections.abc import Sequence
from typing import Annotated, Literal

from msgspec import Meta, Struct
from starlette.responses import Response

from alipes.agent.provider_calls import embed_by_meaning
from alipes.core.app import App
from alipes.features.openai.turns import to_json
from alipes.kernel.errors import ConfigError
from alipes.providers.registry import resolve_model
from alipes.providers.streaming import embed
from alipes.web.admission import DEFAULT_MODEL
from alipes.web.endpoint import ApiCall, ApiEndpoint, HttpProblem

MAX_TEXTS = 2048
TIMEOUT_S = 60.0
Text = Annotated[str, Meta(min_length=1)]


class EmbeddingRequest(Struct, frozen=True):
    input: Text | Annotated[list[Text], Meta(min_length=1, max_length=MAX_TEXTS)]
    model: str = DEFAULT_MODEL
    """`alipes`: the provider of embeddings of alipes; `provider/model`: that of a configured provider."""
    encoding_format: Literal["float", "base64"] = "float"
    dimensions: Annotated[int, Meta(ge=1, le=100_000)] | None = None


class EmbeddingObject(Struct, frozen=True):
    embedding: list[float] | str
    index: int
    object: Literal["embedding"] = "embedding"


class EmbeddingUsage(Struct, frozen=True):
    prompt_tokens: int
    total_tokens: int


class EmbeddingList(Struct, frozen=True):
    data: list[EmbeddingObject]
    model: str
    usage: EmbeddingUsage
    object: Literal["list"] = "list"


class EmbeddingEndpoints:
    def __init__(self, app: App) -> None:
        self._app = app

    @ApiEndpoint("POST", "/v1/embeddings", "run", body=EmbeddingRequest, answer=EmbeddingList, errors=(400, 404, 502))
    async def create(self, call: ApiCall) -> Response:
        """Turn texts into vectors."""
        request: EmbeddingRequest = call.body
        texts = [request.input] if isinstance(request.input, str) else request.input
        vectors, tokens = await self._embed(request, texts)
        if len(vectors) != len(texts):
            raise HttpProblem(502, "the provider returned another number of vectors than texts", code="model_failed")
        data = [EmbeddingObject(_encode(each, request.encoding_format), place) for place, each in enumerate(vectors)]
        return to_json(EmbeddingList(data, request.model, EmbeddingUsage(tokens, tokens)))

    async def _embed(self, request: EmbeddingRequest, texts: Sequence[str]) -> tuple[Sequence[Sequence[float]], int]:
        if request.model not in ("", DEFAULT_MODEL):
            return await self._ask_provider(request, texts)
        if request.dimensions is not None:
            why = "dimensions cannot be chosen for this model"
            raise HttpProblem(400, why, code="dimensions", param="dimensions")
        found = await embed_by_meaning(self._app.contributions, texts)
        if found is None:
            why = "there is no provider of embeddings: name a model as provider/model, or run `alipes install search`"
            raise HttpProblem(404, why, code="model_not_found", param="model")
        return found, 0  # they do not count tokens

    async def _ask_provider(
        self, request: EmbeddingRequest, texts: Sequence[str]
    ) -> tuple[Sequence[Sequence[float]], int]:
        try:
            endpoint, model = resolve_model(self._app.settings, request.model)
        except ConfigError as error:
            why = f"model {request.model!r} is not available. {error}"
            raise HttpProblem(404, why, code="model_not_found", param="model") from error
        if endpoint.api not in ("openai-chat", "openai-responses"):
            why = f"{endpoint.name} has no embeddings: name a provider with OpenAI's API"
            raise HttpProblem(400, why, code="model_not_found", param="model")
        http = self._app.scope.http("embeddings", stall=TIMEOUT_S)
        return await embed(endpoint, http, model, texts, dimensions=request.dimensions, within=TIMEOUT_S)


def _encode(vector: Sequence[float], form: str) -> list[float] | str:
    if form == "base64":
        return base64.b64encode(array("f", vector).tobytes()).decode()
    return list(vector)
