"""The people, chats and messages of the loopback Bot API. No HTTP."""

import itertools
import time
from collections.abc import Callable
from typing import Any

from msgspec import Struct, field

from tests.world.telegram_markup import found

Wire = dict[str, Any]
BOT_ID = 4200000001
KINDS = ("photo", "document", "voice", "video", "audio", "sticker")


class StoredMessage(Struct):
    """A message and its history."""

    wire: Wire
    mine: bool
    """The bot's own."""
    at: float
    raw: str = ""
    """The text as sent by the bot, with its markup."""
    mode: str = ""
    edits: list[tuple[float, str]] = field(default_factory=list)
    """Edits: time and visible text."""
    deleted: float = 0.0

    @property
    def text(self) -> str:
        found = self.wire.get("text", self.wire.get("caption", ""))
        return str(found)


class Media(Struct, frozen=True):
    """A file sent by a person."""

    kind: str
    data: bytes = b"data"
    name: str = ""
    mime: str = ""
    size: int | None = None
    """A false size, if set."""


class TelegramChats:
    """All chats. `notify(kind, wire)` gets every update for the bot."""

    def __init__(self, notify: Callable[[str, Wire], None], username: str = "alipes_bot") -> None:
        self.bot: Wire = {
            "id": BOT_ID, "is_bot": True, "first_name": "Alipes", "username": username,
            "can_join_groups": True, "can_read_all_group_messages": True, "supports_inline_queries": False,
            "can_connect_to_business": False, "has_main_web_app": False,
        }  # fmt: skip
        self._author = {name: self.bot[name] for name in ("id", "is_bot", "first_name", "username")}
        self.people: dict[int, Wire] = {}
        self.chats: dict[int, Wire] = {}
        self.messages: dict[int, dict[int, StoredMessage]] = {}
        self.topics: dict[int, set[int]] = {}
        self.blocked: dict[int, str] = {}
        """Chats that blocked the bot, and their error message."""
        self.moved: dict[int, int] = {}
        self.files: dict[str, tuple[str, bytes]] = {}
        """By file id: the path and the content."""
        self.queries: dict[str, Wire] = {}
        """Unanswered button presses."""
        self.spoken = 0
        """The number of messages by the bot."""
        self._notify = notify
        self._serial = itertools.count(1)

    def person(self, user: int, name: str = "") -> Wire:
        if user not in self.people:
            self.people[user] = {
                "id": user, "is_bot": False, "first_name": name or f"Person {user}",
                "username": f"person_{user}", "language_code": "en",
            }  # fmt: skip
        return self.people[user]

    def chat(self, chat: int) -> Wire:
        """The chat, created on first use."""
        if chat not in self.chats:
            assert chat > 0, f"no group {chat}: make it with group()"
            who = self.person(chat)
            self.chats[chat] = {
                "id": chat, "type": "private", "first_name": who["first_name"], "username": who["username"],
            }  # fmt: skip
        return self.chats[chat]

    def group(self, chat: int, title: str = "A group", *, forum: bool = False) -> int:
        made: Wire = {"id": chat, "type": "supergroup" if forum or chat < -(10**12) else "group", "title": title}
        self.chats[chat] = made | ({"is_forum": True} if forum else {})
        if forum:  # message 1 is the general topic
            self._keep(chat, self.person(1), {"supergroup_chat_created": True})
        return chat

    def topic(self, chat: int, name: str = "A topic") -> int:
        """Create a forum topic; returns its id."""
        made = self._keep(chat, self.bot, {"forum_topic_created": {"name": name, "icon_color": 7322096}})
        thread: int = made.wire["message_id"]
        self.topics.setdefault(chat, set()).add(thread)
        return thread

    def block(self, chat: int, why: str = "bot was blocked by the user") -> None:
        self.blocked[chat] = why

    def unblock(self, chat: int) -> None:
        self.blocked.pop(chat, None)

    def move(self, chat: int, to: int) -> None:
        """Upgrade a group to a supergroup with another id."""
        self.group(to, self.chats[chat]["title"])
        self.moved[chat] = to

    def say(
        self,
        text: str = "",
        chat: int = 7,
        user: int | None = None,
        *,
        thread: int = 0,
        reply_to: int = 0,
        quote: str = "",
        forwarded: str = "",
        media: Media | None = None,
        album: str = "",
        more: Wire | None = None,
    ) -> Wire:
        """A person sends a message to the bot. `more`: additional fields."""
        where = self.chat(chat)
        who = self.person(user if user is not None else chat)
        words: Wire = {"caption" if media else "text": text} if text else {}
        if text and (entities := found(text)):
            words["caption_entities" if media else "entities"] = entities
        if media:
            words |= self.attach(media)
        if album:
            words["media_group_id"] = album
        if reply_to and (answered := self.messages.get(chat, {}).get(reply_to)):
            words["reply_to_message"] = bare(answered.wire)
        if quote:
            words["quote"] = {"text": quote, "position": 0, "is_manual": True}
        if forwarded:
            origin = {"type": "hidden_user", "sender_user_name": forwarded, "date": int(time.time()) - 60}
            words["forward_origin"] = origin
        kept = self._keep(where["id"], who, words | (more or {}), thread)
        self._notify("message", kept.wire)
        return kept.wire

    def album(self, captions: tuple[str, ...], chat: int = 7, media: Media | None = None) -> list[Wire]:
        """Send several photos (or files) as an album."""
        name = str(next(self._serial) + 10**10)
        item = media or Media("photo")
        return [self.say(caption, chat, media=item, album=name) for caption in captions]

    def revise(self, chat: int, message: int, text: str) -> Wire:
        """A person edits their message."""
        kept = self.messages[chat][message]
        kept.wire["text"] = text
        kept.wire["edit_date"] = int(time.time())
        kept.edits.append((time.time(), text))
        self._notify("edited_message", dict(kept.wire))
        return kept.wire

    def again(self, chat: int, message: int) -> None:
        """Send the update of a message a second time."""
        self._notify("message", self.messages[chat][message].wire)

    def press(self, chat: int, message: int, data: str, user: int | None = None) -> str:
        """A person presses the button with this data or label; returns the query's id."""
        kept = self.messages[chat][message]
        rows = kept.wire.get("reply_markup", {}).get("inline_keyboard", [])
        buttons = [button for row in rows for button in row]
        pressed = next((b for b in buttons if data in (b["text"], b.get("callback_data"))), None)
        assert pressed, f"no button {data!r} on {kept.text!r}"
        query = {
            "id": str(next(self._serial) + 10**15), "from": self.person(user if user is not None else chat),
            "message": kept.wire, "chat_instance": str(chat), "data": pressed["callback_data"],
        }  # fmt: skip
        self.queries[query["id"]] = query
        self._notify("callback_query", query)
        return str(query["id"])

    def speak(self, chat: int, words: Wire, thread: int = 0, *, raw: str = "", mode: str = "") -> StoredMessage:
        """The bot sends a message; no update."""
        kept = self._keep(chat, self._author, words, thread)
        kept.mine, kept.raw, kept.mode = True, raw, mode
        self.spoken += 1
        return kept

    def mine(self, chat: int | None = None) -> list[StoredMessage]:
        """The bot's visible messages, in order of sending."""
        rooms = [self.messages.get(chat, {})] if chat is not None else list(self.messages.values())
        return sorted(
            (kept for room in rooms for kept in room.values() if kept.mine and not kept.deleted),
            key=lambda kept: kept.at,
        )

    def attach(self, media: Media) -> Wire:
        """The file as part of a message; it can be downloaded from now on."""
        number = next(self._serial)
        name = media.name or {"voice": "", "photo": ""}.get(media.kind, f"file_{number}.bin")
        file: Wire = {
            "file_id": f"file-{number}", "file_unique_id": f"unique-{number}",
            "file_size": len(media.data) if media.size is None else media.size,
        }  # fmt: skip
        suffix = {"photo": ".jpg", "voice": ".oga"}.get(media.kind, "")
        self.files[file["file_id"]] = (f"{media.kind}s/file_{number}{suffix}", media.data)
        match media.kind:
            case "photo":
                small = {**file, "file_id": f"small-{number}", "file_unique_id": f"s-{number}", "file_size": 10}
                self.files[small["file_id"]] = (f"photos/small_{number}.jpg", b"small")
                return {"photo": [small | {"width": 90, "height": 67}, file | {"width": 1280, "height": 960}]}
            case "voice":
                return {"voice": file | {"duration": 3, "mime_type": media.mime or "audio/ogg"}}
            case "audio":
                return {"audio": file | {"duration": 3, "mime_type": media.mime or "audio/mpeg", "file_name": name}}
            case "video":
                sizes = {"width": 640, "height": 480, "duration": 3, "mime_type": media.mime or "video/mp4"}
                return {"video": file | sizes | {"file_name": name}}
            case "sticker":
                sizes = {"width": 512, "height": 512, "is_animated": False, "is_video": False, "type": "regular"}
                return {"sticker": file | sizes | {"emoji": "👍"}}
        return {"document": file | {"file_name": name, "mime_type": media.mime or "application/octet-stream"}}

    def _keep(self, chat: int, who: Wire, words: Wire, thread: int = 0) -> StoredMessage:
        room = self.messages.setdefault(chat, {})
        number = len(room) + 1
        wire = {"message_id": number, "from": who, "chat": self.chats[chat], "date": int(time.time()), **words}
        if thread:
            wire |= {"message_thread_id": thread, "is_topic_message": True}
            if "reply_to_message" not in wire and thread in room:
                # In a topic every message replies to the topic's first message.
                wire["reply_to_message"] = bare(room[thread].wire)
        kept = room[number] = StoredMessage(wire, False, time.time())
        return kept


def bare(wire: Wire) -> Wire:
    """A message as quoted inside another: without its own reply."""
    return {name: value for name, value in wire.items() if name != "reply_to_message"}
