"""`alipes send`: queues a message for a chat; `alipes serve` delivers it."""

import asyncio
import sys
import time
from pathlib import Path

from msgspec import structs

from alipes.config.loader import load_settings
from alipes.config.paths import LOCK_NAME
from alipes.config.settings import Settings
from alipes.console import help_text
from alipes.console.inbound import read_piped
from alipes.console.options import OptionParser
from alipes.gateway.outbound.target import resolve_target
from alipes.kernel.errors import ConfigError
from alipes.kernel.outbox import Delivery, Media, MediaKind
from alipes.runtime.process_lock import find_holder
from alipes.store.open import open_home_store
from alipes.store.sql.store import Store

POLL_S = 0.1
"""Interval between two checks of the delivery."""
_KINDS: dict[str, MediaKind] = {
    **dict.fromkeys((".png", ".jpg", ".jpeg", ".gif", ".webp"), "image"),
    **dict.fromkeys((".mp3", ".m4a", ".wav", ".flac"), "audio"),
    **dict.fromkeys((".mp4", ".mov", ".webm"), "video"),
}


def run(argv: list[str]) -> int:
    parser = OptionParser("alipes send", help_text.SEND, {"wait": {"type": float, "default": 0.0}})
    args, named = parser.parse_with_words(argv)
    if not named:
        parser.error("missing TARGET")
    text = " ".join(named[1:])
    if not text and not args.file and sys.stdin is not None and not sys.stdin.isatty():
        text = read_piped(sys.stdin.buffer).text
    if not text.strip() and not args.file:
        parser.error("nothing to send")
    return asyncio.run(_send(load_settings(), named[0], text, tuple(map(_to_media, args.file)), args.wait))


async def _send(settings: Settings, target: str, text: str, files: tuple[Media, ...], wait_s: float) -> int:
    async with open_home_store(settings) as store:
        outbound = await resolve_target(store, target, text or "a file")
        outbound = structs.replace(outbound, text=text, media=files)
        await store.outbox.enqueue(outbound)
        serving = find_holder(settings.paths.run / LOCK_NAME)
        if wait_s:
            return _report_delivery(await _wait_for_delivery(store, outbound.id, time.monotonic() + wait_s))
        if serving is None:
            print("Queued; it will be sent when `alipes serve` is running.")
        return 0


async def _wait_for_delivery(store: Store, id: str, deadline: float) -> Delivery | None:
    while True:
        delivery = await store.outbox.find(id)
        if delivery is None or delivery.state in ("sent", "failed", "expired") or time.monotonic() > deadline:
            return delivery
        await asyncio.sleep(POLL_S)


def _report_delivery(delivery: Delivery | None) -> int:
    if delivery is not None and delivery.state == "sent":
        return 0
    if delivery is None or delivery.state in ("failed", "expired"):
        sys.stderr.write(f"alipes send: failed: {delivery.why if delivery else 'it was discarded'}\n")
        return 1
    why = f": {delivery.why}" if delivery.why else ""
    sys.stderr.write(f"alipes send: not delivered yet{why}; still queued as #{delivery.number}\n")
    return 1


def _to_media(name: str) -> Media:
    path = Path(name).expanduser().absolute()
    if not path.is_file():
        raise ConfigError(f"{path} is not a file")
    return Media(str(path), _KINDS.get(path.suffix.lower(), "file"), path.name)
