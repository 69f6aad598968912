"""An event of Matrix's as an `Arrival`: who said what where, and does it mean us. It fetches nothing."""

import html
import logging
import re
from collections.abc import Mapping
from typing import Any, Literal, TypeAlias

import nio  # type: ignore[import-untyped]
from msgspec import Struct
from msgspec.structs import replace

from alipes.kernel.outbox import MediaKind
from alipes.kernel.platform import Arrival
from alipes.kernel.turns import Address
from alipes.platforms.matrix.client import Client, Refusal, given
from alipes.platforms.matrix.payloads import BUTTONS
from alipes.platforms.state_files import put

NAME = "matrix"
KINDS: dict[str, MediaKind] = {
    "m.image": "image",
    "m.audio": "audio",
    "m.video": "video",
    "m.file": "file",
}
_WORDS = ("m.text", "m.emote", "m.location", *KINDS)
"""What people say. `m.notice` is how programs speak: who answers those talks to a mirror."""
_VOICE = ("m.voice", "org.matrix.msc3245.voice")
_QUOTE = re.compile(r"(?:> ?.*(?:\n|$))+\n*")
_PILL = re.compile(r'<a href="https://matrix\.to/#/([^"?]+)[^"]*">', re.IGNORECASE)
Content: TypeAlias = Mapping[str, Any]


class Said(Struct, frozen=True):
    """An event of a room, as far as it matters to us; what it carries was written by others."""

    id: str
    sender: str
    type: str
    content: dict[str, Any]

    @property
    def related(self) -> Content:
        return _table(self.content, "m.relates_to")

    @property
    def changes(self) -> str:
        """The message that this one replaces."""
        return _text(self.related, "event_id") if self.related.get("rel_type") == "m.replace" else ""

    @property
    def thread(self) -> str:
        return _text(self.related, "event_id") if self.related.get("rel_type") == "m.thread" else ""

    @property
    def answers(self) -> str:
        """The message that this one answers, as its writer meant it."""
        if self.thread and self.related.get("is_falling_back"):
            return ""
        return _text(_table(self.related, "m.in_reply_to"), "event_id")

    @property
    def told(self) -> Content:
        """What it says, or says now."""
        return _table(self.content, "m.new_content") if self.changes else self.content

    @property
    def file(self) -> MediaKind | None:
        told = self.told
        if self.type == "m.sticker":
            return None
        kind = KINDS.get(_text(told, "msgtype"))
        return "voice" if kind == "audio" and any(name in told for name in _VOICE) else kind


class Place(Struct, frozen=True):
    """A room, as it is when something is said in it."""

    id: str
    me: str
    names: tuple[str, ...]
    """What we are called there, besides our id."""
    who: str
    """What the speaker is called."""
    group: bool


class Around(Struct, frozen=True):
    """Other messages that one refers to, as far as they could be found."""

    answered: Said | None = None
    whose: str = ""
    """What is called who wrote that."""
    root: Said | None = None
    """Where its thread began."""
    original: Said | None = None
    """What it changes."""


class Reader(Struct, frozen=True):
    """How we read."""

    per_user: bool = False
    group: Literal["mention", "all"] = "mention"
    commands: frozenset[str] = frozenset()


def said(source: Any) -> Said | None:
    """None for what is no word of anybody's: state, or nothing that could be read."""
    if not isinstance(source, dict) or "state_key" in source:
        return None
    content = source.get("content")
    found = [source.get(name) for name in ("event_id", "sender", "type")]
    if not isinstance(content, dict) or not all(isinstance(each, str) and each for each in found):
        return None
    return Said(str(found[0]), str(found[1]), str(found[2]), content)


def address(place: Place, thread: str, person: str, reader: Reader) -> Address:
    alone = person if reader.per_user and place.group else ""
    return Address(NAME, place.id, "group" if place.group else "dm", thread, alone)


def spoken(event: Said) -> bool:
    """A person says something."""
    if event.type == "m.sticker":
        return True
    return event.type == "m.room.message" and _text(event.told, "msgtype") in _WORDS


def arrival(event: Said, place: Place, reader: Reader, around: Around) -> Arrival:
    """A message without its files."""
    told = event.told
    body, fallback = _split(event)
    words = _named(body, place, reader)
    called = _called(told, body, place)
    command = words.startswith("/") and words[1:].split(" ")[0].split("\n")[0] in reader.commands
    ours = any(each is not None and each.sender == place.me for each in (around.answered, around.root))
    return Arrival(
        id=event.id,
        address=address(place, (around.original or event).thread, event.sender, reader),
        sender=event.sender,
        name=place.who,
        text=words,
        message=event.changes or event.id,
        quoted=_quoted(around, fallback),
        group=place.group,
        addressed=not place.group or called or ours or command or reader.group == "all",
        edits=event.changes,
    )


def pressed(event: Said, about: Said, place: Place, reader: Reader) -> Arrival | None:
    """A reaction to a question of ours; None for one that is no answer to it."""
    data = _table(about.content, BUTTONS).get(_text(event.related, "key"))
    if about.sender != place.me or not isinstance(data, str):
        return None
    return Arrival(
        id=event.id,
        address=address(place, about.thread, event.sender, reader),
        sender=event.sender,
        name=place.who,
        message=about.id,
        group=place.group,
        pressed=data,
    )


def _split(event: Said) -> tuple[str, str]:
    """The words, and before them what an old client quotes of what it answers."""
    told = event.told
    body = _text(told, "body").replace("\r\n", "\n")
    match event.type, _text(told, "msgtype"):
        case "m.sticker", _:
            return f"[sticker: {body}]", ""
        case _, "m.location":
            return f"[location {_text(told, 'geo_uri')}] {body}".strip(), ""
        case _, kind if kind in KINDS:
            name = _text(told, "filename")
            return (body, "") if name and name != body else ("", "")
        case _, "m.emote":
            return f"* {body}", ""
    quote = _QUOTE.match(body) if event.answers and body.startswith(("> <", "> * <")) else None
    if quote is None:
        return body, ""
    lines = [line.removeprefix("> ") for line in quote[0].strip().split("\n")]
    return body[quote.end() :], "\n".join(lines)


def _named(text: str, place: Place, reader: Reader) -> str:
    """Without our own name where it only calls us; `!stop` is how bots are told on Matrix what `/stop` is."""
    text = text.strip()
    for name in sorted((place.me, *place.names), key=len, reverse=True):
        found = re.match(rf"@?{re.escape(name)}(?!\w)[,:]?\s*", text, re.IGNORECASE)
        if name and found:
            text = text[found.end() :]
            break
    word = text[1:].split(" ")[0].split("\n")[0]
    return f"/{text[1:]}" if text.startswith("!") and word in reader.commands else text


def _called(told: Content, body: str, place: Place) -> bool:
    """By the mentions that a client says there are; where it says nothing, by our name in the words."""
    if isinstance(told.get("m.mentions"), dict):
        people = told["m.mentions"].get("user_ids")
        return isinstance(people, list) and place.me in people
    pills = _PILL.findall(_text(told, "formatted_body"))
    if place.me in [html.unescape(pill).replace("%40", "@").replace("%3A", ":") for pill in pills]:
        return True
    return any(
        re.search(rf"(?<!\w){re.escape(name)}(?!\w)", body, re.IGNORECASE)
        for name in (place.me, *place.names)
        if name
    )


def _quoted(around: Around, fallback: str) -> str:
    body = _text(around.answered.told, "body") if around.answered else ""
    return f"{around.whose}: {body}" if body else fallback


def _table(content: Content, name: str) -> Content:
    found = content.get(name)
    return found if isinstance(found, dict) else {}


def _text(content: Content, name: str) -> str:
    found = content.get(name)
    return found if isinstance(found, str) else ""


log = logging.getLogger(__name__)

REMEMBERED = 2000


class Recall:
    """Events by their ids. Raises `TROUBLE` kinds where asking failed for now."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._known: dict[str, Said | None] = {}

    def keep(self, id: str, event: Said | None) -> None:
        put(self._known, id, event, REMEMBERED)

    def change(self, id: str, told: Mapping[str, Any]) -> None:
        """It says this now; where it stands, and what its buttons mean, stays."""
        known = self._known.get(id)
        if known is not None:
            kept = {name: known.content[name] for name in ("m.relates_to", BUTTONS) if name in known.content}
            self.keep(id, replace(known, content={**told, **kept}))

    def sender(self, id: str) -> str:
        known = self._known.get(id)
        return known.sender if known else ""

    async def find(self, room_id: str, id: str) -> Said | None:
        """None where there is none, or none that we can read."""
        if not id:
            return None
        if id not in self._known:
            try:
                await self._ask(room_id, id)
            except Refusal as refused:
                if refused.wait is not None or not 400 <= refused.status < 500:
                    raise
                self.keep(id, None)
        return self._known[id]

    async def _ask(self, room_id: str, id: str) -> None:
        found: Any = given(await self._client.room_get_event(room_id, id), nio.RoomGetEventResponse).event
        if isinstance(found, nio.MegolmEvent):
            log.info("a message that another refers to cannot be read")
            self.keep(id, None)
            return
        self.keep(id, said(found.source))
        try:
            latest = found.source["unsigned"]["m.relations"]["m.replace"]["content"]["m.new_content"]
        except (KeyError, TypeError):
            return
        if isinstance(latest, dict):
            self.change(id, latest)
