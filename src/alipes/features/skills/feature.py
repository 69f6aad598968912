"""Skills: instructions for special tasks, which the model reads when they fit and people start with /NAME."""

from functools import cached_property
from typing import TYPE_CHECKING

from alipes.features.feature import CliCommand, Feature

if TYPE_CHECKING:
    from alipes.features.skills.catalog import SkillCatalog
    from alipes.features.skills.skills import Skills
    from alipes.sessions.commands.registry import CommandAction


class SkillsFeature(Feature):
    name = "skills"
    parts = ("tool", "hooks", "commands", "endpoints", "doctor")
    tool_names = ("skills_list", "skill_view", "skill_manage")
    cli_commands = (
        CliCommand("skills", "alipes.features.skills.cli.command", agent_actions=("list", "show", "check", "history")),
    )

    @cached_property
    def actions(self) -> "dict[str, tuple[str, CommandAction]]":
        return {}

    def add_action(self, name: str, hint: str, act: "CommandAction") -> None:
        """`act` runs `/skills NAME`; `hint`: its arguments."""
        self.actions[name] = hint, act

    @cached_property
    def catalog(self) -> "SkillCatalog":
        from alipes.features.skills.catalog import make_skill_catalog

        return make_skill_catalog(self.app.settings, self.app.contributions)

    @cached_property
    def skills(self) -> "Skills":
        from alipes.features.skills.skills import Skills

        return Skills(self.app.settings.skills, self.catalog, self.app.store)
