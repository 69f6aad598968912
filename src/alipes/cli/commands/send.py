"""`alipes send`: words into a chat, without a model. They are owed here, and delivered by whoever serves."""

import asyncio
import sys
import time
from pathlib import Path

from msgspec import Struct, structs

from alipes.cli import attachments, help_text
from alipes.cli.options import Words
from alipes.config.platforms import MESSENGERS
from alipes.config.settings import Settings, load
from alipes.gateway.outbound.send import addressed
from alipes.kernel.errors import ConfigError, NotTaken
from alipes.kernel.outbox import Debt, Media, MediaKind, Outbound
from alipes.runtime.process_lock import holder
from alipes.store.store import Store, open_store

LOOK = 0.1
"""Seconds between two looks whether it was delivered."""
_KINDS: dict[str, MediaKind] = {
    **dict.fromkeys((".png", ".jpg", ".jpeg", ".gif", ".webp"), "image"),
    **dict.fromkeys((".mp3", ".m4a", ".wav", ".flac"), "audio"),
    **dict.fromkeys((".mp4", ".mov", ".webm"), "video"),
}


class Wish(Struct, frozen=True):
    target: str
    text: str
    files: tuple[Media, ...] = ()
    wait: float = 0.0


def run(argv: list[str]) -> int:
    words = Words("alipes send", help_text.SEND)
    words.add_argument("-f", "--file", action="append", default=[])
    words.add_argument("-w", "--wait", type=float, default=0.0)
    given, named = words.split(argv)
    if not named:
        words.error("who is it for? Name a TARGET")
    text = " ".join(named[1:])
    if not text and not given.file and sys.stdin is not None and not sys.stdin.isatty():
        text = attachments.read_piped(sys.stdin.buffer).text
    if not text.strip() and not given.file:
        words.error("there is nothing to send")
    wish = Wish(named[0], text, tuple(map(_media, given.file)), given.wait)
    return asyncio.run(_send(load(), wish))


async def _send(settings: Settings, wish: Wish) -> int:
    async with open_store(settings.home) as store:
        outbound = await _outbound(store, wish)
        await store.outbox.owe(outbound)
        serving = holder(settings.paths.run / "serve.claim")
        if wish.wait:
            return _tell(await _settled(store, outbound.id, time.monotonic() + wish.wait))
        if serving is None:
            print("Kept; it is delivered when `alipes serve` runs.")
        return 0


async def _outbound(store: Store, wish: Wish) -> Outbound:
    """ConfigError where the target means nothing."""
    homes, people = await store.people.homes(), await store.people.all()
    known = {*MESSENGERS, *homes, *(each.platform for each in people)}
    try:
        said = await addressed(store.people, wish.target, wish.text or "a file", known)
    except NotTaken as refused:
        raise ConfigError(str(refused)) from refused
    return structs.replace(said, text=wish.text, media=wish.files)


async def _settled(store: Store, id: str, deadline: float) -> Debt | None:
    while True:
        debt = await store.outbox.find(id)
        if debt is None or debt.state in ("sent", "dead", "expired") or time.monotonic() > deadline:
            return debt
        await asyncio.sleep(LOOK)


def _tell(debt: Debt | None) -> int:
    if debt is not None and debt.state == "sent":
        return 0
    if debt is None or debt.state in ("dead", "expired"):
        sys.stderr.write(f"alipes send: given up: {debt.why if debt else 'it was dropped'}\n")
        return 1
    why = f": {debt.why}" if debt.why else ""
    sys.stderr.write(f"alipes send: not there yet{why}; it stays owed as number {debt.number}\n")
    return 1


def _media(name: str) -> Media:
    path = Path(name).expanduser().absolute()
    if not path.is_file():
        raise ConfigError(f"{path} is not there as a file")
    return Media(str(path), _KINDS.get(path.suffix.lower(), "file"), path.name)
