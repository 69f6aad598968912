"""The state of the loopback Discord: people, channels and messages, and their JSON. No sockets."""

import base64
import itertools
import re
import time
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote

from msgspec import Struct, field

EPOCH = 1_420_070_400_000
TEXT, DM, THREAD = 0, 1, 11
VOICE_FLAG, EPHEMERAL = 1 << 13, 1 << 6
SEES_CONTENT = 1 << 15
EVERYTHING = str((1 << 50) - 1)


class Person(Struct, frozen=True):
    id: str
    name: str
    bot: bool = False


class Channel(Struct, frozen=True):
    """A text channel, a thread in one, or the direct messages with a person."""

    id: str
    kind: int
    name: str = ""
    guild: str = ""
    parent: str = ""
    person: str = ""
    owner: str = ""


class File(Struct, frozen=True):
    id: str
    name: str
    mime: str
    data: bytes = b""
    voice: bool = False


class PostedMessage(Struct):
    """A message and its history."""

    id: str
    place: str
    author: str
    text: str
    at: float
    files: list[File] = []
    components: list[dict[str, Any]] = []
    nonce: str = ""
    answers: str = ""
    forwards: str = ""
    kind: int = 0
    flags: int = 0
    edits: list[tuple[float, str]] = field(default_factory=list)
    """Edits: time and text."""
    deleted: float = 0.0
    pings: bool = True
    """Whether mentioned people are notified; bots may switch that off."""

    @property
    def buttons(self) -> list[tuple[str, str]]:
        """Label and custom_id of each button."""
        return [(b["label"], b["custom_id"]) for row in self.components for b in row["components"]]


class DiscordState:
    """One bot, one guild with a channel, and people."""

    def __init__(self, root: str = "", clock: Any = time.time) -> None:
        self.root, self.clock = root, clock
        self._count = itertools.count(1)
        self._latest = 0
        self.people: dict[str, Person] = {}
        self.places: dict[str, Channel] = {}
        self.posts: dict[str, PostedMessage] = {}
        self.files: dict[str, File] = {}
        self.guild = self.snowflake()
        self.bot_role = self.snowflake()
        self.me = self.person("alipes", bot=True)
        self.application = self.snowflake()
        self.channel("general")

    def snowflake(self) -> str:
        """Ids grow with time, also within one millisecond."""
        now = int(self.clock() * 1000) - EPOCH << 22
        self._latest = max(self._latest + 1, now)
        return str(self._latest)

    def person(self, name: str, *, bot: bool = False) -> Person:
        """The person of this name, created if needed."""
        for known in self.people.values():
            if known.name == name:
                return known
        person = Person(self.snowflake(), name, bot)
        self.people[person.id] = person
        return person

    def channel(self, name: str) -> Channel:
        """The guild's channel of this name."""
        for known in self.places.values():
            if known.kind == TEXT and known.name == name:
                return known
        return self._put(Channel(self.snowflake(), TEXT, name, self.guild))

    def thread(self, parent: str, name: str, owner: str = "", id: str = "") -> Channel:
        for known in self.places.values():
            if known.kind == THREAD and (known.parent, known.name) == (parent, name):
                return known
        return self._put(Channel(id or self.snowflake(), THREAD, name, self.guild, parent, owner=owner))

    def direct(self, person: str) -> Channel:
        """The direct messages between this person and the bot."""
        for known in self.places.values():
            if known.kind == DM and known.person == person:
                return known
        return self._put(Channel(self.snowflake(), DM, person=person))

    def _put(self, place: Channel) -> Channel:
        self.places[place.id] = place
        return place

    def file(self, name: str, data: bytes, mime: str = "application/octet-stream", *, voice: bool = False) -> File:
        file = File(self.snowflake(), name, mime, data, voice)
        self.files[file.id] = file
        return file

    def post(self, place: str, author: str, text: str, **more: Any) -> PostedMessage:
        post = PostedMessage(self.snowflake(), place, author, text, self.clock(), **more)
        self.posts[post.id] = post
        return post

    def in_place(self, place: str, *, author: str = "") -> list[PostedMessage]:
        """The messages there, oldest first."""
        return [
            post
            for post in self.posts.values()
            if post.place == place and not post.deleted and author in ("", post.author)
        ]

    # JSON as Discord sends it.

    def user(self, id: str) -> dict[str, Any]:
        person = self.people[id]
        return {
            "id": id, "username": person.name, "discriminator": "0", "global_name": person.name.title(),
            "avatar": None, "bot": person.bot,
        }  # fmt: skip

    def member(self, id: str, *, user: bool = True) -> dict[str, Any]:
        roles = [self.bot_role] if id == self.me.id else []
        facts = {
            "roles": roles, "joined_at": _stamp(1_700_000_000), "deaf": False, "mute": False, "flags": 0,
            "nick": None,
        }  # fmt: skip
        return {**facts, "user": self.user(id)} if user else facts

    def place(self, id: str) -> dict[str, Any]:
        place = self.places[id]
        latest = max((post.id for post in self.posts.values() if post.place == id), default=None, key=int)
        facts: dict[str, Any] = {"id": id, "type": place.kind, "last_message_id": latest}
        if place.kind == DM:
            return {**facts, "recipients": [self.user(place.person)]}
        facts |= {"guild_id": place.guild, "name": place.name, "parent_id": place.parent or None}
        if place.kind == TEXT:
            return {
                **facts, "position": 0, "permission_overwrites": [], "nsfw": False, "topic": None,
                "rate_limit_per_user": 0,
            }  # fmt: skip
        moment = _stamp(1_700_000_000)
        metadata = {
            "archived": False, "auto_archive_duration": 1440, "archive_timestamp": moment, "locked": False,
            "create_timestamp": moment,
        }  # fmt: skip
        return {
            **facts, "owner_id": place.owner or self.me.id, "thread_metadata": metadata, "message_count": 0,
            "member_count": 1, "rate_limit_per_user": 0, "flags": 0,
        }  # fmt: skip

    def whole_guild(self) -> dict[str, Any]:
        def role(id: str, name: str, **more: Any) -> dict[str, Any]:
            return {
                "id": id, "name": name, "color": 0, "colors": {"primary_color": 0}, "hoist": False, "position": 0,
                "permissions": EVERYTHING, "managed": bool(more), "mentionable": False, "flags": 0, **more,
            }  # fmt: skip

        def those(kind: int) -> list[dict[str, Any]]:
            return [self.place(place.id) for place in self.places.values() if place.kind == kind]

        owner = next((p.id for p in self.people.values() if not p.bot), self.me.id)
        return {
            "id": self.guild, "name": "The Guild", "owner_id": owner, "unavailable": False, "large": False,
            "roles": [role(self.guild, "@everyone"), role(self.bot_role, "alipes", tags={"bot_id": self.me.id})],
            "emojis": [], "stickers": [], "features": [], "channels": those(TEXT), "threads": those(THREAD),
            "members": [self.member(self.me.id)], "member_count": len(self.people), "voice_states": [],
            "presences": [], "stage_instances": [], "guild_scheduled_events": [], "soundboard_sounds": [],
            "preferred_locale": "en-US", "nsfw_level": 0, "premium_tier": 0, "afk_timeout": 300,
            "verification_level": 0, "default_message_notifications": 0, "explicit_content_filter": 0,
            "mfa_level": 0, "system_channel_flags": 0, "joined_at": _stamp(1_700_000_000),
        }  # fmt: skip

    def attachment(self, file: File) -> dict[str, Any]:
        url = f"{self.root}/cdn/attachments/{file.id}/{quote(file.name, safe='')}"
        facts: dict[str, Any] = {
            "id": file.id, "filename": file.name, "size": len(file.data), "url": url, "proxy_url": url,
            "content_type": file.mime,
        }  # fmt: skip
        if file.mime.startswith("image/"):
            facts |= {"width": 1, "height": 1}
        if file.voice:
            facts |= {"duration_secs": 1.5, "waveform": base64.b64encode(bytes(16)).decode()}
        return facts

    def message(self, post: PostedMessage, *, deep: bool = True) -> dict[str, Any]:
        """As in REST; the gateway adds the guild and the member."""
        mentioned = re.findall(r"<@!?(\d+)>", post.text) if post.pings else []
        roles = re.findall(r"<@&(\d+)>", post.text) if post.pings else []
        facts: dict[str, Any] = {
            "id": post.id, "channel_id": post.place, "author": self.user(post.author), "content": post.text,
            "timestamp": _stamp(post.at), "edited_timestamp": _stamp(post.edits[-1][0]) if post.edits else None,
            "tts": False, "mention_everyone": False, "mention_roles": roles,
            "mentions": [self.user(id) for id in dict.fromkeys(mentioned) if id in self.people],
            "attachments": [self.attachment(file) for file in post.files], "embeds": [], "pinned": False,
            "type": 19 if post.answers else post.kind, "flags": post.flags, "components": post.components,
        }  # fmt: skip
        if post.nonce:
            facts["nonce"] = post.nonce
        if deep and (answered := self.posts.get(post.answers)):
            facts["message_reference"] = {"type": 0, **self._reference(answered)}
            facts["referenced_message"] = None if answered.deleted else self.message(answered, deep=False)
        if deep and (passed_on := self.posts.get(post.forwards)):
            facts["message_reference"] = {"type": 1, **self._reference(passed_on)}
            kept = ("content", "timestamp", "edited_timestamp", "mentions", "mention_roles", "attachments",
                    "embeds", "type", "flags", "components")  # fmt: skip
            snapshot = self.message(passed_on, deep=False)
            facts["message_snapshots"] = [{"message": {name: snapshot[name] for name in kept}}]
        return facts

    def _reference(self, post: PostedMessage) -> dict[str, Any]:
        guild = self.places[post.place].guild
        return {"message_id": post.id, "channel_id": post.place, **({"guild_id": guild} if guild else {})}

    def event(self, post: PostedMessage) -> dict[str, Any]:
        """As sent by the gateway."""
        facts = self.message(post)
        if guild := self.places[post.place].guild:
            facts |= {"guild_id": guild, "member": self.member(post.author, user=False)}
        return facts

    def interaction(self, id: str, person: str, place: str, **more: Any) -> dict[str, Any]:
        facts: dict[str, Any] = {
            "id": id, "application_id": self.application, "token": f"token-{id}", "version": 1,
            "channel_id": place, "channel": self.place(place), "entitlements": [], "locale": "en-US",
            "authorizing_integration_owners": {}, "context": 0, "app_permissions": EVERYTHING,
            "attachment_size_limit": 10_485_760, **more,
        }  # fmt: skip
        if guild := self.places[place].guild:
            member = {**self.member(person), "permissions": EVERYTHING}
            return {**facts, "guild_id": guild, "guild": {"id": guild, "features": []}, "member": member}
        return {**facts, "user": self.user(person), "context": 1}


def _stamp(moment: float) -> str:
    return datetime.fromtimestamp(moment, UTC).isoformat()
