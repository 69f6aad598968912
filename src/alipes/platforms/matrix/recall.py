"""What was said in rooms lately, and by whom; older things are asked for. It judges nothing of it."""

import logging
from collections.abc import Mapping
from typing import Any

import nio  # type: ignore[import-untyped]
from msgspec.structs import replace

from alipes.platforms.kept import put
from alipes.platforms.matrix.client import Client, Refusal, given
from alipes.platforms.matrix.inbound import Said, said
from alipes.platforms.matrix.outbound import BUTTONS

log = logging.getLogger(__name__)

REMEMBERED = 2000


class Recall:
    """Events by their ids. Raises `TROUBLE` kinds where asking failed for now."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._known: dict[str, Said | None] = {}

    def keep(self, id: str, event: Said | None) -> None:
        put(self._known, id, event, REMEMBERED)

    def change(self, id: str, told: Mapping[str, Any]) -> None:
        """It says this now; where it stands, and what its buttons mean, stays."""
        known = self._known.get(id)
        if known is not None:
            kept = {name: known.content[name] for name in ("m.relates_to", BUTTONS) if name in known.content}
            self.keep(id, replace(known, content={**told, **kept}))

    def sender(self, id: str) -> str:
        known = self._known.get(id)
        return known.sender if known else ""

    async def find(self, room_id: str, id: str) -> Said | None:
        """None where there is none, or none that we can read."""
        if not id:
            return None
        if id not in self._known:
            try:
                await self._ask(room_id, id)
            except Refusal as refused:
                if refused.wait is not None or not 400 <= refused.status < 500:
                    raise
                self.keep(id, None)
        return self._known[id]

    async def _ask(self, room_id: str, id: str) -> None:
        found: Any = given(await self._client.room_get_event(room_id, id), nio.RoomGetEventResponse).event
        if isinstance(found, nio.MegolmEvent):
            log.info("a message that another refers to cannot be read")
            self.keep(id, None)
            return
        self.keep(id, said(found.source))
        try:
            latest = found.source["unsigned"]["m.relations"]["m.replace"]["content"]["m.new_content"]
        except (KeyError, TypeError):
            return
        if isinstance(latest, dict):
            self.change(id, latest)
