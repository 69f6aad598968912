"""The loopback Slack: Web API, Socket Mode and files on one real socket, for the real slack_sdk.

In a test: `async with SlackServer() as slack:`, `slack.base_url`, `slack.token` and `slack.app_token` for the bot,
           then `slack.say("hello")`, `await slack.until(lambda: slack.said())`.
The app has exactly the scopes, events and commands of the manifest in docs/slack.md.
"""

import asyncio
import json
import re
import secrets
import time
from collections.abc import Collection
from pathlib import Path
from typing import Any, Literal, Self

import msgspec
from aiohttp import web
from msgspec import Struct

from tests.world.loopback import Connection, Observable, open_site
from tests.world.slack_sockets import Envelope, SocketMode
from tests.world.slack_state import APP, TEAM, PostedMessage, SlackState, escaped
from tests.world.slack_web import ApiError, WebApi

TOKEN, APP_TOKEN = "xoxb-token-of-the-house", "xapp-token-of-the-house"
MANUAL = Path(__file__).parents[2] / "docs" / "slack.md"
Kind = Literal["status", "limit", "drop", "hang", "lost", "late", "slow", "error"]


def manifest() -> dict[str, Any]:
    """The manifest in the docs."""
    found = re.search(r"```json\n(\{.*?\n\})\n```", MANUAL.read_text(), re.DOTALL)
    assert found, "docs/slack.md has no manifest"
    return json.loads(found[1])


class Fault(Struct):
    """A fault of the next `times` matching calls.

    `status`: refused with it. `limit`: 429 with `retry_after`. `error`: `ok` is false. `drop`: the connection is
    cut. `hang`: never answered. `lost`: done, and the connection cut. `late`: done, and never answered. `slow`:
    done after `wait`.
    """

    what: Kind
    method: str = ""
    channel: str = ""
    status: int = 500
    error: str = "fatal_error"
    retry_after: int = 1
    wait: float = 0.0
    times: int = 1
    met: int = 0

    def fits(self, method: str, args: dict[str, Any]) -> bool:
        here = args.get("channel", args.get("channel_id"))
        return self.met < self.times and self.method in ("", method) and self.channel in ("", here)


class Call(Struct, frozen=True):
    """A call and its response; status 0: never answered."""

    at: float
    method: str
    args: dict[str, Any]
    status: int


class SlackServer(Observable):
    """A workspace with one bot. Leaving the context closes every connection; messages stay readable.

    Entering the same object again is the same Slack after an outage, on the same port.
    """

    def __init__(self) -> None:
        super().__init__()
        self.token, self.app_token, self.port = TOKEN, APP_TOKEN, 0
        self.manifest = manifest()
        self.world, self.board = SlackState(), SocketMode()
        self.web = WebApi(self.world, self.board, self.manifest)
        self.calls: list[Call] = []
        self.downloads: list[str] = []
        self.troubles: list[Fault] = []
        self.board.record = self.record

    @property
    def lines(self) -> Collection[Connection]:
        """The open connections."""
        return self.board.lines

    @property
    def base_url(self) -> str:
        return f"{self.world.root}/api"

    @property
    def commands(self) -> dict[str, str]:
        """The app's slash commands and their descriptions."""
        return {each["command"]: each["description"] for each in self.manifest["features"]["slash_commands"]}

    # Actions of people. `where`: "" is the direct messages of `who`, "general" a channel, "general/plans" a thread.

    def place(self, where: str = "", who: str = "ada") -> tuple[str, str]:
        """The channel, and the thread if any; created if needed.

        A thread without `begin` belongs to a deleted message.
        """
        name, _, thread = where.partition("/")
        if not where:
            return self.world.direct(self.world.person(who).id).id, ""
        channel = self.world.channel(name)
        if thread and thread not in channel.threads:
            root = self.world.post(channel.id, "USLACKBOT", "This message was deleted.", subtype="tombstone")
            channel.threads[thread] = root.ts
        return channel.id, channel.threads[thread] if thread else ""

    def begin(self, where: str, text: str, who: str = "ada") -> str:
        """Start a thread with a message in the channel."""
        name, _, thread = where.partition("/")
        ts = self.say(text, who, name)
        self.world.channel(name).threads[thread] = ts
        return ts

    def hang(self, where: str, ts: str) -> None:
        """Name the thread of this message."""
        name, _, thread = where.partition("/")
        self.world.channel(name).threads[thread] = ts

    def say(self, text: str, who: str = "ada", where: str = "", **more: Any) -> str:
        """The message's ts. `files`: [name, media type, bytes] each, `voice`; `raw`: it is in Slack's own writing."""
        files, voice, raw = more.pop("files", ()), more.pop("voice", False), more.pop("raw", False)
        kind = "slack_audio" if voice else ""
        more["files"] = [self.world.file(name, mime, data, subtype=kind) for name, mime, data in files]
        channel, thread = self.place(where, who)
        text = (text if raw else escaped(text)).replace("@alipes", f"<@{self.world.me.id}>")
        more.setdefault("client", secrets.token_hex(8))
        post = self.world.post(channel, self.world.person(who).id, text, thread=thread, **more)
        self.web.tell(post)
        self.record("said")
        return post.ts

    def post(self, ts: str) -> PostedMessage:
        return next(post for (_, its), post in self.world.posts.items() if its == ts)

    def again(self, ts: str) -> Envelope:
        """Send the event of a message a second time, as Slack does without an acknowledgement."""
        post = self.post(ts)
        known = self.board.of(f"{post.channel}:{ts}")[0]
        self.board.again(known)
        return known

    def change(self, ts: str, text: str) -> None:
        """A person edits their message."""
        self.web.change(self.post(ts), escaped(text).replace("@alipes", f"<@{self.world.me.id}>"))

    def press(self, ts: str, data: str, who: str = "ada") -> Envelope:
        """Press the button with this value."""
        post, person = self.post(ts), self.world.person(who)
        rows = [block for block in post.blocks if block["type"] == "actions"]
        button = next(each for row in rows for each in row["elements"] if each["value"] == data)
        message = self.world.message(post)
        place = {"type": "message", "message_ts": ts, "channel_id": post.channel}
        return self.board.send("interactive", {
            "type": "block_actions", "user": {"id": person.id, "username": who, "team_id": TEAM},
            "api_app_id": APP, "trigger_id": self.world.id("trigger"), "team": {"id": TEAM},
            "channel": {"id": post.channel}, "message": message, "container": place,
            "actions": [{**button, "block_id": "b", "action_ts": self.world.ts()}],
        })  # fmt: skip

    def slash(self, command: str, text: str = "", who: str = "ada", where: str = "") -> Envelope:
        """Use a slash command of the manifest."""
        assert command in self.commands, command
        channel, thread = self.place(where, who)
        assert not thread, "Slack takes no commands in threads"
        person = self.world.person(who)
        return self.board.send("slash_commands", {
            "command": command, "text": text, "user_id": person.id, "user_name": who, "channel_id": channel,
            "channel_name": where or "directmessage", "team_id": TEAM, "api_app_id": APP,
            "trigger_id": self.world.id("trigger"), "response_url": f"{self.world.root}/response",
        })  # fmt: skip

    # Observations.

    def posts(self, where: str = "", who: str = "ada") -> list[PostedMessage]:
        """The bot's messages there, oldest first, with all edits."""
        return self.world.in_place(*self.place(where, who), user=self.world.me.id)

    def said(self, where: str = "", who: str = "ada") -> list[str]:
        return [post.text for post in self.posts(where, who)]

    def asked(self, method: str) -> list[Call]:
        """The calls of a method, oldest first."""
        return [call for call in self.calls if call.method == method]

    def trouble(self, what: Kind, method: str = "", channel: str = "", **more: Any) -> Fault:
        self.troubles.append(Fault(what, method, channel, **more))
        return self.troubles[-1]

    # Protocol.

    async def __aenter__(self) -> Self:
        app = web.Application(client_max_size=64 * 1024 * 1024)
        app.router.add_get("/link/", self.board.serve)
        app.router.add_get("/files-pri/{file}/download/{name}", self._download)
        app.router.add_post("/upload/v1/{file}", self._bring)
        app.router.add_route("*", "/api/{method}", self._serve)
        self._runner, self.port = await open_site(app, self.port)
        self.world.root = f"http://127.0.0.1:{self.port}"
        return self

    async def __aexit__(self, *_: Any) -> None:
        self.board.end()
        await self._runner.cleanup()

    async def _serve(self, request: web.Request) -> web.StreamResponse:
        method, args = request.match_info["method"], await _args(request)
        found = next((trouble for trouble in self.troubles if trouble.fits(method, args)), None)
        if found:
            found.met += 1
        status, answer, headers = await self._decide(request, method, args, found)
        ignored = found is not None and found.what in ("drop", "hang", "lost", "late")
        self.calls.append(Call(time.time(), method, args, 0 if ignored else status))
        self.record("call")
        if found and found.what in ("drop", "lost") and request.transport:
            request.transport.abort()
        if ignored:
            await asyncio.Event().wait()
        if found and found.what == "status":
            return web.Response(status=status, text="<html>upstream</html>", content_type="text/html")
        return web.json_response(answer, status=status, headers=headers)

    async def _decide(
        self, request: web.Request, method: str, args: dict[str, Any], trouble: Fault | None
    ) -> tuple[int, dict[str, Any], dict[str, str]]:
        bearer = request.headers.get("Authorization", "").removeprefix("Bearer ")
        wanted = self.app_token if method == "apps.connections.open" else self.token
        if bearer != wanted:
            kinds = {self.app_token, self.token}
            return (200, {"ok": False, "error": "not_allowed_token_type" if bearer in kinds else "invalid_auth"}, {})
        match trouble:
            case Fault("limit"):
                wait = {"Retry-After": str(trouble.retry_after)}
                return 429, {"ok": False, "error": "ratelimited"}, wait
            case Fault("status"):
                return trouble.status, {}, {}
            case Fault("error"):
                return 200, {"ok": False, "error": trouble.error}, {}
            case Fault("drop" | "hang"):
                return 0, {}, {}
            case Fault("slow"):
                await asyncio.sleep(trouble.wait)
        if method == "apps.connections.open":
            address = self.world.root.replace("http", "ws", 1)
            return 200, {"ok": True, "url": f"{address}/link/?ticket={self.board.ticket()}&app_id={APP}"}, {}
        try:
            return 200, self.web(method, args), {}
        except ApiError as refused:
            return 200, refused.body, {}

    async def _download(self, request: web.Request) -> web.StreamResponse:
        if request.headers.get("Authorization") != f"Bearer {self.token}" or "files:read" not in self.web.scopes:
            return web.Response(text="<html>Sign in</html>", content_type="text/html")
        self.downloads.append(request.match_info["name"])
        file = self.world.files.get(request.match_info["file"].rpartition("-")[2])
        if file is None:
            return web.Response(status=404)
        return web.Response(body=file.data, content_type=file.mime)

    async def _bring(self, request: web.Request) -> web.StreamResponse:
        assert "Authorization" not in request.headers, "who has the address needs no token"
        file, data = self.world.files[request.match_info["file"]], await request.read()
        if len(data) != int(request.query["size"]):
            return web.Response(status=400)
        file.data = data
        return web.Response(text=f"OK - {len(data)}")


async def _args(request: web.Request) -> dict[str, Any]:
    args: dict[str, Any] = dict(request.query)
    if request.content_type == "application/json":
        args |= msgspec.json.decode(await request.read())
    elif request.method == "POST":
        args |= {name: value for name, value in (await request.post()).items() if isinstance(value, str)}
    return args
