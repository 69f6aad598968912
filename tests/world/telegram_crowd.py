"""Many people who write to the bot at once, each again as soon as they are answered. It knows no HTTP."""

import asyncio
import time
from contextlib import suppress
from typing import Any

from tests.world.telegram_server import Call, TelegramServer

FIRST = 1000
"""The number of the first person, and of their chat."""


def token(chat: int, number: int) -> str:
    """What the answer to somebody's message must hold; no markup changes it."""
    return f"x{chat}n{number}x"


async def converse(
    server: TelegramServer,
    chats: int,
    turns: int,
    word: str = "echo",
    *,
    pause: float = 0.0,
    within: float | None = None,
) -> list[dict[str, Any]]:
    """Until each of `chats` people was answered `turns` times; when each wrote and when they were answered.

    They begin at once; `pause`: seconds before each writes again. Who is not answered `within` so many
    seconds of the beginning is not told of.
    """
    asked: dict[int, tuple[int, float]] = {}
    told: list[dict[str, Any]] = []
    loop, seen = asyncio.get_running_loop(), len(server.calls)

    def ask(chat: int, number: int) -> None:
        asked[chat] = (number, time.time())
        server.town.say(f"{word} {token(chat, number)}", chat)

    def hear(call: Call) -> None:
        chat = int(call.given.get("chat_id") or 0)
        number, since = asked.get(chat, (-1, 0.0))
        if number < 0 or call.code != 200 or token(chat, number) not in str(call.given.get("text", "")):
            return
        told.append({"chat": chat, "number": number, "asked": since, "answered": call.at})
        del asked[chat]
        if number + 1 < turns and pause:
            loop.call_later(pause, ask, chat, number + 1)
        elif number + 1 < turns:
            ask(chat, number + 1)

    def called() -> bool:
        return len(server.calls) > seen

    for person in range(FIRST, FIRST + chats):
        ask(person, 0)
    with suppress(TimeoutError):
        async with asyncio.timeout(within):
            while len(told) < chats * turns:
                await server.until(called)
                fresh, seen = server.calls[seen:], len(server.calls)
                for call in fresh:
                    hear(call)
    return told
