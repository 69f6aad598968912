"""Questions that the model puts to a person, and the answers. Every front end hears of them."""

import asyncio
import os
import time
from collections.abc import Callable

from alipes.kernel.turns import Asked, Envelope, Heard, Reply, Turn


class Questions:
    """Those that wait for an answer, in this process."""

    def __init__(
        self, publish: Callable[[Envelope], None], heard: Callable[[str], bool], *, interactive: bool
    ) -> None:
        """`heard(key)`: does anybody watch? `interactive`: could they answer?"""
        self._publish, self._heard, self._interactive = publish, heard, interactive
        self._waiting: dict[str, asyncio.Future[Reply]] = {}
        self._asked: dict[str, tuple[str, Asked]] = {}
        """By session key, the question that is open there: the latest."""

    async def ask(self, turn: Turn, question: str, choices: tuple[str, ...], seconds: float) -> Reply | None:
        """What a person answers, or why the question did not reach them; None where nobody answers in time,
        or is there to. Every front end is told."""
        if not (self._interactive and self._heard(turn.key)):
            return None
        asked = Asked(os.urandom(6).hex(), question, choices, time.time() + seconds)
        answer: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        self._waiting[asked.ask], self._asked[turn.key] = answer, (turn.id, asked)
        self._publish(Envelope(turn.key, turn.id, asked))
        heard = Heard(asked.ask)
        try:
            async with asyncio.timeout(seconds):
                reply = await answer
            heard = Heard(asked.ask, reply.text, reply.by)
        except TimeoutError:
            return None
        else:
            return reply
        finally:
            del self._waiting[asked.ask]
            self._asked.pop(turn.key, None)
            self._publish(Envelope(turn.key, turn.id, heard))

    def answer(self, reply: Reply) -> None:
        """The first counts."""
        waiting = self._waiting.get(reply.ask)
        if waiting is not None and not waiting.done():
            waiting.set_result(reply)

    def waits(self, turn: str) -> bool:
        """Does the turn wait for an answer?"""
        return any(asker == turn for asker, _ in self._asked.values())

    def open(self, key: str) -> Asked | None:
        """What the session waits to hear."""
        found = self._asked.get(key)
        return found[1] if found else None

    def asking(self, key: str) -> tuple[tuple[str, Asked], ...]:
        """The same, with the turn that asks."""
        return (self._asked[key],) if key in self._asked else ()
