"""Why a model did not answer: an ending has the sentence, OpenAI's clients want the kind as well."""

import copy
from collections import OrderedDict

from alipes.hooks.owners import CORE
from alipes.hooks.relay import Hooks
from alipes.kernel.errors import ProviderError
from alipes.kernel.turns import Turn
from alipes.web.endpoints import PLATFORM

MOST = 1000
"""Turns whose mishap is remembered: whoever asks does so at once."""


class Mishaps:
    def __init__(self) -> None:
        self._last: OrderedDict[str, ProviderError] = OrderedDict()

    def listen(self, hooks: Hooks) -> None:
        hooks.add(CORE, self.request_failed)

    async def request_failed(self, error: ProviderError, again: bool, turn: Turn) -> None:
        if again or turn.inbound.address.platform != PLATFORM:
            return
        self._last[turn.id] = copy.copy(error)  # as it was raised, it holds on to the whole turn
        while len(self._last) > MOST:
            self._last.popitem(last=False)

    def take(self, turn: str) -> ProviderError | None:
        """The last one, once."""
        return self._last.pop(turn, None)
