"""Memory plugins: recall for turns, off their critical path. One provider is used at a time.

A provider is contributed with `ctx.provide("memory", name, thing)`. All of its methods are optional:
`recall(message)`, `prefetch(message, answer)`, `remember(message, answer, messages)`, `note_changed(action, target,
content)` and `prompt_block()`. Each may take `person`, `session` and `turn`; plain functions run in a thread.
"""

import asyncio
import logging
from collections import OrderedDict
from functools import partial
from typing import Any

from alipes.agent.auxiliary import BackgroundTasks
from alipes.agent.provider_calls import call_provider, find_providers
from alipes.features.memory.change import MemoryChange, MemoryEdit, memory_scope
from alipes.features.memory.settings import MemoryConfig
from alipes.kernel.errors import AlipesError
from alipes.kernel.messages import Message
from alipes.kernel.turns import Turn
from alipes.kernel.untrusted import mark_untrusted
from alipes.plugins.dispatch import guard
from alipes.plugins.registry import Contributions

log = logging.getLogger(__name__)
KIND = "memory"
HEADING = "Recalled from memory (not written by the user):"
TIMEOUT_S = 60.0
BLOCK_TIMEOUT_S = 3.0
"""For the provider's part of the system prompt, which is asked for once per conversation."""
MAX_READY = 256
MAX_CHARS = 8000
"""Characters of a recall that the model sees."""


class MemoryRecall:
    """Asks the memory plugin. A turn waits only for what is ready within `memory.recall_wait`."""

    def __init__(self, contributions: Contributions, config: MemoryConfig, tasks: BackgroundTasks) -> None:
        self._contributions, self._config, self._tasks = contributions, config, tasks
        self._ready: OrderedDict[str, str] = OrderedDict()
        """By conversation: what was recalled and not used yet."""

    async def turn_context(self, context: str, turn: Turn) -> str | None:
        """The hook that adds what is recalled to the context of the turn."""
        if not self._has_memory(turn):
            return None
        earlier = self._ready.pop(turn.session, "")
        work = partial(self._fetch, "recall", turn, {"message": turn.inbound.text})
        task = self._tasks.spawn(work, f"recall for turn {turn.id}")
        done, _ = await asyncio.wait({task}, timeout=self._config.recall_wait)
        recalled = self._ready.pop(turn.session, "") if done else ""
        text = (recalled or earlier).strip()
        if not text:
            return None
        added = f"{HEADING}\n{mark_untrusted(text[:MAX_CHARS], 'memory')}"
        return f"{context}\n\n{added}" if context else added

    async def turn_ended(self, turn: Turn, ending: str, said: tuple[Message, ...]) -> None:
        """The hook that stores answered turns, and looks up what the next one may need; both in the background."""
        if ending != "answered" or turn.inbound.notice or not self._has_memory(turn):
            return
        answer = next((each.text for each in reversed(said) if each.role == "assistant" and not each.calls), "")
        options = {"message": turn.inbound.text, "answer": answer, "messages": (*turn.history, *said)}
        self._tasks.spawn(partial(self._after_turn, turn, options), f"memory of turn {turn.id}")

    async def prompt_block(self, turn: Turn) -> str:
        """The provider's part of the system prompt; empty if there is none in time."""
        if not self._has_memory(turn):
            return ""
        try:
            async with asyncio.timeout(max(BLOCK_TIMEOUT_S, self._config.recall_wait)):
                text = await self._call("prompt_block", turn, {})
        except (AlipesError, TimeoutError) as error:
            log.warning("no memory block for conversation %s: %s", turn.session, error or "it took too long")
            return ""
        return text.strip() if isinstance(text, str) else ""

    async def note_changed(self, turn: Turn, edit: MemoryEdit, change: MemoryChange) -> None:
        """A note was changed in the turn: tell the provider, in the background."""
        if self._has_memory(turn):
            options = {"action": change.action, "target": change.target, "content": edit.content}
            self._tasks.spawn(partial(self._call, "note_changed", turn, options), "a changed note")

    async def _after_turn(self, turn: Turn, options: dict[str, Any]) -> None:
        await self._call("remember", turn, options)
        await self._fetch("prefetch", turn, options)

    async def _fetch(self, method: str, turn: Turn, options: dict[str, Any]) -> None:
        """Keep what the provider says; if it comes too late for a turn, the next one uses it."""
        text = await self._call(method, turn, options)
        if isinstance(text, str) and text.strip():
            self._ready[turn.session] = text
            while len(self._ready) > MAX_READY:
                self._ready.popitem(last=False)

    async def _call(self, method: str, turn: Turn, options: dict[str, Any]) -> Any:
        """The provider's answer; None if it has no such method. Raises `PluginError`."""
        available = await find_providers(self._contributions, KIND)
        provider = next((each for each in available if self._config.provider in ("", each.name)), None)
        if provider is None or not hasattr(provider.thing, method):
            return None
        person = memory_scope(turn.inbound) or "owner"
        options = {**options, "person": person, "session": turn.session, "turn": turn}
        work = call_provider(provider, method, options=options, seconds=TIMEOUT_S)
        return await guard(provider.owner, f"{method} of the memory {provider.name}", work, deadline=TIMEOUT_S)

    def _has_memory(self, turn: Turn) -> bool:
        """False for subagents, and where there is no person."""
        if turn.inbound.origin is not None or not self._contributions.providers(KIND):
            return False
        return memory_scope(turn.inbound) is not None
