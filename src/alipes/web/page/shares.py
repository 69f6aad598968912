"""Links that show one conversation, read-only and without a login: made and ended by its owner, expired by time."""

import asyncio
from typing import Annotated

from msgspec import Meta, Struct
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from alipes.core.app import App
from alipes.kernel.errors import SessionError
from alipes.store.html_export import to_html
from alipes.store.sql.shares import MAX_DAYS, Share
from alipes.web.endpoint import NO_STORE, ApiCall, ApiEndpoint, HttpProblem, answer_errors, json_response, no_content
from alipes.web.page.browsers import BrowserLogins
from alipes.web.runs.lookup import find_session
from alipes.web.server import SHARED

_HEADERS = {
    **NO_STORE,
    "content-security-policy": "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'; sandbox allow-popups",
    "referrer-policy": "no-referrer",
    "x-robots-tag": "noindex",
    "x-content-type-options": "nosniff",
}
"""No script runs, nothing is loaded, and the page has an origin of its own: it cannot see the login of a browser."""
ENDED = "This link has expired, or was ended by its owner."


class NewShare(Struct, frozen=True, forbid_unknown_fields=True):
    days: Annotated[float, Meta(gt=0, le=MAX_DAYS)] = 7.0


class ShareInfo(Struct, frozen=True, omit_defaults=True):
    """A link that shows a conversation. Times are seconds since the epoch."""

    id: str
    session: str
    created: float
    expires: float
    link: str = ""
    """Only in the answer to its creation: it cannot be shown again."""


class ShareList(Struct, frozen=True):
    shares: tuple[ShareInfo, ...]


class SharedConversations:
    """The endpoints for links, and the pages that they lead to."""

    def __init__(self, app: App, logins: BrowserLogins, address: str = "") -> None:
        self._app, self._logins, self._address = app, logins, address

    @ApiEndpoint("POST", "/v1/sessions/{id}/shares", "admin", body=NewShare, answer=ShareInfo, status=201)
    async def add(self, call: ApiCall) -> Response:
        """Make a link with which anybody can read this conversation as it is now, until the link expires."""
        await self._logins.refuse_agent(call.request)
        row = await find_session(self._app.store.api_runs, call.caller, call.path["id"])
        share, token = await self._app.store.shares.add(row.id, call.body.days)
        base = self._address or self._logins.locator.locate(call.request).url
        link = f"{base.rstrip('/')}{SHARED}{token}"
        return json_response(ShareInfo(share.id, share.session, share.created, share.expires, link), 201)

    @ApiEndpoint("GET", "/v1/sessions/{id}/shares", "admin", answer=ShareList)
    async def list(self, call: ApiCall) -> Response:
        """The links that show this conversation."""
        row = await find_session(self._app.store.api_runs, call.caller, call.path["id"])
        return json_response(ShareList(tuple(map(_describe, await self._app.store.shares.all(row.id)))))

    @ApiEndpoint("DELETE", "/v1/shares/{id}", "admin", status=204)
    async def end(self, call: ApiCall) -> Response:
        """End a link that shows a conversation."""
        if not await self._app.store.shares.end(call.path["id"]):
            raise HttpProblem(404, "there is no such link; it may have expired", code="not_found")
        return no_content()

    def routes(self) -> tuple[Route, ...]:
        async def show(request: Request) -> Response:
            return await answer_errors(self._show(request))

        return (Route(f"{SHARED}{{token}}", show),)

    async def _show(self, request: Request) -> Response:
        store = self._app.store
        share = await store.shares.find(request.path_params["token"])
        if share is None:
            await self._logins.delay_wrong(request)
            raise HttpProblem(404, ENDED, code="not_found")
        try:
            exported = await store.archive.export(share.session)
        except SessionError as error:
            raise HttpProblem(404, ENDED, code="not_found") from error
        text = await asyncio.to_thread(to_html, exported, shared=share.created)
        return Response(text.encode("utf-8", "replace"), media_type="text/html", headers=_HEADERS)


def _describe(share: Share) -> ShareInfo:
    return ShareInfo(share.id, share.session, share.created, share.expires)
