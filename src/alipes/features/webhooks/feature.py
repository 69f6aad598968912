"""Webhooks: a signed call from another service starts a turn, or jobs."""

from functools import cached_property
from typing import TYPE_CHECKING

from alipes.features.feature import CliCommand, Feature

if TYPE_CHECKING:
    from alipes.features.webhooks.store import WebhookStore


class WebhooksFeature(Feature):
    name = "webhooks"
    parts = ("serve",)
    cli_commands = (CliCommand("webhook", "alipes.features.webhooks.cli", extra="serve"),)

    @cached_property
    def webhooks(self) -> "WebhookStore":
        from alipes.features.webhooks.store import WebhookStore

        return self.app.store.tables(WebhookStore)
