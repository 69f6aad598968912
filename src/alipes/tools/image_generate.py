"""`image_generate`: generates or edits an image and saves it as a file."""

import asyncio
import os
import time
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import TypeAlias

from alipes.kernel.errors import ToolError
from alipes.kernel.messages import Image, Json, image_type
from alipes.kernel.ports import ToolContext, ToolSpec
from alipes.tools.common import make_schema
from alipes.tools.vision import LoadImage, prepare_image

ASPECT_RATIOS = ("landscape", "square", "portrait")
MAX_REFERENCES = 8
GenerateImage: TypeAlias = Callable[[str, str, tuple[Image, ...]], Awaitable[bytes]]
"""Prompt, aspect ratio and reference images to image bytes. Raises `ToolError` or `ProviderError`."""


class ImageGenerate:
    spec = ToolSpec(
        name="image_generate",
        description="Generate or edit an image. It is saved, shown, and attached in chats.",
        schema=make_schema(
            "prompt",
            prompt="string",
            aspect_ratio=[*ASPECT_RATIOS],
            image_url="string: path or URL of an image to edit",
            reference_image_urls="strings",
        ),
    )

    def __init__(self, folder: Path, load: LoadImage, generate: GenerateImage) -> None:
        self._folder, self._load, self._generate = folder, load, generate

    async def run(self, args: Mapping[str, Json], act: ToolContext) -> str:
        prompt, ratio = str(args["prompt"]).strip(), str(args.get("aspect_ratio") or "landscape")
        if not prompt:
            raise ToolError("prompt is empty")
        given = args.get("reference_image_urls")
        named = [args.get("image_url"), *(given if isinstance(given, list) else ())]
        references = tuple([await self._load_reference(str(each), act.workdir) for each in named if each])
        if len(references) > MAX_REFERENCES:
            raise ToolError(f"{len(references)} reference images given, the maximum is {MAX_REFERENCES}")
        path = await asyncio.to_thread(self._save, await self._generate(prompt, ratio, references))
        return f"Image saved.\nMEDIA: {path}"

    async def _load_reference(self, named: str, workdir: str) -> Image:
        prepared = await asyncio.to_thread(prepare_image, await self._load(named, workdir))
        if prepared.image is None:
            raise ToolError(f"{named[:100]} is {prepared.note}: only raster images can be used as references")
        return prepared.image

    def _save(self, data: bytes) -> Path:
        kind = image_type(data[:64])
        if not kind:
            raise ToolError("the result is not an image in a supported format")
        self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        stamp = time.strftime("%Y%m%d-%H%M%S")
        path = self._folder / f"{stamp}-{os.urandom(3).hex()}.{kind.rpartition('/')[2].replace('jpeg', 'jpg')}"
        with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(data)
        return path
