"""The state of the loopback Slack: people, channels and messages, and their JSON. No sockets."""

import html
import itertools
import re
import time
from typing import Any

from msgspec import Struct, field

TEAM, APP = "T0HOUSE", "A0ALIPES"
HISTORY = {"im": "im:history", "channel": "channels:history", "group": "groups:history", "mpim": "mpim:history"}


class Person(Struct, frozen=True):
    id: str
    name: str
    bot: bool = False


class Channel(Struct):
    """`im`: direct messages with `person`; `channel`: public; `group`: private; `mpim`: direct, with several."""

    id: str
    kind: str
    name: str = ""
    person: str = ""
    member: bool = True
    archived: bool = False
    threads: dict[str, str] = field(default_factory=dict)
    """Threads by name: the first message."""


class File(Struct):
    id: str
    name: str
    mime: str
    data: bytes = b""
    subtype: str = ""
    shared: str = ""
    external: str = ""
    """External storage, if not at Slack."""
    url: str = ""
    """A false URL, if set."""
    apart: bool = False
    """Shared from another workspace: its details must be requested."""


def text_of(block: dict[str, Any]) -> list[str]:
    """The text of a block, part by part."""
    if block["type"] == "section":
        return [block["text"]["text"]]
    if block["type"] != "rich_text":
        return []
    return ["".join(each.get("text") or each["url"] for each in part["elements"]) for part in block["elements"]]


class PostedMessage(Struct):
    """A message and its history."""

    ts: str
    channel: str
    user: str
    text: str
    thread: str = ""
    broadcast: bool = False
    files: list[File] = field(default_factory=list)
    blocks: list[dict[str, Any]] = field(default_factory=list)
    attachments: list[dict[str, Any]] = field(default_factory=list)
    metadata: dict[str, Any] | None = None
    marked: bool = True
    """Slack parses markup in its text."""
    subtype: str = ""
    client: str = ""
    edited: str = ""
    edits: list[tuple[float, str]] = field(default_factory=list)
    """Edits: time and text."""
    deleted: bool = False
    reactions: list[tuple[str, str]] = field(default_factory=list)
    """Reactions: person and emoji."""
    marks: list[str] = field(default_factory=list)
    """Every reaction that was added or removed, as `+eyes`."""

    @property
    def shown(self) -> str:
        """The visible text: of the blocks, if there are any."""
        texts = [each for block in self.blocks for each in text_of(block)]
        if texts:
            return "\n\n".join(texts)
        text = self.text if self.marked is False else re.sub(r"[*_~`]", "", self.text)
        return html.unescape(text)

    @property
    def buttons(self) -> list[tuple[str, str]]:
        """Label and value of each button."""
        rows = [block for block in self.blocks if block["type"] == "actions"]
        return [(each["text"]["text"], each["value"]) for row in rows for each in row["elements"]]

    @property
    def answers(self) -> str:
        """The channel message that it replies to."""
        return self.thread if self.broadcast else ""


class SlackState:
    """One workspace with the bot, a channel and people."""

    def __init__(self) -> None:
        self.root = ""
        self._count = itertools.count(1)
        self._latest = 0
        self.people: dict[str, Person] = {}
        self.channels: dict[str, Channel] = {}
        self.posts: dict[tuple[str, str], PostedMessage] = {}
        self.files: dict[str, File] = {}
        self.me = self.person("alipes", bot=True)
        self.channel("general")

    def id(self, letter: str) -> str:
        return f"{letter}0{next(self._count):05d}"

    def ts(self) -> str:
        """Grows with time, also within a millionth of a second."""
        self._latest = max(self._latest + 1, int(time.time() * 1_000_000))
        return f"{self._latest // 1_000_000}.{self._latest % 1_000_000:06d}"

    def person(self, name: str, *, bot: bool = False) -> Person:
        """The person of this name, created if needed."""
        known = next((each for each in self.people.values() if each.name == name), None)
        if known is None:
            known = Person(self.id("U"), name, bot)
            self.people[known.id] = known
        return known

    def channel(self, name: str, kind: str = "channel") -> Channel:
        known = next((each for each in self.channels.values() if each.name == name), None)
        return known or self._put(Channel(self.id("G" if kind == "mpim" else "C"), kind, name))

    def direct(self, person: str) -> Channel:
        known = next((each for each in self.channels.values() if each.person == person), None)
        return known or self._put(Channel(self.id("D"), "im", person=person))

    def _put(self, channel: Channel) -> Channel:
        self.channels[channel.id] = channel
        return channel

    def file(self, name: str, mime: str, data: bytes, **more: Any) -> File:
        file = File(self.id("F"), name, mime, data, **more)
        self.files[file.id] = file
        return file

    def post(self, channel: str, user: str, text: str, **more: Any) -> PostedMessage:
        post = PostedMessage(self.ts(), channel, user, text, **more)
        self.posts[channel, post.ts] = post
        return post

    def in_place(self, channel: str, thread: str = "", *, user: str = "") -> list[PostedMessage]:
        """The messages there, oldest first; a broadcast reply is in thread and channel."""
        return [
            post
            for post in self.posts.values()
            if post.channel == channel
            and not post.deleted
            and user in ("", post.user)
            and (post.thread == thread or (post.broadcast and not thread))
        ]

    # JSON as Slack sends it.

    def user(self, id: str) -> dict[str, Any]:
        person = self.people[id]
        profile = {"display_name": person.name.title(), "real_name": f"{person.name.title()} Smith"}
        return {
            "id": id, "team_id": TEAM, "name": person.name, "deleted": False, "real_name": profile["real_name"],
            "is_bot": person.bot, "profile": profile,
        }  # fmt: skip

    def place(self, channel: Channel) -> dict[str, Any]:
        facts = {"id": channel.id, "created": 1_700_000_000, "is_archived": channel.archived}
        if channel.kind == "im":
            return {**facts, "is_im": True, "user": channel.person}
        kinds = {f"is_{kind}": channel.kind == kind for kind in ("channel", "group", "mpim")}
        return {**facts, **kinds, "name": channel.name, "is_member": channel.member}

    def file_json(self, file: File) -> dict[str, Any]:
        url = file.external or f"{self.root}/files-pri/{TEAM}-{file.id}/download/{file.name.rpartition('/')[2]}"
        facts: dict[str, Any] = {
            "id": file.id, "name": file.name, "title": file.name, "mimetype": file.mime, "size": len(file.data),
            "mode": "external" if file.external else "hosted", "is_external": bool(file.external),
            "url_private": url, "url_private_download": url, "shares": {},
        }  # fmt: skip
        if file.subtype:
            facts["subtype"] = file.subtype
        if file.shared:
            facts["shares"] = {"private": {file.shared: [{"ts": self.ts()}]}}
        return facts

    def _attached(self, file: File) -> dict[str, Any]:
        return {"id": file.id, "file_access": "check_file_info"} if file.apart else self.file_json(file)

    def message(self, post: PostedMessage, *, metadata: bool = False) -> dict[str, Any]:
        facts: dict[str, Any] = {
            "type": "message", "user": post.user, "text": post.text, "ts": post.ts, "team": TEAM,
        }  # fmt: skip
        if post.user == self.me.id:
            facts |= {"bot_id": "B0ALIPES", "app_id": APP}
        optional = {
            "client_msg_id": post.client, "subtype": post.subtype, "blocks": post.blocks,
            "attachments": post.attachments, "files": [self._attached(file) for file in post.files],
            "metadata": post.metadata if metadata else None,
            "edited": {"user": post.user, "ts": post.edited} if post.edited else None,
        }  # fmt: skip
        facts |= {name: value for name, value in optional.items() if value}
        if post.files and not post.subtype and post.user != self.me.id:
            facts["subtype"] = "file_share"
        if post.thread:
            facts["thread_ts"] = post.thread
            if root := self.posts.get((post.channel, post.thread)):
                facts["parent_user_id"] = root.user
            if post.broadcast:
                facts["subtype"] = "thread_broadcast"
        replies = [each for each in self.posts.values() if each.thread == post.ts and not each.deleted]
        if replies and replies[0].channel == post.channel:
            latest = max(each.ts for each in replies)
            facts |= {"thread_ts": post.ts, "reply_count": len(replies), "latest_reply": latest}
        return facts

    def event(self, inside: dict[str, Any]) -> dict[str, Any]:
        """As sent by the Events API."""
        return {
            "token": "verification", "team_id": TEAM, "api_app_id": APP, "event": inside, "type": "event_callback",
            "event_id": self.id("Ev"), "event_time": int(time.time()),
            "authorizations": [{"team_id": TEAM, "user_id": self.me.id, "is_bot": True}],
        }  # fmt: skip


def escaped(text: str) -> str:
    """As Slack's own clients send typed text."""
    text = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return re.sub(r"https?://[^\s<>|]+", r"<\g<0>>", text)
