"""Usage: tokens and cost of model calls by day, model, task and conversation."""

from functools import cached_property
from typing import TYPE_CHECKING

from alipes.features.feature import CliCommand, Feature

if TYPE_CHECKING:
    from alipes.features.usage.store import UsageReports


class UsageFeature(Feature):
    name = "usage"
    parts = ("commands", "endpoints")
    cli_commands = (CliCommand("usage", "alipes.features.usage.cli", agent_actions="any words"),)

    @cached_property
    def reports(self) -> "UsageReports":
        from alipes.features.usage.store import UsageReports

        return self.app.store.tables(UsageReports)
