"""A process whose turns wait for limits, of which several may run on one store: `python -m ... STORE LOG RESETS`.

STORE: a folder, or the address of a PostgreSQL schema. RESETS: a JSON file with the time at which the limit of each chat
resets. LOG: each line is written at once: what happened, chat, time, process.
"""

import asyncio
import json
import os
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from alipes.agent.loop import Agent
from alipes.agent.model_call import RetryPolicy
from alipes.kernel.errors import Transient
from alipes.kernel.messages import Message, Text
from alipes.kernel.ports import Request
from alipes.kernel.turns import Delta, ModelReply, Usage
from alipes.plugins.dispatch import Hooks
from alipes.providers.registry import Backend
from alipes.sessions.sessions import SessionDefaults, Sessions
from alipes.store.postgres.store import ClusterLimits, open_postgres_store
from alipes.store.sqlite.store import open_store


class LimitedModel:
    """Refuses each chat until its limit resets, then answers."""

    def __init__(self, log: int, resets: dict[str, float]) -> None:
        self._log, self._resets = log, resets

    async def open(self, name: str) -> Backend:
        return Backend(name, "m", self, on_limit="wait")

    @asynccontextmanager
    async def stream(self, request: Request) -> AsyncIterator[AsyncIterator[Delta]]:
        chat = request.messages[-1].text
        left = self._resets[chat] - time.time()
        self.note("asked", chat)
        if left > 0:
            error = Transient("limited", left)
            error.status = 429
            raise error
        yield _answer(chat)

    def note(self, what: str, chat: str) -> None:
        os.write(self._log, f"{what} {chat} {time.time():.6f} {os.getpid()}\n".encode())


async def _answer(chat: str) -> AsyncIterator[Delta]:
    await asyncio.sleep(0.01)
    yield ModelReply(Message("assistant", (Text(f"answer to {chat}"),)), Usage(1, 1))


async def work(store: str, log: int, resets: dict[str, float]) -> None:
    opened = (
        open_postgres_store(store, limits=ClusterLimits(lease_s=3.0)) if "://" in store else open_store(Path(store))
    )
    async with opened as home:
        model = LimitedModel(log, resets)

        async def agent(turn: object) -> Agent:
            return Agent(model, "test/m", retry=RetryPolicy(attempts=1, max_wait=0.0))

        defaults = SessionDefaults(waits_for_limits=True, idle_seconds=1.0)
        sessions = Sessions(home, hooks=Hooks(), agent=agent, defaults=defaults)
        print("ready", flush=True)
        await sessions.run()


if __name__ == "__main__":
    resets_file = Path(sys.argv[3])
    out = os.open(sys.argv[2], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    asyncio.run(work(sys.argv[1], out, json.loads(resets_file.read_text())))
