"""The models that a client of OpenAI's may name."""

from typing import Literal

import msgspec
from msgspec import Struct
from starlette.responses import Response

from alipes.providers.catalog import near
from alipes.web.endpoints import Call, House, Problem
from alipes.web.openai_turns import OURS

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
