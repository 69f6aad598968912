"""Calls plugin code with the arguments that its signature accepts."""

import inspect
from collections.abc import Callable, Iterator, Mapping
from typing import Any

_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


class LazyValue:
    """A value that is computed only if a callback takes it, such as a whole history."""

    __slots__ = ("_make",)

    def __init__(self, make: Callable[[], Any]) -> None:
        self._make = make

    @staticmethod
    def resolve(value: Any) -> Any:
        return value._make() if isinstance(value, LazyValue) else value


class ExtraValue:
    """A value beyond the documented ones: only for callbacks that name it."""

    __slots__ = ("_value",)

    def __init__(self, value: Any) -> None:
        self._value = value

    @staticmethod
    def resolve(value: Any) -> Any:
        return LazyValue.resolve(value._value if isinstance(value, ExtraValue) else value)


class PluginCallback:
    """A callback and its signature: a function, method, partial or callable object."""

    def __init__(self, callback: Callable[..., Any]) -> None:
        if not callable(callback):
            raise TypeError(f"{callback!r} is not callable")
        self.callback = callback
        itself = getattr(type(callback), "__call__", None)  # noqa: B004
        self.is_async = inspect.iscoroutinefunction(callback) or inspect.iscoroutinefunction(itself)
        self._taken: tuple[inspect.Parameter, ...] | None
        try:
            self._taken = tuple(inspect.signature(callback).parameters.values())
        except (TypeError, ValueError):  # a C function without a signature
            self._taken = None

    def __call__(self, *args: Any, **offered: Any) -> Any:
        """Pass `given` by position as far as accepted, and of `offered` what the signature names.

        Required parameters that nobody offers are None, so that old plugins still work.
        """
        if self._taken is None:
            return self.callback(*args, **_contract_values(offered))
        values: list[Any] = []
        keywords: dict[str, Any] = {}
        remaining = iter(args)
        for each in self._taken:
            if each.kind is each.VAR_POSITIONAL:
                values.extend(remaining)
            elif each.kind is each.VAR_KEYWORD:
                keywords |= self._others(offered)
            elif each.kind in _POSITIONAL and (value_list := list(_take_one(remaining))):
                values += value_list
            elif each.kind is each.POSITIONAL_ONLY:
                values.append(_positional_value(each, offered))
            elif each.name in offered or each.default is each.empty:
                keywords[each.name] = ExtraValue.resolve(offered.get(each.name))
        return self.callback(*values, **keywords)

    def _others(self, offered: Mapping[str, Any]) -> dict[str, Any]:
        names = {each.name for each in self._taken or ()}
        return {name: value for name, value in _contract_values(offered).items() if name not in names}


def _contract_values(offered: Mapping[str, Any]) -> dict[str, Any]:
    return {name: LazyValue.resolve(value) for name, value in offered.items() if not isinstance(value, ExtraValue)}


def _take_one(remaining: Iterator[Any]) -> Iterator[Any]:
    for value in remaining:
        yield value
        return


def _positional_value(parameter: inspect.Parameter, offered: Mapping[str, Any]) -> Any:
    usual = None if parameter.default is parameter.empty else parameter.default
    return ExtraValue.resolve(offered.get(parameter.name, usual))
