"""The endpoints that OpenAI's clients know: chat completions, responses, models."""

from typing import Literal

import msgspec
from msgspec import Struct
from starlette.responses import Response

from alipes.providers.catalog import near
from alipes.web.endpoint import Call, Endpoint, House, Problem
from alipes.web.openai.chat import Chat, Completion
from alipes.web.openai.response_objects import ResponseDeleted, ResponseDocument
from alipes.web.openai.responses import Answers
from alipes.web.openai.schema import ChatRequest, ResponseRequest
from alipes.web.openai.turns import OURS, Turns

CREATED = 1_700_000_000
"""OpenAI tells when a model was made, and its clients want a number; ours is always the same."""


class Model(Struct, frozen=True):
    id: str
    owned_by: str
    created: int = CREATED
    object: Literal["model"] = "model"


class Listing(Struct, frozen=True):
    data: list[Model]
    object: Literal["list"] = "list"


class Showroom:
    def __init__(self, house: House) -> None:
        self._house = house

    async def all(self, _call: Call) -> Response:
        return _json(Listing([_model(name) for name in self._names()]))

    async def one(self, call: Call) -> Response:
        """Its name may have a slash or two, each of which is a step of the path."""
        name = "/".join(call.path.values())
        names = self._names()
        if name in names:
            return _json(_model(name))
        close = near(name, names)
        meant = f" Did you mean {' or '.join(close)}?" if close else ""
        raise Problem(404, f"there is no model {name!r} here.{meant}", code="model_not_found")

    def _names(self) -> tuple[str, ...]:
        return (OURS, *self._house.models.names())


def _model(name: str) -> Model:
    return Model(name, name.partition("/")[0])


def _json(value: object) -> Response:
    return Response(msgspec.json.encode(value), media_type="application/json")


_FAILING = (400, 404, 409, 422, 500, 502)


def endpoints(house: House, *, workdir: str = "") -> tuple[Endpoint, ...]:
    """`workdir`: where the agent's tools work."""
    turns = Turns(house, workdir=workdir)
    return (*_chat(Chat(turns)), *_responses(Answers(house, turns)), *_models(Showroom(house)))


def _chat(chat: Chat) -> tuple[Endpoint, ...]:
    return (
        Endpoint(
            method="POST",
            path="/v1/chat/completions",
            scope="run",
            handle=chat.complete,
            summary="Answer a conversation; the agent's own tools are used meanwhile.",
            body=ChatRequest,
            answer=Completion,
            streams=True,
            errors=_FAILING,
            shape="openai",
        ),
    )


def _responses(answers: Answers) -> tuple[Endpoint, ...]:
    return (
        Endpoint(
            method="POST",
            path="/v1/responses",
            scope="run",
            handle=answers.create,
            summary="Make a response, alone or after another one.",
            body=ResponseRequest,
            answer=ResponseDocument,
            streams=True,
            errors=_FAILING,
            shape="openai",
        ),
        Endpoint(
            method="GET",
            path="/v1/responses/{id}",
            scope="read",
            handle=answers.show,
            summary="A response, finished or not.",
            answer=ResponseDocument,
            errors=(404,),
            shape="openai",
        ),
        Endpoint(
            method="DELETE",
            path="/v1/responses/{id}",
            scope="run",
            handle=answers.delete,
            summary="Forget a response; with the last one of a conversation, the conversation.",
            answer=ResponseDeleted,
            errors=(404,),
            shape="openai",
        ),
        Endpoint(
            method="POST",
            path="/v1/responses/{id}/cancel",
            scope="run",
            handle=answers.cancel,
            summary="Stop a response that is being made.",
            answer=ResponseDocument,
            errors=(404,),
            shape="openai",
        ),
    )


def _models(showroom: Showroom) -> tuple[Endpoint, ...]:
    listing = Endpoint(
        method="GET",
        path="/v1/models",
        scope="read",
        handle=showroom.all,
        summary="The models that may be named.",
        answer=Listing,
        shape="openai",
    )
    single = (
        Endpoint(
            method="GET",
            path=f"/v1/models/{path}",
            scope="read",
            handle=showroom.one,
            summary="One of the models, by its name.",
            answer=Model,
            errors=(404,),
            shape="openai",
        )
        for path in ("{id}", "{provider}/{id}", "{provider}/{family}/{id}")
    )
    return (listing, *single)
