"""Values as answers of the API. What they say is for others."""

from collections.abc import Mapping

from starlette.responses import Response

from alipes.store import rows
from alipes.web.problems import FRESH


def answer(value: object, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """JSON of one of our values."""
    return Response(
        rows.encode(value), status, headers={**FRESH, **(headers or {})}, media_type="application/json"
    )


def nothing() -> Response:
    return Response(status_code=204, headers=FRESH)
