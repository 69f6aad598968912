"""Reads the formats of other programs: YAML, JSON, times and texts as they are found, however damaged."""

import hashlib
import json
from collections.abc import Callable
from datetime import UTC, datetime
from importlib import import_module
from typing import Any

import msgspec

from alipes.config.extras import explain_missing
from alipes.kernel.errors import AlipesError
from alipes.kernel.messages import Json
from alipes.runtime.json_text import clean_text

MAX_ALIASES = 100
"""Of a YAML file: more would be an attack rather than a configuration."""
MAX_DEPTH = 50
MAX_YAML_CHARS = 500_000
OLDEST, NEWEST = 946_684_800.0, 4_102_444_800.0
"""Years 2000 and 2100: times outside were not measured by a clock that was set."""
_MILLISECONDS = 1e11


class SourceError(AlipesError):
    """Something in the home cannot be read: a sentence for the report."""

    code = "import.unreadable"


def content_hash(*parts: object) -> str:
    """A hash of texts, bytes and JSON values."""
    digest = hashlib.sha256()
    for part in parts:
        data = part if isinstance(part, bytes) else msgspec.json.encode(_plain(part), order="sorted")
        digest.update(b"%d:" % len(data))
        digest.update(data)
    return digest.hexdigest()[:32]


def _plain(value: object) -> object:
    match value:
        case str():
            return clean_text(value)
        case dict():
            return {clean_text(str(name)): _plain(inner) for name, inner in value.items()}
        case list() | tuple():
            return [_plain(inner) for inner in value]
        case int() if not isinstance(value, bool) and abs(value) >= 2**63:
            return str(value)
        case bytes():
            return value.hex()
    return value


def plain_text(value: object) -> str:
    """A text that every store can hold: without NULs and halves of characters; empty for what is no text."""
    if isinstance(value, bytes):
        value = value.decode("utf-8", "replace")
    return clean_text(value).replace("\0", "") if isinstance(value, str) else ""


def read_time(value: object) -> float:
    """Seconds since the epoch, from seconds, milliseconds or ISO text; 0 if it is no time of 2000 to 2100."""
    moment = 0.0
    if isinstance(value, str):
        try:
            parsed = datetime.fromisoformat(value.strip().replace("Z", "+00:00"))
            moment = (parsed if parsed.tzinfo else parsed.replace(tzinfo=UTC)).timestamp()
        except (ValueError, OverflowError):
            return 0.0
    elif isinstance(value, int | float) and not isinstance(value, bool):
        moment = value / (1000 if abs(value) > _MILLISECONDS else 1) if abs(value) < _MILLISECONDS * 1e6 else 0.0
    return moment if OLDEST <= moment <= NEWEST else 0.0


def read_json(text: str, name: str) -> Json:
    """Raises `SourceError`."""
    try:
        return plain_value(json.loads(text))
    except (ValueError, RecursionError) as error:
        line = getattr(error, "lineno", 0)
        place = f" near line {line}" if line else ""
        raise SourceError(f"{name} is not valid JSON{place}, so it was left out") from error


def read_yaml(text: str, name: str) -> Json:
    """Unknown tags are ignored and their values kept. Raises `SourceError`."""
    try:
        yaml: Any = import_module("yaml")
    except ModuleNotFoundError as missing:
        raise SourceError(f"{name} was left out. {explain_missing('hermes')}") from missing
    try:
        _check_yaml(yaml, text, name)
        return plain_value(yaml.load(text, _yaml_loader(yaml)))
    except (yaml.YAMLError, ValueError, RecursionError, AttributeError, TypeError) as error:
        line = getattr(getattr(error, "problem_mark", None), "line", None)
        place = "" if line is None else f" near line {line + 1}"
        raise SourceError(f"{name} is not valid YAML{place}, so it was left out") from error


def _check_yaml(yaml: Any, text: str, name: str) -> None:
    """Raises `SourceError` as soon as it is too much of a configuration."""
    if len(text) > MAX_YAML_CHARS:
        raise SourceError(f"{name} is too large for a configuration, so it was left out")
    aliases = depth = 0
    for event in yaml.parse(text, yaml.SafeLoader):
        aliases += isinstance(event, yaml.AliasEvent)
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if aliases > MAX_ALIASES:
            raise SourceError(f"{name} has more than {MAX_ALIASES} YAML aliases, so it was left out")
        if depth > MAX_DEPTH:
            raise SourceError(f"{name} is nested more than {MAX_DEPTH} levels deep, so it was left out")


def _yaml_loader(yaml: Any) -> Any:
    class Loader(yaml.SafeLoader):  # type: ignore[misc]
        pass

    def construct(loader: Any, _suffix: str, node: Any) -> Any:
        if isinstance(node, yaml.MappingNode):
            return loader.construct_mapping(node, deep=True)
        if isinstance(node, yaml.SequenceNode):
            return loader.construct_sequence(node, deep=True)
        return loader.construct_scalar(node)

    add: Callable[..., None] = Loader.add_multi_constructor
    add("!", construct)
    add("tag:", construct)
    return Loader


def plain_value(value: object, depth: int = 0) -> Json:
    """JSON of a parsed value: names and texts are clean, dates become texts. Raises `SourceError` if it is too deep."""
    if depth > MAX_DEPTH:
        raise SourceError(f"it is nested more than {MAX_DEPTH} levels deep")
    match value:
        case None | bool() | float():
            return value
        case int():
            return value if abs(value) < 2**63 else str(value)
        case str():
            return plain_text(value)
        case dict():
            return {plain_text(str(name)): plain_value(inner, depth + 1) for name, inner in value.items()}
        case list() | tuple() | set():
            return [plain_value(inner, depth + 1) for inner in value]
    return plain_text(str(value))
