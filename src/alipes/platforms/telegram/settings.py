"""Settings of Telegram."""

from typing import Annotated, Literal

from alipes.config.platforms import TOKEN, ChatConfig, SettingProblem
from alipes.config.urls import InvalidValue, check_base_url
from alipes.config.value_types import TEXT, URL, ValueType, seconds
from alipes.kernel.models import Secret


def _webhook(value: object) -> str:
    address = str(TEXT.check(value))
    if address and not check_base_url(address).startswith("https://"):
        raise InvalidValue("must begin with https://: the Bot API delivers messages over TLS only")
    return address


WEBHOOK = ValueType("https address", _webhook)


class TelegramConfig(ChatConfig, frozen=True, kw_only=True):
    token_env: TOKEN = "TELEGRAM_BOT_TOKEN"
    token: Secret = Secret()
    base_url: Annotated[str, URL, "URL of the Bot API."] = "https://api.telegram.org"
    mode: Annotated[
        Literal["poll", "webhook"], "How messages arrive: by polling the Bot API, or sent by it to `webhook_url`."
    ] = "poll"
    webhook_url: Annotated[
        str,
        WEBHOOK,
        "For `webhook`: the public URL, as in https://HOST/telegram; forward it to `/telegram` of `alipes serve`.",
    ] = ""
    poll: Annotated[
        float,
        seconds(1, 600),
        "Seconds that one poll may wait for messages. A dead connection is noticed within twice this time.",
    ] = 50.0
    patience: float = 30.0
    """Timeout for sending a message, in seconds; after it the result is unknown."""

    @property
    def needs(self) -> dict[str, bool]:
        return {self.token_env: bool(self.token)}

    @property
    def heartbeat_s(self) -> float:
        return self.poll

    @property
    def public_url(self) -> str:
        return self.webhook_url if self.mode == "webhook" else ""

    @property
    def problem(self) -> SettingProblem | None:
        if self.mode == "poll" or self.webhook_url:
            return None
        return "mode", self.mode, "needs telegram.webhook_url: set it, or use poll"
