"""Decides what a turn sends to its chat: texts, files, endings. It sends nothing itself.

A file is sent if a tool declared it by value in its result, or if the answer names one that was declared in this
conversation or written by the model in this turn. Text alone sends no file.
"""

import os
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import Protocol

from msgspec import structs

from alipes.agent.tool_calls import changed_files
from alipes.config.settings import Settings
from alipes.kernel.lazy import lazy_pattern
from alipes.kernel.messages import Message, ToolResult
from alipes.kernel.outbox import Media, MediaKind, Outbound
from alipes.kernel.turns import Event, Notice, Said, Turn, TurnEnded
from alipes.sessions.subagents.text import last_text
from alipes.tools.common import make_places

_MEDIA_LINE = lazy_pattern(r"^[ \t]*MEDIA:[ \t]*(?P<path>/\S.*?)[ \t]*$", re.MULTILINE)
_MARKDOWN_IMAGE = lazy_pattern(r"!\[(?P<caption>[^\]\n]*)\]\((?:file://)?(?P<path>/[^()\s]+)\)")
_KINDS: dict[str, MediaKind] = {
    **dict.fromkeys((".png", ".jpg", ".jpeg", ".gif", ".webp"), "image"),
    **dict.fromkeys((".mp3", ".m4a", ".wav", ".flac"), "audio"),
    **dict.fromkeys((".ogg", ".opus"), "voice"),
    **dict.fromkeys((".mp4", ".mov", ".webm"), "video"),
}
_REPORTED_STOPS = {"timeout": "Stopped after a long time without activity."}
"""Stops that nobody in the chat asked for."""
MAX_TURNS = 4096


class TurnObserver(Protocol):
    """Sees each turn of a chat as it is recorded."""

    def on_recorded(self, turn: Turn, answer: tuple[Outbound, ...] | None) -> None:
        """`answer`: the messages of a complete answer, right before they are queued; else None."""
        ...


class _TurnState:
    """What one turn has said and sent so far."""

    def __init__(self, said: tuple[Message, ...]) -> None:
        self.said = list(said)
        self.number = sum(each.role != "user" for each in said)
        """Number of its next message."""
        self.sent: set[str] = set()


class OutboundPolicy:
    """Called for each recorded event of a turn, in order, in the process that runs it."""

    def __init__(
        self,
        platforms: Collection[str],
        folders: Collection[str] = (),
        *,
        is_private: Callable[[str], bool] = lambda _real: False,
    ) -> None:
        """`platforms`: whose chats get messages. `folders`: only files in them may be sent, and never those
        where `is_private(real_path)`."""
        self._platforms, self._is_private = frozenset(platforms), is_private
        self._folders = tuple(os.path.join(os.path.realpath(folder), "") for folder in folders if folder)
        self._turns: dict[tuple[str, int], _TurnState] = {}
        self._observer: TurnObserver | None = None

    def add_platforms(self, *platforms: str) -> None:
        self._platforms |= {*platforms}

    def attach(self, observer: TurnObserver) -> None:
        """`observer` sees all turns of chats from now on."""
        self._observer = observer

    def __call__(self, turn: Turn, event: Event) -> tuple[Outbound, ...]:
        if turn.inbound.address.platform not in self._platforms:
            return self._forward(turn, event)
        match event:
            case Said(message):
                outbounds = self._from_message(turn, message)
                self._observe(turn, outbounds if message.role == "assistant" else None)
                return outbounds
            case Notice(text):  # from a background turn
                return (Outbound(f"{turn.id}:notice", turn.inbound.address, text),)
            case TurnEnded(_, ending, detail):
                self._turns.pop((turn.id, turn.epoch), None)
                text = _ending_text(ending, detail)
                return (_outbound(turn, f"{turn.id}:end", text),) if text else ()
        return ()

    def _observe(self, turn: Turn, answer: tuple[Outbound, ...] | None) -> None:
        if self._observer is not None:
            self._observer.on_recorded(turn, answer)

    def _forward(self, turn: Turn, event: Event) -> tuple[Outbound, ...]:
        """A turn that did not start in a chat but is answered in one: the chat gets the answer only."""
        to, origin = turn.inbound.answer_to, turn.inbound.origin
        if origin is not None and origin.address.platform in self._platforms and isinstance(event, Said):
            # a subagent of a chat sends nothing there, but it may have to ask a question
            inbound = structs.replace(turn.inbound, address=origin.address)
            self._observe(structs.replace(turn, inbound=inbound), None)
        if to is None or to.platform not in self._platforms:
            return ()
        match event:
            case Said(message):
                silent = bool(message.calls or turn.inbound.output_schema)  # a document may still be corrected
                outbounds = (
                    structs.replace(each, address=to, reply_to="", turn="", text="" if silent else each.text)
                    for each in self._from_message(turn, message)
                )
                return tuple(each for each in outbounds if each.text or each.media)
            case TurnEnded(_, ending, detail):
                said = self._state(turn).said
                self._turns.pop((turn.id, turn.epoch), None)
                has_document = turn.inbound.output_schema and ending == "answered"
                text = last_text(said) if has_document else _ending_text(ending, detail)
                return (Outbound(f"{turn.id}:end", to, text),) if text else ()
        return ()

    def _from_message(self, turn: Turn, message: Message) -> tuple[Outbound, ...]:
        state = self._state(turn)
        state.said.append(message)
        if message.role == "user":
            return ()
        id = f"{turn.id}:{state.number}"
        state.number += 1
        if message.role == "assistant":
            text, media = self._take_media(message.text, turn, state)
            return (_outbound(turn, id, text, media),) if text or media else ()
        media = self._keep_unsent(map(self.find_media, declared_files((message,))), state)
        # files of a tool must not replace the drafts of the answer
        return (_outbound(turn, id, "", media, replaces_drafts=False),) if media else ()

    def answer_of(self, turn: Turn, said: Sequence[Message]) -> tuple[str, tuple[Media, ...]]:
        """The last answer of a turn that has ended, without the files that it names, and all files to send."""
        state = _TurnState(())
        state.said = list(said)
        declared = self._keep_unsent(map(self.find_media, declared_files(said)), state)
        answer = next((each.text for each in reversed(said) if each.role == "assistant" and each.text.strip()), "")
        text, named = self._take_media(answer, turn, state)
        return text, (*declared, *named)

    def _state(self, turn: Turn) -> _TurnState:
        """State of a turn, including what it sent in an earlier process if it was resumed."""
        key = (turn.id, turn.epoch)
        if key not in self._turns:
            while len(self._turns) >= MAX_TURNS:  # turns that ended in another process
                del self._turns[next(iter(self._turns))]
            state = self._turns[key] = _TurnState(turn.said)
            self._keep_unsent(map(self.find_media, declared_files(turn.said)), state)
            for each in turn.said:
                if each.role == "assistant":
                    self._take_media(each.text, turn, state)
        return self._turns[key]

    def _take_media(self, text: str, turn: Turn, state: _TurnState) -> tuple[str, tuple[Media, ...]]:
        """The text without the files it names and may send, and those of them that were not sent yet."""
        if not self._folders or ("MEDIA:" not in text and "](" not in text):
            return text.strip() and text, ()
        found: list[Media] = []
        known = _sendable_files(turn, state.said)

        def take(match: re.Match[str]) -> str:
            media = self.find_media(match["path"], match.groupdict().get("caption") or "")
            if media is None or media.path not in known:
                return match[0]
            found.append(media)
            return ""

        left = _MARKDOWN_IMAGE.sub(take, _MEDIA_LINE.sub(take, text))
        return left.strip() if found else text, self._keep_unsent(found, state)

    def _keep_unsent(self, found: Iterable[Media | None], state: _TurnState) -> tuple[Media, ...]:
        fresh = {each.path: each for each in found if each is not None and each.path not in state.sent}
        state.sent.update(fresh)
        return tuple(fresh.values())

    def find_media(self, path: str, caption: str = "") -> Media | None:
        """The file to send; None if there is no such file, or it may not be sent."""
        real = os.path.realpath(path)
        if not real.startswith(self._folders) or not os.path.isfile(real) or self._is_private(real):
            return None
        kind = _KINDS.get(os.path.splitext(real)[1].lower(), "file")
        return Media(real, kind, os.path.basename(path), caption)


def make_outbound_policy(settings: Settings) -> OutboundPolicy:
    """A turn of a chat may be finished by any process: its answer is sent to the chat in any case."""
    folders = (str(settings.paths.outgoing),)
    private = make_places(settings).is_withheld
    return OutboundPolicy(tuple(settings.messengers.configured), folders, is_private=private)


def _outbound(
    turn: Turn, id: str, text: str, media: tuple[Media, ...] = (), *, replaces_drafts: bool = True
) -> Outbound:
    inbound = turn.inbound
    drafts = turn.id if replaces_drafts else ""
    return Outbound(id, inbound.address, text, reply_to=inbound.reply_to, media=media, turn=drafts)


def declared_files(messages: Iterable[Message]) -> Iterator[str]:
    """The files that tools declared in their results."""
    parts = (part for message in messages for part in message.parts)
    return (path for part in parts if isinstance(part, ToolResult) and part.outcome == "ok" for path in part.files)


def _sendable_files(turn: Turn, said: Sequence[Message]) -> set[str]:
    """The real paths of files that the answer may name: declared in this conversation, or written in this turn."""
    written = (os.path.join(turn.inbound.workdir, os.path.expanduser(path)) for path in changed_files(tuple(said)))
    return {os.path.realpath(path) for path in (*declared_files((*turn.history, *said)), *written)}


def _ending_text(ending: str, detail: str) -> str:
    match ending:
        case "gave_up":
            return f"It gave up: {detail}."
        case "failed":
            return f"It failed: {detail}" if detail else "It failed."
        case "out_of_steps":
            return f"I {detail}." if detail.startswith("stopped") else detail or "I ran out of steps."
        case "stopped":
            return _REPORTED_STOPS.get(detail, "")
    return ""
