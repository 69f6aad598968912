"""Settings of IRC."""

from pathlib import Path
from typing import Literal, Self

from msgspec import Struct

from alipes.config.settings import Settings
from alipes.kernel.errors import ConfigError
from alipes.kernel.models import Secret
from alipes.platforms.irc.protocol import is_channel


class IrcSettings(Struct, frozen=True, kw_only=True):
    folder: Path
    """Not used: IRC transfers no files."""
    host: str
    port: int = 6697
    tls: bool = True
    nick: str = "alipes"
    channels: tuple[str, ...] = ()
    password: Secret = Secret()
    group: Literal["mention", "all"] = "mention"
    per_user: bool = False
    ca_file: str = ""
    pace: float = 0.5
    """Seconds between two lines, after the first five."""
    quiet: float = 30.0
    """Seconds of silence before a ping; after twice that the connection counts as dead."""
    patience: float = 30.0
    """Timeout for connecting and logging in, in seconds."""

    @classmethod
    def from_config(cls, settings: Settings, folder: Path) -> Self:
        chosen = settings.messengers.irc
        return cls(
            host=chosen.host,
            port=chosen.port,
            tls=chosen.tls,
            nick=chosen.nick,
            channels=chosen.channels,
            password=chosen.password,
            pace=chosen.pace,
            folder=folder,
            group=chosen.group,
            per_user=chosen.per_user,
            ca_file=settings.ca_file,
        )

    def check(self) -> None:
        bad = [each for each in self.channels if not is_channel(each) or any(char in each for char in " ,\a")]
        if bad:
            raise ConfigError(f"irc.channels: {bad[0]!r} is not a channel name; they start with #, as in #general.")
        if not self.nick or any(char in self.nick for char in " !@:,*\r\n\0"):
            raise ConfigError(f"irc.nick: {self.nick!r} is not a valid nick.")
