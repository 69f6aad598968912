"""What a chat is owed for what a turn tells. It looks whether a named file is there, and sends nothing."""

import os
import re
from collections.abc import Callable, Collection

from msgspec import structs

from alipes.kernel.messages import Message, ToolResult
from alipes.kernel.outbox import Media, MediaKind, Outbound
from alipes.kernel.turns import Event, Noted, Said, Turn, TurnEnded

_NAMED = re.compile(r"^[ \t]*MEDIA:[ \t]*(?P<path>/\S.*?)[ \t]*$", re.MULTILINE)
_PICTURED = re.compile(r"!\[(?P<caption>[^\]\n]*)\]\((?:file://)?(?P<path>/[^()\s]+)\)")
_KINDS: dict[str, MediaKind] = {
    **dict.fromkeys((".png", ".jpg", ".jpeg", ".gif", ".webp"), "image"),
    **dict.fromkeys((".mp3", ".m4a", ".wav", ".flac"), "audio"),
    **dict.fromkeys((".ogg", ".opus"), "voice"),
    **dict.fromkeys((".mp4", ".mov", ".webm"), "video"),
}
_TOLD_STOPS = {"timeout": "Nothing happened for a long time, so it was stopped."}
"""Stops that nobody in the chat asked for."""
REMEMBERED = 4096


class _Told:
    """By one turn."""

    def __init__(self, number: int) -> None:
        self.number = number
        """Of what it says next."""
        self.files: set[str] = set()


class Owing:
    """Called for everything that a turn records, in order, in whichever process lives it."""

    def __init__(
        self,
        platforms: Collection[str],
        folders: Collection[str] = (),
        *,
        keeps: Callable[[str], bool] = lambda _real: False,
    ) -> None:
        """`platforms`: whose chats are owed something. `folders`: where files lie that may be sent along,
        but for those that somebody `keeps` to themselves."""
        self._platforms, self._keeps = frozenset(platforms), keeps
        self._folders = tuple(os.path.join(os.path.realpath(folder), "") for folder in folders if folder)
        self._told: dict[tuple[str, int], _Told] = {}
        self.heard: Callable[[Turn, tuple[Outbound, ...] | None], None] = lambda _turn, _owed: None
        """Called with each turn in a chat as it goes on, for who shows it; and, if an answer of which
        something may have been shown is whole now, with what is owed for it right after this."""

    def serve(self, *platforms: str) -> None:
        """Chats there are owed something as well."""
        self._platforms |= {*platforms}

    def __call__(self, turn: Turn, event: Event) -> tuple[Outbound, ...]:
        if turn.inbound.address.platform not in self._platforms:
            return self._passed_on(turn, event)
        match event:
            case Said(message):
                owed = self._spoken(turn, message)
                self.heard(turn, owed if message.role == "assistant" else None)
                return owed
            case Noted(text):  # of a turn beside the conversation
                return (Outbound(f"{turn.id}:told", turn.inbound.address, text),)
            case TurnEnded(_, ending, detail):
                self._told.pop((turn.id, turn.epoch), None)
                words = _last_words(ending, detail)
                return (_outbound(turn, f"{turn.id}:end", words),) if words else ()
        return ()

    def _passed_on(self, turn: Turn, event: Event) -> tuple[Outbound, ...]:
        """What came from no chat, and is answered in one: there the answer is told, and not the way to it."""
        to, origin = turn.inbound.answer_to, turn.inbound.origin
        if origin is not None and origin.address.platform in self._platforms and isinstance(event, Said):
            # who works for a chat owes it nothing, but may have to ask there
            self.heard(
                structs.replace(turn, inbound=structs.replace(turn.inbound, address=origin.address)), None
            )
        if to is None or to.platform not in self._platforms:
            return ()
        match event:
            case Said(message):
                owed = (
                    structs.replace(
                        each, address=to, reply_to="", turn="", text="" if message.calls else each.text
                    )
                    for each in self._spoken(turn, message)
                )
                return tuple(each for each in owed if each.text or each.media)
            case TurnEnded(_, ending, detail):
                self._told.pop((turn.id, turn.epoch), None)
                words = _last_words(ending, detail)
                return (Outbound(f"{turn.id}:end", to, words),) if words else ()
        return ()

    def _spoken(self, turn: Turn, message: Message) -> tuple[Outbound, ...]:
        told = self._of(turn)
        if message.role == "user":
            return ()
        id = f"{turn.id}:{told.number}"
        told.number += 1
        if message.role == "assistant":
            text, media = self._with_media(message.text, told.files)
            return (_outbound(turn, id, text, media),) if text or media else ()
        media = tuple(each for text in _results(message) for each in self._with_media(text, told.files)[1])
        # what a tool made belongs to no unfinished answer, so that it takes no place of one
        return (_outbound(turn, id, "", media, shown=False),) if media else ()

    def _of(self, turn: Turn) -> "_Told":
        """What the turn told so far; of one that is resumed that includes what an earlier process heard."""
        key = (turn.id, turn.epoch)
        if key not in self._told:
            while len(self._told) >= REMEMBERED:  # turns whose end was written elsewhere
                del self._told[next(iter(self._told))]
            before = [each for each in turn.said if each.role != "user"]
            told = self._told[key] = _Told(len(before))
            for text in (text for each in before for text in (each.text, *_results(each))):
                self._with_media(text, told.files)
        return self._told[key]

    def _with_media(self, text: str, known: set[str]) -> tuple[str, tuple[Media, ...]]:
        """The text without the files it names, and those of them that are not `known` yet, which then are."""
        if not self._folders or ("MEDIA:" not in text and "](" not in text):
            return text.strip() and text, ()
        found: list[Media] = []

        def take(match: re.Match[str]) -> str:
            media = self._media(match["path"], match.groupdict().get("caption") or "")
            if media is None:
                return match[0]
            found.append(media)
            return ""

        left = _PICTURED.sub(take, _NAMED.sub(take, text))
        fresh = {each.path: each for each in found if each.path not in known}
        known.update(fresh)
        return left.strip() if found else text, tuple(fresh.values())

    def _media(self, path: str, caption: str) -> Media | None:
        real = os.path.realpath(path)
        if not real.startswith(self._folders) or not os.path.isfile(real) or self._keeps(real):
            return None
        kind = _KINDS.get(os.path.splitext(real)[1].lower(), "file")
        return Media(real, kind, os.path.basename(path), caption)


def _outbound(
    turn: Turn, id: str, text: str, media: tuple[Media, ...] = (), *, shown: bool = True
) -> Outbound:
    inbound = turn.inbound
    return Outbound(
        id, inbound.address, text, reply_to=inbound.reply_to, media=media, turn=turn.id if shown else ""
    )


def _results(message: Message) -> tuple[str, ...]:
    parts = (part for part in message.parts if isinstance(part, ToolResult))
    return tuple(part.text for part in parts if part.outcome == "ok")


def _last_words(ending: str, detail: str) -> str:
    match ending:
        case "failed":
            return f"It failed: {detail}" if detail else "It failed."
        case "out_of_steps":
            return f"I {detail}." if detail.startswith("stopped") else detail or "I ran out of steps."
        case "stopped":
            return _TOLD_STOPS.get(detail, "")
    return ""
