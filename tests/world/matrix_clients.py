"""Clients of people on a real homeserver: they invite, send, react, edit, and read rooms."""

import asyncio
import secrets
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import quote

import httpx2

API = "/_matrix/client/v3"
FILTER = '{"presence":{"types":[]},"room":{"timeline":{"limit":200},"ephemeral":{"types":["m.typing","m.receipt"]}}}'
LOOK = 300
"""Milliseconds that a sync may wait."""


class RoomMessage:
    """A message in a room."""

    def __init__(self, event: dict[str, Any]) -> None:
        self.id, self.sender, self.content = event["event_id"], event["sender"], event["content"]
        self.reactions: dict[str, tuple[str, str]] = {}
        """Reactions by event."""

    @property
    def body(self) -> str:
        return str(self.content.get("body", ""))

    @property
    def related(self) -> dict[str, Any]:
        found: dict[str, Any] = self.content.get("m.relates_to", {})
        return found

    @property
    def thread(self) -> str:
        return self.related.get("event_id", "") if self.related.get("rel_type") == "m.thread" else ""

    @property
    def answers(self) -> str:
        if self.related.get("is_falling_back"):
            return ""
        return str(self.related.get("m.in_reply_to", {}).get("event_id", ""))


class Chat:
    """A room, built from sync events."""

    def __init__(self) -> None:
        self.posts: dict[str, RoomMessage] = {}
        self.events: dict[str, dict[str, Any]] = {}
        self.typing: list[str] = []
        self.typed = False
        self.read: dict[str, str] = {}
        self.edits = 0

    def hear(self, event: dict[str, Any]) -> None:
        self.events.setdefault(event["event_id"], event)
        content, related = event["content"], event["content"].get("m.relates_to", {})
        match event["type"]:
            case "m.room.message" | "m.sticker" if related.get("rel_type") == "m.replace":
                changed, self.edits = self.posts.get(related["event_id"]), self.edits + 1
                if changed is not None and changed.sender == event["sender"]:
                    changed.content = {**content["m.new_content"], "m.relates_to": changed.related}
            case "m.room.message" | "m.sticker" if content:
                self.posts[event["event_id"]] = RoomMessage(event)
            case "m.reaction" if related and related["event_id"] in self.posts:
                pressed = (event["sender"], related["key"])
                self.posts[related["event_id"]].reactions[event["event_id"]] = pressed
            case "m.room.redaction":
                gone = event.get("redacts") or content.get("redacts")
                self.posts.pop(gone, None)
                for post in self.posts.values():
                    post.reactions.pop(gone, None)


class Person:
    """A logged-in person with a client without encryption."""

    def __init__(self, http: httpx2.AsyncClient, response: dict[str, Any], name: str) -> None:
        self._http, self.name = http, name
        self.id, self.token, self.device = (response["user_id"], response["access_token"], response["device_id"])
        self.chats: dict[str, Chat] = {}
        self.fetched: dict[str, bytes] = {}
        """Downloaded files by URL."""
        self._since = ""
        self._looking = asyncio.Lock()

    async def call(self, method: str, path: str, body: Any = None, **params: Any) -> Any:
        headers = {"authorization": f"Bearer {self.token}"}
        asked = {"params": params} if params else {}
        answer = await self._http.request(method, path, headers=headers, json=body, **asked)
        assert answer.status_code == 200, f"{method} {path}: {answer.status_code} {answer.text}"
        return answer.json()

    async def room(self, *others: "str | Person", direct: bool = False, **more: Any) -> str:
        """Create a room and invite these people."""
        invited = [each if isinstance(each, str) else each.id for each in others]
        kind = {"preset": "private_chat", "is_direct": direct, "invite": invited, **more}
        return str((await self.call("POST", f"{API}/createRoom", kind))["room_id"])

    async def invite(self, room: str, who: str) -> None:
        await self.call("POST", f"{API}/rooms/{quote(room)}/invite", {"user_id": who})

    async def join(self, room: str) -> None:
        await self.call("POST", f"{API}/rooms/{quote(room)}/join", {})

    async def send(self, room: str, content: dict[str, Any], kind: str = "m.room.message") -> str:
        path = f"{API}/rooms/{quote(room)}/send/{kind}/{secrets.token_hex(8)}"
        return str((await self.call("PUT", path, content))["event_id"])

    async def say(self, room: str, text: str, **more: Any) -> str:
        return await self.send(room, {"msgtype": "m.text", "body": text, **more})

    async def change(self, room: str, message: str, text: str) -> str:
        new = {"msgtype": "m.text", "body": text}
        related = {"rel_type": "m.replace", "event_id": message}
        return await self.say(room, f"* {text}", **{"m.new_content": new, "m.relates_to": related})

    async def react(self, room: str, message: str, key: str) -> str:
        related = {"rel_type": "m.annotation", "event_id": message, "key": key}
        return await self.send(room, {"m.relates_to": related}, "m.reaction")

    async def upload(self, data: bytes, mime: str) -> str:
        headers = {"authorization": f"Bearer {self.token}", "content-type": mime}
        answer = await self._http.post("/_matrix/media/v3/upload", headers=headers, content=data)
        return str(answer.json()["content_uri"])

    async def download(self, mxc: str) -> bytes:
        headers = {"authorization": f"Bearer {self.token}"}
        path = f"/_matrix/client/v1/media/download/{mxc.removeprefix('mxc://')}"
        answer = await self._http.get(path, headers=headers)
        assert answer.status_code == 200, answer.text
        return answer.content

    async def look(self, wait: int = LOOK) -> None:
        """Sync once; returns whether there was something new."""
        async with self._looking:
            since = {"since": self._since} if self._since else {}
            response = await self.call("GET", f"{API}/sync", timeout=wait, filter=FILTER, **since)
            self._since = response["next_batch"]
        for room, news in response.get("rooms", {}).get("join", {}).items():
            chat = self.chats.setdefault(room, Chat())
            for event in news["timeline"]["events"]:
                chat.hear(event)
                if event["sender"] != self.id and (url := event["content"].get("url")):
                    self.fetched[url] = await self.download(url)
            for event in news["ephemeral"]["events"]:
                _overhear(chat, event)

    async def until(self, fact: Callable[[], Any]) -> None:
        while not fact():
            await self.look()

    def chat(self, room: str) -> Chat:
        return self.chats.setdefault(room, Chat())


def _overhear(chat: Chat, event: dict[str, Any]) -> None:
    if event["type"] == "m.typing":
        chat.typing = event["content"]["user_ids"]
        chat.typed = chat.typed or bool(chat.typing)
        return
    for message, receipts in event["content"].items():
        for person in receipts.get("m.read", {}):
            chat.read[person] = message


class Homeserver:
    """People whose names have a suffix of their own, as all tests share one homeserver."""

    def __init__(self, http: httpx2.AsyncClient) -> None:
        self._http, self.tag = http, secrets.token_hex(6)
        self._people: dict[str, Person] = {}

    async def person(self, name: str) -> Person:
        """The person of this name, created if needed."""
        if name not in self._people:
            self._people[name] = await self.register(name)
        return self._people[name]

    async def register(self, name: str) -> Person:
        asked = {"username": f"{name}-{self.tag}", "password": "secret"}
        answer = await self._http.post(f"{API}/register", json={**asked, "auth": {"type": "m.login.dummy"}})
        if "M_USER_IN_USE" in answer.text:  # a busy server has repeated its own transaction
            user = {"type": "m.id.user", "user": asked["username"]}
            login = {"type": "m.login.password", "identifier": user, "password": asked["password"]}
            answer = await self._http.post(f"{API}/login", json=login)
        assert answer.status_code == 200, answer.text
        made = Person(self._http, answer.json(), name)
        path = f"{API}/profile/{quote(made.id)}/displayname"
        await made.call("PUT", path, {"displayname": name.title()})
        return made


@asynccontextmanager
async def open_homeserver(url: str) -> AsyncIterator[Homeserver]:
    async with httpx2.AsyncClient(base_url=url, trust_env=False, timeout=30) as http:
        yield Homeserver(http)
