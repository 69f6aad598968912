"""Calls into plugin code: only with the keywords that its signature takes. It catches nothing."""

import inspect
from collections.abc import Callable, Mapping
from typing import Any


def accepted(function: Callable[..., Any], offered: Mapping[str, Any]) -> dict[str, Any]:
    """Of what is `offered`, what may be passed to `function` by name."""
    try:
        taken = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):  # written in C, and it does not say
        return dict(offered)
    if any(each.kind is each.VAR_KEYWORD for each in taken):
        return dict(offered)
    names = {each.name for each in taken if each.kind in (each.POSITIONAL_OR_KEYWORD, each.KEYWORD_ONLY)}
    return {name: value for name, value in offered.items() if name in names}


async def call(function: Callable[..., Any], *given: Any, **offered: Any) -> Any:
    """What it gives, awaited if need be. `given` by position, as all versions of the contract have it;
    of `offered` what it takes."""
    answer = function(*given, **_beyond(function, given, offered))
    return await answer if inspect.isawaitable(answer) else answer


def _beyond(
    function: Callable[..., Any], given: tuple[Any, ...], offered: Mapping[str, Any]
) -> dict[str, Any]:
    """What is accepted and not given by position already, whatever the parameter is called."""
    cut = accepted(function, offered)
    try:
        names = list(inspect.signature(function).parameters)[: len(given)]
    except (TypeError, ValueError):
        return cut
    return {name: value for name, value in cut.items() if name not in names}
