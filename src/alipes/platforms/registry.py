"""Opens messengers by name. Their modules and libraries are imported only when needed."""

from importlib import import_module

from msgspec import structs

from alipes.config.paths import make_private
from alipes.config.settings import Settings
from alipes.kernel.platform import Platform
from alipes.runtime.http.clients import ClientScope

PLATFORMS = {
    "telegram": "alipes.platforms.telegram.platform",
    "discord": "alipes.platforms.discord.platform",
    "slack": "alipes.platforms.slack.platform",
    "matrix": "alipes.platforms.matrix.platform",
    "email": "alipes.platforms.email.platform",
    "irc": "alipes.platforms.irc.platform",
}
"""The module of each. Its `open_platform` raises ConfigError; nothing connects before `listen`."""


def open_messenger(name: str, settings: Settings, scope: ClientScope) -> Platform:
    """Open a configured messenger. Raises ConfigError if a setting is wrong or its library is missing."""
    folder = make_private(make_private(settings.paths.files) / name)
    proxy, declared = settings.proxies.https or settings.proxies.all, settings.messengers.get(name)
    own = structs.replace(declared, data_folder=folder, proxy=proxy, ca_file=settings.ca_file)
    platform: Platform = import_module(PLATFORMS[name]).open_platform(own, scope)
    return platform
