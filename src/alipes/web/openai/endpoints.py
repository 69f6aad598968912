"""OpenAI-compatible endpoints: chat completions, responses, models."""

from typing import Literal

import msgspec
from msgspec import Struct
from starlette.responses import Response

from alipes.providers.registry import similar_names
from alipes.web.endpoint import ApiCall, ApiEndpoint, ApiServices, HttpProblem
from alipes.web.openai.chat import ChatCompletions, Completion
from alipes.web.openai.response_objects import ResponseDeleted, ResponseDocument
from alipes.web.openai.responses import ResponseEndpoints
from alipes.web.openai.schema import ChatRequest, ResponseRequest
from alipes.web.openai.turns import DEFAULT_MODEL, OpenAiTurns

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
    def __init__(self, app: ApiServices) -> None:
        self._app = app

    async def all(self, _call: ApiCall) -> Response:
        return _json(ModelList([_model(name) for name in self._names()]))

    async def one(self, call: ApiCall) -> Response:
        """Model names may contain slashes, so the path has one to three parts."""
        name = "/".join(call.path.values())
        names = self._names()
        if name in names:
            return _json(_model(name))
        close = similar_names(name, names)
        meant = f" Did you mean {' or '.join(close)}?" if close else ""
        raise HttpProblem(404, f"no model {name!r}.{meant}", code="model_not_found")

    def _names(self) -> tuple[str, ...]:
        return (DEFAULT_MODEL, *self._app.models.names())


def _model(name: str) -> ModelObject:
    return ModelObject(name, name.partition("/")[0])


def _json(value: object) -> Response:
    return Response(msgspec.json.encode(value), media_type="application/json")


_RUN_ERRORS = (400, 404, 409, 422, 500, 502)


def endpoints(app: ApiServices, *, workdir: str = "") -> tuple[ApiEndpoint, ...]:
    """`workdir`: working directory of the agent's tools."""
    turns = OpenAiTurns(app, workdir=workdir)
    return (
        *_chat_endpoints(ChatCompletions(turns)),
        *_response_endpoints(ResponseEndpoints(app, turns)),
        *_model_endpoints(ModelEndpoints(app)),
    )


def _chat_endpoints(chat: ChatCompletions) -> tuple[ApiEndpoint, ...]:
    return (
        ApiEndpoint(
            method="POST",
            path="/v1/chat/completions",
            scope="run",
            handle=chat.complete,
            summary="Answer a conversation, using the agent's own tools where needed.",
            body=ChatRequest,
            answer=Completion,
            streams=True,
            errors=_RUN_ERRORS,
            error_format="openai",
        ),
    )


def _response_endpoints(answers: ResponseEndpoints) -> tuple[ApiEndpoint, ...]:
    return (
        ApiEndpoint(
            method="POST",
            path="/v1/responses",
            scope="run",
            handle=answers.create,
            summary="Create a response, optionally as a continuation of another one.",
            body=ResponseRequest,
            answer=ResponseDocument,
            streams=True,
            errors=_RUN_ERRORS,
            error_format="openai",
        ),
        ApiEndpoint(
            method="GET",
            path="/v1/responses/{id}",
            scope="read",
            handle=answers.show,
            summary="Get a response, finished or not.",
            answer=ResponseDocument,
            errors=(404,),
            error_format="openai",
        ),
        ApiEndpoint(
            method="DELETE",
            path="/v1/responses/{id}",
            scope="run",
            handle=answers.delete,
            summary="Delete a response; deleting the last one of a conversation deletes the conversation.",
            answer=ResponseDeleted,
            errors=(404,),
            error_format="openai",
        ),
        ApiEndpoint(
            method="POST",
            path="/v1/responses/{id}/cancel",
            scope="run",
            handle=answers.cancel,
            summary="Cancel a response in progress.",
            answer=ResponseDocument,
            errors=(404,),
            error_format="openai",
        ),
    )


def _model_endpoints(showroom: ModelEndpoints) -> tuple[ApiEndpoint, ...]:
    listing = ApiEndpoint(
        method="GET",
        path="/v1/models",
        scope="read",
        handle=showroom.all,
        summary="List the available models.",
        answer=ModelList,
        error_format="openai",
    )
    single = (
        ApiEndpoint(
            method="GET",
            path=f"/v1/models/{path}",
            scope="read",
            handle=showroom.one,
            summary="Get a model by name.",
            answer=ModelObject,
            errors=(404,),
            error_format="openai",
        )
        for path in ("{id}", "{provider}/{id}", "{provider}/{family}/{id}")
    )
    return (listing, *single)
