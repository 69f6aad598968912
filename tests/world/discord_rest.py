"""The REST API of the loopback Discord: its routes and their errors. No sockets."""

import re
from collections.abc import Callable
from typing import Any

import msgspec
from aiohttp import BodyPartReader, web
from msgspec import Struct

from tests.world.discord_gateway import Gateway, notices_bot
from tests.world.discord_state import DM, EPHEMERAL, THREAD, DiscordState, File, PostedMessage

LONGEST, LARGEST, NONCE = 2000, 10 * 1024 * 1024, 25
REMEMBERED = 300.0
"""Seconds for which a nonce is remembered."""
COMMAND = re.compile(r"[-_'\w]{1,32}")


class ApiError(Exception):
    """An error response of Discord."""

    def __init__(self, status: int, code: int, message: str, **more: Any) -> None:
        super().__init__(message)
        self.status, self.body = status, {"message": message, "code": code, **more}


class ApiRequest(Struct, frozen=True):
    """A parsed request."""

    method: str
    path: str
    query: dict[str, str]
    body: Any
    files: tuple[tuple[str, str, bytes], ...] = ()
    """Name, media type and content of each part."""


class Command(Struct):
    """A button press or slash command, and the bot's response."""

    id: str
    token: str
    person: str
    place: str
    at: float
    answer: dict[str, Any] | None = None
    answered: float = 0.0
    post: str = ""
    """The message of the response."""


async def read(request: web.Request, path: str) -> ApiRequest:
    body: Any = None
    files = []
    if request.content_type == "multipart/form-data":
        async for part in await request.multipart():
            assert isinstance(part, BodyPartReader)
            data = bytes(await part.read())
            if part.name == "payload_json":
                body = msgspec.json.decode(data)
            else:
                kind = part.headers.get("Content-Type", "application/octet-stream")
                files.append((part.filename or "file", kind, data))
    elif raw := await request.read():
        body = msgspec.json.decode(raw)
    return ApiRequest(request.method, path, dict(request.query), body, tuple(files))


class RestApi:
    """Handles requests on the state, and sends the changes to the gateway's sessions."""

    def __init__(self, world: DiscordState, board: Gateway) -> None:
        self.world, self.board = world, board
        self.commands: list[dict[str, Any]] = []
        """The registered slash commands."""
        self.signs: list[tuple[float, str]] = []
        """Typing indicators: time and channel."""
        self.interactions: dict[str, Command] = {}
        self.forbidden: set[str] = set()
        """Channels where the bot may not write."""
        self.patience = 3.0
        """Seconds in which an interaction must be answered."""
        number = r"(\d+)"
        here = rf"/channels/{number}"
        self._routes: list[tuple[str, str, Callable[..., Any]]] = [
            ("GET", r"/users/@me", lambda _: world.user(world.me.id)),
            ("GET", r"/oauth2/applications/@me", lambda _: self._application()),
            ("GET", r"/gateway(?:/bot)?", lambda _: self._gateway()),
            ("POST", r"/users/@me/channels", self._open_direct),
            ("GET", rf"/users/{number}", lambda _, id: world.user(id)),
            ("GET", here, lambda _, place: world.place(self._place(place).id)),
            ("GET", rf"{here}/messages", self._history),
            ("POST", rf"{here}/messages", self._post),
            ("GET", rf"{here}/messages/{number}", lambda _, place, id: world.message(self._message(place, id))),
            ("PATCH", rf"{here}/messages/{number}", self._edit),
            ("DELETE", rf"{here}/messages/{number}", self._delete),
            ("POST", rf"{here}/typing", self._typing),
            ("POST", rf"{here}/threads", self._start_thread),
            ("POST", rf"{here}/messages/{number}/threads", self._start_thread),
            ("GET", rf"/applications/{number}/commands", lambda _, app: self.commands),
            ("PUT", rf"/applications/{number}/commands", self._register),
            ("POST", rf"/interactions/{number}/([^/]+)/callback", self._answer),
            ("POST", rf"/webhooks/{number}/([^/]+)", self._follow_up),
            ("PATCH", rf"/webhooks/{number}/([^/]+)/messages/@original", self._edit_answer),
            ("DELETE", rf"/webhooks/{number}/([^/]+)/messages/@original", self._take_answer_back),
        ]

    def __call__(self, asked: ApiRequest) -> Any:
        """The JSON response; None for 204."""
        for method, pattern, serve in self._routes:
            if method == asked.method and (found := re.fullmatch(pattern, asked.path)):
                return serve(asked, *found.groups())
        raise ApiError(404, 0, "404: Not Found")

    def _application(self) -> dict[str, Any]:
        return {
            "id": self.world.application, "name": "alipes", "icon": None, "description": "", "bot_public": True,
            "bot_require_code_grant": False, "verify_key": "00", "flags": 0, "team": None,
            "owner": self.world.user(next(iter(self.world.people))),
        }  # fmt: skip

    def _gateway(self) -> dict[str, Any]:
        limits = {"total": 1000, "remaining": 999, "reset_after": 86_400_000, "max_concurrency": 1}
        url = self.world.root.replace("http", "ws", 1) + "/gateway/"
        return {"url": url, "shards": 1, "session_start_limit": limits}

    def _place(self, id: str) -> Any:
        if id not in self.world.places:
            raise ApiError(404, 10003, "Unknown Channel")
        if id in self.forbidden:
            code = 50007 if self.world.places[id].kind == DM else 50001
            raise ApiError(403, code, "Cannot send messages to this user" if code == 50007 else "Missing Access")
        return self.world.places[id]

    def _message(self, place: str, id: str, *, own: bool = False) -> PostedMessage:
        self._place(place)
        post = self.world.posts.get(id)
        if post is None or post.deleted or post.place != place:
            raise ApiError(404, 10008, "Unknown Message")
        if own and post.author != self.world.me.id:
            raise ApiError(403, 50005, "Cannot edit a message authored by another user")
        return post

    def _open_direct(self, asked: ApiRequest) -> dict[str, Any]:
        if asked.body["recipient_id"] not in self.world.people:
            raise ApiError(400, 50033, "Invalid Recipient(s)")
        return self.world.place(self.world.direct(asked.body["recipient_id"]).id)

    def _history(self, asked: ApiRequest, place: str) -> list[dict[str, Any]]:
        self._place(place)
        after, before = int(asked.query.get("after", 0)), int(asked.query.get("before", 1 << 63))
        limit = int(asked.query.get("limit", 50))
        if not 1 <= limit <= 100:
            raise ApiError(400, 50035, "Invalid Form Body")
        posts = [post for post in self.world.in_place(place) if after < int(post.id) < before]
        chosen = posts[:limit] if "after" in asked.query else posts[-limit:]
        return [self.world.message(post) for post in reversed(chosen)]

    def _post(self, asked: ApiRequest, place: str) -> dict[str, Any]:
        self._place(place)
        body = asked.body or {}
        nonce = str(body.get("nonce", ""))
        check(body, asked.files)
        if nonce and body.get("enforce_nonce") and (known := self._remembered(place, nonce)):
            return self.world.message(known)
        answers = self._answered(body.get("message_reference"))
        post = self.world.post(
            place, self.world.me.id, body.get("content") or "", files=self._files(asked), nonce=nonce,
            components=body.get("components") or [], answers=answers, flags=body.get("flags", 0),
            pings=body.get("allowed_mentions", {"parse": ["users"]}).get("parse") != [],
        )  # fmt: skip
        self.tell("MESSAGE_CREATE", post)
        return self.world.message(post)

    def _remembered(self, place: str, nonce: str) -> PostedMessage | None:
        since = self.world.clock() - REMEMBERED
        for post in self.world.posts.values():
            if (post.place, post.nonce, post.author) == (place, nonce, self.world.me.id) and post.at > since:
                return post
        return None

    def _answered(self, reference: dict[str, Any] | None) -> str:
        if not reference:
            return ""
        post = self.world.posts.get(str(reference["message_id"]))
        if post and not post.deleted:
            return post.id
        if reference.get("fail_if_not_exists", True):
            raise ApiError(400, 50035, "Invalid Form Body", errors={"message_reference": "Unknown message"})
        return ""

    def _files(self, asked: ApiRequest) -> list[File]:
        named = {str(n): a for n, a in enumerate((asked.body or {}).get("attachments") or [])}
        return [
            self.world.file(named.get(str(n), {}).get("filename", name), data, mime)
            for n, (name, mime, data) in enumerate(asked.files)
        ]

    def _edit(self, asked: ApiRequest, place: str, id: str) -> dict[str, Any]:
        post = self._message(place, id, own=True)
        check(asked.body, asked.files, had=bool(post.text or post.files))
        self.change(post, asked.body.get("content", post.text), asked.body.get("components", post.components))
        return self.world.message(post)

    def change(self, post: PostedMessage, text: str, components: list[dict[str, Any]] | None = None) -> None:
        post.text = text
        post.components = post.components if components is None else components
        post.edits.append((self.world.clock(), text))
        self.tell("MESSAGE_UPDATE", post)

    def _delete(self, _: ApiRequest, place: str, id: str) -> None:
        post = self._message(place, id)
        post.deleted = self.world.clock()
        self.board.dispatch("MESSAGE_DELETE", {"id": id, "channel_id": place})

    def _typing(self, _: ApiRequest, place: str) -> None:
        self._place(place)
        self.signs.append((self.world.clock(), place))

    def _start_thread(self, asked: ApiRequest, place: str, message: str = "") -> dict[str, Any]:
        self._place(place)
        # A thread started from a message has that message's id.
        thread = self.world.thread(place, asked.body["name"], self.world.me.id, message)
        self.board.dispatch("THREAD_CREATE", self.world.place(thread.id))
        return self.world.place(thread.id)

    def _register(self, asked: ApiRequest, _: str) -> list[dict[str, Any]]:
        names = [command["name"] for command in asked.body]
        if len(asked.body) > 100 or len(set(names)) != len(names):
            raise ApiError(400, 30032, "Maximum number of application commands reached")
        for command in asked.body:
            fits = COMMAND.fullmatch(command["name"]) and command["name"] == command["name"].lower()
            if not fits or not 1 <= len(command["description"]) <= 100:
                raise ApiError(400, 50035, "Invalid Form Body", errors={"name": command["name"]})
        self.commands = [
            {"id": self.world.snowflake(), "application_id": self.world.application, "version": "1", "type": 1,
             "default_member_permissions": None, **command}
            for command in asked.body
        ]  # fmt: skip
        return self.commands

    # Interactions.

    def _pending(self, id: str, token: str) -> Command:
        found = self.interactions.get(id)
        if found is None or found.token != token:
            raise ApiError(404, 10062, "Unknown interaction")
        return found

    def _answer(self, asked: ApiRequest, id: str, token: str) -> None:
        command = self._pending(id, token)
        now = self.world.clock()
        if command.answer is not None:
            raise ApiError(400, 40060, "Interaction has already been acknowledged.")
        if now - command.at > self.patience:
            raise ApiError(404, 10062, "Unknown interaction")
        command.answer, command.answered = asked.body, now
        data = asked.body.get("data") or {}
        if asked.body["type"] == 7 and command.post:
            post = self.world.posts[command.post]
            self.change(post, data.get("content", post.text), data.get("components"))
        if asked.body["type"] in (4, 5):
            if asked.body["type"] == 4:
                check(data, asked.files)
            flags = data.get("flags", 0) | (128 if asked.body["type"] == 5 else 0)
            post = self.world.post(command.place, self.world.me.id, data.get("content", ""), flags=flags, kind=20)
            command.post = post.id
            if not flags & EPHEMERAL:
                self.tell("MESSAGE_CREATE", post)

    def _by_token(self, token: str) -> Command:
        for command in self.interactions.values():
            if command.token == token and command.answer is not None:
                return command
        raise ApiError(404, 10015, "Unknown Webhook")

    def _follow_up(self, asked: ApiRequest, _: str, token: str) -> dict[str, Any]:
        command = self._by_token(token)
        check(asked.body, asked.files)
        flags = asked.body.get("flags", 0)
        post = self.world.post(command.place, self.world.me.id, asked.body["content"], flags=flags)
        if not flags & EPHEMERAL:
            self.tell("MESSAGE_CREATE", post)
        return self.world.message(post)

    def _edit_answer(self, asked: ApiRequest, _: str, token: str) -> dict[str, Any]:
        post = self.world.posts[self._by_token(token).post]
        check(asked.body, asked.files)
        post.flags &= ~128
        self.change(post, asked.body["content"])
        return self.world.message(post)

    def _take_answer_back(self, _: ApiRequest, __: str, token: str) -> None:
        self.world.posts[self._by_token(token).post].deleted = self.world.clock()

    def tell(self, event: str, post: PostedMessage) -> None:
        data = self.world.event(post)
        direct = self.world.places[post.place].kind == DM
        seen = notices_bot(self.world, data) or post.author == self.world.me.id
        self.board.dispatch(event, data, mentions_bot=seen, needs=1 << 12 if direct else 1 << 9)

    def known_place(self, place: str) -> str:
        """Announce a channel that a test created."""
        if self.world.places[place].kind == THREAD:
            self.board.dispatch("THREAD_CREATE", self.world.place(place))
        elif self.world.places[place].kind != DM:
            self.board.dispatch("CHANNEL_CREATE", self.world.place(place))
        return place


def check(body: dict[str, Any], files: tuple[Any, ...] = (), *, had: bool = False) -> None:
    """Raise `ApiError` for a message that Discord would reject."""
    content = body.get("content")
    if content is not None and len(content) > LONGEST:
        why = {
            "content": {"_errors": [{"code": "BASE_TYPE_MAX_LENGTH", "message": "Must be 2000 or fewer in length."}]}
        }
        raise ApiError(400, 50035, "Invalid Form Body", errors=why)
    if not (content or "").strip() and not files and not (had and content is None):
        raise ApiError(400, 50006, "Cannot send an empty message")
    if len(str(body.get("nonce", ""))) > NONCE:
        raise ApiError(400, 50035, "Invalid Form Body", errors={"nonce": "Must be 25 or fewer in length."})
    if sum(len(file[2]) for file in files) > LARGEST:
        raise ApiError(413, 40005, "Request entity too large")
    rows = body.get("components") or []
    buttons = [button for row in rows for button in row["components"]]
    ids = [button["custom_id"] for button in buttons]
    wrong = (
        len(rows) > 5
        or len(set(ids)) != len(ids)
        or any(row["type"] != 1 or not 1 <= len(row["components"]) <= 5 for row in rows)
        or any(not 1 <= len(b["custom_id"]) <= 100 or not 1 <= len(b["label"]) <= 80 for b in buttons)
    )
    if wrong:
        raise ApiError(400, 50035, "Invalid Form Body", errors={"components": "ill-formed"})
