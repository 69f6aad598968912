"""Surfaces without edits: answers arrive complete, and tool progress is not shown."""

import asyncio
from abc import abstractmethod
from collections.abc import Callable
from typing import Any

from tests.conformance.messenger import Messenger
from tests.conformance.scripted_model import ScriptedModel
from tests.conformance.surface import Room

NO_DRAFTS = "messages cannot be edited there, so an answer arrives complete"
TOOL = "Run sh "


class NoEditsRoom(Room):
    """A draft counts as shown once the model is that far."""

    fake_model: ScriptedModel

    async def shows(self, text: str) -> None:
        await self._watched(lambda: self._seen(text) or self._under_way(text), [f"… {text} …"])

    def _seen(self, text: str) -> bool:
        return any(text in each for each in self.seen())

    def _under_way(self, text: str) -> bool:
        works = text.startswith(TOOL) and bool(self.fake_model.requests) and not self.fake_model.open_requests
        return text in self.fake_model.begun or works

    async def until(self, fact: Callable[[], Any]) -> None:
        while not fact():
            await asyncio.sleep(0.01)

    async def press(self, label: str, *, who: str = "") -> None:
        """There are no buttons: answer in words."""
        await self.say(label.lower(), who=who)


class NoEditsMessenger(Messenger):
    def stopped(self, partial: str) -> list[str]:
        return ["Stopping."]

    def superseded(self, partial: str) -> list[str]:
        return []

    def renewed(self, partial: str) -> list[str]:
        return ["Started a new conversation. Stopped: the running turn."]

    def worked(self, command: str, output: str) -> list[str]:
        return []

    @abstractmethod
    def asked(self, command: str) -> list[str]:
        """The question, which is not edited."""

    def consented(self, command: str, yes: bool) -> list[str]:
        return [*self.asked(command), "Approved." if yes else "Denied."]

    def resumed(self, words: str, answer: str) -> list[str]:
        return [f"I was restarted. Continuing with “{words}”.", answer]
