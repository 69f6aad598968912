"""Update: fetches another version of alipes, tries it on a copy of the home, and switches to it or back."""

import sys
from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path

from alipes.features.feature import CliCommand, Feature


class UpdateFeature(Feature):
    name = "update"
    parts = ("doctor",)
    cli_commands = (CliCommand("update", "alipes.features.update.cli"),)

    async def open(self, stack: AsyncExitStack) -> None:
        await super().open(stack)
        self.app.add_start_notes(self._describe_start)

    async def _describe_start(self) -> Sequence[str]:
        from alipes.config.paths import VERSIONS

        settings = self.app.settings
        notes: list[str] = []
        if Path(sys.prefix).parent.name == VERSIONS:
            from alipes.features.update.versions import Versions

            notes += Versions(settings.home).announce()
        if settings.update.check:
            from alipes.features.update.available import describe_newer

            notes += describe_newer(self.app)
        return notes
