"""A gateway with a real store, sessions and commands; the platform and the model are the test's."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path
from typing import Any

from alipes.agent.attachments import FileAttacher
from alipes.config.settings import Settings
from alipes.gateway.gateway import Gateway
from alipes.gateway.outbound.policy import OutboundPolicy
from alipes.gateway.policy import GatewayPolicy, PlatformPolicy
from alipes.kernel.platform import IncomingMessage
from alipes.kernel.turns import Address
from alipes.plugins.registry import PromptTemplate
from alipes.providers.registry import ModelChoice
from alipes.runtime.blobs.chat_files import ChatFiles
from alipes.sessions.commands.context import CommandContext
from tests.world.commands import all_commands, make_services
from tests.world.fake_platform import FakePlatform
from tests.world.session_harness import SessionHarness, SingleModel, open_sessions

RULES: dict[str, Any] = {
    "draft_delay": 0.02,
    "poll_interval": 0.05,
    "batch_window": 0.4,
    "edits_per_second": 1000.0,
    "view_idle": 60.0,
}
_numbers = count(1)


class Models(SingleModel):
    def names(self) -> tuple[str, ...]:
        return ("test/m",)

    async def list_names(self) -> tuple[str, ...]:
        return self.names()

    async def default(self) -> ModelChoice:
        return ModelChoice(model="test/m", why="The test says so.")


class GatewayHarness:
    """What the gateway needs of an app, and helpers for tests."""

    def __init__(self, house: SessionHarness, provider: Any) -> None:
        self.house, self.sessions, self.store, self.hooks = house, house.sessions, house.store, house.hooks
        self.templates: dict[str, PromptTemplate] = {}
        self.contributions = all_commands(lambda: self.templates)
        self._services = make_services(house, Models(provider), self.contributions)
        self.gateway: Gateway
        self.messenger: FakePlatform
        self.files = FileAttacher(Settings(home=Path("/nonexistent")))
        self.chat_files = ChatFiles(Path("/nonexistent"), max_bytes=1, cache_bytes=1)
        self.restarted = 0

    def context(self, inbound, *, local_files=True):
        return CommandContext(inbound, self._services, local_files=local_files)

    def restart(self):
        self.restarted += 1

    async def take(self, text: str = "", *, id: str = "", sender: str = "me", **more: Any) -> None:
        await self.gateway.receive("test", make_message(text, id=id, sender=sender, **more))

    async def quiet(self) -> None:
        """Return once no turn runs and the outbox is empty."""
        await self.sessions.wait_idle()
        await self.gateway.delivery.wait_idle()


def make_message(text: str = "", *, id: str = "", sender: str = "me", chat: str = "me", **more: Any) -> IncomingMessage:
    place = {name: more.pop(name) for name in ("chat_type", "thread", "user") if name in more}
    return IncomingMessage(id or f"a{next(_numbers)}", Address("test", chat, **place), sender, text=text, **more)


@asynccontextmanager
async def open_gateway(
    home: Path,
    provider: Any,
    *tools: Any,
    messenger: FakePlatform | None = None,
    manners: PlatformPolicy | None = None,
    rules: dict[str, Any] | None = None,
    transcribe: Any = None,
    chat_files: ChatFiles | None = None,
    **habits: Any,
) -> AsyncIterator[GatewayHarness]:
    """At the end the gateway is cancelled, then the sessions, as by a signal."""
    messenger = messenger or FakePlatform()
    policy = OutboundPolicy(["test"], [str(home / "outgoing")])
    habits = {"interactive": True, "outbound": policy, **habits}
    manners = manners or PlatformPolicy(allow=("me",), busy="queue", progress="off")
    how = GatewayPolicy(platforms={"test": manners}, outgoing=str(home / "outgoing"), **{**RULES, **(rules or {})})
    async with open_sessions(home, provider, *tools, **habits) as house:
        harness = GatewayHarness(house, provider)
        harness.messenger, harness.chat_files = messenger, chat_files or harness.chat_files
        harness.gateway = Gateway(
            harness, {"test": messenger}, how, outbound=policy, restart=harness.restart, transcribe=transcribe
        )
        serving = asyncio.create_task(harness.gateway.run())
        try:
            await messenger.connected.wait()
            yield harness
        finally:
            serving.cancel()
            await asyncio.gather(serving, return_exceptions=True)
            if not serving.cancelled() and serving.exception() is not None:
                raise serving.exception()
