"""Who draws: a plugin that offers to, or the model that the operator named; and what that cost."""

import asyncio
import inspect
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeAlias

from msgspec import Struct

from alipes.agent.spending import Spending
from alipes.hooks.offers import Offers, ProviderOffer
from alipes.hooks.tracking import done_by
from alipes.kernel.errors import ToolError
from alipes.kernel.messages import Image
from alipes.kernel.side import Billed
from alipes.kernel.turns import Turn, Usage
from alipes.providers.painting import Painter
from alipes.runtime.guarded import Fetcher, NotFetched
from alipes.tools.pictures import LARGEST

KIND = "image_gen"
"""`ctx.provide("image_gen", name, thing)`; see docs/plugins.md."""
SIZES = {"landscape": "1536x1024", "square": "1024x1024", "portrait": "1024x1536"}
TurnNow: TypeAlias = Callable[[], Turn]


class Easel(Struct, frozen=True):
    """What drawing needs."""

    offers: Offers
    painter: Callable[[], Painter | None]
    """The operator's; None where none was named. Raises `ConfigError` where it cannot be used."""
    spending: Spending
    fetcher: Fetcher
    turn: TurnNow
    seconds: float = 180.0


def available(easel: Easel) -> bool:
    """Is there anybody who draws?"""
    return easel.painter() is not None or _offer(easel.offers) is not None


async def draw(easel: Easel, prompt: str, ratio: str, after: tuple[Image, ...]) -> bytes:
    """The picture. Raises `ToolError` and `ProviderError` kinds."""
    painter = easel.painter()
    if painter is not None:
        return await _by_model(easel, painter, prompt, SIZES[ratio], after)
    offer = _offer(easel.offers)
    if offer is None:
        raise ToolError("nobody is here who draws: set images.model, or enable a plugin that does")
    return await _by_plugin(easel, offer, {"prompt": prompt, "aspect_ratio": ratio, "images": after})


async def _by_model(
    easel: Easel, painter: Painter, prompt: str, size: str, after: tuple[Image, ...]
) -> bytes:
    turn = easel.turn()
    async with easel.spending.call(turn, Usage()):
        painted = await painter.paint(prompt, size, after, seconds=easel.seconds)
        await easel.spending.owe(Billed(turn, "images", painter.name, painted.usage, "image_generate"))
    return painted.data or await _fetched(easel, painted.url)


async def _by_plugin(easel: Easel, offer: ProviderOffer, wishes: Mapping[str, Any]) -> bytes:
    """Its `generate`, sync or async, with the keywords that it takes: bytes, a path, or an address; also in
    a dict under `image`, as plugins written for Hermes give it."""
    generate = getattr(offer.thing, "generate", offer.thing)
    taken = inspect.signature(generate).parameters
    every = any(each.kind is inspect.Parameter.VAR_KEYWORD for each in taken.values())
    given = {name: value for name, value in wishes.items() if every or name in taken}

    async def work() -> Any:
        if inspect.iscoroutinefunction(generate):
            return await generate(**given)
        return await asyncio.to_thread(generate, **given)

    async with asyncio.timeout(easel.seconds):
        made = await done_by(offer.owner, f"{KIND} {offer.name}", work())
    if isinstance(made, dict):
        if made.get("error") and not made.get("image"):
            raise ToolError(f"{offer.name} did not draw: {made['error']}")
        made = made.get("image")
    if isinstance(made, bytes):
        return made
    named = str(made or "")
    if named.startswith(("http://", "https://")):
        return await _fetched(easel, named)
    if not named:
        raise ToolError(f"{offer.name} gave no picture")
    return await asyncio.to_thread(Path(named).read_bytes)


async def _fetched(easel: Easel, url: str) -> bytes:
    try:
        return (await easel.fetcher.fetch(url, largest=LARGEST)).data
    except NotFetched as error:
        raise ToolError(f"the picture was drawn, and cannot be fetched: {error}") from error


def _offer(offers: Offers) -> ProviderOffer | None:
    return next((each for each in offers.all(ProviderOffer) if each.kind == KIND), None)
