"""The loopback Discord: REST, gateway and CDN on one real socket, for the real discord.py.

In a test:  `async with DiscordServer() as discord:`, `discord.base_url` and `discord.token` for the bot, then
            `discord.say("hello")`, `await discord.until(lambda: discord.said())`.
On its own: `python -m tests.world.discord_server --port-file F [--log F]`; `serve(folder)` does that, and
            `DiscordProcess.do("say", text="hello")` is the same as `DiscordServer.say(text="hello")` here.
"""

import argparse
import asyncio
import sys
import time
from collections.abc import AsyncIterator, Collection
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, BinaryIO, Literal, Self

import aiohttp
import msgspec
from aiohttp import web
from msgspec import Struct

from tests.world.discord_gateway import Gateway
from tests.world.discord_rest import ApiError, ApiRequest, Command, RestApi, read
from tests.world.discord_state import EPHEMERAL, VOICE_FLAG, DiscordState, PostedMessage
from tests.world.loopback import Connection, Observable, open_site

TOKEN = "discord-token-of-the-house"
Kind = Literal["status", "limit", "drop", "hang", "lost", "late", "slow"]
FREE = ("/interactions/", "/webhooks/")


class Fault(Struct):
    """A fault of the next `times` matching requests.

    `status`: refused with it. `limit`: 429 with `retry_after`. `drop`: the connection is cut. `hang`: never
    answered. `lost`: done, and the connection cut. `late`: done, and never answered. `slow`: done after `wait`.
    """

    what: Kind
    method: str = ""
    path: str = ""
    status: int = 500
    retry_after: float = 1.0
    everywhere: bool = False
    wait: float = 0.0
    times: int = 1
    met: int = 0

    def fits(self, asked: ApiRequest) -> bool:
        return self.met < self.times and self.method in ("", asked.method) and self.path in asked.path


class Call(Struct, frozen=True):
    """A request and its response; status 0: never answered."""

    at: float
    method: str
    path: str
    body: Any
    status: int


class DiscordServer(Observable):
    """A Discord with one bot. Leaving the context closes every connection; messages stay readable.

    Entering the same object again is the same Discord after an outage, on the same port.
    """

    def __init__(self, *, token: str = TOKEN, log: BinaryIO | None = None) -> None:
        super().__init__()
        self.token, self.port = token, 0
        self.world = DiscordState()
        self.gateway = Gateway(self.world, token)
        self.rest = RestApi(self.world, self.gateway)
        self.calls: list[Call] = []
        self.downloads: list[str] = []
        self.troubles: list[Fault] = []
        self.limits: dict[str, tuple[int, float]] = {}
        """By path suffix (`/messages`): requests per seconds, per method and channel."""
        self._windows: dict[str, tuple[float, int]] = {}
        self._log = log
        self.gateway.record = self.record

    @property
    def lines(self) -> Collection[Connection]:
        """The open connections."""
        return self.gateway.lines

    @property
    def base_url(self) -> str:
        return f"{self.world.root}/api/v10"

    # Actions of people. `where`: "" is the direct messages of `who`, "general" a channel, "general/plans" a thread.

    def place(self, where: str = "", who: str = "ada") -> str:
        """The id of a channel, created if needed."""
        before = len(self.world.places)
        channel, _, thread = where.partition("/")
        if not where:
            place = self.world.direct(self.world.person(who).id)
        else:
            place = self.world.channel(channel)
            if len(self.world.places) > before:
                self.rest.known_place(place.id)
            before = len(self.world.places)
            if thread:
                place = self.world.thread(place.id, thread, self.world.person(who).id)
        if len(self.world.places) > before:
            self.rest.known_place(place.id)
        return place.id

    def say(self, text: str, who: str = "ada", where: str = "", **more: Any) -> str:
        """The message's id. `answers`, `forwards`: ids; `files`: [name, media type, bytes] each; `voice`."""
        files, voice = more.pop("files", ()), more.pop("voice", False)
        more["files"] = [self.world.file(n, _bytes(data), mime, voice=voice) for n, mime, data in files]
        if voice:
            more["flags"] = VOICE_FLAG
        author = self.world.person(who)
        text = text.replace("@alipes", f"<@{self.world.me.id}>")
        post = self.world.post(self.place(where, who), author.id, text, **more)
        self.rest.tell("MESSAGE_CREATE", post)
        self.record("said", id=post.id)
        return post.id

    def again(self, message: str) -> None:
        """Send the update of a message a second time."""
        self.rest.tell("MESSAGE_CREATE", self.world.posts[message])

    def change(self, message: str, text: str) -> None:
        """A person edits their message."""
        self.rest.change(self.world.posts[message], text)

    def press(self, message: str, data: str, who: str = "ada") -> str:
        """Press the button with this `custom_id`; returns the interaction's id."""
        post = self.world.posts[message]
        assert data in [custom for _, custom in post.buttons], post.buttons
        component = {"component_type": 2, "custom_id": data, "id": 1}
        shown_message = self.world.message(post)
        return self._interact(3, who, post.place, component, message=shown_message, post=message)

    def slash(self, name: str, arguments: str = "", who: str = "ada", where: str = "") -> str:
        """Use a registered slash command; returns the interaction's id."""
        command = next(known for known in self.rest.commands if known["name"] == name)
        data: dict[str, Any] = {"id": command["id"], "name": name, "type": 1}
        if arguments:
            option = command["options"][0]
            data["options"] = [{"name": option["name"], "type": option["type"], "value": arguments}]
        return self._interact(2, who, self.place(where, who), data)

    def _interact(self, kind: int, who: str, place: str, data: dict[str, Any], **more: Any) -> str:
        person, post = self.world.person(who), more.pop("post", "")
        id = self.world.snowflake()
        event = self.world.interaction(id, person.id, place, type=kind, data=data, **more)
        self.rest.interactions[id] = Command(id, event["token"], person.id, place, self.world.clock(), post=post)
        self.gateway.dispatch("INTERACTION_CREATE", event)
        return id

    def interaction(self, id: str) -> Command:
        return self.rest.interactions[id]

    # Observations.

    def posts(self, where: str = "", who: str = "ada") -> list[PostedMessage]:
        """The bot's public messages there, oldest first, with all edits."""
        here = self.world.in_place(self.place(where, who), author=self.world.me.id)
        return [post for post in here if not post.flags & EPHEMERAL]

    def said(self, where: str = "", who: str = "ada") -> list[str]:
        return [post.text for post in self.posts(where, who)]

    def asked(self, method: str, path: str) -> list[Call]:
        """The matching requests, oldest first."""
        return [call for call in self.calls if call.method == method and path in call.path]

    def record(self, kind: str, **fields: object) -> None:
        if self._log:
            self._log.write(msgspec.json.encode({"kind": kind, "time": time.time(), **fields}) + b"\n")
        super().record(kind)

    # Faults.

    def trouble(self, what: Kind, method: str = "", path: str = "", **more: Any) -> Fault:
        self.troubles.append(Fault(what, method, path, **more))
        return self.troubles[-1]

    def tune(self, **facts: Any) -> None:
        """Set how the gateway behaves (`interval`, `acks`, `refuses`, `disallowed`), or its `limits`."""
        if "limits" in facts:
            self.limits = {end: tuple(window) for end, window in facts.pop("limits").items()}
        for name, value in facts.items():
            assert hasattr(self.gateway, name), name
            setattr(self.gateway, name, value)

    # Protocol.

    async def __aenter__(self) -> Self:
        app = web.Application(client_max_size=64 * 1024 * 1024)
        app.router.add_get("/gateway/", self.gateway.serve)
        app.router.add_get("/cdn/attachments/{id}/{name}", self._download)
        app.router.add_post("/control/{name}", self._control)
        app.router.add_route("*", "/api/{version}{path:/.*}", self._serve)
        self._runner, self.port = await open_site(app, self.port)
        self.world.root = f"http://127.0.0.1:{self.port}"
        return self

    async def __aexit__(self, *_: Any) -> None:
        self.gateway.drop()
        await self._runner.cleanup()

    async def _serve(self, request: web.Request) -> web.StreamResponse:
        asked = await read(request, request.match_info["path"])
        found = next((trouble for trouble in self.troubles if trouble.fits(asked)), None)
        if found:
            found.met += 1
        status, answer, headers = await self._decide(request, asked, found)
        ignored = found is not None and found.what in ("drop", "hang", "lost", "late")
        self.calls.append(Call(time.time(), asked.method, asked.path, asked.body, 0 if ignored else status))
        self.record("call", method=asked.method, path=asked.path, body=asked.body, status=0 if ignored else status)
        if found and found.what in ("drop", "lost") and request.transport:
            request.transport.abort()
        if ignored:
            await asyncio.Event().wait()
        if answer is None:
            return web.Response(status=204, headers=headers)
        # Exactly this media type: discord.py does not parse JSON if a charset follows.
        kind = {"Content-Type": "application/json"}
        return web.Response(status=status, body=msgspec.json.encode(answer), headers={**headers, **kind})

    async def _decide(
        self, request: web.Request, asked: ApiRequest, trouble: Fault | None
    ) -> tuple[int, Any, dict[str, str]]:
        if not asked.path.startswith(FREE) and request.headers.get("Authorization") != f"Bot {self.token}":
            return 401, {"message": "401: Unauthorized", "code": 0}, {}
        match trouble:
            case Fault("limit"):
                return self._limited(trouble.retry_after, trouble.everywhere)
            case Fault("status"):
                return trouble.status, {"message": f"{trouble.status}: trouble", "code": 0}, {}
            case Fault("drop" | "hang"):
                return 0, None, {}
            case Fault("slow"):
                await asyncio.sleep(trouble.wait)
        wait, headers = self._window(asked)
        if wait:
            status, answer, more = self._limited(wait)
            return status, answer, headers | more
        try:
            return 200, self.rest(asked), headers
        except ApiError as refused:
            return refused.status, refused.body, headers

    def _limited(self, retry_after: float, everywhere: bool = False) -> tuple[int, Any, dict[str, str]]:
        body = {"message": "You are being rate limited.", "retry_after": retry_after, "global": everywhere}
        scope = "global" if everywhere else "user"
        return (429, body, {"Via": "1.1 google", "Retry-After": str(int(retry_after) + 1), "X-RateLimit-Scope": scope})

    def _window(self, asked: ApiRequest) -> tuple[float, dict[str, str]]:
        """Seconds until this request is allowed, and the rate limit headers."""
        end = next((end for end in self.limits if asked.path.endswith(end) or end in asked.path), None)
        if end is None:
            return 0.0, {}
        limit, seconds = self.limits[end]
        key = f"{asked.method} {asked.path.split('/messages/')[0]}"
        began, count = self._windows.get(key, (time.monotonic(), 0))
        if time.monotonic() - began >= seconds:
            began, count = time.monotonic(), 0
        left = began + seconds - time.monotonic()
        self._windows[key] = (began, count + (count < limit))
        return (left if count >= limit else 0.0), {
            "X-RateLimit-Limit": str(limit), "X-RateLimit-Remaining": str(max(0, limit - count - 1)),
            "X-RateLimit-Reset": f"{time.time() + left:.3f}", "X-RateLimit-Reset-After": f"{left:.3f}",
            "X-RateLimit-Bucket": f"{asked.method}{end}",
        }  # fmt: skip

    async def _download(self, request: web.Request) -> web.StreamResponse:
        assert "Authorization" not in request.headers, "the token is none of the CDN's business"
        self.downloads.append(request.match_info["name"])
        file = self.world.files.get(request.match_info["id"])
        if file is None:
            return web.Response(status=404)
        return web.Response(body=file.data, content_type=file.mime)

    async def _control(self, request: web.Request) -> web.StreamResponse:
        """For tests in another process: calls a method by name, with JSON arguments."""
        asked = msgspec.json.decode(await request.read() or b"{}")
        name = request.match_info["name"]
        target = self.gateway if name in ("drop", "deafen", "ask_to_reconnect", "invalidate", "forget") else self
        answer = getattr(target, name)(**asked)
        return web.Response(body=msgspec.json.encode(answer), content_type="application/json")


def _bytes(data: bytes | str) -> bytes:
    return data.encode() if isinstance(data, str) else data


class DiscordProcess(Struct, frozen=True):
    """A Discord server in another process."""

    port: int
    log: Path
    token: str = TOKEN

    @property
    def base_url(self) -> str:
        return f"http://127.0.0.1:{self.port}/api/v10"

    async def do(self, name: str, /, **arguments: Any) -> Any:
        """Call `DiscordServer`'s method of this name there."""
        url = f"http://127.0.0.1:{self.port}/control/{name}"
        async with aiohttp.ClientSession() as session:
            async with session.post(url, data=msgspec.json.encode(arguments)) as response:
                assert response.status == 200, await response.text()
                return msgspec.json.decode(await response.read())

    def log_lines(self, kind: str = "call") -> list[dict[str, Any]]:
        """The lines of the log: `call`, `said`, `gateway`, `ready`."""
        lines = self.log.read_bytes().splitlines() if self.log.exists() else []
        return [line for line in map(msgspec.json.decode, lines) if line["kind"] == kind]


@asynccontextmanager
async def serve(folder: Path) -> AsyncIterator[DiscordProcess]:
    """Run the server as its own process."""
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.world.discord_server",
        "--port-file", str(folder / "discord-port"), "--log", str(folder / "discord-log"),
        cwd=Path(__file__).parents[2], stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    try:
        assert child.stdout
        yield DiscordProcess(int(await child.stdout.readline()), folder / "discord-log")
    finally:
        if child.returncode is None:
            child.kill()
        await child.wait()


async def _main(options: argparse.Namespace) -> None:
    with ExitStack() as files:
        log = files.enter_context(open(options.log, "ab", buffering=0)) if options.log else None
        async with DiscordServer(log=log) as server:
            temporary = Path(options.port_file).with_suffix(".new")
            temporary.write_text(str(server.port))
            temporary.rename(options.port_file)
            print(server.port, flush=True)
            await asyncio.Event().wait()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port-file", required=True)
    parser.add_argument("--log", help="one JSON line per request and event")
    asyncio.run(_main(parser.parse_args()))
