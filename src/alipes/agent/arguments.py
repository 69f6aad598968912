"""Checks a call's arguments against the tool's JSON schema, as far as a sentence to the model needs. Pure.

It knows `required`, `type`, `enum`, `properties`, `items` and `additionalProperties: false`;
what else a schema demands is the tool's own to check.
"""

from alipes.config.near import did_you_mean
from alipes.kernel.messages import Json

_TYPES: dict[str, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "array": (list,),
    "object": (dict,),
    "null": (type(None),),
}
_DEPTH = 8


def complaint(schema: dict[str, Json], args: dict[str, Json]) -> str:
    """What is wrong with `args`, as a sentence; empty when nothing is."""
    return _object(schema, args, "", _DEPTH)


def instead(name: str, known: list[str]) -> str:
    """What was probably meant, or all there is where nothing comes close."""
    return did_you_mean(name, known) or (f" There is {', '.join(sorted(known))}." if known else "")


def _object(schema: dict[str, Json], value: dict[str, Json], path: str, depth: int) -> str:
    properties = schema.get("properties")
    known = properties if isinstance(properties, dict) else {}
    required = schema.get("required")
    missing = [str(key) for key in required if key not in value] if isinstance(required, list) else []
    if missing:
        plural = "s" if len(missing) > 1 else ""
        return f"argument{plural} {', '.join(path + key for key in missing)} missing"
    for key, item in value.items():
        inner = known.get(key)
        if isinstance(inner, dict):
            if wrong := _value(inner, item, path + key, depth - 1):
                return wrong
        elif schema.get("additionalProperties") is False:
            return f"there is no argument {path}{key}.{instead(key, list(known))}"
    return ""


def _value(schema: dict[str, Json], value: Json, path: str, depth: int) -> str:
    kinds = schema.get("type")
    wanted = [kinds] if isinstance(kinds, str) else kinds if isinstance(kinds, list) else []
    if wanted and not any(_is(value, str(kind)) for kind in wanted):
        return f"argument {path} must be {' or '.join(map(str, wanted))}, not {_kind(value)}"
    choices = schema.get("enum")
    if isinstance(choices, list) and value not in choices:
        return f"argument {path} must be one of {', '.join(map(str, choices))}"
    if depth <= 0:
        return ""
    if isinstance(value, dict):
        return _object(schema, value, f"{path}.", depth)
    items = schema.get("items")
    if isinstance(value, list) and isinstance(items, dict):
        checked = (_value(items, item, f"{path}[{n}]", depth - 1) for n, item in enumerate(value))
        return next(filter(None, checked), "")
    return ""


def _is(value: Json, kind: str) -> bool:
    if isinstance(value, bool):  # Python counts it as an int; JSON does not
        return kind == "boolean" or kind not in _TYPES
    return isinstance(value, _TYPES.get(kind, (object,)))


def _kind(value: Json) -> str:
    return next((name for name in ("boolean", "integer", "number", *_TYPES) if _is(value, name)), "that")
