"""Schedules: jobs that run later, at times or after events, in conversations of their own."""

from functools import cached_property
from typing import TYPE_CHECKING

from alipes.features.feature import CliCommand, Feature

if TYPE_CHECKING:
    from alipes.features.schedules.schedules import Schedules


class SchedulesFeature(Feature):
    name = "schedules"
    parts = ("tool", "hooks", "commands", "endpoints", "serve", "doctor")
    tool_names = ("cronjob",)
    cli_commands = (CliCommand("schedule", "alipes.features.schedules.cli", agent_actions=("list", "show", "history")),)

    @cached_property
    def schedules(self) -> "Schedules":
        from alipes.features.schedules.schedules import Schedules
        from alipes.features.skills.feature import SkillsFeature

        app = self.app
        skills = app.features.get(SkillsFeature).skills
        return Schedules(app.settings, app.store, sessions=app.sessions, skills=skills)
