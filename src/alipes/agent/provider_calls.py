"""Finds and calls providers that plugins contribute: image generators, voices, transcription services."""

import asyncio
import inspect
from collections.abc import Iterator, Mapping
from typing import Any

from alipes.plugins.interruption.attribution import run_as
from alipes.plugins.registry import Contributions, ProviderContribution


def find_providers(contributions: Contributions, kind: str) -> Iterator[ProviderContribution]:
    """The providers of a kind that are available now, in the order of their plugins."""
    for each in contributions.all(ProviderContribution):
        if each.kind == kind and getattr(each.thing, "is_available", lambda: True)():
            yield each


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
