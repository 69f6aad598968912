"""From an async function to a tool: its name, words and schema are read off the function."""

import inspect
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Literal, TypeVar, get_type_hints

import msgspec

from alipes.kernel.errors import ToolError
from alipes.kernel.messages import Json
from alipes.kernel.ports import Act, Output, ToolSpec

F = TypeVar("F", bound=Callable[..., Awaitable[Any]])
_MARK = "__alipes_tool__"


class Marked(msgspec.Struct, frozen=True):
    """What `@tool` said of a function."""

    name: str = ""
    description: str = ""
    effect: Literal["read", "write"] = "write"
    schema: dict[str, Json] | None = None


def tool(
    *,
    name: str = "",
    description: str = "",
    effect: Literal["read", "write"] = "write",
    schema: dict[str, Json] | None = None,
) -> Callable[[F], F]:
    """Say of an async function of a plugin that it is a tool; the loader offers it.

    `effect="read"`: it changes nothing, may run beside others, and again after a crash. Its parameters
    are the model's arguments, checked against their types; one named `act` is told about the call.
    """

    def mark(function: F) -> F:
        setattr(function, _MARK, Marked(name, description, effect, schema))
        return function

    return mark


def marked(thing: object) -> Marked | None:
    """What `@tool` said of it, or None."""
    return getattr(thing, _MARK, None)


def tool_of(function: Callable[..., Awaitable[Any]]) -> "FunctionTool":
    """The tool that an async function is. Raises `TypeError` with a sentence for the author."""
    said = marked(function) or Marked()
    name = said.name or function.__name__
    if not inspect.iscoroutinefunction(function):
        raise TypeError(f"the tool {name} must be `async def`")
    taken = inspect.signature(function).parameters
    for each in taken.values():
        if each.kind in (each.VAR_POSITIONAL, each.VAR_KEYWORD, each.POSITIONAL_ONLY):
            raise TypeError(f"the tool {name} takes {each}: give each of its parameters a name and a type")
    hints = get_type_hints(function, include_extras=True)
    fields = [
        (each, hints.get(each, Any), *(() if of.default is of.empty else (of.default,)))
        for each, of in taken.items()
        if each != "act"
    ]
    shape = msgspec.defstruct(name, fields, kw_only=True, forbid_unknown_fields=True)
    schema = said.schema or _schema(shape)
    spec = ToolSpec(name, said.description or inspect.getdoc(function) or "", schema, said.effect)
    return FunctionTool(spec, function, shape, wants_act="act" in taken)


class FunctionTool:
    """An async function as a tool. What it returns that is no text is given as JSON, nothing as `done`."""

    def __init__(
        self,
        spec: ToolSpec,
        function: Callable[..., Awaitable[Any]],
        shape: type[msgspec.Struct],
        *,
        wants_act: bool,
    ) -> None:
        self.spec = spec
        self._function, self._shape, self._wants_act = function, shape, wants_act

    async def run(self, args: Mapping[str, Json], act: Act) -> str | Output:
        try:
            given = msgspec.convert(dict(args), self._shape)
        except msgspec.ValidationError as error:
            raise ToolError(f"not run: {error}") from error
        known = {name: getattr(given, name) for name in self._shape.__struct_fields__}
        answer = await self._function(**known, **({"act": act} if self._wants_act else {}))
        return as_text(answer)


def as_text(answer: object) -> str | Output:
    """What a tool gave, as the model reads it."""
    if isinstance(answer, str | Output):
        return answer
    if answer is None:
        return "done"
    return msgspec.json.encode(answer).decode()


def _schema(shape: type[msgspec.Struct]) -> dict[str, Json]:
    (schema,), parts = msgspec.json.schema_components([shape], ref_template="#/$defs/{name}")
    own = parts.pop(shape.__name__, schema)
    own.pop("title", None)
    return {**own, **({"$defs": parts} if parts else {})}
