"""Opens messengers by name. Their modules and libraries are imported only when needed."""

from pathlib import Path

from alipes.config.settings import Settings
from alipes.kernel.platform import Platform
from alipes.platforms.connection import optional_library
from alipes.platforms.settings import (
    DiscordSettings,
    EmailSettings,
    IrcSettings,
    MatrixSettings,
    SlackSettings,
    TelegramSettings,
    extend_config,
)
from alipes.runtime.http.clients import ClientScope


def open_messenger(name: str, settings: Settings, folder: Path, scope: ClientScope) -> Platform:
    """Open a configured messenger. `folder` is for its files and state. Raises ConfigError."""
    configs, ca_file = settings.messengers, settings.ca_file
    proxy = settings.proxies.https or settings.proxies.all
    match name:
        case "telegram":
            return open_telegram(extend_config(TelegramSettings, configs.telegram, folder=folder), scope)
        case "discord":
            return open_discord(extend_config(DiscordSettings, configs.discord, folder=folder, proxy=proxy))
        case "slack":
            return open_slack(extend_config(SlackSettings, configs.slack, folder=folder, proxy=proxy))
        case "matrix":
            return open_matrix(extend_config(MatrixSettings, configs.matrix, folder=folder), scope)
        case "email":
            return open_email(extend_config(EmailSettings, configs.email, data_folder=folder, ca_file=ca_file))
        case "irc":
            return open_irc(extend_config(IrcSettings, configs.irc, ca_file=ca_file))
    raise ValueError(f"unknown messenger {name!r}")


# None of these connects before `listen`. They raise ConfigError if a library is missing.


def open_telegram(settings: TelegramSettings, scope: ClientScope) -> Platform:
    from alipes.platforms.telegram.platform import TelegramPlatform  # noqa: PLC0415

    return TelegramPlatform(settings, scope)


def open_discord(settings: DiscordSettings) -> Platform:
    with optional_library("Discord", "discord.py", "discord"):
        from alipes.platforms.discord.platform import DiscordPlatform  # noqa: PLC0415
    return DiscordPlatform(settings)


def open_slack(settings: SlackSettings) -> Platform:
    with optional_library("Slack", "slack_sdk", "slack"):
        from alipes.platforms.slack.platform import SlackPlatform  # noqa: PLC0415
    return SlackPlatform(settings)


def open_matrix(settings: MatrixSettings, scope: ClientScope) -> Platform:
    with optional_library("Matrix", "matrix-nio", "matrix"):
        from alipes.platforms.matrix.platform import MatrixPlatform  # noqa: PLC0415
    return MatrixPlatform(settings, scope)


def open_email(settings: EmailSettings) -> Platform:
    with optional_library("Mail", "aiosmtplib", "email"):
        from alipes.platforms.email.platform import EmailPlatform  # noqa: PLC0415
    return EmailPlatform(settings)


def open_irc(settings: IrcSettings) -> Platform:
    from alipes.platforms.irc.platform import IrcPlatform  # noqa: PLC0415

    return IrcPlatform(settings)
