"""Sessions of OpenClaw as conversations: windows of one key in order, and the chat that continues each."""

import re
from collections.abc import Callable, Iterator, Sequence

from msgspec import Struct

from alipes.features.importer.conversations import build_conversation
from alipes.features.importer.json_lines import Row, get_text
from alipes.features.importer.openclaw.messages import OpenClawMessages
from alipes.features.importer.records import PastConversation
from alipes.kernel.formatting import format_count
from alipes.kernel.turns import Address

_CONTINUED = ("compaction", "recovery", "rewind", "switch", "fork")
"""Reasons for a new window that continue the conversation of the window before; after others it is a new one."""
_BY_THE_SYSTEM = re.compile(r"(?:^|:)(?:cron|hook|subagent|acp|heartbeat|dreaming)(?::|$)")
_MADE_BY_THE_SYSTEM = ("cron", "spawn", "internal")
_GROUPS = ("group", "channel", "room")
_PLATFORMS_BY_CHAT = ("discord", "slack", "matrix")
"""A private chat there has an id of its own, which is not that of the person."""


class Window(Struct, frozen=True, kw_only=True):
    """One transcript of a session."""

    id: str
    file: str
    reason: str
    read: Callable[[], tuple[list[Row], tuple[str, ...]]]
    """Returns the events of its active path, and what could not be read, as clauses."""


class OpenClawSession(Struct, frozen=True, kw_only=True):
    """What OpenClaw keeps under one key."""

    key: str
    agent: str
    windows: tuple[Window, ...]
    title: str = ""
    archived: bool = False
    model: str = ""
    """A choice for this session alone."""
    parent: str = ""
    """The window that it was forked from."""
    made_by: str = ""
    channel_id: str = ""
    """The chat's own id on the platform, where it differs from the person's."""
    target: str = ""
    """`platform:chat`: where its last answer went."""
    updated: float = 0.0

    @property
    def is_of_the_system(self) -> bool:
        """True for runs of scheduled jobs, subagents and hooks: no person wrote there."""
        return self.made_by in _MADE_BY_THE_SYSTEM or bool(_BY_THE_SYSTEM.search(self.key))

    @property
    def address(self) -> Address | None:
        """The chat that its key names."""
        return read_address(self.key, self.channel_id)


def read_address(key: str, channel_id: str = "") -> Address | None:
    """Of keys such as `agent:main:telegram:direct:1001` and `agent:main:telegram:group:-100777:topic:5`."""
    parts = key.split(":")
    if len(parts) < 5 or parts[0] != "agent":
        return None
    platform, kind, chat, *rest = parts[2:]
    if kind not in ("direct", "dm", *_GROUPS):
        kind, chat, *rest = [*parts[4:], "", ""]  # with an account between
        if parts[3] != "default":
            return None
    thread = rest[1] if len(rest) > 1 and rest[0] in ("topic", "thread") else ""
    if kind in _GROUPS:
        return Address(platform, chat, "group", thread) if chat else None
    if kind not in ("direct", "dm"):
        return None
    if platform in _PLATFORMS_BY_CHAT:
        return Address(platform, channel_id, thread=thread) if channel_id else None
    return Address(platform, chat, thread=thread) if chat and platform != "irc" else None


def build_conversations(
    session: OpenClawSession, parents: dict[str, str], chats: dict[str, str]
) -> Iterator[PastConversation]:
    """One for each stretch between resets. `parents`: the conversation of each window so far, which is added to.
    `chats`: the key of the session that has each address."""
    groups = _group(session.windows)
    for number, group in enumerate(groups):
        path, notes = _join(group)
        pieces = _split_at_resets(path)
        for place, piece in enumerate(pieces):
            name = group[0].id + (f"#{get_text(piece[0], 'id')}" if place else "")
            parents.update((window.id, name) for window in group)
            messages = OpenClawMessages()
            messages.add_all(piece)
            if not messages.messages:
                continue
            is_last = number == len(groups) - 1 and place == len(pieces) - 1
            yield build_conversation(
                group[-1].file,
                name,
                messages.finish(),
                messages.usage,
                title=messages.title or session.title,
                model=session.model,
                workdir=_find_folder(path),
                archived=session.archived,
                parent=parents.get(session.parent, "") if number == place == 0 else "",
                chat=find_chat(session, messages.people, chats) if is_last else None,
                summary=messages.summary,
                notes=(*messages.notes(), *notes),
            )


def find_chat(session: OpenClawSession, people: set[str], chats: dict[str, str]) -> Address | None:
    """The chat that continues it. A session in which several people wrote privately belongs to no chat."""
    address = None if session.archived else session.address
    if address is None and not session.archived and session.key.endswith(":main") and len(people) == 1:
        (person,) = people
        platform, _, chat = person.partition(":")
        direct = platform not in (*_PLATFORMS_BY_CHAT, "irc") and session.target == person
        address = Address(platform, chat) if direct else None
    elif address is not None and address.chat_type == "dm" and len(people) > 1:
        return None
    return address if address is not None and chats.get(address.key, session.key) == session.key else None


def assign_chats(sessions: Sequence[OpenClawSession]) -> dict[str, str]:
    """The newest session of each address."""
    found: dict[str, str] = {}
    for session in sorted(sessions, key=lambda each: each.updated):
        if session.address is not None and not session.archived:
            found[session.address.key] = session.key
    return found


def _group(windows: Sequence[Window]) -> list[list[Window]]:
    groups: list[list[Window]] = []
    for window in windows:
        if groups and window.reason in _CONTINUED:
            groups[-1].append(window)
        else:
            groups.append([window])
    return groups


def _join(group: Sequence[Window]) -> tuple[list[Row], list[str]]:
    """The events of windows that continue one another: what a later one repeats is left out of those before."""
    found = [window.read() for window in group]
    notes = [note for _, clauses in found for note in clauses]
    joined: list[Row] = []
    for number, (path, _) in enumerate(found):
        later = {get_text(event, "id") for rest, _ in found[number + 1 :] for event in rest}
        own = [event for event in path if get_text(event, "id") not in later or event.get("type") == "session"]
        if number + 1 < len(group) and group[number + 1].reason == "rewind":
            gone = sum(event.get("type") == "message" for event in own)
            notes += [f"{format_count(gone, 'message')} taken back there"] if gone else []
        else:
            joined += own
    return joined, notes


def _split_at_resets(path: list[Row]) -> list[list[Row]]:
    """`/new` keeps the window and writes a `reset`, which may take some messages along."""
    starts = [0]
    places = {get_text(event, "id"): place for place, event in enumerate(path)}
    for place, event in enumerate(path):
        if event.get("type") == "reset":
            starts.append(max(starts[-1], min(place, places.get(get_text(event, "firstKeptEntryId"), place))))
    pieces = [path[start:end] for start, end in zip(starts, [*starts[1:], len(path)], strict=True)]
    return [piece for piece in pieces if piece] or [path]


def _find_folder(path: Sequence[Row]) -> str:
    return next((get_text(event, "cwd") for event in path if event.get("type") == "session"), "")
