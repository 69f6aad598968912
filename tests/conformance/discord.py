"""Discord as a surface: the loopback REST API, gateway and CDN, and `alipes serve` with discord.py on them."""

from typing import Any

from tests.conformance import loopback
from tests.conformance.markup import read
from tests.world.discord_server import DiscordServer

VERBS = {"send": "POST", "edit": "PATCH"}


class Channel(loopback.Channel):
    def _id(self, post: Any) -> str:
        return str(post.id)

    def seen(self) -> list[str]:
        return [read(post.text) for post in self._posts()]

    async def repeat(self, message: str) -> None:
        self._server.again(message)

    async def choose(self, command: str) -> None:
        chosen = self._server.slash(command, who=self._who, where=self.where)
        await self._server.until(lambda: self._server.interaction(chosen).answer is not None)

    def flood(self, verb: str, times: int = 1) -> None:
        path = f"/channels/{self._place}/messages"
        self._server.trouble("limit", VERBS[verb], path, retry_after=1.0, times=times)

    def lose(self, verb: str) -> None:
        self._server.trouble("late", VERBS[verb], f"/channels/{self._place}/messages")


class Discord(loopback.Loopback):
    name = platform = "discord"
    longest = 2000
    makes, places = DiscordServer, Channel

    def tokens(self) -> str:
        return f"DISCORD_BOT_TOKEN={self.server.token}\n"

    def commands(self) -> list[str]:
        return [each["name"] for each in self.server.rest.commands]
