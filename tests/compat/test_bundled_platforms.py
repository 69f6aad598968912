"""The platform plugins that come with hermes-agent 0.19: which load, connect, and carry a message.

`ALIPES_TEST_HERMES_AGENT=FOLDER` names the unpacked wheel; `make services` fetches it.
`ALIPES_TEST_HERMES_PACKAGES=FOLDER` names a folder with SDKs of vendors (`pip install --target FOLDER slack-bolt`).
"""

import asyncio
import os
import shutil
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from types import ModuleType

import pytest
from msgspec import structs

from alipes.compat.hermes.modules.current_app import bridge
from alipes.gateway.gateway import Gateway
from alipes.gateway.outbound.policy import OutboundPolicy
from alipes.gateway.plugin_platforms import PluginPlatform
from alipes.gateway.policy import GatewayPolicy, PlatformPolicy
from alipes.testing import open_agent
from alipes.testing.agent import Conversation
from tests.compat.platform_standins import STAND_INS, StandIn, free_port
from tests.e2e.program import Home
from tests.world.environment import LIMIT_S, require

PLATFORMS = (
    Path(os.environ.get("ALIPES_TEST_HERMES_AGENT", ".services/hermes-agent")).absolute() / "plugins" / "platforms"
)
sys.path += [each for each in (os.environ.get("ALIPES_TEST_HERMES_PACKAGES", ""),) if each]
NAMES = (
    *("dingtalk", "discord", "email", "feishu", "google_chat", "homeassistant", "irc", "line", "matrix"),
    *("mattermost", "ntfy", "photon", "raft", "simplex", "slack", "sms", "teams", "telegram", "wecom", "whatsapp"),
)
NOT_LOADED = {"whatsapp": "its access rules and its Node bridge are part of Hermes, not of the plugin"}
RESULT = "bundled platform"
pytestmark = [
    pytest.mark.deadline(90),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),  # of the plugins' own code
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.skipif(
        not PLATFORMS.is_dir(), reason="no hermes-agent: set ALIPES_TEST_HERMES_AGENT, or run `make services`"
    ),
]


@pytest.fixture
def source(tmp_path) -> Callable[[str], Path]:
    """A copy of one plugin, without the rest of Hermes around it."""

    def copy(name: str) -> Path:
        return Path(shutil.copytree(PLATFORMS / name, tmp_path / "copies" / name))

    return copy


@pytest.fixture
def clean_environment(monkeypatch):
    """Plugins write variables themselves."""
    before = dict(os.environ)
    yield monkeypatch
    for name in [*os.environ]:
        if name not in before:
            monkeypatch.delenv(name)


@pytest.mark.parametrize("name", NAMES)
async def test_a_bundled_platform_plugin_loads(name, home, source, record_property, clean_environment):
    if name in NOT_LOADED:
        record_property(RESULT, f"{name} refused")
        pytest.xfail(NOT_LOADED[name])
    async with open_agent(home=home, plugins=[source(name)]):
        assert name in bridge().platforms
    record_property(RESULT, f"{name} loads")


@pytest.mark.parametrize("name", STAND_INS)
async def test_a_message_goes_in_and_its_answer_comes_out(name, home, source, record_property, clean_environment):
    place = STAND_INS[name]()
    if place.program:
        require(place.program)
    if place.needs:
        pytest.importorskip(
            place.needs, reason=f"{place.needs} is not installed; ALIPES_TEST_HERMES_PACKAGES names a folder"
        )
    for variable, value in getattr(place, "process_variables", dict)().items():
        clean_environment.setenv(variable, value)
    (home / ".env").write_text("".join(f"{key}='{value}'\n" for key, value in place.variables().items()))
    async with place.open(), open_platform(home, source(name), name, place) as agent:
        record_property(RESULT, f"{name} connects")
        await place.connected()
        await place.say("good morning")
        await wait_until(lambda: any("good morning to you" in text for text in place.sent), lambda: place.sent)
        (asked,) = agent.model.requests
        assert "good morning" in asked.messages[-1].text
    record_property(RESULT, f"{name} carries")


@asynccontextmanager
async def open_platform(home: Path, folder: Path, name: str, place: StandIn) -> AsyncIterator[Conversation]:
    """A whole app with the plugin, and the gateway that serves its platform."""
    plugin = f"{name}-platform"
    config = {"plugins": {"entries": {plugin: place.settings()}}} if place.settings() else {}
    async with open_agent(home=home, plugins=[folder], model=["good morning to you"], config=config) as agent:
        place.prepare(_adapter_module(plugin))
        sessions, outbound = agent.app.sessions, OutboundPolicy([name])
        defaults = structs.replace(sessions._services.defaults, outbound=outbound)
        sessions._services = structs.replace(sessions._services, defaults=defaults)
        guest = PluginPlatform(name, agent.app.contributions, agent.app.sessions)
        policy = PlatformPolicy(allow=(place.person,), progress="off", known_role=guest.role, group="all")
        rules = GatewayPolicy(platforms={name: policy}, pairing=False, poll_interval=0.05, draft_delay=30.0)
        gateway = Gateway(agent.app, {name: guest}, rules, outbound=outbound)
        serving = asyncio.create_task(gateway.run())
        try:
            await wait_until(lambda: gateway.states()[0].condition == "ready", gateway.states)
            yield agent
        finally:
            serving.cancel()
            await asyncio.gather(serving, return_exceptions=True)


def _adapter_module(plugin: str) -> ModuleType:
    return sys.modules[f"hermes_plugins.{plugin.replace('-', '_')}.adapter"]


async def wait_until(met: Callable[[], object], state: Callable[[], object]) -> None:
    end = time.monotonic() + LIMIT_S
    while not met():
        assert time.monotonic() < end, state()
        await asyncio.sleep(0.02)


async def test_serve_runs_a_bundled_plugin_that_has_the_name_of_a_built_in_platform(home, tmp_path):
    place = STAND_INS["irc"]()
    shutil.copytree(PLATFORMS / "irc", home / "plugins" / "irc")
    (home / ".env").write_text("".join(f"{key}='{value}'\n" for key, value in place.variables().items()))
    (home / ".env").chmod(0o600)
    (home / "config.toml").write_text(
        f'model = "scripted"\n[plugins]\nenabled = ["irc-platform"]\n[serve]\nport = {free_port()}\n'
    )
    async with place.open():
        program = [sys.executable, "-m", "alipes", "serve"]
        child = await asyncio.create_subprocess_exec(
            *program,
            env=Home(home).environ(),
            cwd=tmp_path,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        try:
            await place.connected()
            await place.say("good morning")
            await wait_until(lambda: place.sent, lambda: place.sent)
            assert place.sent == ["You said: good morning"]
        finally:
            child.terminate()
            said, _ = await child.communicate()
        assert child.returncode == 0 and b"serves irc" in said
