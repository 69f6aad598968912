"""A Matrix platform of ours on a real homeserver, with people around it: what the tests of it begin with."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from alipes.kernel.models import Secret
from alipes.kernel.platform import Arrival, Platform
from alipes.platforms.matrix.settings import MatrixSettings, open_matrix
from alipes.runtime.http.clients import ClientScope
from tests.world.ears import Ears
from tests.world.matrix_gate import Gate, gate
from tests.world.matrix_people import Person, Town, town
from tests.world.matrix_synapse import synapse


@pytest.fixture(scope="session")
def homeserver() -> str:
    """It is there before a test begins, and is nothing that the test has left behind."""
    return synapse()


class World:
    def __init__(self, folder: Path, gate: Gate, town: Town, us: Person) -> None:
        self.folder, self.gate, self.town, self.us = folder, gate, town, us

    def settings(self, **more: Any) -> MatrixSettings:
        told: dict[str, Any] = {
            "folder": self.folder,
            "base_url": self.gate.url,
            "user": self.us.id,
            "password": Secret("secret"),
            "poll": 5.0,
            "patience": 10.0,
        }
        return MatrixSettings(**(told | more))

    @asynccontextmanager
    async def listening(
        self, ears: Ears, welcome: Callable[[Arrival], Awaitable[bool]] | None = None, **more: Any
    ) -> AsyncIterator[Platform]:
        """The platform while it listens, once it is ready."""
        async with ClientScope() as scope:
            platform = open_matrix(self.settings(**more), scope)
            if welcome is not None:
                platform.fetch_only_for(welcome)
            listening = asyncio.create_task(platform.listen(ears.take, ears.tell))
            ready = asyncio.create_task(ears.until(lambda: ears.ready))
            await asyncio.wait({listening, ready}, return_when=asyncio.FIRST_COMPLETED)
            try:
                if not ready.done():
                    await listening
                yield platform
            finally:
                ready.cancel()
                listening.cancel()
                await asyncio.wait({listening})
            if not listening.cancelled():
                listening.result()


@asynccontextmanager
async def matrix_world(folder: Path) -> AsyncIterator[World]:
    async with gate(synapse()) as made, town(synapse()) as people:
        yield World(folder, made, people, await people.register("alipes"))
