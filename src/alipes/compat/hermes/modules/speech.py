"""`tools.transcription_tools`, `tools.tts_tool` and `tools.vision_tools`: functions for worker threads."""

import asyncio
import json
import os
from typing import Any

from alipes.agent.speech import Speech, make_speech
from alipes.compat.hermes.bridge import Bridge
from alipes.compat.hermes.modules.current_app import bridge
from alipes.kernel.errors import MessageRejected, ToolError

MAX_SPOKEN_CHARS = 4000
_IN_A_THREAD = "this would block the event loop: call it inside asyncio.to_thread(...)"


def speech_of(current: Bridge) -> Speech:
    """Our own transcription and the providers of all plugins."""
    return make_speech(current.settings, current.clients(), current.contributions())


def transcribe_audio(file_path: str, model: str | None = None, **_more: Any) -> dict[str, Any]:
    """`{"success": ..., "transcript": ..., "text": ...}`; on failure `error` says why.

    Waits for the result, so call it in a worker thread.
    """
    current = bridge()
    if current.on_loop():
        return _failure(_IN_A_THREAD)
    if not os.path.isfile(file_path):
        return _failure(f"{file_path} is not a file")
    return current.wait(current.any_context(), _transcribe(current, str(file_path)))


async def _transcribe(current: Bridge, path: str) -> dict[str, Any]:
    try:
        text = await speech_of(current).transcribe(path)
    except MessageRejected as error:
        return _failure(str(error))
    return {"success": True, "transcript": text, "text": text}


def _failure(error: str) -> dict[str, Any]:
    return {"success": False, "transcript": "", "text": "", "error": error}


def text_to_speech_tool(text: str, output_path: str | None = None, **_more: Any) -> str:
    """Speak a text with a registered provider. Returns JSON with `success` and `file_path`.

    Waits for the result, so call it in a worker thread.
    """
    current = bridge()
    if current.on_loop():
        return json.dumps({"success": False, "error": _IN_A_THREAD})
    return current.wait(current.any_context(), _speak(current, text, output_path))


async def _speak(current: Bridge, text: str, output_path: str | None) -> str:
    try:
        path = await speak_to_file(current, text, output_path)
    except ToolError as error:
        return json.dumps({"success": False, "error": str(error)})
    return json.dumps({"success": True, "file_path": path, "media_tag": f"MEDIA:{path}"})


async def speak_to_file(current: Bridge, text: str, path: str | None = None) -> str:
    """Write speech to a file that may be sent to chats. Raises `ToolError`."""
    if not text.strip():
        raise ToolError("text is empty")
    folder = current.settings.paths.outgoing
    await asyncio.to_thread(folder.mkdir, parents=True, exist_ok=True, mode=0o700)
    target = path or str(folder / f"speech-{os.urandom(6).hex()}.ogg")
    return await speech_of(current).speak(text[:MAX_SPOKEN_CHARS], target)


def check_tts_requirements() -> bool:
    """True if a plugin provides a voice."""
    return speech_of(bridge()).has_voice()


async def vision_analyze_tool(image_url: str, user_prompt: str, model: str | None = None, **_more: Any) -> str:
    """Ask our vision tool. Returns JSON with `success` and `analysis`."""
    host = bridge().host
    key = "image_url" if image_url.startswith(("http:", "https:", "data:")) else "path"
    args = {key: image_url, "question": user_prompt}
    result = await host.run_tool("vision_analyze", args, turn=host.current_turn())
    return json.dumps({"success": result.outcome == "ok", "analysis": result.text}, ensure_ascii=False)


def is_whisper_hallucination(transcript: str) -> bool:
    """True for a transcript without words, as models write for silence."""
    return not any(each.isalnum() for each in transcript)
