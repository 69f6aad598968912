"""Settings of Slack."""

from typing import Annotated

from alipes.config.platforms import MAX_FILE_BYTES, MAX_IMAGE_BYTES, TOKEN, ChatConfig
from alipes.config.value_types import URL, VARIABLE
from alipes.kernel.models import Secret


class SlackConfig(ChatConfig, frozen=True, kw_only=True):
    token_env: TOKEN = "SLACK_BOT_TOKEN"
    token: Secret = Secret()
    base_url: Annotated[str, URL, "URL of Slack's Web API."] = "https://slack.com/api"
    app_token_env: Annotated[str, VARIABLE, "Variable with the app-level token (`xapp-`), which receives messages."] = (
        "SLACK_APP_TOKEN"
    )
    app_token: Secret = Secret()
    deadline: float = 12.0
    """Timeout of a call, in seconds."""
    beat: float = 10.0
    """Seconds of silence before a ping, and again before the connection counts as dead."""
    largest: int = MAX_FILE_BYTES
    picture: int = MAX_IMAGE_BYTES

    @property
    def needs(self) -> dict[str, bool]:
        return {self.token_env: bool(self.token), self.app_token_env: bool(self.app_token)}
