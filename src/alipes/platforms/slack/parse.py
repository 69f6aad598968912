"""Converts Slack events to incoming messages."""

import html
import logging
import re
from typing import Any, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from alipes.kernel.errors import DeliveryError
from alipes.kernel.platform import IncomingMessage
from alipes.kernel.turns import Address
from alipes.platforms.slack.web_api import SlackApi
from alipes.platforms.state_files import put_bounded

NAME = "slack"
_SPOKEN = ("", "file_share", "thread_broadcast", "me_message")
Wire: TypeAlias = dict[str, Any]
"""A message in Slack's JSON."""


class SlackMessage(Struct, frozen=True):
    """A message of a person, new or edited."""

    channel: str
    wire: Wire
    changed: str = ""
    """Timestamp of the edit; empty if it is new."""

    @property
    def ts(self) -> str:
        return str(self.wire["ts"])

    @property
    def thread(self) -> str:
        """First message of its thread; empty for a message in the channel itself."""
        thread = str(self.wire.get("thread_ts", ""))
        return "" if thread == self.ts else thread

    @property
    def place(self) -> str:
        return f"{self.channel}/{self.thread}"

    @property
    def name(self) -> str:
        """Our name for the message, whichever event reports it."""
        return f"{self.channel}:{self.ts}"

    @property
    def id(self) -> str:
        """Id of the incoming message: the message, or an edit of it."""
        return f"{self.name}@{self.changed}" if self.changed else self.name

    @property
    def names(self) -> tuple[str, ...]:
        """Its id, and that of an edit that it already contains because it was read afterwards."""
        edited = str((self.wire.get("edited") or {}).get("ts", ""))
        return (self.id, f"{self.name}@{edited}") if edited and not self.changed else (self.id,)

    @property
    def direct(self) -> bool:
        return is_direct(self.channel)

    @property
    def files(self) -> list[Wire]:
        return [file for file in self.wire.get("files") or () if file.get("mode") != "tombstone"]


def is_direct(channel: str) -> bool:
    return channel.startswith("D")


def parse_event(event: Wire, me: str) -> SlackMessage | None:
    """The message of a person in an event; None for anything else, such as a link preview that Slack added."""
    channel, changed, wire = str(event.get("channel", "")), "", event
    if event.get("type") not in ("message", "app_mention"):
        return None
    if event.get("subtype") == "message_changed":
        wire, before = event["message"], event.get("previous_message") or {}
        changed = str((wire.get("edited") or {}).get("ts", ""))
        if not changed or changed == (before.get("edited") or {}).get("ts"):
            return None
    return SlackMessage(channel, wire, changed) if channel and is_from_person(wire, me) else None


def is_from_person(wire: Wire, me: str) -> bool:
    """True for a message of a person: not a system message, a program's or our own."""
    person = wire.get("user", "")
    if wire.get("subtype", "") not in _SPOKEN or wire.get("bot_id") or "ts" not in wire:
        return False
    return bool(person) and person not in (me, "USLACKBOT")


def chat_address(channel: str, thread: str, person: str, *, per_user: bool = False) -> Address:
    """Address of a conversation; a thread is a conversation of its own."""
    if is_direct(channel):
        return Address(NAME, channel, thread=thread)
    return Address(NAME, channel, "group", thread, person if per_user else "")


def to_incoming(said: SlackMessage, *, addressed: bool, per_user: bool = False) -> IncomingMessage:
    """An incoming message, still without text, files and the sender's name."""
    person = str(said.wire["user"])
    return IncomingMessage(
        id=said.id,
        address=chat_address(said.channel, said.thread, person, per_user=per_user),
        sender=person,
        message=said.ts,
        group=not said.direct,
        addressed=said.direct or addressed,
        edits=said.name if said.changed else "",
    )


def list_shared(wire: Wire) -> list[tuple[str, str]]:
    """Messages that were shared with this one: author and text in Slack's format."""
    shared = [each for each in wire.get("attachments") or () if each.get("is_share") or each.get("is_msg_unfurl")]
    return [(str(each.get("author_name", "")), str(each.get("text", ""))) for each in shared if each.get("text")]


def parse_button(payload: Wire, *, per_user: bool = False) -> IncomingMessage | None:
    """A pressed button of ours; None for anything else."""
    action: Wire = next(iter(payload.get("actions") or ()), {})
    channel = str((payload.get("channel") or {}).get("id", ""))
    if payload.get("type") != "block_actions" or action.get("type") != "button" or not channel:
        return None
    message, person = payload.get("message") or {}, str(payload["user"]["id"])
    # a question asked in the channel is also shown in a thread but belongs to the channel
    thread = "" if message.get("subtype") == "thread_broadcast" else str(message.get("thread_ts", ""))
    return IncomingMessage(
        id=f"{channel}:{action['action_ts']}:{person}",
        address=chat_address(channel, "" if thread == message.get("ts") else thread, person, per_user=per_user),
        sender=person,
        message=str(message.get("ts", "")),
        group=not is_direct(channel),
        pressed=str(action.get("value", "")),
    )


def parse_command(payload: Wire, known: frozenset[str], *, per_user: bool = False) -> IncomingMessage:
    """A slash command as text. Slack does not report its thread."""
    person, channel = str(payload["user_id"]), str(payload["channel_id"])
    incoming = IncomingMessage(
        id=f"{channel}:{payload['trigger_id']}",
        address=chat_address(channel, "", person, per_user=per_user),
        sender=person,
        name=str(payload.get("user_name", "")),
        group=not is_direct(channel),
    )
    words = html.unescape(str(payload.get("text", ""))).strip()
    return replace(incoming, text=_command(str(payload["command"]), words, known))


def _command(name: str, words: str, known: frozenset[str]) -> str:
    """`/stop`, `/alipes-stop` and `/alipes stop` are the same; `/alipes how are you?` is a message."""
    name = name.removeprefix("/")
    if name not in known and "-" in name:
        name = name.partition("-")[2]
    elif name not in known:
        first, _, rest = (words or "help").removeprefix("/").partition(" ")
        if first.lower() not in known and known:
            return words
        name, words = first, rest.strip()
    return f"/{name} {words}".strip()


log = logging.getLogger(__name__)
MAX_NAMES = 2000
_ANGLED = re.compile(r"<([^<>\n]+)>")
_MENTION = re.compile(r"<@([A-Z0-9]+)(?:\|[^>]*)?>")


class SlackNames:
    """Names of people and channels, each requested once."""

    def __init__(self, api: SlackApi) -> None:
        self._api = api
        self._names: dict[str, str] = {}

    async def name(self, person: str) -> str:
        """Display name; the id if Slack does not report one."""
        if person not in self._names:
            try:
                response = await self._api("requesting a name", "users_info", user=person)
            except DeliveryError as error:
                log.info("requesting the name of %s failed: %s", person, error)
                return person
            put_bounded(self._names, person, _called(response["user"]) or person, MAX_NAMES)
        return self._names[person]

    async def plain_words(self, text: str, me: str = "", *, asks: bool = True) -> str:
        """Text as a person reads it, without the mention of `me`. `asks`: request unknown names."""
        if me:
            text = re.sub(rf"<@{me}(?:\|[^>]*)?>[ \t]?", "", text)
        mentioned = dict.fromkeys(_MENTION.findall(text))
        names = {id: await self.name(id) if asks else self._names.get(id, id) for id in mentioned}
        return html.unescape(_ANGLED.sub(lambda found: _plain(found[1], names), text)).strip()


def mentions(text: str, me: str) -> bool:
    return me in _MENTION.findall(text)


def _plain(inside: str, names: dict[str, str]) -> str:
    target, _, label = inside.partition("|")
    match target[:1]:
        case "@":
            return f"@{names.get(target[1:], label or target[1:])}"
        case "#":
            return f"#{label or target[1:]}"
        case "!":
            return label or f"@{target[1:].partition('^')[0]}"
    address = target.removeprefix("mailto:").removeprefix("tel:")
    return address if label in ("", address) or target.endswith(f"://{label}") else f"{label} ({address})"


def _called(user: dict[str, Any]) -> str:
    profile = user.get("profile", {})
    names = (profile.get("display_name"), profile.get("real_name"), user.get("real_name"), user.get("name"))
    return next((str(name) for name in names if name), "")
