"""Checkpoints: the project is saved before the first change of a turn, and can be restored."""

from functools import cached_property
from typing import TYPE_CHECKING

from alipes.features.feature import Feature

if TYPE_CHECKING:
    from alipes.features.checkpoints.checkpoints import Checkpoints


class CheckpointsFeature(Feature):
    name = "checkpoints"
    parts = ("hooks", "commands", "endpoints", "doctor")

    @cached_property
    def checkpoints(self) -> "Checkpoints":
        from alipes.features.checkpoints.checkpoints import Checkpoints
        from alipes.tools.common import make_places

        settings, resources = self.app.settings, self.app.resources
        folder, places = settings.paths.checkpoints, make_places(settings)
        return Checkpoints(folder, settings.checkpoints, places, guard=resources.guard, backend=resources.backend)
