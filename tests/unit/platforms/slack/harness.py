"""Shared by the Slack tests: a platform connected to the loopback Slack, and a recording gateway."""

from alipes.kernel.models import Secret
from alipes.kernel.turns import Address
from alipes.platforms.slack.platform import SlackPlatform
from alipes.platforms.slack.settings import SlackConfig
from tests.world.recording_gateway import connected
from tests.world.slack_server import SlackServer as Server


def settings(server, folder, **more):
    usual = {"token": Secret(server.token), "app_token": Secret(server.app_token), "base_url": server.base_url}
    return SlackConfig(**usual | {"data_folder": folder, "deadline": 5.0} | more)


def opened(server, folder, **more):
    return SlackPlatform(settings(server, folder, **more))


def at_work(tmp_path, **more):
    """A Slack server, our platform connected to it, and a recording gateway."""
    return connected(Server(), lambda server: opened(server, tmp_path, **more))


def where(server, place="", who="ada"):
    """Address of a channel or direct chat."""
    channel, thread = server.place(place, who)
    return Address("slack", channel, "group" if place else "dm", thread)
