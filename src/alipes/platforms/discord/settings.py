"""Discord as a platform: how it is configured and opened. What needs discord.py is loaded by opening."""

from pathlib import Path
from typing import Literal

from msgspec import Struct

from alipes.kernel.errors import ConfigError
from alipes.kernel.models import Secret
from alipes.kernel.platform import Platform
from alipes.platforms.connection import needed


class DiscordSettings(Struct, frozen=True, kw_only=True):
    token: Secret
    folder: Path
    """Where files that come along are kept, and how far we have listened."""
    base_url: str = "https://discord.com/api/v10"
    """The gateway's address is asked for there."""
    group: Literal["mention", "all"] = "mention"
    """With `mention` what is attached to words that are not meant for us is not fetched."""
    per_user: bool = False
    """In channels each person has a conversation of their own."""
    proxy: str = ""
    deadline: float = 20.0
    """Seconds that a call may take."""
    grace: float = 10.0
    """Seconds beyond the gateway's own heartbeat after which it counts as gone."""
    calm: float = 5.0
    """Seconds, at most, before a new session when the gateway refused the old one: it asks for that."""
    largest: int = 50_000_000
    picture: int = 5_000_000
    """Bytes up to which a picture is shown to the model; larger ones are kept as files."""


def open_discord(settings: DiscordSettings) -> Platform:
    """Nothing is connected before `listen`. Raises ConfigError without a token or without discord.py."""
    if not settings.token:
        raise ConfigError("Discord needs the bot's token: set the variable that [discord] token_env names.")
    with needed("Discord", "discord.py", "discord"):
        from alipes.platforms.discord.platform import Discord  # noqa: PLC0415
    return Discord(settings)
