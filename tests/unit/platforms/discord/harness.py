"""Shared by the Discord tests: a platform connected to the loopback Discord, and a recording gateway."""

from alipes.kernel.models import Secret
from alipes.kernel.turns import Address
from alipes.platforms.discord.platform import DiscordPlatform
from alipes.platforms.discord.settings import DiscordConfig
from tests.world.discord_server import DiscordServer as Server
from tests.world.recording_gateway import connected


def settings(server, folder, **more):
    usual = {"token": Secret(server.token), "base_url": server.base_url, "data_folder": folder}
    quick = {"grace": 1.0, "calm": 0.1, "deadline": 5.0}
    return DiscordConfig(**usual | quick | more)


def opened(server, folder, **more):
    return DiscordPlatform(settings(server, folder, **more))


def at_work(tmp_path, **more):
    """A Discord server, our platform connected to it, and a recording gateway."""
    return connected(Server(), lambda server: opened(server, tmp_path, **more))


def where(server, who="ada"):
    """Address of the direct messages with a person."""
    return Address("discord", server.place(who=who))
