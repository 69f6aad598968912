"""What a failed call means for whoever listens to a messenger: told once, waited out. It judges nothing."""

import asyncio
import logging
from collections.abc import Callable
from typing import TypeAlias

from alipes.kernel.errors import DeliveryError
from alipes.kernel.platforms import Tell
from alipes.runtime.retry import backoff

log = logging.getLogger(__name__)

Judge: TypeAlias = Callable[[Exception, int], DeliveryError]
"""A failure in our words, and how many there were in a row. Raises where waiting does not help."""


class Trouble:
    """From the first failure to the next good answer, which `over` is called for."""

    def __init__(self, messenger: str, tell: Tell, judge: Judge) -> None:
        self._messenger, self._tell, self._judge = messenger, tell, judge
        self._count, self._cause = 0, ""

    def over(self) -> None:
        if self._cause:
            log.info("%s answers again", self._messenger)
        self._count, self._cause = 0, ""
        self._tell("ready", "")

    async def wait(self, theirs: Exception) -> None:
        """Tell why, and wait as long as it takes. Raises what `judge` does."""
        self._count += 1
        error = self._judge(theirs, self._count)
        self.told(str(error))
        await asyncio.sleep(backoff(self._count) if error.retry_after is None else error.retry_after)

    def told(self, why: str) -> None:
        if why != self._cause:
            log.warning("listening to %s: %s", self._messenger, why)
        self._cause = why
        self._tell("broken", why)
