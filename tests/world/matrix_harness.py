"""The Matrix platform on a real homeserver, with people."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from alipes.kernel.models import Secret
from alipes.kernel.platform import IncomingMessage, Platform
from alipes.platforms.matrix.platform import MatrixPlatform
from alipes.platforms.matrix.settings import MatrixConfig
from alipes.runtime.http.clients import ClientScope
from tests.world.matrix_clients import Homeserver, Person, open_homeserver
from tests.world.matrix_proxy import FaultProxy, open_fault_proxy
from tests.world.recording_gateway import RecordingGateway
from tests.world.synapse_server import synapse


@pytest.fixture(scope="session")
def homeserver() -> str:
    """Started before the test, so that the leak check does not count it."""
    return synapse()


class MatrixHarness:
    def __init__(self, folder: Path, gate: FaultProxy, town: Homeserver, us: Person) -> None:
        self.folder, self.gate, self.town, self.us = folder, gate, town, us

    def settings(self, **more: Any) -> MatrixConfig:
        fields: dict[str, Any] = {
            "data_folder": self.folder,
            "base_url": self.gate.url,
            "user": self.us.id,
            "password": Secret("secret"),
            "poll": 5.0,
            "patience": 10.0,
        }
        return MatrixConfig(**(fields | more))

    @asynccontextmanager
    async def listening(
        self, ears: RecordingGateway, welcome: Callable[[IncomingMessage], Awaitable[bool]] | None = None, **more: Any
    ) -> AsyncIterator[Platform]:
        """Run the platform, once it is ready."""
        async with ClientScope() as scope:
            platform = MatrixPlatform(self.settings(**more), scope)
            if welcome is not None:
                platform.set_fetch_policy(welcome)
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
async def open_matrix_harness(folder: Path) -> AsyncIterator[MatrixHarness]:
    async with open_fault_proxy(synapse()) as made, open_homeserver(synapse()) as people:
        yield MatrixHarness(folder, made, people, await people.register("alipes"))
