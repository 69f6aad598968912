"""Calling plugin code as it wants to be called: with what its signature takes, and nothing else."""

import inspect
from collections.abc import Callable, Iterator, Mapping
from typing import Any

_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


class Later:
    """A value that is made only if somebody takes it: a whole history costs more than a name."""

    __slots__ = ("_make",)

    def __init__(self, make: Callable[[], Any]) -> None:
        self._make = make

    @staticmethod
    def now(value: Any) -> Any:
        return value._make() if isinstance(value, Later) else value


class Beside:
    """A value beyond what the contract lists: only for a callback that names it."""

    __slots__ = ("_value",)

    def __init__(self, value: Any) -> None:
        self._value = value

    @staticmethod
    def now(value: Any) -> Any:
        return Later.now(value._value if isinstance(value, Beside) else value)


class Fit:
    """A callback, and what it takes. Plain functions, methods, partials and objects that can be called."""

    def __init__(self, callback: Callable[..., Any]) -> None:
        if not callable(callback):
            raise TypeError(f"{callback!r} cannot be called")
        self.callback = callback
        itself = getattr(type(callback), "__call__", None)  # noqa: B004
        self.is_async = inspect.iscoroutinefunction(callback) or inspect.iscoroutinefunction(itself)
        self._taken: tuple[inspect.Parameter, ...] | None
        try:
            self._taken = tuple(inspect.signature(callback).parameters.values())
        except (TypeError, ValueError):  # written in C, and it does not say
            self._taken = None

    def __call__(self, *given: Any, **offered: Any) -> Any:
        """`given` by position, as far as it takes any; of `offered` what it names.

        What it insists on and nobody offers is None: an old plugin is not refused for a word it knew.
        """
        if self._taken is None:
            return self.callback(*given, **_listed(offered))
        values: list[Any] = []
        named: dict[str, Any] = {}
        rest = iter(given)
        for each in self._taken:
            if each.kind is each.VAR_POSITIONAL:
                values.extend(rest)
            elif each.kind is each.VAR_KEYWORD:
                named |= self._others(offered)
            elif each.kind in _POSITIONAL and (told := list(_first(rest))):
                values += told
            elif each.kind is each.POSITIONAL_ONLY:
                values.append(_value(each, offered))
            elif each.name in offered or each.default is each.empty:
                named[each.name] = Beside.now(offered.get(each.name))
        return self.callback(*values, **named)

    def _others(self, offered: Mapping[str, Any]) -> dict[str, Any]:
        known = {each.name for each in self._taken or ()}
        return {name: value for name, value in _listed(offered).items() if name not in known}


def _listed(offered: Mapping[str, Any]) -> dict[str, Any]:
    return {name: Later.now(value) for name, value in offered.items() if not isinstance(value, Beside)}


def _first(rest: Iterator[Any]) -> Iterator[Any]:
    for value in rest:
        yield value
        return


def _value(parameter: inspect.Parameter, offered: Mapping[str, Any]) -> Any:
    usual = None if parameter.default is parameter.empty else parameter.default
    return Beside.now(offered.get(parameter.name, usual))
