"""What the suites of Slack share: a desk that takes, and a platform at work on our loopback Slack."""

import asyncio
from contextlib import asynccontextmanager

from alipes.kernel.endpoints import Secret
from alipes.kernel.turns import Address
from alipes.platforms.slack import SlackSettings, open_slack
from tests.world.slack_server import SlackServer


class Desk:
    """Keeps what a platform hands over and tells."""

    def __init__(self):
        self.arrivals = []
        self.states = []
        self.gate = None

    async def take(self, arrival):
        if self.gate:
            await self.gate.wait()
        self.arrivals.append(arrival)

    def tell(self, state, why):
        self.states.append((state, why))

    @property
    def texts(self):
        return [arrival.text for arrival in self.arrivals]

    @property
    def ready(self):
        return bool(self.states) and self.states[-1][0] == "ready"


def settings(server, folder, **more):
    usual = {
        "token": Secret(server.token),
        "app_token": Secret(server.app_token),
        "base_url": server.base_url,
    }
    return SlackSettings(**usual | {"folder": folder, "deadline": 5.0} | more)


@asynccontextmanager
async def listening(platform, desk):
    """Cancelled at the end, as the gateway does it."""
    async with asyncio.TaskGroup() as tasks:
        task = tasks.create_task(platform.listen(desk.take, desk.tell))
        try:
            yield task
        finally:
            task.cancel()


@asynccontextmanager
async def at_work(tmp_path, **more):
    """A Slack, our platform connected to it, and a desk."""
    async with SlackServer() as server:
        desk, platform = Desk(), open_slack(settings(server, tmp_path, **more))
        async with listening(platform, desk):
            await server.until(lambda: desk.ready)
            yield server, platform, desk


def where(server, place="", who="ada"):
    """The address of a place."""
    channel, thread = server.place(place, who)
    return Address("slack", channel, "group" if place else "dm", thread)
