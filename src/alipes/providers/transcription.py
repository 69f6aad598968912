"""Transcribes voice notes with a command or an HTTP service that the operator has set up."""

import asyncio
import os
import shlex
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import TypeAlias

import msgspec
from msgspec import Struct

from alipes.kernel.errors import MessageRejected
from alipes.kernel.models import Secret
from alipes.runtime.http.clients import HttpClient
from alipes.runtime.http.lazy_httpx import httpx2
from alipes.runtime.processes.child import open_child

Transcribe: TypeAlias = Callable[[str], Awaitable[str]]
"""Text of the sound file at a path. Raises `MessageRejected` with a sentence for the sender."""
TIMEOUT = 120.0
MAX_OUTPUT_BYTES = 200_000
FILE = "{file}"
FAILED = "I couldn't transcribe your voice note. Please type it."
NOT_SET_UP = "Voice notes aren't set up here. Please type your message."


class _Transcript(Struct):
    text: str


def command_transcriber(command: str, env: Mapping[str, str], *, within: float = TIMEOUT) -> Transcribe:
    """Run a shell command that prints the text; `{file}` is replaced by the path, else it is appended."""

    async def transcribe(path: str) -> str:
        quoted = shlex.quote(path)
        line = command.replace(FILE, quoted) if FILE in command else f"{command} {quoted}"
        try:
            async with asyncio.timeout(within), open_child(line, cwd=os.path.dirname(path), env=env) as child:
                output = bytearray()
                while (chunk := await child.read()) and len(output) < MAX_OUTPUT_BYTES:
                    output += chunk
                status = await child.wait()
        except (TimeoutError, OSError) as error:
            raise MessageRejected(FAILED) from error
        if status:
            raise MessageRejected(FAILED)
        return output.decode("utf-8", "replace").strip()

    return transcribe


def endpoint_transcriber(http: HttpClient, url: str, *, model: str, key: Secret | None = None) -> Transcribe:
    """Call an endpoint that is compatible with OpenAI's transcription API; `url` is its full address."""

    async def transcribe(path: str) -> str:
        try:
            sound = await asyncio.to_thread(Path(path).read_bytes)
        except OSError as error:
            raise MessageRejected(FAILED) from error
        form = httpx2.Request("POST", url, data={"model": model}, files={"file": (os.path.basename(path), sound)})
        headers = {"content-type": form.headers["content-type"]}
        if key:
            headers["authorization"] = f"Bearer {key.reveal()}"
        try:
            response = await http.request("POST", url, headers=headers, content=form.read(), timeout=TIMEOUT)
            text = msgspec.json.decode(response.content, type=_Transcript).text
        except (httpx2.HTTPError, msgspec.DecodeError) as error:
            raise MessageRejected(FAILED) from error
        if response.status_code != 200:
            raise MessageRejected(FAILED)
        return text.strip()

    return transcribe
