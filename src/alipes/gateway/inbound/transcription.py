"""Voice notes put into words by somebody else's program or service. What the words mean is not asked here."""

import asyncio
import os
import shlex
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import TypeAlias

import httpx2
import msgspec
from msgspec import Struct, structs

from alipes.kernel.errors import NotTaken
from alipes.kernel.models import Secret
from alipes.kernel.platform import Arrival
from alipes.runtime.http.clients import Http
from alipes.runtime.processes.child import open_child

Transcribe: TypeAlias = Callable[[str], Awaitable[str]]
"""The words in the sound file at a path. Raises `NotTaken` with a sentence for who spoke them."""
WITHIN = 120.0
LONGEST = 200_000
FILE = "{file}"
UNHEARD = "Your voice note could not be put into words. Please write it."
DEAF = "I cannot listen to voice notes here: nothing is set up that puts them into words. Please write."


class _Heard(Struct):
    text: str


def by_command(command: str, env: Mapping[str, str], *, within: float = WITHIN) -> Transcribe:
    """A line of shell, with `{file}` where the path belongs, else at the end; it prints the words."""

    async def transcribe(path: str) -> str:
        quoted = shlex.quote(path)
        line = command.replace(FILE, quoted) if FILE in command else f"{command} {quoted}"
        try:
            async with asyncio.timeout(within), open_child(line, cwd=os.path.dirname(path), env=env) as child:
                heard = bytearray()
                while (piece := await child.read()) and len(heard) < LONGEST:
                    heard += piece
                status = await child.wait()
        except (TimeoutError, OSError) as error:
            raise NotTaken(UNHEARD) from error
        if status:
            raise NotTaken(UNHEARD)
        return heard.decode("utf-8", "replace").strip()

    return transcribe


def by_endpoint(http: Http, url: str, *, model: str, key: Secret | None = None) -> Transcribe:
    """A service that takes what OpenAI's transcription endpoint takes, at its full `url`."""

    async def transcribe(path: str) -> str:
        try:
            sound = await asyncio.to_thread(Path(path).read_bytes)
        except OSError as error:
            raise NotTaken(UNHEARD) from error
        border = os.urandom(16).hex()
        headers = {"content-type": f"multipart/form-data; boundary={border}"}
        if key:
            headers["authorization"] = f"Bearer {key.reveal()}"
        body = _form(border, model, os.path.basename(path), sound)
        try:
            response = await http.request("POST", url, headers=headers, content=body, timeout=WITHIN)
            words = msgspec.json.decode(response.content, type=_Heard).text
        except (httpx2.HTTPError, msgspec.DecodeError) as error:
            raise NotTaken(UNHEARD) from error
        if response.status_code != 200:
            raise NotTaken(UNHEARD)
        return words.strip()

    return transcribe


async def in_words(arrival: Arrival, transcribe: Transcribe | None) -> Arrival:
    """The same with the words of its voice notes in their place. Raises `NotTaken` where there are none."""
    if transcribe is None:
        raise NotTaken(DEAF)
    voices = [file.path for file in arrival.files if file.kind == "voice"]
    words = [await transcribe(path) for path in voices]
    text = "\n".join(each for each in (arrival.text, *words) if each)
    rest = tuple(file for file in arrival.files if file.kind != "voice")
    return structs.replace(arrival, text=text, files=rest)


def _form(border: str, model: str, name: str, sound: bytes) -> bytes:
    safe = name.replace('"', "").replace("\r", "").replace("\n", "")
    head = (
        f'--{border}\r\nContent-Disposition: form-data; name="model"\r\n\r\n{model}\r\n'
        f'--{border}\r\nContent-Disposition: form-data; name="file"; filename="{safe}"\r\n'
        f"Content-Type: application/octet-stream\r\n\r\n"
    )
    return head.encode() + sound + f"\r\n--{border}--\r\n".encode()
