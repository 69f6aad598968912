"""Makes a tool from an async function: name, description and schema are derived from it."""

import inspect
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Literal, TypeVar, get_type_hints

import msgspec

from alipes.kernel.errors import ToolError
from alipes.kernel.messages import Json
from alipes.kernel.ports import ToolContext, ToolOutput, ToolSpec

F = TypeVar("F", bound=Callable[..., Awaitable[Any]])
_MARK = "__alipes_tool__"


class ToolMark(msgspec.Struct, frozen=True):
    """The arguments of `@tool`."""

    name: str = ""
    description: str = ""
    effect: Literal["read", "write"] = "write"
    schema: dict[str, Json] | None = None
    untrusted: bool = False
    media: bool = False


def tool(
    *,
    name: str = "",
    description: str = "",
    effect: Literal["read", "write"] = "write",
    schema: dict[str, Json] | None = None,
    untrusted: bool = False,
    media: bool = False,
) -> Callable[[F], F]:
    """Mark an async function of a plugin as a tool.

    `effect="read"`: it changes nothing, may run in parallel and be repeated after a crash. Its parameters are
    the model's arguments, checked against their types; one named `act` receives the `ToolContext`.
    `untrusted=True`: its results are text of strangers and are marked as such. `media=True`: the files in the
    `ToolOutput` that it returns are sent to the chat.
    """

    def mark(function: F) -> F:
        setattr(function, _MARK, ToolMark(name, description, effect, schema, untrusted, media))
        return function

    return mark


def tool_mark(thing: object) -> ToolMark | None:
    """The `@tool` arguments of a function, or None."""
    return getattr(thing, _MARK, None)


def make_tool(function: Callable[..., Awaitable[Any]]) -> "FunctionTool":
    """The tool for an async function. Raises `TypeError` with a sentence for the author."""
    said = tool_mark(function) or ToolMark()
    name = said.name or function.__name__
    if not inspect.iscoroutinefunction(function):
        raise TypeError(f"the tool {name} must be `async def`")
    taken = inspect.signature(function).parameters
    for each in taken.values():
        if each.kind in (each.VAR_POSITIONAL, each.VAR_KEYWORD, each.POSITIONAL_ONLY):
            raise TypeError(f"the tool {name} takes {each}: every parameter needs a name and a type")
    hints = get_type_hints(function, include_extras=True)
    fields = [
        (each, hints.get(each, Any), *(() if of.default is of.empty else (of.default,)))
        for each, of in taken.items()
        if each != "act"
    ]
    shape = msgspec.defstruct(name, fields, kw_only=True, forbid_unknown_fields=True)
    schema = said.schema or _schema(shape)
    description = said.description or inspect.getdoc(function) or ""
    spec = ToolSpec(name, description, schema, said.effect, said.untrusted, said.media)
    return FunctionTool(spec, function, shape, wants_act="act" in taken)


class FunctionTool:
    """An async function as a tool. A result that is not text is returned as JSON, None as `done`."""

    def __init__(
        self, spec: ToolSpec, function: Callable[..., Awaitable[Any]], shape: type[msgspec.Struct], *, wants_act: bool
    ) -> None:
        self.spec = spec
        self._function, self._shape, self._wants_act = function, shape, wants_act

    async def run(self, args: Mapping[str, Json], act: ToolContext) -> str | ToolOutput:
        try:
            given = msgspec.convert(dict(args), self._shape)
        except msgspec.ValidationError as error:
            raise ToolError(f"not run: {error}") from error
        known = {name: getattr(given, name) for name in self._shape.__struct_fields__}
        answer = await self._function(**known, **({"act": act} if self._wants_act else {}))
        return to_output(answer)


def to_output(answer: object) -> str | ToolOutput:
    """A tool's return value as text for the model."""
    if isinstance(answer, str | ToolOutput):
        return answer
    if answer is None:
        return "done"
    return msgspec.json.encode(answer).decode()


def _schema(shape: type[msgspec.Struct]) -> dict[str, Json]:
    (schema,), parts = msgspec.json.schema_components([shape], ref_template="#/$defs/{name}")
    own = parts.pop(shape.__name__, schema)
    own.pop("title", None)
    return {**own, **({"$defs": parts} if parts else {})}
