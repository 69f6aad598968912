"""What servers offer, as values: tools, resources and prompts, cleaned of what could mislead people or models."""

import hashlib
import re
from collections.abc import Collection
from typing import TypeAlias

import msgspec
from msgspec import Struct, structs

from alipes.kernel.errors import ToolError
from alipes.kernel.mcp import PREFIX
from alipes.kernel.messages import Json
from alipes.kernel.untrusted import escape_marks

MAX_NAME_CHARS = 64
MAX_DESCRIPTION_CHARS = 1_500
MAX_PARAMETER_CHARS = 400
"""Of the description of one parameter."""
MAX_SCHEMA_CHARS = 30_000
MAX_TOOLS = 500
"""Tools of one server; more are ignored."""
_DEPTH = 12
_SUFFIX_CHARS = 6
_HIDDEN = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e"
    r"\u2060-\u206f\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff9-\ufffb\U000e0000-\U000e0fff]"
)
"""Control, zero-width, bidirectional and tag characters: invisible to people, but not to models."""
Definitions: TypeAlias = tuple["ToolDefinition", ...]


class McpError(ToolError):
    """A server could not be used; the message says which one, why, and what to do."""


class SessionLost(McpError):
    """The server has forgotten the session, so it did not run the call."""


class ServerInfo(Struct, frozen=True):
    """How a server names itself."""

    name: str = ""
    version: str = ""
    protocol: str = ""
    """The version of MCP that was negotiated."""
    transport: str = ""
    """`stdio`, `http` or `sse`."""
    instructions: str = ""


class ToolDefinition(Struct, frozen=True):
    """A tool as its server describes it, cleaned."""

    name: str
    description: str
    schema: dict[str, Json]
    read_only: bool = False
    title: str = ""

    @property
    def digest(self) -> str:
        """Changes with everything that a model sees or that decides about questions."""
        return hashlib.sha256(msgspec.json.encode(self, order="sorted")).hexdigest()


class ResourceInfo(Struct, frozen=True):
    uri: str
    name: str = ""
    description: str = ""
    mime: str = ""


class PromptInfo(Struct, frozen=True):
    name: str
    description: str = ""
    arguments: tuple[tuple[str, bool], ...] = ()
    """Name, and whether it is required."""


class Offer(Struct, frozen=True):
    """Everything that a server offers."""

    tools: Definitions = ()
    resources: tuple[ResourceInfo, ...] = ()
    prompts: tuple[PromptInfo, ...] = ()
    has_resources: bool = False


def clean_text(text: object, max_chars: int = MAX_DESCRIPTION_CHARS) -> str:
    """Text of a server without hidden characters and our own tags, and not too long."""
    plain = escape_marks(_HIDDEN.sub("", text if isinstance(text, str) else "")).strip()
    return plain if len(plain) <= max_chars else f"{plain[: max_chars - 1]}…"


def clean_schema(schema: object) -> dict[str, Json]:
    """A JSON schema of arguments with clean texts. Raises ValueError if it is too large or no object."""
    if not isinstance(schema, dict):
        raise ValueError("its schema is not an object")  # noqa: TRY004
    cleaned = _clean_value(schema, _DEPTH)
    assert isinstance(cleaned, dict)
    if len(msgspec.json.encode(cleaned)) > MAX_SCHEMA_CHARS:
        raise ValueError(f"its schema is longer than {MAX_SCHEMA_CHARS:,} characters")
    return {**cleaned, "type": "object"}


def _clean_value(value: object, depth: int) -> Json:
    if depth <= 0:
        raise ValueError("its schema is nested too deeply")
    match value:
        case dict():
            return {clean_text(str(name), 200): _clean_value(each, depth - 1) for name, each in value.items()}
        case list() | tuple():
            return [_clean_value(each, depth - 1) for each in value]
        case str():
            return clean_text(value, MAX_PARAMETER_CHARS)
        case bool() | int() | float() | None:
            return value
    raise ValueError("its schema is not JSON")


def make_tool_name(server: str, tool: str, taken: Collection[str]) -> str:
    """The name under which a model sees a tool: valid for every provider, and not yet taken."""
    plain = re.sub(r"[^A-Za-z0-9_-]", "_", tool).strip("_") or "tool"
    start = f"{PREFIX}{server}__"
    name = start + plain
    if plain == tool and len(name) <= MAX_NAME_CHARS and name not in taken:
        return name
    for number in range(len(taken) + 2):
        digest = hashlib.sha256(f"{number} {tool}".encode(errors="replace")).hexdigest()[:_SUFFIX_CHARS]
        name = f"{(start + plain)[: MAX_NAME_CHARS - _SUFFIX_CHARS - 1]}_{digest}"
        if name not in taken:
            return name
    raise AssertionError("more names than tools")


def name_tools(server: str, tools: Definitions) -> dict[str, ToolDefinition]:
    """By the name that a model sees; the same tools always get the same names."""
    named: dict[str, ToolDefinition] = {}
    for tool in sorted(tools, key=lambda each: each.name):
        named[make_tool_name(server, tool.name, named)] = tool
    return named


def only_tools(offer: Offer, wanted: Collection[str]) -> Offer:
    """The offer with those tools only that the operator wants; empty: all."""
    if not wanted:
        return offer
    return structs.replace(offer, tools=tuple(tool for tool in offer.tools if tool.name in wanted))
