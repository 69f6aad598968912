"""From settings to messengers: the one table of those that come with the house. Nothing is connected here."""

from collections.abc import Callable
from pathlib import Path

from alipes.config.settings import Settings
from alipes.kernel.platforms import Platform
from alipes.platforms.discord import DiscordSettings, open_discord
from alipes.platforms.email import EmailSettings, open_email
from alipes.platforms.irc import IrcSettings, open_irc
from alipes.platforms.matrix import MatrixSettings, open_matrix
from alipes.platforms.slack import SlackSettings, open_slack
from alipes.platforms.telegram import TelegramSettings, open_telegram
from alipes.runtime.clients import ClientScope


def open_messenger(name: str, settings: Settings, folder: Path, scope: ClientScope) -> Platform:
    """`folder` is its own, for files that come and for what it has to remember. Raises ConfigError."""
    return _OPENERS[name](settings, folder, scope)


def _telegram(settings: Settings, folder: Path, scope: ClientScope) -> Platform:
    chosen = settings.messengers.telegram
    return open_telegram(
        TelegramSettings(
            token=chosen.token,
            folder=folder,
            base_url=chosen.base_url,
            mode=chosen.mode,
            webhook_url=chosen.webhook_url,
            group=chosen.group,
            per_user=chosen.per_user,
            poll=chosen.poll,
        ),
        scope,
    )


def _discord(settings: Settings, folder: Path, _scope: ClientScope) -> Platform:
    chosen = settings.messengers.discord
    return open_discord(
        DiscordSettings(
            token=chosen.token,
            folder=folder,
            base_url=chosen.base_url,
            group=chosen.group,
            per_user=chosen.per_user,
            proxy=_proxy(settings),
        )
    )


def _slack(settings: Settings, folder: Path, _scope: ClientScope) -> Platform:
    chosen = settings.messengers.slack
    return open_slack(
        SlackSettings(
            token=chosen.token,
            app_token=chosen.app_token,
            folder=folder,
            base_url=chosen.base_url,
            group=chosen.group,
            per_user=chosen.per_user,
            proxy=_proxy(settings),
        )
    )


def _matrix(settings: Settings, folder: Path, scope: ClientScope) -> Platform:
    chosen = settings.messengers.matrix
    return open_matrix(
        MatrixSettings(
            base_url=chosen.base_url,
            user=chosen.user,
            token=chosen.token,
            password=chosen.password,
            device=chosen.device,
            encryption=chosen.encryption,
            folder=folder,
            group=chosen.group,
            per_user=chosen.per_user,
        ),
        scope,
    )


def _email(settings: Settings, folder: Path, _scope: ClientScope) -> Platform:
    chosen = settings.messengers.email
    return open_email(
        EmailSettings(
            address=chosen.address,
            user=chosen.user or chosen.address,
            password=chosen.password,
            imap=(chosen.imap_host, chosen.imap_port, chosen.imap_security),
            smtp=(chosen.smtp_host or chosen.imap_host, chosen.smtp_port, chosen.smtp_security),
            mailbox=chosen.folder,
            trust=chosen.trust,
            authserv=chosen.authserv,
            folder=folder,
            ca_file=settings.ca_file,
        )
    )


def _irc(settings: Settings, folder: Path, _scope: ClientScope) -> Platform:
    chosen = settings.messengers.irc
    return open_irc(
        IrcSettings(
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
    )


def _proxy(settings: Settings) -> str:
    return settings.proxies.https or settings.proxies.all


_OPENERS: dict[str, Callable[[Settings, Path, ClientScope], Platform]] = {
    "telegram": _telegram,
    "discord": _discord,
    "slack": _slack,
    "matrix": _matrix,
    "email": _email,
    "irc": _irc,
}
