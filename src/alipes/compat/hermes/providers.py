"""Uses the providers that Hermes plugins register: voices and videos as tools, images and search in our own tools.

Transcription is asked by the gateway and `transcribe_audio`, see `agent.speech`. Browsers and context engines are
listed and not used.
"""

import asyncio
import json
import os
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from alipes.agent.provider_calls import call_provider, find_providers
from alipes.agent.speech import VOICE_PROVIDER
from alipes.compat.hermes import tools
from alipes.compat.hermes.bridge import Bridge, ThreadResult
from alipes.compat.hermes.modules.speech import speak_to_file
from alipes.compat.hermes.modules.url_safety import fetch_public
from alipes.compat.hermes.platform.values import cache_image_from_bytes
from alipes.compat.hermes.state import ToolEntry
from alipes.kernel.errors import ToolError
from alipes.kernel.messages import Image
from alipes.kernel.ports import ToolOutput
from alipes.plugins.context import Context
from alipes.plugins.registry import ProviderContribution

IMAGES, VIDEOS = "image_gen", "video_gen"
VIDEO_TIMEOUT_S = 900.0
MAX_VIDEO_BYTES = 200 * 1024 * 1024


class ReferenceImages:
    """An image provider of Hermes for our `image_generate`: reference images are passed as files."""

    def __init__(self, provider: Any) -> None:
        self.provider, self.name = provider, provider.name

    def is_available(self) -> bool:
        return bool(self.provider.is_available())

    def generate(self, prompt: str, aspect_ratio: str, images: tuple[Image, ...] = ()) -> Any:
        """Called in a thread."""
        paths = [cache_image_from_bytes(each.data, f".{each.media_type.rpartition('/')[2]}") for each in images]
        options = {"image_url": paths[0], "reference_image_urls": paths[1:] or None} if paths else {}
        return self.provider.generate(prompt, aspect_ratio=aspect_ratio, **options)


def wrap_provider(kind: str, provider: Any) -> Any:
    """The object that alipes calls for a provider."""
    return ReferenceImages(provider) if kind == IMAGES and hasattr(provider, "is_available") else provider


def register_tools(bridge: Bridge, context: Context, kind: str, provider: Any) -> None:
    """Offer the tools of a provider's kind, unless another plugin offers them already."""
    method, add = _TOOLS.get(kind, ("", None))
    if add is not None and (callable(provider) or hasattr(provider, method)):
        add(bridge, context, provider)


def _register(
    bridge: Bridge, context: Context, schema: dict[str, Any], act: Callable[..., Any], *, kind: str, effect: Any
) -> None:
    name = schema["name"]
    if name in bridge.tools:
        return
    entry = ToolEntry(
        owner=context.owner,
        name=name,
        toolset=kind,
        schema=schema,
        handler=act,
        check_fn=lambda: any(map(_is_available, context.contributions.providers(kind))),
        is_async=True,
        effect=effect,
    )
    tools.register_tool(bridge, context, entry)


def _is_available(provider: ProviderContribution) -> bool:
    """For a worker thread; one that raises is not available."""
    outcome: ThreadResult[Any] = ThreadResult()
    outcome.run(getattr(provider.thing, "is_available", lambda: True))
    return outcome.future.exception() is None and bool(outcome.future.result())


def _voice_tools(bridge: Bridge, context: Context, _provider: Any) -> None:
    async def speak(args: Mapping[str, Any]) -> ToolOutput:
        path = await speak_to_file(bridge, str(args.get("text") or ""))
        return ToolOutput(f"Speech saved: {path}", files=(path,))

    _register(bridge, context, _SPEAK, speak, kind=VOICE_PROVIDER, effect="write")


def _video_tools(bridge: Bridge, context: Context, _provider: Any) -> None:
    async def generate(args: Mapping[str, Any]) -> ToolOutput:
        chosen = next(iter(await find_providers(context.contributions, VIDEOS)), None)
        if chosen is None:
            raise ToolError("no video service is available: check the keys of its plugin")
        options = {name: args[name] for name in ("aspect_ratio", "duration") if args.get(name)}
        prompt = str(args.get("prompt") or "")
        answer = await call_provider(chosen, "generate", prompt, options=options, seconds=VIDEO_TIMEOUT_S)
        location = str((answer or {}).get("video") or "")
        if not location:
            raise ToolError(f"{chosen.name} failed: {(answer or {}).get('error') or 'it returned no video'}")
        path = str(await _save_video(bridge, location))
        return ToolOutput(f"Video saved: {path}", files=(path,))

    _register(bridge, context, _VIDEO, generate, kind=VIDEOS, effect="write")


async def _save_video(bridge: Bridge, location: str) -> Path:
    """Copy or download it to the folder of files that may be sent."""
    folder = bridge.settings.paths.outgoing
    await asyncio.to_thread(folder.mkdir, parents=True, exist_ok=True, mode=0o700)
    target = folder / f"video-{os.urandom(6).hex()}.mp4"
    if location.startswith(("http://", "https://")):
        try:
            data = (await fetch_public(location, MAX_VIDEO_BYTES)).data
        except ValueError as error:
            raise ToolError(f"the video was generated but could not be downloaded: {error}") from error
        await asyncio.to_thread(target.write_bytes, data)
    else:
        await asyncio.to_thread(shutil.copyfile, location, target)
    return target


def _schema(name: str, description: str, required: str, properties: str) -> dict[str, Any]:
    parameters = {"type": "object", "properties": json.loads(properties), "required": [required]}
    return {"name": name, "description": description, "parameters": parameters}


_SPEAK = _schema(
    "text_to_speech",
    "Speak a text. The sound file is saved, and attached in chats.",
    "text",
    '{"text": {"type": "string"}}',
)
_VIDEO = _schema(
    "video_generate",
    "Generate a video. It is saved, and attached in chats.",
    "prompt",
    '{"prompt": {"type": "string"}, "aspect_ratio": {"type": "string"}, "duration": {"type": "integer"}}',
)
_TOOLS: dict[str, tuple[str, Callable[[Bridge, Context, Any], None] | None]] = {
    VOICE_PROVIDER: ("synthesize", _voice_tools),
    VIDEOS: ("generate", _video_tools),
}
"""By kind: the method that a provider must have, and what adds its tools."""
