"""OpenAI-compatible endpoints: chat completions, responses, models."""

from typing import Literal

from msgspec import Struct
from starlette.responses import Response

from alipes.core.app import App
from alipes.features.openai.chat import ChatCompletions
from alipes.features.openai.documents import RequestDocuments
from alipes.features.openai.embeddings import EmbeddingEndpoints
from alipes.features.openai.feature import OpenAiFeature
from alipes.features.openai.responses import ResponseEndpoints
from alipes.features.openai.turns import OpenAiTurns, to_json
from alipes.features.server import Server
from alipes.providers.registry import similar_names
from alipes.runtime.http.public_fetch import PublicFetcher
from alipes.web.admission import DEFAULT_MODEL
from alipes.web.endpoint import ApiCall, ApiEndpoint, HttpProblem, endpoints_of

CREATED = 1_700_000_000
"""OpenAI clients require a creation time; ours is always the same."""


class ModelObject(Struct, frozen=True):
    id: str
    owned_by: str
    created: int = CREATED
    object: Literal["model"] = "model"


class ModelList(Struct, frozen=True):
    data: list[ModelObject]
    object: Literal["list"] = "list"


class ModelEndpoints:
    def __init__(self, app: App) -> None:
        self._app = app

    @ApiEndpoint("GET", "/v1/models", "read", answer=ModelList)
    async def all(self, _call: ApiCall) -> Response:
        """List the available models."""
        return to_json(ModelList([_model(name) for name in self._names()]))

    @ApiEndpoint("GET", "/v1/models/{id}", "read", answer=ModelObject)
    @ApiEndpoint("GET", "/v1/models/{provider}/{id}", "read", answer=ModelObject)
    @ApiEndpoint("GET", "/v1/models/{provider}/{family}/{id}", "read", answer=ModelObject)
    async def one(self, call: ApiCall) -> Response:
        """Get a model by name."""  # which may contain slashes
        name = "/".join(call.path.values())
        names = self._names()
        if name in names:
            return to_json(_model(name))
        close = similar_names(name, names)
        meant = f" Did you mean {' or '.join(close)}?" if close else ""
        raise HttpProblem(404, f"no model {name!r}.{meant}", code="model_not_found")

    def _names(self) -> tuple[str, ...]:
        return (DEFAULT_MODEL, *self._app.models.names())


def _model(name: str) -> ModelObject:
    return ModelObject(name, name.partition("/")[0])


def endpoints(feature: OpenAiFeature, server: Server) -> tuple[ApiEndpoint, ...]:
    app = feature.app
    fetcher = PublicFetcher(app.scope, app.settings.fetch.allow, name="api-images")
    turns = OpenAiTurns(app, server.admission, workdir=server.workdir, on_timeout=app.settings.api.on_timeout)
    documents = RequestDocuments(fetcher, server.files)
    return (
        *endpoints_of(ChatCompletions(turns, documents)),
        *endpoints_of(ResponseEndpoints(app, turns, documents)),
        *endpoints_of(EmbeddingEndpoints(app)),
        *endpoints_of(ModelEndpoints(app)),
    )
