"""Finds and calls providers that plugins contribute: image generators, voices, transcription services."""

import asyncio
import inspect
from collections.abc import Mapping, Sequence
from typing import Any

from alipes.kernel.errors import PluginError
from alipes.plugins.dispatch import guard
from alipes.plugins.interruption.attribution import run_as
from alipes.plugins.owner import PluginOwner
from alipes.plugins.registry import Contributions, ProviderContribution
from alipes.runtime.embeddings import compare_texts

AVAILABILITY_TIMEOUT_S = 5.0
EMBEDDINGS = "embeddings"
"""`ctx.provide("embeddings", name, thing)`; see docs/tools.md."""


async def find_providers(contributions: Contributions, kind: str) -> tuple[ProviderContribution, ...]:
    """The providers of a kind that are available now. One that fails to answer counts as unavailable."""
    return tuple([each for each in contributions.providers(kind) if await _is_available(each)])


async def _is_available(provider: ProviderContribution) -> bool:
    check = getattr(provider.thing, "is_available", None)
    if check is None:
        return True
    owner = PluginOwner(provider.owner.name, permanent=True)
    what = f"availability of {provider.kind} {provider.name}"
    try:
        return bool(await guard(owner, what, asyncio.to_thread(check), deadline=AVAILABILITY_TIMEOUT_S))
    except PluginError:  # already logged
        return False


async def call_provider(
    provider: ProviderContribution, method: str, *args: Any, options: Mapping[str, Any], seconds: float
) -> Any:
    """Call its method, or the provider itself if it is a function, with the options that it takes.

    Plain functions run in a thread. Raises what the plugin raises, and TimeoutError after `seconds`.
    """
    function = getattr(provider.thing, method, provider.thing)
    parameters = inspect.signature(function).parameters
    takes_all = any(each.kind is inspect.Parameter.VAR_KEYWORD for each in parameters.values())
    given = {name: value for name, value in options.items() if takes_all or name in parameters}

    async def work() -> Any:
        if inspect.iscoroutinefunction(function):
            return await function(*args, **given)
        answer = await asyncio.to_thread(function, *args, **given)
        return await answer if inspect.isawaitable(answer) else answer

    async with asyncio.timeout(seconds):
        return await run_as(provider.owner, f"{provider.kind} {provider.name}", work())


async def compare_by_meaning(
    contributions: Contributions, query: str, texts: Sequence[str]
) -> tuple[float, ...] | None:
    """How similar each text is to the query, from the `similarity(query, texts)` of the first available provider of
    embeddings, else by the installed ones; None if there are none or they fail."""
    providers = await find_providers(contributions, EMBEDDINGS)
    if not providers:
        return await compare_texts(query, texts)
    owner = PluginOwner(providers[0].owner.name, permanent=True)
    options = {"query": query, "texts": list(texts)}
    work = call_provider(providers[0], "similarity", options=options, seconds=AVAILABILITY_TIMEOUT_S)
    try:
        scores = await guard(owner, f"{EMBEDDINGS} {providers[0].name}", work, deadline=AVAILABILITY_TIMEOUT_S)
        return tuple(float(score) for score in scores)
    except (PluginError, TypeError, ValueError):  # a search by words is good enough
        return None
