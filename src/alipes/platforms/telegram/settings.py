"""Settings of Telegram."""

from pathlib import Path
from typing import Literal, Self

from msgspec import Struct

from alipes.config.settings import Settings
from alipes.kernel.errors import ConfigError
from alipes.kernel.models import Secret
from alipes.platforms.telegram.api import CALL_TIMEOUT, bad_token_error


class TelegramSettings(Struct, frozen=True, kw_only=True):
    token: Secret
    folder: Path
    """Where received files are saved."""
    base_url: str = "https://api.telegram.org"
    mode: Literal["poll", "webhook"] = "poll"
    webhook_url: str = ""
    webhook_secret: Secret = Secret()
    """Secret that Telegram sends with each webhook call; derived from the token if empty."""
    group: Literal["mention", "all"] = "mention"
    """`all`: messages in a group are for us also without a mention."""
    per_user: bool = False
    poll: float = 50.0
    """Duration of a long poll, or time between two checks of the webhook, in seconds."""
    patience: float = CALL_TIMEOUT
    """Timeout for sending a message, in seconds; after it the result is unknown."""

    @classmethod
    def from_config(cls, settings: Settings, folder: Path) -> Self:
        chosen = settings.messengers.telegram
        return cls(
            token=chosen.token,
            folder=folder,
            base_url=chosen.base_url,
            mode=chosen.mode,
            webhook_url=chosen.webhook_url,
            group=chosen.group,
            per_user=chosen.per_user,
            poll=chosen.poll,
        )

    def check(self) -> None:
        if not self.token:
            raise bad_token_error()
        if self.mode == "webhook" and not self.webhook_url:
            raise ConfigError("The webhook mode needs telegram.webhook_url: the public address of the webhook.")
