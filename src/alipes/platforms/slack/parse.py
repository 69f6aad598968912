"""What came in from Slack, in our words. It fetches nothing and hands over nothing itself."""

import html
import logging
import re
from typing import Any, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from alipes.kernel.errors import DeliveryError
from alipes.kernel.platform import Arrival
from alipes.kernel.turns import Address
from alipes.platforms.slack.web_api import Calls
from alipes.platforms.state_files import put

NAME = "slack"
_SPOKEN = ("", "file_share", "thread_broadcast", "me_message")
Wire: TypeAlias = dict[str, Any]
"""A message as Slack writes it down."""


class Heard(Struct, frozen=True):
    """Something a person said, or changed."""

    channel: str
    wire: Wire
    changed: str = ""
    """When it was changed; empty if it is new."""

    @property
    def ts(self) -> str:
        return str(self.wire["ts"])

    @property
    def thread(self) -> str:
        """The first message of the thread it is in; empty for one that stands in the channel itself."""
        thread = str(self.wire.get("thread_ts", ""))
        return "" if thread == self.ts else thread

    @property
    def name(self) -> str:
        """What we call the message, however often and by whatever event we are told of it."""
        return f"{self.channel}:{self.ts}"

    @property
    def id(self) -> str:
        """Of what is handed over: the message, or the change of it."""
        return f"{self.name}@{self.changed}" if self.changed else self.name

    @property
    def names(self) -> tuple[str, ...]:
        """Its id, and that of a change which it has already, if it was read after it was changed."""
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


def heard(event: Wire, me: str) -> Heard | None:
    """What an event tells that a person said; None for all else, such as a preview that Slack added."""
    channel, changed, wire = str(event.get("channel", "")), "", event
    if event.get("type") not in ("message", "app_mention"):
        return None
    if event.get("subtype") == "message_changed":
        wire, before = event["message"], event.get("previous_message") or {}
        changed = str((wire.get("edited") or {}).get("ts", ""))
        if not changed or changed == (before.get("edited") or {}).get("ts"):
            return None
    return Heard(channel, wire, changed) if channel and spoken(wire, me) else None


def spoken(wire: Wire, me: str) -> bool:
    """A person said this; it is not Slack telling of a topic, nor a program, nor ourselves."""
    person = wire.get("user", "")
    if wire.get("subtype", "") not in _SPOKEN or wire.get("bot_id") or "ts" not in wire:
        return False
    return bool(person) and person not in (me, "USLACKBOT")


def address(channel: str, thread: str, person: str, *, per_user: bool = False) -> Address:
    """The conversation there; a thread is one of its own."""
    if is_direct(channel):
        return Address(NAME, channel, thread=thread)
    return Address(NAME, channel, "group", thread, person if per_user else "")


def arrival(said: Heard, *, addressed: bool, per_user: bool = False) -> Arrival:
    """A message without its words, its files and the name of who said it."""
    person = str(said.wire["user"])
    return Arrival(
        id=said.id,
        address=address(said.channel, said.thread, person, per_user=per_user),
        sender=person,
        message=said.ts,
        group=not said.direct,
        addressed=said.direct or addressed,
        edits=said.name if said.changed else "",
    )


def passed_on(wire: Wire) -> list[tuple[str, str]]:
    """Messages of others that were shared with this one: who said what, in Slack's own writing."""
    shared = [
        each for each in wire.get("attachments") or () if each.get("is_share") or each.get("is_msg_unfurl")
    ]
    return [
        (str(each.get("author_name", "")), str(each.get("text", ""))) for each in shared if each.get("text")
    ]


def pressed(payload: Wire, *, per_user: bool = False) -> Arrival | None:
    """A pressed button of ours; None for anything else."""
    action: Wire = next(iter(payload.get("actions") or ()), {})
    channel = str((payload.get("channel") or {}).get("id", ""))
    if payload.get("type") != "block_actions" or action.get("type") != "button" or not channel:
        return None
    message, person = payload.get("message") or {}, str(payload["user"]["id"])
    # An answer to a question asked in the channel also hangs from it, but belongs to the channel.
    thread = "" if message.get("subtype") == "thread_broadcast" else str(message.get("thread_ts", ""))
    return Arrival(
        id=f"{channel}:{action['action_ts']}:{person}",
        address=address(channel, "" if thread == message.get("ts") else thread, person, per_user=per_user),
        sender=person,
        message=str(message.get("ts", "")),
        group=not is_direct(channel),
        pressed=str(action.get("value", "")),
    )


def chosen(payload: Wire, known: frozenset[str], *, per_user: bool = False) -> Arrival:
    """A slash command, as the words that stand for it. Slack does not tell in which thread it was given."""
    person, channel = str(payload["user_id"]), str(payload["channel_id"])
    made = Arrival(
        id=f"{channel}:{payload['trigger_id']}",
        address=address(channel, "", person, per_user=per_user),
        sender=person,
        name=str(payload.get("user_name", "")),
        group=not is_direct(channel),
    )
    words = html.unescape(str(payload.get("text", ""))).strip()
    return replace(made, text=_command(str(payload["command"]), words, known))


def _command(name: str, words: str, known: frozenset[str]) -> str:
    """`/stop`, `/alipes-stop` and `/alipes stop` are the same; `/alipes how are you?` is no command."""
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
NAMES = 2000
_ANGLED = re.compile(r"<([^<>\n]+)>")
_MENTION = re.compile(r"<@([A-Z0-9]+)(?:\|[^>]*)?>")


class People:
    """Names of people and channels, asked for once."""

    def __init__(self, calls: Calls) -> None:
        self._calls = calls
        self._names: dict[str, str] = {}

    async def name(self, person: str) -> str:
        """What they are called; their id where Slack does not tell."""
        if person not in self._names:
            try:
                told = await self._calls("asking for a name", "users_info", user=person)
            except DeliveryError as error:
                log.info("the name of %s could not be had: %s", person, error)
                return person
            put(self._names, person, _called(told["user"]) or person, NAMES)
        return self._names[person]

    async def words(self, text: str, me: str = "", *, asks: bool = True) -> str:
        """As a person reads it, without the mention that calls `me`. `asks`: for names not known yet."""
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
