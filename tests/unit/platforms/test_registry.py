"""Messengers are opened by name, with what they need of the settings."""

import pytest

from alipes.config.messengers import Messengers
from alipes.config.settings import Settings
from alipes.kernel.models import Proxies, Secret
from alipes.platforms.discord.settings import DiscordConfig
from alipes.platforms.email.settings import EmailConfig
from alipes.platforms.irc.settings import IrcConfig
from alipes.platforms.matrix.settings import MatrixConfig
from alipes.platforms.registry import PLATFORMS, open_messenger
from alipes.platforms.slack.settings import SlackConfig
from alipes.platforms.telegram.settings import TelegramConfig
from alipes.runtime.http.clients import ClientScope
from tests.world.tls import ca_file

TOKEN = Secret("1:token")
ALL = Messengers(
    telegram=TelegramConfig(token=TOKEN, mode="webhook", webhook_url="https://bot.example.com/telegram"),
    discord=DiscordConfig(token=TOKEN),
    slack=SlackConfig(token=TOKEN, app_token=TOKEN),
    matrix=MatrixConfig(base_url="https://example.org", user="@alipes:example.org", token=TOKEN),
    email=EmailConfig(address="a@example.org", imap_host="imap.example.org", password=TOKEN),
    irc=IrcConfig(host="irc.example.org"),
)


@pytest.mark.parametrize("name", PLATFORMS)
async def test_a_messenger_gets_its_folder_its_proxy_and_the_certificates(name, tmp_path):
    settings = Settings(home=tmp_path, messengers=ALL, proxies=Proxies(all="http://proxy"), ca_file=ca_file(tmp_path))
    async with ClientScope() as scope:
        platform = open_messenger(name, settings, scope)
    own, folder = platform.settings, settings.paths.files / name
    assert platform.name == name and name in ALL.configured and folder.stat().st_mode & 0o077 == 0
    assert (own.data_folder, own.proxy, own.ca_file) == (folder, "http://proxy", settings.ca_file)
    assert platform.webhook_path == ("/telegram" if name == "telegram" else "")
