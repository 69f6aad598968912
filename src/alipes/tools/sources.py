"""Where a picture comes from: a file, the web, or an address that carries it. It judges nothing."""

import asyncio
import base64
import binascii
import os
import stat
from collections.abc import Awaitable, Callable
from typing import TypeAlias
from urllib.parse import unquote_to_bytes, urlparse

from alipes.kernel.errors import ToolError
from alipes.runtime.guarded import Fetcher, NotFetched
from alipes.tools.paths import Places
from alipes.tools.pictures import LARGEST

Load: TypeAlias = Callable[[str, str], Awaitable[bytes]]
"""What a model calls a picture, and the folder it works in, to its bytes. Raises `ToolError`."""


class Sources:
    """Files are those that may be read; addresses those that may be fetched."""

    def __init__(self, places: Places, fetcher: Fetcher) -> None:
        self._places, self._fetcher = places, fetcher

    async def load(self, named: str, workdir: str) -> bytes:
        """Raises `ToolError`."""
        scheme = urlparse(named).scheme.lower() if ":" in named[:12] else ""
        if scheme == "data":
            return _carried(named)
        if scheme in ("http", "https"):
            try:
                return (await self._fetcher.fetch(named, largest=LARGEST)).data
            except NotFetched as error:
                raise ToolError(str(error)) from error
        if scheme and scheme != "file":
            raise ToolError(f"{named[:100]} is neither a file nor an http, https or data address")
        path = urlparse(named).path if scheme else named
        return await asyncio.to_thread(self._read, path, workdir)

    def _read(self, named: str, workdir: str) -> bytes:
        path = self._places.locate(named, workdir)
        try:
            handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
            with open(handle, "rb") as file:
                facts = os.fstat(handle)
                real = os.path.realpath(f"/proc/self/fd/{handle}")
                if self._places.secrecy(real) or self._places.is_linked(facts):
                    raise ToolError(f"{path} holds secrets and is not shown")
                if not stat.S_ISREG(facts.st_mode):
                    raise ToolError(f"{path} is no file")
                return file.read(LARGEST + 1)
        except OSError as error:
            raise ToolError(f"{path} cannot be read: {error.strerror}") from error


def _carried(address: str) -> bytes:
    head, _, body = address.partition(",")
    try:
        return base64.b64decode(body, validate=True) if head.endswith(";base64") else unquote_to_bytes(body)
    except binascii.Error as error:
        raise ToolError(f"the data address is not whole: {error}") from error
