"""Checks documents against JSON schemas. Imports nothing of alipes, since it also runs as a process of its own."""

import importlib
import json
import re
import sys
from collections.abc import Callable
from datetime import datetime, time
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

_MAX_PROBLEM_CHARS = 300
_FORMATS = ("date", "email", "ipv4", "ipv6", "uuid")
_TIMES = {"date-time": datetime.fromisoformat, "time": time.fromisoformat}


@lru_cache(maxsize=64)
def open_validator(text: str) -> Any:
    """The validator of a schema. Raises `ImportError` if the library is missing, `ValueError` for a wrong schema."""
    jsonschema, referencing = importlib.import_module("jsonschema"), importlib.import_module("referencing")
    schema = json.loads(text)
    kind = jsonschema.validators.validator_for(schema, default=jsonschema.Draft202012Validator)
    formats = jsonschema.FormatChecker(formats=_FORMATS)
    for name, parse in _TIMES.items():
        formats.checks(name, raises=ValueError)(partial(_can_parse, parse))
    try:
        kind.check_schema(schema)
        # with a registry of its own, nothing is fetched from addresses in the schema
        validator = kind(schema, registry=referencing.Registry(), format_checker=formats)
        _check_references(schema, referencing)
        validator.is_valid(None)
    except jsonschema.SchemaError as error:
        raise ValueError(f"is not valid at {error.json_path}: {_shorten(error.message)}") from error
    except RecursionError as error:
        raise ValueError("refers to itself without end") from error
    return validator


def _can_parse(parse: Callable[[str], object], value: object) -> bool:
    return not isinstance(value, str) or parse(value) is not None


def find_error(validator: Any, document: Any) -> str:
    """The path to the most telling error and what it is; empty if there is none."""
    best_match = importlib.import_module("jsonschema.exceptions").best_match
    try:
        error = best_match(validator.iter_errors(document))
    except RecursionError:
        return "$: it is nested too deeply"
    return "" if error is None else f"{error.json_path}: {_shorten(error.message)}"


def _check_references(schema: Any, referencing: Any) -> None:
    """Raises `ValueError` for a reference to a place that is not in the schema."""
    draft = importlib.import_module("referencing.jsonschema").DRAFT202012
    resource = referencing.Resource.from_contents(schema, default_specification=draft)
    resolver, waiting = referencing.Registry().resolver_with_root(resource), [schema]
    while waiting:
        part = waiting.pop()
        if isinstance(part, list):
            waiting += part
        if not isinstance(part, dict):
            continue
        waiting += part.values()
        if isinstance(reference := part.get("$ref"), str):
            try:
                resolver.lookup(reference)
            except referencing.exceptions.Unresolvable as error:
                raise ValueError(f"refers to {_shorten(reference)}, which is not in it") from error


def _shorten(text: str) -> str:
    text = re.sub(r"\s+", " ", text)
    return text if len(text) <= _MAX_PROBLEM_CHARS else f"{text[:_MAX_PROBLEM_CHARS]}…"


def main(path: str) -> None:
    """Print the error of the document in a file with schema and document."""
    task = json.loads(Path(path).read_text(encoding="utf-8"))
    sys.stdout.write(find_error(open_validator(task["schema"]), json.loads(task["document"])))


if __name__ == "__main__":
    main(sys.argv[1])
