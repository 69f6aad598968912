"""Content of messages as other programs write it, in our parts. Thinking is dropped, nothing is fetched."""

import base64
import binascii
from collections.abc import Iterable

from msgspec import Struct

from alipes.features.importer.formats import SourceError, plain_text, read_json
from alipes.features.importer.json_lines import Row, get_row, get_text
from alipes.kernel.formatting import format_count
from alipes.kernel.messages import Image, Json, Part, Text, ToolCall, image_type

_TEXTS = ("text", "input_text", "output_text", "summary_text")
_PICTURES = ("image", "image_url", "input_image")


class Content(Struct, frozen=True):
    """The texts and pictures of a message."""

    parts: tuple[Part, ...] = ()
    remote: int = 0
    """Pictures of which only an address was kept."""
    damaged: int = 0
    """Pictures that cannot be read."""

    @property
    def text(self) -> str:
        return "\n".join(part.text for part in self.parts if isinstance(part, Text))

    @property
    def images(self) -> tuple[Image, ...]:
        return tuple(part for part in self.parts if isinstance(part, Image))


def read_content(content: Json) -> Content:
    """The texts and pictures of a text, a block or a list of blocks; other blocks are passed over."""
    blocks = content if isinstance(content, list) else [content]
    parts: list[Part] = []
    remote = damaged = 0
    for block in blocks:
        if isinstance(block, str):
            parts += [Text(block)] if block else []
        elif isinstance(block, dict) and block.get("type") in _TEXTS:
            text = get_text(block, "text")
            parts += [Text(text)] if text else []
        elif isinstance(block, dict) and block.get("type") in _PICTURES:
            found = _read_picture(block)
            parts += [] if found is None else [found]
            remote += isinstance(found, Text)
            damaged += found is None
    return Content(tuple(parts), remote, damaged)


def describe_pictures(contents: Iterable[Content]) -> list[str]:
    """What was left out of these, as clauses."""
    remote = damaged = 0
    for content in contents:
        remote, damaged = remote + content.remote, damaged + content.damaged
    clauses = [f"{format_count(remote, 'remote picture')} not fetched"] if remote else []
    return [*clauses, format_count(damaged, "damaged picture")] if damaged else clauses


def _read_picture(block: Row) -> Image | Text | None:
    source = get_row(block, "source")
    data = get_text(block, "data") or get_text(source, "data")
    address = get_text(block, "image_url", "url") or get_text(get_row(block, "image_url"), "url")
    address = address or get_text(source, "url")
    if address.startswith("data:"):
        data = address.partition(",")[2]
    elif address:
        return Text(f"[picture at {address[:2000]}]")
    try:
        decoded = base64.b64decode(data, validate=True)
    except (binascii.Error, ValueError):
        return None
    kind = image_type(decoded[:16])
    return Image(kind, decoded) if kind else None


def read_call(call_id: str, name: str, arguments: Json) -> ToolCall:
    """A call with its arguments as an object or as JSON text."""
    given: Json = arguments
    if isinstance(arguments, str):
        try:
            given = read_json(arguments or "{}", name)
        except SourceError:
            given = None
    if isinstance(given, dict):
        return ToolCall(call_id, name, given)
    return ToolCall(call_id, name, {}, raw=plain_text(arguments) or "null")
