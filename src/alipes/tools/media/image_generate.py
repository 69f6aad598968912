"""`image_generate`: a picture is drawn and saved where people find it. Who draws is not known here."""

import asyncio
import os
import time
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import TypeAlias

from alipes.kernel.errors import ToolError
from alipes.kernel.messages import Image, Json, image_type
from alipes.kernel.ports import Act, ToolSpec
from alipes.tools.media.vision import Load, prepared

RATIOS = ("landscape", "square", "portrait")
AFTER = 8
"""Pictures that a new one goes by, at most."""
Draw: TypeAlias = Callable[[str, str, tuple[Image, ...]], Awaitable[bytes]]
"""Words, one of `RATIOS`, and pictures to go by, to a picture. Raises `ToolError` or `ProviderError`."""


class ImageGenerate:
    """The `image_generate` tool."""

    spec = ToolSpec(
        name="image_generate",
        description="Draw a picture, or change one; it is saved, shown, and sent along in chats.",
        schema={
            "type": "object",
            "properties": {
                "prompt": {"type": "string"},
                "aspect_ratio": {"type": "string", "enum": [*RATIOS]},
                "image_url": {"type": "string", "description": "file or address of a picture to change"},
                "reference_image_urls": {"type": "array", "items": {"type": "string"}},
            },
            "required": ["prompt"],
        },
    )

    def __init__(self, folder: Path, load: Load, draw: Draw) -> None:
        self._folder, self._load, self._draw = folder, load, draw

    async def run(self, args: Mapping[str, Json], act: Act) -> str:
        prompt, ratio = str(args["prompt"]).strip(), str(args.get("aspect_ratio") or "landscape")
        if not prompt:
            raise ToolError("say what is to be drawn")
        wanted = args.get("reference_image_urls")
        named = [args.get("image_url"), *(wanted if isinstance(wanted, list) else ())]
        after = tuple([await self._picture(str(each), act.workdir) for each in named if each])
        if len(after) > AFTER:
            raise ToolError(f"at most {AFTER} pictures can be gone by, not {len(after)}")
        path = await asyncio.to_thread(self._save, await self._draw(prompt, ratio, after))
        return f"Drawn and saved.\nMEDIA: {path}"

    async def _picture(self, named: str, workdir: str) -> Image:
        seen = await asyncio.to_thread(prepared, await self._load(named, workdir))
        if seen.image is None:
            raise ToolError(f"{named[:100]} is {seen.note}: only pictures of points can be gone by")
        return seen.image

    def _save(self, data: bytes) -> Path:
        kind = image_type(data[:64])
        if not kind:
            raise ToolError("what was drawn is no picture that can be shown")
        self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        stamp = time.strftime("%Y%m%d-%H%M%S")
        path = (
            self._folder / f"{stamp}-{os.urandom(3).hex()}.{kind.rpartition('/')[2].replace('jpeg', 'jpg')}"
        )
        with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(data)
        return path
