"""The tools that look, draw, ask, compute and keep a list, put together. What each does, it says itself."""

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import TypeAlias

import msgspec
from msgspec import Struct

from alipes.agent.auxiliary import Auxiliary
from alipes.agent.drawing import Easel, available, draw
from alipes.agent.spending import Spending
from alipes.config.settings import Settings
from alipes.hooks.offers import Offers
from alipes.kernel.errors import ToolError
from alipes.kernel.messages import Image, user
from alipes.kernel.ports import Tool
from alipes.kernel.turns import Reply, Turn
from alipes.providers.opening import Backend, http_of, resolve
from alipes.providers.painting import Painter
from alipes.runtime.clients import ClientScope
from alipes.runtime.guarded import Fetcher
from alipes.store.todos import SqliteTodos
from alipes.tools.clarify import Clarify
from alipes.tools.images import ImageGenerate
from alipes.tools.paths import Places
from alipes.tools.sources import Sources
from alipes.tools.todo import Item, Items, Todo
from alipes.tools.vision import Vision

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
