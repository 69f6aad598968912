"""Serves our Bot API under Telegram's own host name, for a rival that accepts a proxy but no base URL.

A proxy that terminates TLS itself. Its certificate is signed by an authority made for this run, which clients
trust through `SSL_CERT_FILE`.
"""

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import trustme

NAME = "api.telegram.org"


@asynccontextmanager
async def open_front(port: int, ca: Path) -> AsyncIterator[str]:
    """Its address, to be set as a proxy; all that is sent through it goes to `port`, in the clear."""
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(ca))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert(NAME).configure_cert(context)
    lines: set[asyncio.Task[None]] = set()

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        lines.add(asyncio.current_task())  # type: ignore[arg-type]
        await _join(reader, writer, context, port)

    server = await asyncio.start_server(connected, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()
        for line in lines:
            line.cancel()
        await asyncio.gather(*lines, return_exceptions=True)


async def _join(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, context: ssl.SSLContext, port: int) -> None:
    other = None
    with suppress(ConnectionError, ssl.SSLError, asyncio.IncompleteReadError):
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
        await writer.drain()
        await writer.start_tls(context)
        answers, other = await asyncio.open_connection("127.0.0.1", port)
        async with asyncio.TaskGroup() as group:
            group.create_task(_carry(reader, other))
            group.create_task(_carry(answers, writer))
    for each in (writer, other):
        if each is not None:
            each.close()


async def _carry(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
    with suppress(ConnectionError, ssl.SSLError):
        while data := await source.read(65536):
            target.write(data)
            await target.drain()
    target.close()
