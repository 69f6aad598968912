"""Endpoints for messengers and for messages to them that are queued or could not be delivered."""

from typing import Annotated, Literal

from msgspec import Meta, Struct, structs
from starlette.responses import Response

from alipes.core.app import App
from alipes.kernel.outbox import Delivery, DeliveryState
from alipes.web.control import PlatformStatus, ServerControl
from alipes.web.endpoint import ApiCall, ApiEndpoint, HttpProblem, json_response

_UNSENT: tuple[DeliveryState, ...] = ("queued", "sending", "failed", "expired")


class PlatformDocument(PlatformStatus, frozen=True, omit_defaults=True):
    home_chat: str = ""
    """The chat that gets messages for which no chat is named."""


class PlatformList(Struct, frozen=True):
    platforms: tuple[PlatformDocument, ...]


class OutboxQuery(Struct, frozen=True):
    state: Literal["unsent", "all", "queued", "sending", "sent", "failed", "expired"] = "unsent"
    limit: Annotated[int, Meta(ge=1, le=500)] = 100


class OutboxMessage(Struct, frozen=True, omit_defaults=True):
    number: int
    platform: str
    chat: str
    text: str
    state: DeliveryState
    attempts: int
    created: float
    due: float = 0.0
    """When it is tried next."""
    reason: str = ""
    """Why it is not sent yet, or was given up."""
    files: int = 0
    uncertain: bool = False
    """It may have arrived twice."""


class OutboxList(Struct, frozen=True):
    messages: tuple[OutboxMessage, ...]
    """Latest first."""


class PlatformEndpoints:
    def __init__(self, app: App, control: ServerControl) -> None:
        self._people, self._control = app.store.people, control

    @ApiEndpoint("GET", "/v1/platforms", "admin", readable=True, answer=PlatformList)
    async def list(self, _call: ApiCall) -> Response:
        """List the messengers: whether each is set up and connected, and if not, why."""
        homes = await self._people.default_chats()
        found = (
            PlatformDocument(**structs.asdict(each), home_chat=home.chat if (home := homes.get(each.name)) else "")
            for each in self._control.platforms()
        )
        return json_response(PlatformList(tuple(found)))


class OutboxEndpoints:
    def __init__(self, app: App, control: ServerControl) -> None:
        self._outbox, self._control = app.store.outbox, control

    @ApiEndpoint("GET", "/v1/outbox", "admin", readable=True, query=OutboxQuery, answer=OutboxList)
    async def list(self, call: ApiCall) -> Response:
        """List messages to chats that are not delivered yet, latest first."""
        query: OutboxQuery = call.query
        states = {"unsent": _UNSENT, "all": ()}.get(query.state)
        found = await self._outbox.list_deliveries(
            *(states if states is not None else (query.state,)), limit=query.limit
        )
        return json_response(OutboxList(tuple(map(_message_document, found))))

    @ApiEndpoint("POST", "/v1/outbox/{number}/retry", "admin", answer=OutboxMessage, errors=(409,))
    async def retry(self, call: ApiCall) -> Response:
        """Send a message again that failed or expired."""
        delivery = await self._find(call)
        if not await self._outbox.requeue(delivery.number):
            raise HttpProblem(409, f"message {delivery.number} is {delivery.state}, not failed", code="state")
        self._control.notify_outbox(delivery.outbound.address.platform, delivery.outbound.lane)
        return json_response(_message_document(await self._find(call)))

    @ApiEndpoint("POST", "/v1/outbox/{number}/drop", "admin", answer=OutboxMessage, errors=(409,))
    async def drop(self, call: ApiCall) -> Response:
        """Give up a queued message, or delete one that was given up."""
        delivery = await self._find(call)
        if not await self._outbox.discard(delivery.number):
            raise HttpProblem(409, f"message {delivery.number} is {delivery.state}: it cannot be dropped", code="state")
        left = await self._outbox.find_number(delivery.number)
        return json_response(_message_document(left or structs.replace(delivery, why="deleted")))

    async def _find(self, call: ApiCall) -> Delivery:
        text = call.path["number"]
        number = int(text) if text.isascii() and text.isdecimal() and len(text) < 19 else 0
        delivery = await self._outbox.find_number(number)
        if delivery is None:
            raise HttpProblem(404, f"there is no message {text} in the outbox", code="no_message")
        return delivery


def _message_document(delivery: Delivery) -> OutboxMessage:
    outbound = delivery.outbound
    return OutboxMessage(
        delivery.number,
        outbound.address.platform,
        outbound.address.chat,
        outbound.text,
        delivery.state,
        delivery.attempts,
        delivery.created,
        due=delivery.due,
        reason=delivery.why,
        files=len(outbound.media),
        uncertain=delivery.uncertain,
    )
