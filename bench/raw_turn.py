"""The raw limit of a turn in a chat: wait for a message, call the model, send its answer; on bare sockets.

It keeps nothing, knows nobody and survives nothing. What it takes, any bot takes: the sockets, the waking of
three processes, and what the messenger and the model do before they look at the clock.
"""

import asyncio
import json
import os
import sys
from urllib.parse import urlsplit

SYSTEM = "You are a bot. " * 400
"""About as long as our system prompt and tools."""


class Line(asyncio.Protocol):
    """One connection: a request, its whole response, the next request."""

    def __init__(self) -> None:
        self._data, self._received = b"", asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._data += data
        head, _, body = self._data.partition(b"\r\n\r\n")
        length = head.lower().partition(b"content-length:")[2].partition(b"\r\n")[0]
        if len(body) >= int(length) if length else body.endswith(b"\r\n0\r\n\r\n"):
            self._data = b""
            self._received.set_result(body)

    async def ask(self, path: str, given: dict[str, object]) -> bytes:
        self._received = asyncio.get_running_loop().create_future()
        body = json.dumps(given).encode()
        head = f"POST {path} HTTP/1.1\r\nhost: there\r\ncontent-type: application/json\r\n"
        self._transport.write(f"{head}content-length: {len(body)}\r\n\r\n".encode() + body)
        return await self._received


async def line_to(url: str) -> tuple[Line, str]:
    """A connection to the host, and the path."""
    where = urlsplit(url)
    _, line = await asyncio.get_running_loop().create_connection(Line, where.hostname, where.port)
    return line, where.path


def answer(stream: bytes) -> str:
    events = (each for each in stream.split(b"data: ") if each.startswith(b"{"))
    chunks = (json.loads(each.partition(b"\n")[0]) for each in events)
    return "".join(choice["delta"].get("content") or "" for each in chunks for choice in each["choices"])


async def main(messenger: str, model: str, token: str) -> None:
    polling, base = await line_to(messenger)
    sending, _ = await line_to(messenger)
    asking, path = await line_to(model)
    bot, offset = f"{base}/bot{token}", 0
    while True:
        given: dict[str, object] = {"offset": offset, "timeout": 20, "allowed_updates": ["message"]}
        for update in json.loads(await polling.ask(f"{bot}/getUpdates", given))["result"]:
            offset, message = update["update_id"] + 1, update["message"]
            if message["text"].startswith("/"):
                continue
            said = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": message["text"]}]
            body = {"model": "parrot", "stream": True, "messages": said}
            text = answer(await asking.ask(f"{path}/chat/completions", body))
            await sending.ask(f"{bot}/sendMessage", {"chat_id": message["chat"]["id"], "text": text})


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:3], os.environ["TOKEN"]))
