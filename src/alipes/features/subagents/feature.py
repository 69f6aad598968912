"""Subagents: the model gives tasks to other turns, and gets their reports."""

from functools import cached_property
from typing import TYPE_CHECKING

from alipes.features.feature import Feature

if TYPE_CHECKING:
    from alipes.features.subagents.delegation import Delegation


class SubagentsFeature(Feature):
    name = "subagents"
    parts = ("tool",)
    tool_names = ("delegate_task",)

    @cached_property
    def delegation(self) -> "Delegation":
        from alipes.features.subagents.delegation import Delegation

        app = self.app
        return Delegation(
            app.sessions,
            app.store,
            app.settings.delegation,
            models=app.models,
            tools=app.tool_names,
            allow_background=app.sessions.defaults.runs_on,
        )
