"""Results of MCP servers as tool output: text, images for the model, and files that are saved."""

import asyncio
import base64
import binascii
import mimetypes
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from alipes.kernel.errors import ToolError
from alipes.kernel.messages import Image
from alipes.kernel.ports import ToolOutput
from alipes.kernel.untrusted import to_label
from alipes.tools.images import prepare_image
from alipes.tools.shell.output import SpillFolder

if TYPE_CHECKING:
    import mcp_types as types

MAX_FILE_BYTES = 50 << 20
MAX_IMAGES = 20


def decode_base64(text: str) -> bytes:
    """Raises `ToolError`."""
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise ToolError(f"the server sent invalid base64 ({error})") from error


class ResultReader:
    """Turns what servers return into tool output. Images and files pass through."""

    def __init__(self, spill: SpillFolder) -> None:
        """`spill`: where files are saved."""
        self._spill = spill

    async def read_result(self, result: "types.CallToolResult") -> ToolOutput:
        """Raises `ToolError` if the tool reports an error."""
        output = await self.read_blocks(result.content)
        text = output.text
        if not text and not output.images and result.structured_content is not None:
            text = msgspec.json.encode(result.structured_content).decode()
        if result.is_error:
            raise ToolError(text or "the tool failed without a message")
        return ToolOutput(text or ("" if output.images else "(empty result)"), output.images)

    async def read_blocks(self, blocks: Iterable[Any]) -> ToolOutput:
        """Content of a result or a prompt."""
        texts, images = list[str](), list[Image]()
        for block in blocks:
            match block.type:
                case "text":
                    texts.append(block.text)
                case "image" | "audio":
                    await self._add_media(block.data, block.mime_type, texts, images)
                case "resource":
                    await self._add_resource(block.resource, texts, images)
                case "resource_link":
                    texts.append(f"[resource {to_label(block.name)}: {to_label(str(block.uri), 500)}]")
                case other:
                    texts.append(f"[{to_label(str(other))} is not supported]")
        return ToolOutput("\n".join(texts), tuple(images))

    async def read_contents(self, result: "types.ReadResourceResult") -> ToolOutput:
        texts, images = list[str](), list[Image]()
        for contents in result.contents:
            await self._add_resource(contents, texts, images)
        return ToolOutput("\n".join(texts), tuple(images))

    async def _add_resource(self, resource: Any, texts: list[str], images: list[Image]) -> None:
        text = getattr(resource, "text", None)
        if isinstance(text, str):
            texts.append(text)
        else:
            await self._add_media(resource.blob, resource.mime_type or "", texts, images)

    async def _add_media(self, encoded: str, kind: str, texts: list[str], images: list[Image]) -> None:
        data = await asyncio.to_thread(decode_base64, encoded)
        if kind.startswith("image/") and len(images) < MAX_IMAGES:
            try:
                prepared = await asyncio.to_thread(prepare_image, data)
            except ToolError as error:
                texts.append(f"[image: {error}]")
            else:
                texts.append(prepared.svg_source or f"[image, {prepared.note}]")
                images += [prepared.image] if prepared.image is not None else []
                return
        if len(data) > MAX_FILE_BYTES:
            texts.append(f"[file of {len(data):,} bytes left out: more than {MAX_FILE_BYTES:,}]")
            return
        path = await asyncio.to_thread(self._save, data, kind)
        texts.append(f"[{to_label(kind) or 'file'}, {len(data):,} bytes, saved as {path}]")

    def _save(self, data: bytes, kind: str) -> Path:
        guessed = mimetypes.guess_extension(kind.partition(";")[0].strip()) or ".bin"
        path = self._spill.new("mcp", guessed if re.fullmatch(r"\.[a-z0-9]{1,8}", guessed) else ".bin")
        path.write_bytes(_mask_text(data, self._spill.mask))
        return path


def _mask_text(data: bytes, mask: Callable[[str], str]) -> bytes:
    """A text without secrets; other data as it is."""
    try:
        return mask(data.decode()).encode()
    except UnicodeDecodeError:
        return data
