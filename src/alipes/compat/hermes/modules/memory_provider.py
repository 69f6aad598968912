"""`agent.memory_provider`: the base class of memory plugins."""

import re
from abc import ABC, abstractmethod
from typing import Any


class _Listening:
    """Optional notifications."""

    def on_turn_start(self, turn_number: int, message: str, **_more: Any) -> None:
        """A turn starts."""

    def on_session_end(self, messages: list[dict[str, Any]]) -> None:
        """The conversation ended."""

    def on_session_switch(self, new_session_id: str, **_more: Any) -> None:
        """Another conversation continues from here."""

    def on_pre_compress(self, messages: list[dict[str, Any]]) -> str:
        """A conversation is about to be compacted; the returned text is added to the summary."""
        return ""

    def on_memory_write(self, action: str, target: str, content: str, **_more: Any) -> None:
        """Something was written to the built-in memory."""

    def on_delegation(self, task: str, result: str, **_more: Any) -> None:
        """A subagent finished."""


class MemoryProvider(_Listening, ABC):
    """A memory beside the built-in one. One is active at a time."""

    @property
    @abstractmethod
    def name(self) -> str: ...

    @abstractmethod
    def is_available(self) -> bool:
        """True if it can work; must not use the network."""

    @abstractmethod
    def initialize(self, session_id: str, **kwargs: Any) -> None:
        """Called once before use; it may keep files in `hermes_home`."""

    @abstractmethod
    def get_tool_schemas(self) -> list[dict[str, Any]]:
        """Tools for the model."""

    def handle_tool_call(self, tool_name: str, args: dict[str, Any], **_kwargs: Any) -> str:
        raise NotImplementedError(f"{self.name} has no tool {tool_name}")

    def system_prompt_block(self) -> str:
        return ""

    def prefetch(self, query: str, *, session_id: str = "") -> str:
        """What it knows about the message to be answered."""
        return ""

    def queue_prefetch(self, query: str, *, session_id: str = "") -> None:
        """Look up in the background what the next turn will need."""
        return

    def sync_turn(self, user_content: str, assistant_content: str, **_more: Any) -> None:
        """Store an answered turn; not called for interrupted ones."""
        return

    def get_config_schema(self) -> list[dict[str, Any]]:
        return []

    def save_config(self, values: dict[str, Any], hermes_home: str) -> None:
        """Store the settings from setup."""
        return

    def shutdown(self) -> None:
        """Called when the plugin is closed."""
        return


_CONTEXT_TAGS = re.compile(r"</?\s*memory-context\s*>", re.IGNORECASE)


def sanitize_context(text: str) -> str:
    """`agent.memory_manager`: recalled text without the tags that mark it."""
    return _CONTEXT_TAGS.sub("", text or "").strip()


def flatten_message_text(content: Any) -> str:
    """`agent.message_content`: the text of a message, which may be a list of parts."""
    if isinstance(content, list):
        parts = (each.get("text") if isinstance(each, dict) else each for each in content)
        return "\n".join(str(each) for each in parts if each)
    return str(content or "")
