"""Converts Matrix events to incoming messages, and caches events that others refer to."""

import html
import logging
import re
from collections.abc import Mapping
from typing import Any, Literal, TypeAlias

import nio  # type: ignore[import-untyped]
from msgspec import Struct
from msgspec.structs import replace

from alipes.kernel.outbox import MediaKind
from alipes.kernel.platform import IncomingMessage
from alipes.kernel.turns import Address
from alipes.platforms.matrix.client import MatrixClient, MatrixError, expect
from alipes.platforms.matrix.payloads import BUTTONS
from alipes.platforms.state_files import put_bounded

NAME = "matrix"
KINDS: dict[str, MediaKind] = {"m.image": "image", "m.audio": "audio", "m.video": "video", "m.file": "file"}
_WORDS = ("m.text", "m.emote", "m.location", *KINDS)
"""Message types of people. Bots use `m.notice`; answering those could loop forever."""
_VOICE = ("m.voice", "org.matrix.msc3245.voice")
_QUOTE = re.compile(r"(?:> ?.*(?:\n|$))+\n*")
_PILL = re.compile(r'<a href="https://matrix\.to/#/([^"?]+)[^"]*">', re.IGNORECASE)
Content: TypeAlias = Mapping[str, Any]


class RoomEvent(Struct, frozen=True):
    """An event of a room. Its content is untrusted."""

    id: str
    sender: str
    type: str
    content: dict[str, Any]

    @property
    def relation(self) -> Content:
        return _table(self.content, "m.relates_to")

    @property
    def replaces(self) -> str:
        """Id of the message that this one edits."""
        return _text(self.relation, "event_id") if self.relation.get("rel_type") == "m.replace" else ""

    @property
    def thread(self) -> str:
        return _text(self.relation, "event_id") if self.relation.get("rel_type") == "m.thread" else ""

    @property
    def replies_to(self) -> str:
        """Id of the message that this one replies to, as its author meant it."""
        if self.thread and self.relation.get("is_falling_back"):
            return ""
        return _text(_table(self.relation, "m.in_reply_to"), "event_id")

    @property
    def current_content(self) -> Content:
        """Its content, after an edit the new one."""
        return _table(self.content, "m.new_content") if self.replaces else self.content

    @property
    def file(self) -> MediaKind | None:
        current = self.current_content
        if self.type == "m.sticker":
            return None
        kind = KINDS.get(_text(current, "msgtype"))
        return "voice" if kind == "audio" and any(name in current for name in _VOICE) else kind


class RoomInfo(Struct, frozen=True):
    """A room when a message arrives."""

    id: str
    me: str
    names: tuple[str, ...]
    """Our names there, besides our id."""
    who: str
    """Name of the sender."""
    group: bool


class RelatedEvents(Struct, frozen=True):
    """Other messages that one refers to, as far as they were found."""

    answered: RoomEvent | None = None
    whose: str = ""
    """Name of its author."""
    root: RoomEvent | None = None
    """First message of its thread."""
    original: RoomEvent | None = None
    """The message it edits."""


class ParseOptions(Struct, frozen=True):
    per_user: bool = False
    group: Literal["mention", "all"] = "mention"
    commands: frozenset[str] = frozenset()


def parse_event(source: Any) -> RoomEvent | None:
    """An event; None for state events and invalid ones."""
    if not isinstance(source, dict) or "state_key" in source:
        return None
    content = source.get("content")
    found = [source.get(name) for name in ("event_id", "sender", "type")]
    if not isinstance(content, dict) or not all(isinstance(each, str) and each for each in found):
        return None
    return RoomEvent(str(found[0]), str(found[1]), str(found[2]), content)


def chat_address(room: RoomInfo, thread: str, person: str, options: ParseOptions) -> Address:
    alone = person if options.per_user and room.group else ""
    return Address(NAME, room.id, "group" if room.group else "dm", thread, alone)


def is_from_person(event: RoomEvent) -> bool:
    if event.type == "m.sticker":
        return True
    return event.type == "m.room.message" and _text(event.current_content, "msgtype") in _WORDS


def parse_message(event: RoomEvent, room: RoomInfo, options: ParseOptions, related: RelatedEvents) -> IncomingMessage:
    """An incoming message without its files."""
    current = event.current_content
    body, fallback = _split(event)
    words = _named(body, room, options)
    mentioned = _is_mentioned(current, body, room)
    command = words.startswith("/") and words[1:].split(" ")[0].split("\n")[0] in options.commands
    ours = any(each is not None and each.sender == room.me for each in (related.answered, related.root))
    return IncomingMessage(
        id=event.id,
        address=chat_address(room, (related.original or event).thread, event.sender, options),
        sender=event.sender,
        name=room.who,
        text=words,
        message=event.replaces or event.id,
        quoted=_quoted(related, fallback),
        group=room.group,
        addressed=not room.group or mentioned or ours or command or options.group == "all",
        edits=event.replaces,
    )


def parse_reaction(event: RoomEvent, about: RoomEvent, room: RoomInfo, options: ParseOptions) -> IncomingMessage | None:
    """A reaction to a question of ours; None if it is not one of its buttons."""
    data = _table(about.content, BUTTONS).get(_text(event.relation, "key"))
    if about.sender != room.me or not isinstance(data, str):
        return None
    return IncomingMessage(
        id=event.id,
        address=chat_address(room, about.thread, event.sender, options),
        sender=event.sender,
        name=room.who,
        message=about.id,
        group=room.group,
        pressed=data,
    )


def _split(event: RoomEvent) -> tuple[str, str]:
    """The text, and the quote that old clients put before a reply."""
    current = event.current_content
    body = _text(current, "body").replace("\r\n", "\n")
    match event.type, _text(current, "msgtype"):
        case "m.sticker", _:
            return f"[sticker: {body}]", ""
        case _, "m.location":
            return f"[location {_text(current, 'geo_uri')}] {body}".strip(), ""
        case _, kind if kind in KINDS:
            name = _text(current, "filename")
            return (body, "") if name and name != body else ("", "")
        case _, "m.emote":
            return f"* {body}", ""
    quote = _QUOTE.match(body) if event.replies_to and body.startswith(("> <", "> * <")) else None
    if quote is None:
        return body, ""
    lines = [line.removeprefix("> ") for line in quote[0].strip().split("\n")]
    return body[quote.end() :], "\n".join(lines)


def _named(text: str, room: RoomInfo, options: ParseOptions) -> str:
    """Remove our name where it only addresses us; on Matrix `!stop` is common for `/stop`."""
    text = text.strip()
    for name in sorted((room.me, *room.names), key=len, reverse=True):
        found = re.match(rf"@?{re.escape(name)}(?!\w)[,:]?\s*", text, re.IGNORECASE)
        if name and found:
            text = text[found.end() :]
            break
    word = text[1:].split(" ")[0].split("\n")[0]
    return f"/{text[1:]}" if text.startswith("!") and word in options.commands else text


def _is_mentioned(current: Content, body: str, room: RoomInfo) -> bool:
    """True if the client's mentions contain us; without mentions, if the text contains our name."""
    if isinstance(current.get("m.mentions"), dict):
        people = current["m.mentions"].get("user_ids")
        return isinstance(people, list) and room.me in people
    pills = _PILL.findall(_text(current, "formatted_body"))
    if room.me in [html.unescape(pill).replace("%40", "@").replace("%3A", ":") for pill in pills]:
        return True
    return any(
        re.search(rf"(?<!\w){re.escape(name)}(?!\w)", body, re.IGNORECASE) for name in (room.me, *room.names) if name
    )


def _quoted(related: RelatedEvents, fallback: str) -> str:
    body = _text(related.answered.current_content, "body") if related.answered else ""
    return f"{related.whose}: {body}" if body else fallback


def _table(content: Content, name: str) -> Content:
    found = content.get(name)
    return found if isinstance(found, dict) else {}


def _text(content: Content, name: str) -> str:
    found = content.get(name)
    return found if isinstance(found, str) else ""


log = logging.getLogger(__name__)

MAX_EVENTS = 2000


class EventCache:
    """Events by id. Raises `FAILURES` if a request failed for now."""

    def __init__(self, client: MatrixClient) -> None:
        self._client = client
        self._known: dict[str, RoomEvent | None] = {}

    def put(self, id: str, event: RoomEvent | None) -> None:
        put_bounded(self._known, id, event, MAX_EVENTS)

    def update(self, id: str, fresh: Mapping[str, Any]) -> None:
        """Replace the content; its relation and buttons stay."""
        known = self._known.get(id)
        if known is not None:
            kept = {name: known.content[name] for name in ("m.relates_to", BUTTONS) if name in known.content}
            self.put(id, replace(known, content={**fresh, **kept}))

    def sender(self, id: str) -> str:
        known = self._known.get(id)
        return known.sender if known else ""

    async def find(self, room_id: str, id: str) -> RoomEvent | None:
        """An event; None if it does not exist or cannot be read."""
        if not id:
            return None
        if id not in self._known:
            try:
                await self._ask(room_id, id)
            except MatrixError as refused:
                if refused.wait is not None or not 400 <= refused.status < 500:
                    raise
                self.put(id, None)
        return self._known[id]

    async def _ask(self, room_id: str, id: str) -> None:
        found: Any = expect(await self._client.room_get_event(room_id, id), nio.RoomGetEventResponse).event
        if isinstance(found, nio.MegolmEvent):
            log.info("a message that another one refers to cannot be read")
            self.put(id, None)
            return
        self.put(id, parse_event(found.source))
        try:
            latest = found.source["unsigned"]["m.relations"]["m.replace"]["content"]["m.new_content"]
        except (KeyError, TypeError):
            return
        if isinstance(latest, dict):
            self.update(id, latest)
