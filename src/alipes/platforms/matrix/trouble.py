"""What a failed call means for whoever listens to a homeserver: told once, waited out."""

import asyncio
import logging

from alipes.kernel.errors import DeliveryError
from alipes.kernel.platforms import Tell
from alipes.platforms.matrix.client import Refusal
from alipes.platforms.matrix.login import LOGGED_OUT
from alipes.platforms.matrix.outbound import ours
from alipes.runtime.retry import backoff

log = logging.getLogger(__name__)


class LoggedOut(Exception):
    """The homeserver ended our login."""


class Trouble:
    def __init__(self, tell: Tell) -> None:
        self._tell = tell
        self._count, self._cause = 0, ""

    def over(self) -> None:
        if self._cause:
            log.info("the homeserver answers again")
        self._count, self._cause = 0, ""
        self._tell("ready", "")

    async def wait(self, theirs: Exception) -> None:
        """Tell why, and wait as long as it takes. Raises `LoggedOut` when waiting does not help."""
        if isinstance(theirs, Refusal) and theirs.code in LOGGED_OUT:
            raise LoggedOut(theirs.why) from theirs
        self._count += 1
        error: DeliveryError = ours(theirs, "waiting for messages")
        if str(error) != self._cause:
            log.warning("listening to Matrix: %s", error)
        self._cause = str(error)
        self._tell("broken", self._cause)
        await asyncio.sleep(backoff(self._count) if error.retry_after is None else error.retry_after)
