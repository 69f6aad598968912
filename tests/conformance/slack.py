"""Slack as a surface: the loopback Web API and Socket Mode, and `alipes serve` with slack_sdk on them."""

from typing import Any

from tests.conformance import loopback
from tests.world.slack_server import SlackServer

VERBS = {"send": "chat.postMessage", "edit": "chat.update"}
PREFIX = "/alipes-"


class Channel(loopback.Channel):
    def _id(self, post: Any) -> str:
        return str(post.ts)

    def seen(self) -> list[str]:
        return [post.shown for post in self._posts()]

    async def repeat(self, message: str) -> None:
        brought = self._server.again(message)
        await self._server.until(lambda: brought.acked)

    async def choose(self, command: str) -> None:
        chosen = self._server.slash(f"{PREFIX}{command}", who=self._who, where=self.where)
        await self._server.until(lambda: chosen.acked)

    def flood(self, verb: str, times: int = 1) -> None:
        self._server.trouble("limit", VERBS[verb], self._place[0], times=times)

    def lose(self, verb: str) -> None:
        self._server.trouble("late", VERBS[verb], self._place[0])


class Slack(loopback.Loopback):
    name = platform = "slack"
    longest = 4000
    makes, places = SlackServer, Channel

    def tokens(self) -> str:
        return f"SLACK_BOT_TOKEN={self.server.token}\nSLACK_APP_TOKEN={self.server.app_token}\n"

    def commands(self) -> list[str]:
        return [each.removeprefix(PREFIX) for each in self.server.commands]
