"""Settings of IRC."""

from typing import Annotated

from alipes.config.platforms import ChatConfig
from alipes.config.value_types import ALLOW, HOST, PORT, VARIABLE, seconds
from alipes.kernel.models import Secret


class IrcConfig(ChatConfig, frozen=True, kw_only=True):
    host: Annotated[str, HOST, "The IRC server. Empty: IRC is not served."] = ""
    port: Annotated[int, PORT, "Its port; use 6667 without TLS."] = 6697
    tls: Annotated[bool, "Whether to use TLS. Without it, others on the network can read along."] = True
    nick: Annotated[str, "The agent's nickname."] = "alipes"
    channels: Annotated[tuple[str, ...], ALLOW, "Channels to join, as in #general."] = ()
    password_env: Annotated[
        str, VARIABLE, "Variable with the account's password for SASL login. Not set: no login."
    ] = "IRC_PASSWORD"
    password: Secret = Secret()
    pace: Annotated[
        float,
        seconds(0, 60),
        "Seconds between lines after the first five; servers disconnect clients that send too fast.",
    ] = 0.5
    quiet: float = 30.0
    """Seconds of silence before a ping; after twice that the connection counts as dead."""
    patience: float = 30.0
    """Timeout for connecting and logging in, in seconds."""

    @property
    def needs(self) -> dict[str, bool]:
        return {"irc.host": bool(self.host)}
