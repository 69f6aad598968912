"""`agent.memory_provider`: what a plugin that remembers builds on. Who asks it is told in `memory`."""

from abc import ABC, abstractmethod
from typing import Any


class _Listening:
    """What it may be told of, and need not care about."""

    def on_turn_start(self, turn_number: int, message: str, **_more: Any) -> None:
        """A turn begins."""

    def on_session_end(self, messages: list[dict[str, Any]]) -> None:
        """The conversation goes on no more."""

    def on_session_switch(self, new_session_id: str, **_more: Any) -> None:
        """Another conversation goes on from here."""

    def on_pre_compress(self, messages: list[dict[str, Any]]) -> str:
        """A conversation is about to be shortened; what is returned is kept in the summary."""
        return ""

    def on_memory_write(self, action: str, target: str, content: str, **_more: Any) -> None:
        """The house itself noted something."""

    def on_delegation(self, task: str, result: str, **_more: Any) -> None:
        """A child of a turn is done."""


class MemoryProvider(_Listening, ABC):
    """A memory beside the house's own. One is active at a time."""

    @property
    @abstractmethod
    def name(self) -> str: ...

    @abstractmethod
    def is_available(self) -> bool:
        """Could it work? Without asking the network."""

    @abstractmethod
    def initialize(self, session_id: str, **kwargs: Any) -> None:
        """Called once before it is used; `hermes_home` is where it may keep files."""

    @abstractmethod
    def get_tool_schemas(self) -> list[dict[str, Any]]:
        """Tools that the model may call."""

    def handle_tool_call(self, tool_name: str, args: dict[str, Any], **_kwargs: Any) -> str:
        raise NotImplementedError(f"{self.name} has no tool {tool_name}")

    def system_prompt_block(self) -> str:
        return ""

    def prefetch(self, query: str, *, session_id: str = "") -> str:
        """What it knows about the message that is about to be answered."""
        return ""

    def queue_prefetch(self, query: str, *, session_id: str = "") -> None:
        """Look up in the background what the next turn will need."""
        return

    def sync_turn(self, user_content: str, assistant_content: str, **_more: Any) -> None:
        """Keep what was said; never told of a turn that was interrupted."""
        return

    def get_config_schema(self) -> list[dict[str, Any]]:
        return []

    def save_config(self, values: dict[str, Any], hermes_home: str) -> None:
        """Keep what the setup asked for."""
        return

    def shutdown(self) -> None:
        """Nobody asks any more."""
        return
