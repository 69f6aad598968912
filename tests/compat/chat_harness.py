"""Someone in a chat of the old messenger, which the gateway serves on a whole app."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from msgspec import structs

from alipes.agent.speech import make_speech
from alipes.compat.hermes.modules.current_app import bridge
from alipes.compat.hermes.platform.values import MessageEvent, MessageType
from alipes.gateway.gateway import Gateway
from alipes.gateway.outbound.policy import OutboundPolicy
from alipes.gateway.plugin_platforms import PluginPlatform
from alipes.gateway.policy import GatewayPolicy, PlatformPolicy
from alipes.testing import open_agent
from alipes.testing.agent import Conversation
from tests.compat.hook_log import PLUGINS
from tests.world.environment import LIMIT_S

KEY = "agent:main:oldchat:dm:42"


class Chat:
    def __init__(self, agent: Conversation, gateway: Gateway) -> None:
        self.agent, self.gateway = agent, gateway
        (self.adapter,) = bridge().gateway.adapters.values()
        self._number = time.time_ns()

    def event(self, text: str, user: str = "7", chat: str = "42", **more: Any) -> MessageEvent:
        self._number += 1
        source = self.adapter.build_source(chat, "a chat", "dm", user, "Ada")
        known = {"message_type": MessageType.TEXT, **more}
        return MessageEvent(text=text, source=source, message_id=f"n{self._number}", **known)

    async def say(self, text: str, **more: Any) -> None:
        await self.adapter.handle_message(self.event(text, **more))

    @property
    def heard(self) -> list[str]:
        return [text for _, text in self.adapter.sent]

    async def until(self, met: str | Callable[[], object], seconds: float = LIMIT_S) -> None:
        """Until it was said in the chat, or it is so."""
        until = time.monotonic() + seconds
        while not (any(met in text for text in self.heard) if isinstance(met, str) else met()):
            assert time.monotonic() < until, f"{met} did not come to be: {self.heard}"
            await asyncio.sleep(0.01)


@asynccontextmanager
async def open_chat(
    home: Path, script: Any, *plugins: Path, manners: PlatformPolicy | None = None, **more: Any
) -> AsyncIterator[Chat]:
    """The recorder, the old messenger and `plugins` in an app whose people watch, and can answer."""
    known = [PLUGINS / "recorder", PLUGINS / "oldchat", *plugins]
    more = {"person": "once", **more}
    async with open_agent(home=home, plugins=known, model=script, **more) as agent:
        # nothing was waited for since the app was opened: no turn began yet
        sessions, outbound_policy = agent.app.sessions, OutboundPolicy(["oldchat"])
        defaults = structs.replace(sessions._services.defaults, outbound=outbound_policy)
        sessions._services = structs.replace(sessions._services, defaults=defaults)
        guest = PluginPlatform("oldchat", agent.app.contributions, agent.app.sessions)
        usual = manners or PlatformPolicy(allow=("7",), progress="off")
        known = structs.replace(usual, known_role=guest.role, wanted_busy=guest.wanted_busy)
        rules = GatewayPolicy(
            platforms={"oldchat": known}, pairing=False, batch_window=0.4, poll_interval=0.05, draft_delay=0.05
        )
        speech = make_speech(bridge().settings, agent.app.scope, agent.app.contributions)
        gateway = Gateway(agent.app, {"oldchat": guest}, rules, outbound=outbound_policy, transcribe=speech.transcribe)
        serving = asyncio.create_task(gateway.run())
        try:
            until = time.monotonic() + 15
            while gateway.states()[0].condition != "ready":
                assert time.monotonic() < until, gateway.states()
                await asyncio.sleep(0.005)
            yield Chat(agent, gateway)
        finally:
            serving.cancel()
            await asyncio.gather(serving, return_exceptions=True)
