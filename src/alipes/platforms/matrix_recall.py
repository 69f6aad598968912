"""What was said in rooms lately, and by whom; older things are asked for. It judges nothing of it."""

import logging
from typing import Any

import nio  # type: ignore[import-untyped]

from alipes.platforms.matrix_client import Client, Refusal, given
from alipes.platforms.matrix_inbound import Said, said

log = logging.getLogger(__name__)

REMEMBERED = 2000


class Recall:
    """Events by their ids. Raises `TROUBLE` kinds where asking failed for now."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._known: dict[str, Said | None] = {}

    def keep(self, id: str, event: Said | None) -> None:
        self._known.pop(id, None)
        self._known[id] = event
        if len(self._known) > REMEMBERED:
            del self._known[next(iter(self._known))]

    def sender(self, id: str) -> str:
        known = self._known.get(id)
        return known.sender if known else ""

    async def find(self, room_id: str, id: str) -> Said | None:
        """None where there is none, or none that we can read."""
        if not id:
            return None
        if id not in self._known:
            try:
                self.keep(id, await self._ask(room_id, id))
            except Refusal as refused:
                if refused.wait is not None or not 400 <= refused.status < 500:
                    raise
                self.keep(id, None)
        return self._known[id]

    async def _ask(self, room_id: str, id: str) -> Said | None:
        found: Any = given(await self._client.room_get_event(room_id, id), nio.RoomGetEventResponse).event
        if isinstance(found, nio.MegolmEvent):
            log.info("a message that another refers to cannot be read")
            return None
        return said(found.source)
