"""Many people who write to the bot at once, each again as soon as they are answered."""

import asyncio
import time
from contextlib import suppress
from typing import Any

from tests.world.telegram_server import Call, TelegramServer

FIRST = 1000
"""The id of the first person and their chat."""


def token(chat: int, number: int) -> str:
    """The text that the answer to a message must contain."""
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
    """Run until each of `chats` people was answered `turns` times. Returns when each wrote and was answered,
    and how much of that was the messenger's `own`: the time in which it held the message though a poll waited.

    They start at once; `pause`: seconds before each writes again. Messages not answered `within` so many
    seconds are left out.
    """
    crowd = _Users(server, turns, word, pause)
    for person in range(FIRST, FIRST + chats):
        crowd.ask(person, 0)
    with suppress(TimeoutError):
        async with asyncio.timeout(within):
            while len(crowd.answered) < chats * turns:
                await server.until(crowd.news)
                crowd.listen()
    return crowd.answered


class _Users:
    def __init__(self, server: TelegramServer, turns: int, word: str, pause: float) -> None:
        self._server, self._turns, self._word, self._pause = server, turns, word, pause
        self._asked: dict[int, tuple[int, float]] = {}
        self._seen = len(server.calls)
        self._poll = Call(0.0, "", {}, 0)
        self.answered: list[dict[str, Any]] = []

    def ask(self, chat: int, number: int) -> None:
        self._asked[chat] = (number, time.time())
        self._server.chats.say(f"{self._word} {token(chat, number)}", chat)

    def news(self) -> bool:
        return len(self._server.calls) > self._seen

    def listen(self) -> None:
        fresh, self._seen = self._server.calls[self._seen :], len(self._server.calls)
        for call in fresh:
            if call.method == "getupdates":
                self._poll = call
            elif call.code == 200:
                self._hear(call)

    def _hear(self, call: Call) -> None:
        chat = int(call.given.get("chat_id") or 0)
        number, since = self._asked.get(chat, (-1, 0.0))
        if number < 0 or token(chat, number) not in str(call.given.get("text", "")):
            return
        own = max(0.0, self._poll.at - max(since, self._poll.came)) if self._poll.at >= since else 0.0
        self.answered.append({"chat": chat, "number": number, "asked": since, "answered": call.came, "own": own})
        del self._asked[chat]
        if number + 1 < self._turns and self._pause:
            asyncio.get_running_loop().call_later(self._pause, self.ask, chat, number + 1)
        elif number + 1 < self._turns:
            self.ask(chat, number + 1)
