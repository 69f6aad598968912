"""Learning: after some turns a model may propose a note or a skill. A person decides, or the setting `auto` does."""

from functools import cached_property
from typing import TYPE_CHECKING

from alipes.features.feature import CliCommand, Feature

if TYPE_CHECKING:
    from alipes.features.learning.learning import Learning

PENDING_HINT = "[show ID | accept ID | edit ID TEXT | reject ID]"
"""Arguments of `/skills pending`."""


class LearningFeature(Feature):
    name = "learning"
    parts = ("hooks", "endpoints")
    cli_commands = (
        CliCommand("skills pending", "alipes.features.learning.cli.proposals"),
        CliCommand("skills test", "alipes.features.learning.cli.replay"),
    )

    @cached_property
    def learning(self) -> "Learning":
        from alipes.features.learning.learning import Learning
        from alipes.features.memory.feature import MemoryFeature
        from alipes.features.skills.feature import SkillsFeature

        app, tasks = self.app, self.app.resources.tasks
        memory, skills = app.features.get(MemoryFeature).service, app.features.get(SkillsFeature).skills
        return Learning(app.settings.learning, app.auxiliary, memory, skills, tasks=tasks, mask=app.secrets)
