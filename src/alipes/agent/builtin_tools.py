"""The tools that look, draw, ask, compute and keep a list, put together. What each does, it says itself."""

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import msgspec
from msgspec import Struct

from alipes.agent.auxiliary import Auxiliary
from alipes.agent.budget import Spending
from alipes.config.settings import Settings
from alipes.kernel.errors import ToolError
from alipes.kernel.messages import Image, user
from alipes.kernel.ports import Tool
from alipes.kernel.turns import Reply, Turn, Usage
from alipes.kernel.usage import Billed
from alipes.plugins.attribution import done_by
from alipes.plugins.registry import Offers, ProviderOffer
from alipes.providers.image_generation import Painter
from alipes.providers.registry import Backend, http_of, resolve
from alipes.runtime.http.clients import ClientScope
from alipes.runtime.http.public_fetch import Fetcher, NotFetched
from alipes.store.todos import SqliteTodos
from alipes.tools.clarify import Clarify
from alipes.tools.common import Places
from alipes.tools.media.image_generate import ImageGenerate
from alipes.tools.media.vision import LARGEST, Sources, Vision
from alipes.tools.todo import Item, Items, Todo

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


AskPerson: TypeAlias = Callable[[Turn, str, tuple[str, ...], float], Awaitable[Reply | None]]
"""A question of a turn's, what is proposed, and the seconds it waits."""
_items = msgspec.json.Decoder(tuple[Item, ...])


class Parts(Struct, frozen=True):
    """What they are made of."""

    settings: Settings
    scope: ClientScope
    places: Places
    offers: Offers
    auxiliary: Auxiliary
    spending: Spending
    todos: SqliteTodos
    turn: Callable[[], Turn]
    """The one in whose course we are."""
    open: Callable[[Turn], Awaitable[Backend]]
    """The model that answers it."""
    ask: AskPerson


def senses(parts: Parts) -> tuple[Sequence[Tool], Callable[[], tuple[str, ...]]]:
    """The tools; and what gives the names of those that cannot be used now, as plugins come and go."""
    sources = Sources(parts.places, Fetcher(parts.scope, parts.settings.senses.allow))
    easel = _easel(parts)
    tools = (
        Vision(sources.load, partial(_look, parts)),
        ImageGenerate(parts.settings.paths.outgoing, sources.load, partial(draw, easel)),
        Todo(partial(_read, parts.todos), partial(_write, parts.todos)),
        Clarify(partial(_ask, parts)),
    )
    return tools, lambda: () if available(easel) else (ImageGenerate.spec.name,)


def _easel(parts: Parts) -> Easel:
    settings = parts.settings
    endpoint, model = None, ""
    if settings.senses.images_model:
        endpoint, model = resolve(settings, settings.senses.images_model)
    allowed = [*settings.senses.allow]
    if endpoint is not None:  # what it drew may lie where it is
        allowed.append(endpoint.base_url.partition("://")[2].partition("/")[0].rpartition("@")[2])

    def painter() -> Painter | None:
        if endpoint is None:
            return None
        return Painter(endpoint, model, http_of(endpoint, parts.scope))

    return Easel(
        offers=parts.offers,
        painter=painter,
        spending=parts.spending,
        fetcher=Fetcher(parts.scope, allowed, name="drawn"),
        turn=parts.turn,
        seconds=settings.senses.images_timeout,
    )


async def _look(parts: Parts, question: str, image: Image | None) -> str | None:
    turn = parts.turn()
    own, apart = await parts.open(turn), bool(parts.settings.side.errand("vision").model)
    if own.facts.vision or (own.facts.vision is None and not apart):
        return None
    if not apart:
        raise ToolError(f"{own.name} does not see: name one that does as [auxiliary.vision] model")
    asked = user(question) if image is None else user(question, image)
    reply = await parts.auxiliary.ask(
        "vision", turn, system="You look at pictures.", messages=(asked,), tool=Vision.spec.name
    )
    return reply.message.text or "(nothing was said about it)"


async def _ask(parts: Parts, question: str, choices: tuple[str, ...]) -> str | None:
    reply = await parts.ask(parts.turn(), question, choices, parts.settings.senses.clarify_timeout)
    if reply is not None and reply.unasked:
        raise ToolError(
            f"the person could not be asked ({reply.unasked}). Go on with what you think is best, "
            "and say what you assumed."
        )
    return None if reply is None else reply.text


async def _read(todos: SqliteTodos, session: str) -> Items:
    kept = await todos.read(session)
    return _items.decode(kept) if kept else ()


async def _write(todos: SqliteTodos, session: str, items: Items) -> None:
    await todos.write(session, msgspec.json.encode(items).decode())


async def open_todos(todos: SqliteTodos, session: str) -> tuple[str, ...]:
    """What is still to be done there, a line each."""
    return tuple(
        f"todo {item.id} ({item.status}): {item.content}" for item in await _read(todos, session) if item.open
    )
