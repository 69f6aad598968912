"""The people, chats and messages behind the loopback Bot API, and what people do there. It knows no HTTP."""

import itertools
import time
from collections.abc import Callable
from typing import Any

from msgspec import Struct, field

from tests.world.telegram_markup import found

Wire = dict[str, Any]
BOT_ID = 4200000001
KINDS = ("photo", "document", "voice", "video", "audio", "sticker")


class Kept(Struct):
    """One message, as it is now and as it was."""

    wire: Wire
    mine: bool
    """The bot's own."""
    at: float
    raw: str = ""
    """The text as the bot gave it, with its markup."""
    mode: str = ""
    edits: list[tuple[float, str]] = field(default_factory=list)
    """When it was changed, and what people saw from then on."""
    deleted: float = 0.0

    @property
    def text(self) -> str:
        found = self.wire.get("text", self.wire.get("caption", ""))
        return str(found)


class Media(Struct, frozen=True):
    """A file that a person sends along."""

    kind: str
    data: bytes = b"data"
    name: str = ""
    mime: str = ""
    size: int | None = None
    """What the messenger says its size is, if not the truth."""


class Town:
    """Where people write. `told(kind, wire)` hears of everything that a bot is to be told."""

    def __init__(self, told: Callable[[str, Wire], None], username: str = "alipes_bot") -> None:
        self.bot: Wire = {
            "id": BOT_ID, "is_bot": True, "first_name": "Alipes", "username": username,
            "can_join_groups": True, "can_read_all_group_messages": True, "supports_inline_queries": False,
            "can_connect_to_business": False, "has_main_web_app": False,
        }  # fmt: skip
        self._author = {name: self.bot[name] for name in ("id", "is_bot", "first_name", "username")}
        self.people: dict[int, Wire] = {}
        self.chats: dict[int, Wire] = {}
        self.messages: dict[int, dict[int, Kept]] = {}
        self.topics: dict[int, set[int]] = {}
        self.blocked: dict[int, str] = {}
        """Chats that do not want us, and the sentence they answer with."""
        self.moved: dict[int, int] = {}
        self.files: dict[str, tuple[str, bytes]] = {}
        """By file id: the path and what lies there."""
        self.queries: dict[str, Wire] = {}
        """Buttons that were pressed, until they are answered."""
        self.spoken = 0
        """How many messages the bot has written."""
        self._told = told
        self._serial = itertools.count(1)

    def person(self, user: int, name: str = "") -> Wire:
        if user not in self.people:
            self.people[user] = {
                "id": user, "is_bot": False, "first_name": name or f"Person {user}",
                "username": f"person_{user}", "language_code": "en",
            }  # fmt: skip
        return self.people[user]

    def chat(self, chat: int) -> Wire:
        """A private chat is there once someone writes in it."""
        if chat not in self.chats:
            assert chat > 0, f"no group {chat}: make it with group()"
            who = self.person(chat)
            self.chats[chat] = {
                "id": chat, "type": "private", "first_name": who["first_name"], "username": who["username"],
            }  # fmt: skip
        return self.chats[chat]

    def group(self, chat: int, title: str = "A group", *, forum: bool = False) -> int:
        made: Wire = {
            "id": chat,
            "type": "supergroup" if forum or chat < -(10**12) else "group",
            "title": title,
        }
        self.chats[chat] = made | ({"is_forum": True} if forum else {})
        if forum:  # its first message is the general topic
            self._keep(chat, self.person(1), {"supergroup_chat_created": True})
        return chat

    def topic(self, chat: int, name: str = "A topic") -> int:
        """The id of a new topic of a forum."""
        made = self._keep(chat, self.bot, {"forum_topic_created": {"name": name, "icon_color": 7322096}})
        thread: int = made.wire["message_id"]
        self.topics.setdefault(chat, set()).add(thread)
        return thread

    def block(self, chat: int, why: str = "bot was blocked by the user") -> None:
        self.blocked[chat] = why

    def unblock(self, chat: int) -> None:
        self.blocked.pop(chat, None)

    def move(self, chat: int, to: int) -> None:
        """A group becomes a supergroup with another id."""
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
        """A person writes; the bot is told. `more` joins the message as it is."""
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
        self._told("message", kept.wire)
        return kept.wire

    def album(self, captions: tuple[str, ...], chat: int = 7, media: Media | None = None) -> list[Wire]:
        """Several photos (or files) in one go."""
        name = str(next(self._serial) + 10**10)
        item = media or Media("photo")
        return [self.say(caption, chat, media=item, album=name) for caption in captions]

    def revise(self, chat: int, message: int, text: str) -> Wire:
        """A person changes what they wrote."""
        kept = self.messages[chat][message]
        kept.wire["text"] = text
        kept.wire["edit_date"] = int(time.time())
        kept.edits.append((time.time(), text))
        self._told("edited_message", dict(kept.wire))
        return kept.wire

    def again(self, chat: int, message: int) -> None:
        """The bot is told of a message a second time."""
        self._told("message", self.messages[chat][message].wire)

    def press(self, chat: int, message: int, data: str, user: int | None = None) -> str:
        """A person presses the button with this data, or this label; the id of the query."""
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
        self._told("callback_query", query)
        return str(query["id"])

    def speak(self, chat: int, words: Wire, thread: int = 0, *, raw: str = "", mode: str = "") -> Kept:
        """The bot writes; nobody is told."""
        kept = self._keep(chat, self._author, words, thread)
        kept.mine, kept.raw, kept.mode = True, raw, mode
        self.spoken += 1
        return kept

    def mine(self, chat: int | None = None) -> list[Kept]:
        """What the bot's readers see now, in order of its sending."""
        rooms = [self.messages.get(chat, {})] if chat is not None else list(self.messages.values())
        return sorted(
            (kept for room in rooms for kept in room.values() if kept.mine and not kept.deleted),
            key=lambda kept: kept.at,
        )

    def attach(self, media: Media) -> Wire:
        """A file as a message carries it; the file can be fetched from now on."""
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
                small = {
                    **file,
                    "file_id": f"small-{number}",
                    "file_unique_id": f"s-{number}",
                    "file_size": 10,
                }
                self.files[small["file_id"]] = (f"photos/small_{number}.jpg", b"small")
                return {"photo": [small | {"width": 90, "height": 67}, file | {"width": 1280, "height": 960}]}
            case "voice":
                return {"voice": file | {"duration": 3, "mime_type": media.mime or "audio/ogg"}}
            case "audio":
                return {
                    "audio": file
                    | {"duration": 3, "mime_type": media.mime or "audio/mpeg", "file_name": name}
                }
            case "video":
                sizes = {"width": 640, "height": 480, "duration": 3, "mime_type": media.mime or "video/mp4"}
                return {"video": file | sizes | {"file_name": name}}
            case "sticker":
                sizes = {
                    "width": 512,
                    "height": 512,
                    "is_animated": False,
                    "is_video": False,
                    "type": "regular",
                }
                return {"sticker": file | sizes | {"emoji": "👍"}}
        return {"document": file | {"file_name": name, "mime_type": media.mime or "application/octet-stream"}}

    def _keep(self, chat: int, who: Wire, words: Wire, thread: int = 0) -> Kept:
        room = self.messages.setdefault(chat, {})
        number = len(room) + 1
        wire = {
            "message_id": number,
            "from": who,
            "chat": self.chats[chat],
            "date": int(time.time()),
            **words,
        }
        if thread:
            wire |= {"message_thread_id": thread, "is_topic_message": True}
            if "reply_to_message" not in wire and thread in room:
                # In a topic everything answers the topic's first message.
                wire["reply_to_message"] = bare(room[thread].wire)
        kept = room[number] = Kept(wire, False, time.time())
        return kept


def bare(wire: Wire) -> Wire:
    """A message as it stands inside another: without the one that it answers itself."""
    return {name: value for name, value in wire.items() if name != "reply_to_message"}
