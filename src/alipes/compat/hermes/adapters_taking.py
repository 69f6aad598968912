"""From what an adapter heard to what the house takes in: address, words, pictures. It accepts nothing."""

import asyncio
import os
from typing import Any

from alipes.compat.hermes.adapters_values import MessageEvent, MessageType
from alipes.compat.hermes.session_keys import address_of
from alipes.kernel.delivery import MediaKind
from alipes.kernel.messages import Image
from alipes.kernel.platforms import Arrival, Filed
from alipes.kernel.turns import Address

LARGEST = 20_000_000
"""Bytes of a picture that the model is shown."""
INTERNAL = "internal:"
_KINDS: dict[MessageType, MediaKind] = {MessageType.VOICE: "voice", MessageType.AUDIO: "audio"}
_KINDS |= {MessageType.VIDEO: "video", MessageType.PHOTO: "image"}
_PICTURES = {".png": "image/png", ".jpg": "image/jpeg", ".jpeg": "image/jpeg"}
_PICTURES |= {".gif": "image/gif", ".webp": "image/webp"}


def place_of(event: MessageEvent, adapter: Any) -> Address:
    """Where it was said; its key is the one that `build_session_key` gives."""
    if event.source is None:
        raise ValueError("a message without its source cannot be heard: set event.source")
    extra = getattr(getattr(adapter, "config", None), "extra", None) or {}
    flags = (extra.get("group_sessions_per_user", True), extra.get("thread_sessions_per_user", False))
    return address_of(event.source, *map(bool, flags))


async def arrival_of(event: MessageEvent, address: Address) -> Arrival:
    """The message, as the gateway takes it. Its files are read off the loop."""
    assert event.source is not None
    pictures, saved, others = await asyncio.to_thread(_sorted, event)
    words = [_command(event) or event.text or "", *(f"[attached: {each}]" for each in others)]
    quoted = (event.channel_context, event.reply_to_text)
    return Arrival(
        id=f"{address.key}#{event.message_id or os.urandom(8).hex()}",
        address=address,
        sender=sender_of(event, address),
        name=event.source.user_name or "",
        text="\n".join(word for word in words if word),
        images=tuple(pictures),
        files=tuple(saved),
        message=str(event.message_id or ""),
        quoted="\n".join(each for each in quoted if each) if not event.is_command() else "",
        group=address.chat_type != "dm",
    )


def sender_of(event: MessageEvent, address: Address) -> str:
    """Who says it; what the house says itself has a name that no person can have."""
    assert event.source is not None
    person = str(event.source.user_id or event.source.user_name or address.chat)
    if event.internal:
        return f"{INTERNAL}{person}"
    return f"person:{person}" if person.startswith(INTERNAL) else person


def _sorted(event: MessageEvent) -> tuple[list[Image], list[Filed], list[str]]:
    """What the model can be shown, what lies where tools find it, and what lies elsewhere."""
    pictures, others = _files(event)
    saved = [each for each in others if os.path.isfile(each)]
    return pictures, [_filed(each, event) for each in saved], [each for each in others if each not in saved]


def _filed(path: str, event: MessageEvent) -> Filed:
    place = event.media_urls.index(path)
    mime = event.media_types[place] if place < len(event.media_types or ()) else ""
    kind = _KINDS.get(event.message_type, "file")
    return Filed(path, kind, os.path.basename(path), mime if "/" in mime else "", os.path.getsize(path))


def _command(event: MessageEvent) -> str:
    """`/stop` of `/stop@mybot`; empty where it is no command."""
    name = event.get_command()
    return f"/{name} {event.get_command_args()}".rstrip() if name else ""


def _files(event: MessageEvent) -> tuple[list[Image], list[str]]:
    """What the model can be shown, and the paths of what it can only be told of."""
    pictures, others = [], []
    kinds = [*(event.media_types or ()), *[""] * len(event.media_urls or ())]
    for path, kind in zip(event.media_urls or (), kinds, strict=False):
        name = _PICTURES.get(os.path.splitext(path)[1].lower(), "")
        kind = kind if kind in _PICTURES.values() else name
        data = _read(path) if kind else b""
        if data:
            pictures.append(Image(kind, data))
        else:
            others.append(path)
    return pictures, others


def _read(path: str) -> bytes:
    try:
        if os.path.getsize(path) > LARGEST:
            return b""
        with open(path, "rb") as file:
            return file.read()
    except (OSError, ValueError):
        return b""
