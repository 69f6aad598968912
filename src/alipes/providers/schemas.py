"""Which JSON schemas a model's server enforces itself. Others are asked for in words and checked afterwards."""

import re
from collections.abc import Mapping
from urllib.parse import urlsplit

from msgspec import Struct

from alipes.kernel.messages import Json
from alipes.kernel.models import Endpoint

_COMMON = frozenset(
    [
        "$schema",
        "$defs",
        "definitions",
        "$ref",
        "type",
        "properties",
        "required",
        "additionalProperties",
        "items",
        "enum",
        "const",
        "anyOf",
        "title",
        "description",
        "format",
    ]
)
_FORMATS = ("date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid")
NAME = "answer"
"""The name of the schema in requests; the wires require one."""


class SchemaRules(Struct, frozen=True):
    """The subset of JSON schema that a server takes; it refuses a request with another one."""

    keywords: frozenset[str]
    models: re.Pattern[str]
    """The models that enforce schemas."""
    all_required: bool = False
    """Every property must be required."""
    recursion: bool = False

    def allow(self, model: str, schema: Mapping[str, Json]) -> bool:
        """True if the server enforces `schema` for `model`."""
        return (
            self.models.search(model) is not None
            and schema.get("type") == "object"
            and (self.recursion or not _is_recursive(schema))
            and self.allows_parts(dict(schema))
        )

    def allows_parts(self, schema: Json) -> bool:
        """True if nothing in `schema` would be refused."""
        if not isinstance(schema, dict) or not self.keywords.issuperset(schema):
            return False
        if "$ref" in schema:
            return len(schema) == 1  # beside a reference, some keywords are refused
        if schema.get("format", "date") not in _FORMATS or not isinstance(schema.get("items", {}), dict):
            return False
        if not self._allows_object(schema):
            return False
        named = [schema.get(name, {}) for name in ("properties", "$defs", "definitions")]
        parts = [part for group in named if isinstance(group, dict) for part in group.values()]
        union = schema.get("anyOf", [])
        parts += [*(union if isinstance(union, list) else [None]), *([schema["items"]] if "items" in schema else [])]
        return all(map(self.allows_parts, parts))

    def _allows_object(self, schema: dict[str, Json]) -> bool:
        """Objects must be closed."""
        if schema.get("type") != "object" and "properties" not in schema:
            return any(name in schema for name in ("type", "enum", "const", "anyOf"))
        properties, required = schema.get("properties", {}), schema.get("required", [])
        if schema.get("additionalProperties") is not False or not isinstance(properties, dict):
            return False
        return not self.all_required or (isinstance(required, list) and set(properties) <= {*map(str, required)})


OPENAI = SchemaRules(
    _COMMON | {"pattern", "multipleOf", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"},
    re.compile(r"(?:^|/)(?:gpt-4o|gpt-4\.1|gpt-(?:[5-9]|\d\d)|chatgpt-|o[134](?!-(?:mini-2024|preview))|o1$)"),
    all_required=True,
    recursion=True,
)
ANTHROPIC = SchemaRules(_COMMON | {"default"}, re.compile(r"claude-[a-z]+-(?:4-[5-9](?!\d)|(?:[5-9]|\d\d)(?!\d))"))
BEDROCK = SchemaRules(ANTHROPIC.keywords, re.compile(r"anthropic\.claude-[a-z]+-4-[56](?!\d)"))
GEMINI = SchemaRules(
    (_COMMON - {"$schema", "const", "definitions", "format"}) | {"minItems", "maxItems", "minimum", "maximum"},
    re.compile(r"^gemini-(?:[3-9]|\d\d)[.-]"),  # earlier ones refuse a schema beside tools
    recursion=True,
)
_BY_HOST = {
    "api.openai.com": OPENAI,
    "openai.azure.com": OPENAI,
    "api.anthropic.com": ANTHROPIC,
    "amazonaws.com": BEDROCK,
    "generativelanguage.googleapis.com": GEMINI,
    "aiplatform.googleapis.com": GEMINI,
}
"""Not Claude on Vertex and Foundry, where the feature must be switched on or is in preview."""


def is_enforced(endpoint: Endpoint, model: str, schema: Mapping[str, Json]) -> bool:
    """True if a request with `schema` carries it for the server to enforce."""
    if not schema or endpoint.schemas != "auto":
        return bool(schema) and endpoint.schemas == "on"
    host = urlsplit(endpoint.base_url).hostname or ""
    found = (rules for known, rules in _BY_HOST.items() if host == known or host.endswith((f".{known}", f"-{known}")))
    return any(rules.allow(model, schema) for rules in found if rules is not GEMINI or endpoint.api == "gemini")


def to_wire(schema: Mapping[str, Json]) -> dict[str, Json]:
    """The schema as OpenAI's wires name it; strict if those servers would take it as such."""
    strict = schema.get("type") == "object" and OPENAI.allows_parts(dict(schema))
    return {"name": NAME, "strict": strict, "schema": dict(schema)}


def _is_recursive(schema: Mapping[str, Json]) -> bool:
    """True if a definition refers to itself, also by others, or if the whole schema is referred to."""
    definitions: dict[str, Json] = {}
    for name in ("$defs", "definitions"):
        group = schema.get(name)
        definitions |= {f"#/{name}/{key}": part for key, part in (group.items() if isinstance(group, dict) else ())}
    reaches = {name: _references(part) for name, part in definitions.items()}
    for _ in definitions:
        reaches = {name: found.union(*(reaches.get(near, ()) for near in found)) for name, found in reaches.items()}
    return "#" in _references(dict(schema)) or any(name in found for name, found in reaches.items())


def _references(schema: Json) -> set[str]:
    if isinstance(schema, list):
        return {each for part in schema for each in _references(part)}
    if not isinstance(schema, dict):
        return set()
    own = schema.get("$ref")
    return {each for part in schema.values() for each in _references(part)} | ({own} if isinstance(own, str) else set())
