"""Slack as a platform: how it is configured and opened. What needs slack_sdk is loaded by opening."""

from pathlib import Path
from typing import Literal

from msgspec import Struct

from alipes.kernel.errors import ConfigError
from alipes.kernel.models import Secret
from alipes.kernel.platform import Platform
from alipes.platforms.connection import needed


class SlackSettings(Struct, frozen=True, kw_only=True):
    folder: Path
    """Where files that people send are kept, how far we have listened, and which sends have no end yet."""
    token: Secret
    app_token: Secret
    base_url: str = "https://slack.com/api"
    """The socket's address is asked for there."""
    group: Literal["mention", "all"] = "mention"
    """With `mention` what is attached to words that are not meant for us is not fetched."""
    per_user: bool = False
    """In channels each person has a conversation of their own."""
    proxy: str = ""
    deadline: float = 12.0
    """Seconds that a call may take."""
    beat: float = 10.0
    """Seconds of silence after which we ask whether anybody is there, and after as many more nobody is."""
    largest: int = 50_000_000
    picture: int = 5_000_000
    """Bytes up to which a picture is shown to the model; larger ones are kept as files."""


def open_slack(settings: SlackSettings) -> Platform:
    """Nothing is connected before `listen`. Raises ConfigError without its tokens or without slack_sdk."""
    if not settings.token or not settings.app_token:
        raise ConfigError(
            "Slack needs two tokens, the bot's (xoxb-) and the app's own (xapp-): set the variables that "
            "[slack] token_env and app_token_env name."
        )
    with needed("Slack", "slack_sdk", "slack"):
        from alipes.platforms.slack.platform import Slack  # noqa: PLC0415
    return Slack(settings)
