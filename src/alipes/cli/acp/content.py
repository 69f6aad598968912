"""What an editor sends with a prompt: text, images, files and selections, as a message of ours."""

import base64
import binascii
import re
from urllib.parse import unquote, urlsplit

from acp.schema import (
    AudioContentBlock,
    EmbeddedResourceContentBlock,
    ImageContentBlock,
    ResourceContentBlock,
    TextContentBlock,
    TextResourceContents,
)
from msgspec import Struct

from alipes.console.inbound import MAX_IMAGE_BYTES
from alipes.kernel.attachments import format_attachment
from alipes.kernel.errors import ToolError
from alipes.kernel.messages import Image, image_type

ContentBlock = (
    TextContentBlock | ImageContentBlock | AudioContentBlock | ResourceContentBlock | EmbeddedResourceContentBlock
)
_LINES = re.compile(r"L(\d+)(?:[:-]L?(\d+))?")


class PromptContent(Struct, frozen=True):
    text: str
    """What the person wrote; files are named with `@`, so that they are attached when it is sent."""
    blocks: str = ""
    """Files and selections whose text the editor sent."""
    images: tuple[Image, ...] = ()
    paths: tuple[str, ...] = ()
    """The files in `blocks`."""


def read_prompt(blocks: list[ContentBlock]) -> PromptContent:
    """The message in the blocks of a prompt. Raises `ToolError` for what no model can read, or if it is empty."""
    content = _read_blocks(blocks)
    if not (content.text.strip() or content.blocks or content.images):
        raise ToolError("the prompt is empty; write something")
    return content


def _read_blocks(blocks: list[ContentBlock]) -> PromptContent:
    text, attached, images, paths = "", "", list[Image](), list[str]()
    for block in blocks:
        match block:
            case TextContentBlock():
                text += block.text
            case ImageContentBlock():
                images.append(_read_image(block.data, block.uri or "the image"))
            case ResourceContentBlock():
                text += _mention(block.uri)
            case EmbeddedResourceContentBlock():
                resource = block.resource
                path, lines = _split_uri(resource.uri)
                text += path
                if isinstance(resource, TextResourceContents):
                    attached += format_attachment(path, resource.text, lines)
                    paths.append(path)
                else:
                    images.append(_read_image(resource.blob, path))
            case _:
                raise ToolError("sound is not supported; send text, images or files")
    return PromptContent(text, attached, tuple(images), tuple(paths))


def _mention(uri: str) -> str:
    """`@` and the file, for a link to a file; else the link itself."""
    path, lines = _split_uri(uri)
    if path == uri or '"' in path:
        return uri
    return f'@"{path}":{lines}' if lines else f'@"{path}"'


def _split_uri(uri: str) -> tuple[str, str]:
    """The path and the lines of a file URI such as `file:///a/b.py#L3:7`; anything else stays as it is."""
    try:
        parts = urlsplit(uri)
    except ValueError:
        return uri, ""
    if parts.scheme != "file" or not parts.path:
        return uri, ""
    found = _LINES.fullmatch(parts.fragment)
    lines = "" if found is None else found[1] if found[2] in (None, found[1]) else f"{found[1]}-{found[2]}"
    return unquote(parts.path), lines


def _read_image(data: str, name: str) -> Image:
    try:
        content = base64.b64decode(data, validate=True)
    except (binascii.Error, ValueError) as error:
        raise ToolError(f"{name} is not valid base64") from error
    if len(content) > MAX_IMAGE_BYTES:
        raise ToolError(f"{name} is larger than {MAX_IMAGE_BYTES:,} bytes; make it smaller first")
    if not (kind := image_type(content)):
        raise ToolError(f"{name} is not a PNG, JPEG, GIF or WebP image")
    return Image(kind, content)
