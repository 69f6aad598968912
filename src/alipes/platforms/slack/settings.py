"""Settings of Slack."""

from pathlib import Path
from typing import Literal, Self

from msgspec import Struct

from alipes.config.settings import Settings
from alipes.kernel.errors import ConfigError
from alipes.kernel.models import Secret


class SlackSettings(Struct, frozen=True, kw_only=True):
    folder: Path
    """Where received files, the read position and the journal of unconfirmed sends are stored."""
    token: Secret
    app_token: Secret
    base_url: str = "https://slack.com/api"
    """The address of the socket is requested there."""
    group: Literal["mention", "all"] = "mention"
    """With `mention`, files of messages that are not for us are not downloaded."""
    per_user: bool = False
    """In channels each person has their own conversation."""
    proxy: str = ""
    deadline: float = 12.0
    """Timeout of a call, in seconds."""
    beat: float = 10.0
    """Seconds of silence before a ping, and again before the connection counts as dead."""
    largest: int = 50_000_000
    """Size limit for received files, in bytes."""
    picture: int = 5_000_000
    """Pictures up to this many bytes are shown to the model; larger ones are saved as files."""

    @classmethod
    def from_config(cls, settings: Settings, folder: Path) -> Self:
        chosen = settings.messengers.slack
        return cls(
            token=chosen.token,
            app_token=chosen.app_token,
            folder=folder,
            base_url=chosen.base_url,
            group=chosen.group,
            per_user=chosen.per_user,
            proxy=settings.proxies.https or settings.proxies.all,
        )

    def check(self) -> None:
        if not self.token or not self.app_token:
            raise ConfigError(
                "Slack needs two tokens, the bot token (xoxb-) and the app-level token (xapp-): set the "
                "variables that [slack] token_env and app_token_env name."
            )
