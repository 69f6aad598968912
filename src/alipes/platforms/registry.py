"""Opens messengers by name. Their modules and libraries are imported only when needed."""

from pathlib import Path

from alipes.config.settings import Settings
from alipes.kernel.platform import Platform
from alipes.platforms.connection import optional_library
from alipes.platforms.discord.settings import DiscordSettings
from alipes.platforms.email.settings import EmailSettings
from alipes.platforms.irc.settings import IrcSettings
from alipes.platforms.matrix.settings import POLL_GRACE, MatrixSettings
from alipes.platforms.slack.settings import SlackSettings
from alipes.platforms.telegram.settings import TelegramSettings
from alipes.runtime.http.clients import ClientScope


def open_messenger(name: str, settings: Settings, folder: Path, scope: ClientScope) -> Platform:
    """Open a configured messenger. `folder` is for its files and state. Raises ConfigError."""
    match name:
        case "telegram":
            return open_telegram(TelegramSettings.from_config(settings, folder), scope)
        case "discord":
            return open_discord(DiscordSettings.from_config(settings, folder))
        case "slack":
            return open_slack(SlackSettings.from_config(settings, folder))
        case "matrix":
            return open_matrix(MatrixSettings.from_config(settings, folder), scope)
        case "email":
            return open_email(EmailSettings.from_config(settings, folder))
        case "irc":
            return open_irc(IrcSettings.from_config(settings, folder))
    raise ValueError(f"unknown messenger {name!r}")


# Each of these checks the settings and connects nothing before `listen`. They raise ConfigError.


def open_telegram(settings: TelegramSettings, scope: ClientScope) -> Platform:
    from alipes.platforms.telegram.platform import make_telegram  # noqa: PLC0415

    settings.check()
    return make_telegram(settings, scope)


def open_discord(settings: DiscordSettings) -> Platform:
    settings.check()
    with optional_library("Discord", "discord.py", "discord"):
        from alipes.platforms.discord.platform import DiscordPlatform  # noqa: PLC0415
    return DiscordPlatform(settings)


def open_slack(settings: SlackSettings) -> Platform:
    settings.check()
    with optional_library("Slack", "slack_sdk", "slack"):
        from alipes.platforms.slack.platform import SlackPlatform  # noqa: PLC0415
    return SlackPlatform(settings)


def open_matrix(settings: MatrixSettings, scope: ClientScope) -> Platform:
    settings.check()
    with optional_library("Matrix", "matrix-nio", "matrix"):
        from alipes.platforms.matrix.platform import MatrixPlatform  # noqa: PLC0415
    stall = max(settings.poll + POLL_GRACE, 4 * settings.patience)
    return MatrixPlatform(settings, scope.http("matrix", base_url=settings.base_url, stall=stall))


def open_email(settings: EmailSettings) -> Platform:
    settings.check()
    with optional_library("Mail", "aiosmtplib", "email"):
        from alipes.platforms.email.platform import EmailPlatform  # noqa: PLC0415
    return EmailPlatform(settings)


def open_irc(settings: IrcSettings) -> Platform:
    from alipes.platforms.irc.platform import IrcPlatform  # noqa: PLC0415

    settings.check()
    return IrcPlatform(settings)
