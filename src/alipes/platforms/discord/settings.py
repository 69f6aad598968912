"""Settings of Discord."""

from pathlib import Path
from typing import Literal, Self

from msgspec import Struct

from alipes.config.settings import Settings
from alipes.kernel.errors import ConfigError
from alipes.kernel.models import Secret


class DiscordSettings(Struct, frozen=True, kw_only=True):
    token: Secret
    folder: Path
    """Where received files and the read position are stored."""
    base_url: str = "https://discord.com/api/v10"
    """The address of the gateway is requested there."""
    group: Literal["mention", "all"] = "mention"
    """With `mention`, files of messages that are not for us are not downloaded."""
    per_user: bool = False
    """In channels each person has their own conversation."""
    proxy: str = ""
    deadline: float = 20.0
    """Timeout of a call, in seconds."""
    grace: float = 10.0
    """Seconds beyond the heartbeat interval after which the gateway counts as gone."""
    calm: float = 5.0
    """Longest pause, in seconds, before a new session after the gateway refused the old one."""
    largest: int = 50_000_000
    """Size limit for received files, in bytes."""
    picture: int = 5_000_000
    """Pictures up to this many bytes are shown to the model; larger ones are saved as files."""

    @classmethod
    def from_config(cls, settings: Settings, folder: Path) -> Self:
        chosen = settings.messengers.discord
        return cls(
            token=chosen.token,
            folder=folder,
            base_url=chosen.base_url,
            group=chosen.group,
            per_user=chosen.per_user,
            proxy=settings.proxies.https or settings.proxies.all,
        )

    def check(self) -> None:
        if not self.token:
            raise ConfigError("Discord needs the bot's token: set the variable that [discord] token_env names.")
