"""The loopback Bot API as its own process, controlled by lines of JSON."""

import argparse
import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec

from tests.world.telegram_load import converse
from tests.world.telegram_server import TOKEN, Fault, Limits, Media, StoredMessage, TelegramServer


class Driver:
    """Handles the control port: a verb and its arguments, one JSON object per line."""

    def __init__(self, server: TelegramServer) -> None:
        self._server = server

    async def run(self, verb: str, given: dict[str, Any]) -> Any:
        server, town = self._server, self._server.chats
        if verb in ("group", "topic", "block", "unblock", "move", "revise", "press", "person"):
            return getattr(town, verb)(**given)
        if verb in ("down", "up", "confirmed", "polled"):
            return await getattr(server, verb)()
        if verb in ("clear_faults", "strike"):
            return getattr(server, verb)(**given)
        if hasattr(self, f"_{verb}"):
            return await getattr(self, f"_{verb}")(**given)
        raise ValueError(f"no verb {verb}")

    async def _say(self, **given: Any) -> Any:
        if given.get("media"):
            given["media"] = msgspec.convert(given["media"], Media)
        return self._server.chats.say(**given)

    async def _say_many(self, messages: list[dict[str, Any]]) -> list[int]:
        return [(await self._say(**one))["message_id"] for one in messages]

    async def _fault(self, **given: Any) -> None:
        self._server.fault(msgspec.convert(given, Fault))

    async def _limit(self, **given: float) -> None:
        self._server.limits = Limits(**given)

    async def _heard(self, **given: Any) -> list[dict[str, Any]]:
        return [describe_message(kept) for kept in await self._server.heard(**given)]

    async def _shows(self, **given: Any) -> dict[str, Any]:
        return describe_message(await self._server.shows(**given))

    async def _total(self, count: int) -> int:
        """Wait until the bot has so many messages in all chats together."""
        town = self._server.chats
        await self._server.until(lambda: town.spoken >= count)
        return town.spoken

    async def _converse(self, **given: Any) -> list[dict[str, Any]]:
        return await converse(self._server, **given)

    async def _sent(self, chat: int | None = None) -> list[dict[str, Any]]:
        return [describe_message(kept) for kept in self._server.chats.mine(chat)]

    async def _calls(self, method: str = "") -> Any:
        return msgspec.to_builtins(self._server.of(method) if method else self._server.calls)

    async def _state(self) -> dict[str, Any]:
        server = self._server
        facts = {"unconfirmed": server.unconfirmed, "polls": server.polls, "commands": server.commands}
        return facts | {"webhook": server.webhook, "refused": server.limits.refused if server.limits else 0}


def describe_message(kept: StoredMessage) -> dict[str, Any]:
    """A message of the bot as people see it, with its history."""
    wire = kept.wire
    rows = wire.get("reply_markup", {}).get("inline_keyboard", [])
    return {
        "chat": wire["chat"]["id"], "id": wire["message_id"], "text": kept.text, "raw": kept.raw, "mode": kept.mode,
        "entities": wire.get("entities", wire.get("caption_entities", [])), "at": kept.at, "edits": kept.edits,
        "thread": wire.get("message_thread_id", 0), "reply_to": wire.get("reply_to_message", {}).get("message_id", 0),
        "buttons": [button["text"] for row in rows for button in row],
        "media": next((kind for kind in ("photo", "document", "voice", "video", "audio") if kind in wire), ""),
    }  # fmt: skip


class TelegramProcess:
    """A Bot API in another process. Several tasks may call it at once."""

    def __init__(self, port: int, control: int, token: str) -> None:
        self.port, self.control, self.token = port, control, token

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def call(self, verb: str, **given: Any) -> Any:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.control, limit=1 << 30)
        try:
            writer.write(msgspec.json.encode([verb, given]) + b"\n")
            answer = msgspec.json.decode(await reader.readline())
        finally:
            writer.close()
        if "error" in answer:
            raise RuntimeError(f"{verb}: {answer['error']}")
        return answer["result"]


@asynccontextmanager
async def serve(*, port: int = 0, token: str = TOKEN) -> AsyncIterator[TelegramProcess]:
    """Run the Bot API as its own process."""
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.world.telegram_control", "--port", str(port), "--token", token,
        cwd=Path(__file__).parents[2], stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    try:
        assert child.stdout
        ports = (await child.stdout.readline()).split()
        yield TelegramProcess(int(ports[0]), int(ports[1]), token)
    finally:
        if child.returncode is None:
            child.kill()
        await child.wait()


async def main(options: argparse.Namespace) -> None:
    async with TelegramServer(options.token, port=options.port) as server:
        driver = Driver(server)

        async def drive(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            try:
                while line := await reader.readline():
                    try:
                        answer = {"result": await driver.run(*msgspec.json.decode(line))}
                    except Exception as error:
                        answer = {"error": repr(error)}
                    writer.write(msgspec.json.encode(answer) + b"\n")
                    await writer.drain()
            except ConnectionError:
                pass
            finally:
                writer.close()

        control = await asyncio.start_server(drive, "127.0.0.1", 0, limit=1 << 26)
        print(server.port, control.sockets[0].getsockname()[1], flush=True)
        await asyncio.Event().wait()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--token", default=TOKEN)
    asyncio.run(main(parser.parse_args()))
