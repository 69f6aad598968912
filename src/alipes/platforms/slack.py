"""Slack as a platform: how it is configured and opened. A library it needs is loaded by opening."""

from pathlib import Path
from typing import Literal

from msgspec import Struct

from alipes.kernel.endpoints import Secret
from alipes.kernel.errors import ConfigError
from alipes.kernel.platforms import Platform
from alipes.runtime.clients import ClientScope


class SlackSettings(Struct, frozen=True, kw_only=True):
    folder: Path
    """Where files that people send are kept, and how far we have listened."""
    token: Secret
    app_token: Secret
    base_url: str = "https://slack.com/api"
    group: Literal["mention", "all"] = "mention"
    per_user: bool = False
    proxy: str = ""


def open_slack(settings: SlackSettings, scope: ClientScope) -> Platform:
    """Nothing is connected before `listen`. Raises ConfigError."""
    raise ConfigError("Slack is not built yet.")
