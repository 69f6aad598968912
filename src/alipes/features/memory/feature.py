"""The memory: notes that are kept from one conversation to the next."""

from functools import cached_property
from typing import TYPE_CHECKING

from alipes.features.feature import CliCommand, Feature

if TYPE_CHECKING:
    from alipes.features.memory.service import MemoryService


class MemoryFeature(Feature):
    name = "memory"
    parts = ("tool", "hooks", "commands", "endpoints", "doctor")
    tool_names = ("memory",)
    cli_commands = (CliCommand("memory", "alipes.features.memory.cli"),)

    @cached_property
    def service(self) -> "MemoryService":
        from alipes.features.memory.people import make_memory_service

        return make_memory_service(self.app)

    def why_unavailable(self) -> str:
        return self.service.why_unavailable()
