"""Settings of Discord."""

from typing import Annotated

from alipes.config.platforms import MAX_FILE_BYTES, MAX_IMAGE_BYTES, TOKEN, ChatConfig
from alipes.config.value_types import URL
from alipes.kernel.models import Secret


class DiscordConfig(ChatConfig, frozen=True, kw_only=True):
    token_env: TOKEN = "DISCORD_BOT_TOKEN"
    token: Secret = Secret()
    base_url: Annotated[str, URL, "URL of Discord's API."] = "https://discord.com/api/v10"
    deadline: float = 20.0
    """Timeout of a call, in seconds."""
    grace: float = 10.0
    """Seconds beyond the heartbeat interval after which the gateway counts as gone."""
    calm: float = 5.0
    """Longest pause, in seconds, before a new session after the gateway refused the old one."""
    largest: int = MAX_FILE_BYTES
    picture: int = MAX_IMAGE_BYTES

    @property
    def needs(self) -> dict[str, bool]:
        return {self.token_env: bool(self.token)}
