"""Settings of the messengers: the declared configuration of each, and what its platform needs besides."""

from pathlib import Path
from typing import Any, TypeVar

from msgspec import structs

from alipes.config import platforms as config
from alipes.kernel.errors import ConfigError
from alipes.platforms.irc.protocol import is_channel
from alipes.platforms.telegram.api import CALL_TIMEOUT, bad_token_error
from alipes.runtime.http.proxies import is_loopback

T = TypeVar("T", bound=config.MessengerConfig)

MAX_FILE_BYTES = 50_000_000
"""Size limit for received files."""
MAX_IMAGE_BYTES = 5_000_000
"""Pictures up to this size are shown to the model; larger ones are saved as files."""


def extend_config(kind: type[T], declared: config.MessengerConfig, **more: Any) -> T:
    """The settings of a platform: its configuration and `more`."""
    return kind(**structs.asdict(declared), **more)


# In each, `folder` is where received files and state are stored. Wrong values raise ConfigError.


class TelegramSettings(config.TelegramConfig, frozen=True, kw_only=True):
    folder: Path
    patience: float = CALL_TIMEOUT
    """Timeout for sending a message, in seconds; after it the result is unknown."""

    def __post_init__(self) -> None:
        if not self.token:
            raise bad_token_error()
        if self.mode == "webhook" and not self.webhook_url:
            raise ConfigError("The webhook mode needs telegram.webhook_url: the public address of the webhook.")


class DiscordSettings(config.DiscordConfig, frozen=True, kw_only=True):
    folder: Path
    proxy: str = ""
    deadline: float = 20.0
    """Timeout of a call, in seconds."""
    grace: float = 10.0
    """Seconds beyond the heartbeat interval after which the gateway counts as gone."""
    calm: float = 5.0
    """Longest pause, in seconds, before a new session after the gateway refused the old one."""
    largest: int = MAX_FILE_BYTES
    picture: int = MAX_IMAGE_BYTES

    def __post_init__(self) -> None:
        if not self.token:
            raise ConfigError("Discord needs the bot's token: set the variable that [discord] token_env names.")


class SlackSettings(config.SlackConfig, frozen=True, kw_only=True):
    folder: Path
    proxy: str = ""
    deadline: float = 12.0
    """Timeout of a call, in seconds."""
    beat: float = 10.0
    """Seconds of silence before a ping, and again before the connection counts as dead."""
    largest: int = MAX_FILE_BYTES
    picture: int = MAX_IMAGE_BYTES

    def __post_init__(self) -> None:
        if not self.token or not self.app_token:
            raise ConfigError(
                "Slack needs two tokens, the bot token (xoxb-) and the app-level token (xapp-): set the "
                "variables that [slack] token_env and app_token_env name."
            )


class MatrixSettings(config.MatrixConfig, frozen=True, kw_only=True):
    folder: Path
    poll: float = 30.0
    """Duration of a long poll, in seconds."""
    patience: float = 30.0
    """Timeout of a call, in seconds."""
    largest: int = MAX_FILE_BYTES
    picture: int = MAX_IMAGE_BYTES

    def __post_init__(self) -> None:
        if not self.user.startswith("@") or ":" not in self.user:
            raise ConfigError("Matrix needs your bot's user id: set matrix.user, as in @alipes:example.org.")
        if not self.token and not self.password:
            raise ConfigError(
                "Matrix needs an access token or a password: set the variable that [matrix] token_env or "
                "password_env names."
            )


class EmailSettings(config.EmailConfig, frozen=True, kw_only=True):
    data_folder: Path
    """Here `folder` is the folder of the mailbox."""
    ca_file: str = ""
    renew: float = 50.0
    """Longest IDLE, in seconds: a dead connection is noticed after it."""
    patience: float = 30.0
    """Timeout of a command, in seconds."""

    @property
    def imap(self) -> tuple[str, int, config.Security]:
        """Host, port and transport security."""
        return self.imap_host, self.imap_port, self.imap_security

    @property
    def smtp(self) -> tuple[str, int, config.Security]:
        return self.smtp_host or self.imap_host, self.smtp_port, self.smtp_security

    def __post_init__(self) -> None:
        name, _, domain = self.address.partition("@")
        if not name or not domain or not self.address.isprintable() or " " in self.address:
            raise ConfigError(f"email.address: {self.address!r} is not a mail address.")
        for key, (host, _, security) in (("imap", self.imap), ("smtp", self.smtp)):
            if security == "none" and not is_loopback(host):
                raise ConfigError(
                    f"email.{key}_security: `none` would send the password to {host} unencrypted; it is only "
                    "allowed for servers on this machine."
                )


class IrcSettings(config.IrcConfig, frozen=True, kw_only=True):
    ca_file: str = ""
    quiet: float = 30.0
    """Seconds of silence before a ping; after twice that the connection counts as dead."""
    patience: float = 30.0
    """Timeout for connecting and logging in, in seconds."""

    def __post_init__(self) -> None:
        bad = [each for each in self.channels if not is_channel(each) or any(char in each for char in " ,\a")]
        if bad:
            raise ConfigError(f"irc.channels: {bad[0]!r} is not a channel name; they start with #, as in #general.")
        if not self.nick or any(char in self.nick for char in " !@:,*\r\n\0"):
            raise ConfigError(f"irc.nick: {self.nick!r} is not a valid nick.")
