"""Local stand-ins for the services that bundled Hermes platform plugins connect to.

Each takes a message of a person with `say` and collects what the bot sends in `sent`.
"""

import asyncio
import base64
import hashlib
import hmac
import json
import socket
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from types import ModuleType
from typing import Any
from urllib.parse import urlencode

import aiohttp
from aiohttp import web
from discord.gateway import DiscordWebSocket
from discord.http import Route
from slack_sdk.web.async_client import AsyncWebClient
from yarl import URL

from tests.world.discord_server import DiscordServer
from tests.world.slack_server import SlackServer
from tests.world.telegram_server import TelegramServer


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
        return port


class StandIn:
    """The variables and settings that lead an adapter here, and the person who speaks."""

    person = "ada"
    needs = ""
    """A module of the vendor that may be missing."""
    program = ""
    """A program that may be missing."""

    def __init__(self) -> None:
        self.sent: list[str] = []
        self.port = free_port()
        self.adapter_port = free_port()
        """Where the adapter listens, if it does."""
        self.ready = asyncio.Event()
        """The adapter has connected."""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def variables(self) -> dict[str, str]:
        return {}

    def settings(self) -> dict[str, Any]:
        return {}

    def prepare(self, module: ModuleType) -> None:
        """Point fixed addresses in the adapter's module to this place."""

    async def connected(self) -> None:
        """Returns when the adapter listens to this place; one with a webhook listens at once."""

    async def say(self, text: str) -> None:
        raise NotImplementedError

    def routes(self) -> list[web.RouteDef]:
        return []

    @asynccontextmanager
    async def open(self) -> AsyncIterator[None]:
        app = web.Application()
        app.add_routes(self.routes())
        runner = web.AppRunner(app, shutdown_timeout=0.5)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", self.port).start()
        try:
            yield
        finally:
            await runner.cleanup()

    async def post(self, path: str, data: bytes, headers: dict[str, str]) -> None:
        """Deliver a webhook to the adapter."""
        address = f"http://127.0.0.1:{self.adapter_port}{path}"
        async with aiohttp.ClientSession() as session, session.post(address, data=data, headers=headers) as answer:
            assert answer.status == 200, (answer.status, await answer.text())


class SocketStandIn(StandIn):
    """One WebSocket at `path`."""

    path = "/"

    def __init__(self) -> None:
        super().__init__()
        self.socket: web.WebSocketResponse

    async def connected(self) -> None:
        await self.ready.wait()

    def routes(self) -> list[web.RouteDef]:
        return [web.get(self.path, self._serve)]

    async def _serve(self, request: web.Request) -> web.WebSocketResponse:
        self.socket = web.WebSocketResponse()
        await self.socket.prepare(request)
        await self.greet(self.socket)
        async for message in self.socket:
            if message.type is aiohttp.WSMsgType.TEXT:
                await self.handle(json.loads(message.data))
        return self.socket

    async def greet(self, socket: web.WebSocketResponse) -> None:
        self.ready.set()

    async def handle(self, message: dict[str, Any]) -> None:
        raise NotImplementedError


class Irc(StandIn):
    async def connected(self) -> None:
        await self.ready.wait()

    def variables(self) -> dict[str, str]:
        known = {"IRC_SERVER": "127.0.0.1", "IRC_PORT": str(self.port), "IRC_CHANNEL": "#test"}
        return known | {"IRC_NICKNAME": "bot", "IRC_USE_TLS": "false", "IRC_ALLOWED_USERS": "ada"}

    @asynccontextmanager
    async def open(self) -> AsyncIterator[None]:
        server = await asyncio.start_server(self._serve, "127.0.0.1", self.port)
        try:
            yield
        finally:
            server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writer = writer
        while line := (await reader.readline()).decode().rstrip():
            command, _, rest = line.partition(" ")
            if command == "USER":
                writer.write(b":irc.test 001 bot :welcome\r\n")
            elif command == "JOIN":
                self.ready.set()
            elif command == "PRIVMSG":
                self.sent.append(rest.partition(" :")[2])
        writer.close()

    async def say(self, text: str) -> None:
        self._writer.write(f":ada!a@b PRIVMSG bot :{text}\r\n".encode())


class Ntfy(StandIn):
    person = "alerts"

    async def connected(self) -> None:
        await self.ready.wait()

    def variables(self) -> dict[str, str]:
        return {"NTFY_TOPIC": "alerts", "NTFY_SERVER_URL": self.url, "NTFY_ALLOWED_USERS": "alerts"}

    def routes(self) -> list[web.RouteDef]:
        return [web.get("/alerts/json", self._stream), web.post("/alerts", self._publish)]

    async def _stream(self, request: web.Request) -> web.StreamResponse:
        self._queue: asyncio.Queue[str] = asyncio.Queue()
        response = web.StreamResponse()
        await response.prepare(request)
        self.ready.set()
        while text := await self._queue.get():
            event = {"id": str(time.time_ns()), "event": "message", "topic": "alerts", "message": text}
            await response.write(json.dumps(event).encode() + b"\n")
        return response

    @asynccontextmanager
    async def open(self) -> AsyncIterator[None]:
        async with super().open():
            try:
                yield
            finally:
                self._queue.put_nowait("")

    async def _publish(self, request: web.Request) -> web.Response:
        self.sent.append(await request.text())
        return web.json_response({"id": "n1"})

    async def say(self, text: str) -> None:
        self._queue.put_nowait(text)


class Mattermost(SocketStandIn):
    path = "/api/v4/websocket"

    def variables(self) -> dict[str, str]:
        return {"MATTERMOST_URL": self.url, "MATTERMOST_TOKEN": "t0ken", "MATTERMOST_ALLOWED_USERS": "ada"}

    def routes(self) -> list[web.RouteDef]:
        me = {"id": "bot", "username": "bot"}
        return [
            *super().routes(),
            web.get("/api/v4/users/me", self._answer(me)),
            web.post("/api/v4/users/me/typing", self._answer({})),
            web.post("/api/v4/posts", self._post),
        ]

    def _answer(self, value: dict[str, Any]) -> Callable[[web.Request], Awaitable[web.Response]]:
        async def answer(request: web.Request) -> web.Response:
            assert request.headers["authorization"] == "Bearer t0ken"
            return web.json_response(value)

        return answer

    async def _post(self, request: web.Request) -> web.Response:
        self.sent.append((await request.json())["message"])
        return web.json_response({"id": f"p{len(self.sent)}"})

    async def greet(self, socket: web.WebSocketResponse) -> None:
        """It authenticates first."""

    async def handle(self, message: dict[str, Any]) -> None:
        if message["action"] == "authentication_challenge" and message["data"]["token"] == "t0ken":
            self.ready.set()

    async def say(self, text: str) -> None:
        post = {"id": str(time.time_ns()), "user_id": "ada", "channel_id": "c1", "message": text}
        data = {"post": json.dumps(post), "channel_type": "D", "sender_name": "@ada"}
        await self.socket.send_json({"event": "posted", "data": data})


class HomeAssistant(SocketStandIn):
    path = "/api/websocket"
    person = "homeassistant"

    def variables(self) -> dict[str, str]:
        return {"HASS_TOKEN": "t0ken", "HASS_URL": self.url}

    def settings(self) -> dict[str, Any]:
        return {"watch_all": True, "cooldown_seconds": 0}

    def routes(self) -> list[web.RouteDef]:
        return [*super().routes(), web.post("/api/services/persistent_notification/create", self._notify)]

    async def _notify(self, request: web.Request) -> web.Response:
        self.sent.append((await request.json())["message"])
        return web.json_response([])

    async def greet(self, socket: web.WebSocketResponse) -> None:
        await socket.send_json({"type": "auth_required"})

    async def handle(self, message: dict[str, Any]) -> None:
        if message["type"] == "auth":
            await self.socket.send_json({"type": "auth_ok" if message["access_token"] == "t0ken" else "auth_invalid"})
        elif message["type"] == "subscribe_events":
            await self.socket.send_json({"id": message["id"], "type": "result", "success": True})
            self.ready.set()

    async def say(self, text: str) -> None:
        new = {"state": "on", "attributes": {"friendly_name": text}}
        data = {"entity_id": "light.hall", "old_state": {"state": "off"}, "new_state": new}
        await self.socket.send_json({"type": "event", "event": {"event_type": "state_changed", "data": data}})


class Simplex(SocketStandIn):
    person = "7"
    _count = 0

    async def greet(self, socket: web.WebSocketResponse) -> None:
        """The first connection is only an attempt."""
        self._count += 1
        if self._count > 1:
            self.ready.set()

    def variables(self) -> dict[str, str]:
        return {"SIMPLEX_WS_URL": f"ws://127.0.0.1:{self.port}", "SIMPLEX_ALLOWED_USERS": "7"}

    async def handle(self, message: dict[str, Any]) -> None:
        self.sent.append(message["cmd"].removeprefix("@7 "))

    async def say(self, text: str) -> None:
        content = {"type": "rcvMsgContent", "msgContent": {"type": "text", "text": text}}
        info = {"type": "direct", "contact": {"contactId": 7, "localDisplayName": "Ada"}}
        item = {"chatInfo": info, "chatItem": {"chatDir": {"type": "directRcv"}, "content": content, "meta": {}}}
        await self.socket.send_json({"resp": {"type": "newChatItems", "chatItems": [item]}})


class Twilio(StandIn):
    person = "+15550001111"
    hook = "https://bot.test/webhooks/twilio"

    def variables(self) -> dict[str, str]:
        keys = {"TWILIO_ACCOUNT_SID": "AC1", "TWILIO_AUTH_TOKEN": "t0ken", "TWILIO_PHONE_NUMBER": "+15550002222"}
        return keys | {"SMS_ALLOWED_USERS": self.person}

    def process_variables(self) -> dict[str, str]:
        """Not in the manifest, so the operator sets them for the process."""
        known = {"SMS_WEBHOOK_PORT": str(self.adapter_port), "SMS_WEBHOOK_HOST": "127.0.0.1"}
        return known | {"SMS_WEBHOOK_URL": self.hook}

    def prepare(self, module: ModuleType) -> None:
        module.TWILIO_API_BASE = f"{self.url}/Accounts"  # type: ignore[attr-defined]

    def routes(self) -> list[web.RouteDef]:
        return [web.post("/Accounts/AC1/Messages.json", self._message)]

    async def _message(self, request: web.Request) -> web.Response:
        form = await request.post()
        assert form["To"] == self.person
        self.sent.append(str(form["Body"]))
        return web.json_response({"sid": f"SM{len(self.sent)}"})

    async def say(self, text: str) -> None:
        fields = {"Body": text, "From": self.person, "MessageSid": "SM0", "To": "+15550002222"}
        signed = self.hook + "".join(name + fields[name] for name in sorted(fields))
        proof = base64.b64encode(hmac.new(b"t0ken", signed.encode(), hashlib.sha1).digest()).decode()
        headers = {"x-twilio-signature": proof, "content-type": "application/x-www-form-urlencoded"}
        await self.post("/webhooks/twilio", urlencode(fields).encode(), headers)


class Line(StandIn):
    person = "U1"

    def variables(self) -> dict[str, str]:
        known = {"LINE_CHANNEL_ACCESS_TOKEN": "t0ken", "LINE_CHANNEL_SECRET": "secret", "LINE_HOST": "127.0.0.1"}
        return known | {"LINE_PORT": str(self.adapter_port), "LINE_ALLOWED_USERS": "U1"}

    def prepare(self, module: ModuleType) -> None:
        names = ("LINE_REPLY_URL", "LINE_PUSH_URL", "LINE_LOADING_URL", "LINE_BOT_INFO_URL")
        for name in names:
            setattr(module, name, getattr(module, name).replace("https://api.line.me", self.url))

    def routes(self) -> list[web.RouteDef]:
        return [
            web.get("/v2/bot/info", self._info),
            web.post("/v2/bot/message/reply", self._message),
            web.post("/v2/bot/message/push", self._message),
            web.post("/v2/bot/chat/loading/start", self._loading),
        ]

    async def _info(self, request: web.Request) -> web.Response:
        return web.json_response({"userId": "Ubot"})

    async def _loading(self, request: web.Request) -> web.Response:
        return web.json_response({}, status=202)

    async def _message(self, request: web.Request) -> web.Response:
        self.sent += [each["text"] for each in (await request.json())["messages"]]
        return web.json_response({"sentMessages": [{"id": str(len(self.sent))}]})

    async def say(self, text: str) -> None:
        message = {"type": "text", "id": "m1", "text": text}
        event = {"type": "message", "replyToken": "r1", "source": {"type": "user", "userId": "U1"}, "message": message}
        body = json.dumps({"events": [{**event, "webhookEventId": "w1"}]}).encode()
        proof = base64.b64encode(hmac.new(b"secret", body, hashlib.sha256).digest()).decode()
        await self.post("/line/webhook", body, {"x-line-signature": proof})


class Wecom(SocketStandIn):
    def variables(self) -> dict[str, str]:
        known = {"WECOM_BOT_ID": "b1", "WECOM_SECRET": "secret", "WECOM_ALLOWED_USERS": "ada"}
        return known | {"WECOM_WEBSOCKET_URL": f"ws://127.0.0.1:{self.port}/"}

    async def greet(self, socket: web.WebSocketResponse) -> None:
        """It subscribes first."""

    async def handle(self, message: dict[str, Any]) -> None:
        if message["cmd"] == "aibot_subscribe":
            self.ready.set()
        elif message["cmd"] in ("aibot_respond_msg", "aibot_send_msg"):
            body = message["body"]
            self.sent.append((body.get("stream") or body.get("markdown"))["content"])
        await self.socket.send_json({"headers": message["headers"], "errcode": 0, "errmsg": "ok"})

    async def say(self, text: str) -> None:
        body = {
            "msgid": "m1",
            "from": {"userid": "ada"},
            "chattype": "single",
            "msgtype": "text",
            "text": {"content": text},
        }
        await self.socket.send_json({"cmd": "aibot_msg_callback", "headers": {"req_id": "q1"}, "body": body})


class Telegram(StandIn):
    person = "7"

    def __init__(self) -> None:
        super().__init__()
        self._server = TelegramServer()

    def variables(self) -> dict[str, str]:
        return {"TELEGRAM_BOT_TOKEN": self._server.token, "TELEGRAM_ALLOWED_USERS": "7"}

    def settings(self) -> dict[str, Any]:
        return {"base_url": f"{self._server.url}/bot", "base_file_url": f"{self._server.url}/file/bot"}

    def process_variables(self) -> dict[str, str]:
        return {"HERMES_TELEGRAM_DISABLE_FALLBACK_IPS": "1"}

    def prepare(self, module: ModuleType) -> None:
        async def none() -> list[str]:
            return []

        module.discover_fallback_ips = none  # type: ignore[attr-defined]

    @asynccontextmanager
    async def open(self) -> AsyncIterator[None]:
        async with self._server:
            yield

    async def say(self, text: str) -> None:
        await self._server.polled()
        self._server.chats.say(text, chat=7)
        for message in await self._server.heard(7):
            self.sent.append(message.text)


class Photon(StandIn):
    program = "node"
    person = "+15550001111"
    _queue: asyncio.Queue[str]

    async def connected(self) -> None:
        await self.ready.wait()

    def variables(self) -> dict[str, str]:
        known = {"PHOTON_PROJECT_ID": "p1", "PHOTON_PROJECT_SECRET": "secret", "PHOTON_ALLOWED_USERS": self.person}
        return known | {"PHOTON_SIDECAR_PORT": str(self.port), "PHOTON_SIDECAR_AUTOSTART": "false"}

    def prepare(self, module: ModuleType) -> None:
        """This place is the sidecar, whose packages need not be installed."""
        module._SIDECAR_DIR.joinpath("node_modules").mkdir(parents=True)

    def routes(self) -> list[web.RouteDef]:
        return [web.get("/inbound", self._stream), web.post("/{verb}", self._call)]

    async def _stream(self, request: web.Request) -> web.StreamResponse:
        self._queue = asyncio.Queue()
        response = web.StreamResponse()
        await response.prepare(request)
        self.ready.set()
        while text := await self._queue.get():
            place = {"id": "s1", "type": "dm", "phone": self.person}
            event = {"messageId": "m1", "space": place, "sender": {"id": self.person}}
            await response.write(json.dumps({**event, "content": {"type": "text", "text": text}}).encode() + b"\n")
        return response

    async def _call(self, request: web.Request) -> web.Response:
        body = await request.json()
        if "text" in body:
            self.sent.append(body["text"])
        return web.json_response({"ok": True, "messageId": f"o{len(self.sent)}"})

    @asynccontextmanager
    async def open(self) -> AsyncIterator[None]:
        async with super().open():
            try:
                yield
            finally:
                self._queue.put_nowait("")

    async def say(self, text: str) -> None:
        self._queue.put_nowait(text)


class Discord(StandIn):
    def __init__(self) -> None:
        super().__init__()
        self._server = DiscordServer()
        self.person = self._server.world.person("ada").id
        self._before = Route.BASE

    def variables(self) -> dict[str, str]:
        return {"DISCORD_BOT_TOKEN": self._server.token, "DISCORD_ALLOWED_USERS": self.person}

    def process_variables(self) -> dict[str, str]:
        return {"DISCORD_COMMAND_SYNC_POLICY": "off"}

    @asynccontextmanager
    async def open(self) -> AsyncIterator[None]:
        async with self._server:
            Route.BASE = self._server.base_url
            before, DiscordWebSocket.DEFAULT_GATEWAY = (
                DiscordWebSocket.DEFAULT_GATEWAY,
                URL(f"{self._server.world.root.replace('http', 'ws', 1)}/gateway/"),
            )
            try:
                yield
            finally:
                Route.BASE, DiscordWebSocket.DEFAULT_GATEWAY = self._before, before

    async def say(self, text: str) -> None:
        self._server.say(text)
        await self._server.until(lambda: self._server.said())
        self.sent += self._server.said()


class Slack(StandIn):
    needs = "slack_bolt"

    def __init__(self) -> None:
        super().__init__()
        self._server = SlackServer()
        self.person = self._server.world.person("ada").id

    def variables(self) -> dict[str, str]:
        tokens = {"SLACK_BOT_TOKEN": self._server.token, "SLACK_APP_TOKEN": self._server.app_token}
        return tokens | {"SLACK_ALLOWED_USERS": self.person}

    def prepare(self, module: ModuleType) -> None:
        app, address = module.AsyncApp, f"{self._server.base_url}/"  # type: ignore[attr-defined]
        module.AsyncWebClient = partial(AsyncWebClient, base_url=address)  # type: ignore[attr-defined]
        module.AsyncApp = lambda token: app(  # type: ignore[attr-defined]
            client=AsyncWebClient(token, base_url=address)
        )

    @asynccontextmanager
    async def open(self) -> AsyncIterator[None]:
        async with self._server:
            yield

    async def connected(self) -> None:
        await self._server.until(lambda: bool(self._server.lines))

    async def say(self, text: str) -> None:
        self._server.say(text)
        await self._server.until(lambda: bool(self._server.asked("chat.postMessage")))  # in a thread
        self.sent += [str(each.args.get("text")) for each in self._server.asked("chat.postMessage")]


STAND_INS: dict[str, type[StandIn]] = {
    "discord": Discord,
    "homeassistant": HomeAssistant,
    "irc": Irc,
    "line": Line,
    "mattermost": Mattermost,
    "ntfy": Ntfy,
    "photon": Photon,
    "simplex": Simplex,
    "slack": Slack,
    "sms": Twilio,
    "telegram": Telegram,
    "wecom": Wecom,
}
