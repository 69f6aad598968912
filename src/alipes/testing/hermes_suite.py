"""pytest plugin: runs the test suite of a Hermes plugin with the modules that alipes provides.

In the plugin's folder: `pytest -p alipes.testing.hermes_suite`. Its tests import `gateway.platforms.base`,
`hermes_cli.config` and so on as in Hermes; `HERMES_HOME` is a temporary folder, or what a test sets.
"""

import asyncio
import shutil
import tempfile
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from inspect import iscoroutinefunction
from pathlib import Path
from typing import Any, TypeVar

import pytest

from alipes.compat.hermes.bridge import Bridge
from alipes.compat.hermes.context import PluginContext, PluginManifest
from alipes.compat.hermes.modules import install
from alipes.compat.hermes.state import PlatformEntry, ToolEntry
from alipes.config.environment import process_environment
from alipes.config.settings import Settings
from alipes.kernel.messages import Json, Message, Text, ToolResult, assistant
from alipes.kernel.turns import Inbound, ModelReply, Op, Turn, Usage
from alipes.plugins.context import Context, PluginSetup
from alipes.plugins.dispatch import Hooks
from alipes.plugins.owner import PluginOwner
from alipes.plugins.registry import CommandContribution, Contributions, ProviderContribution
from alipes.runtime.http.clients import ClientScope

T = TypeVar("T")


class SuiteHost:
    """Accepts messages, and answers for the model."""

    def __init__(self) -> None:
        self.submitted: list[Inbound] = []
        self.reply = "an answer"

    async def submit(self, inbound: Inbound) -> str | None:
        self.submitted.append(inbound)
        return inbound.id

    async def post(self, key: str, op: Op) -> None:
        return

    async def unfinished(self, key: str) -> tuple[str, ...]:
        return ()

    async def ask(self, messages: tuple[Message, ...], **_more: Any) -> ModelReply:
        return ModelReply(assistant(Text(self.reply)), Usage())

    async def run_tool(self, name: str, args: Mapping[str, Json], *, turn: Turn | None = None) -> ToolResult:
        return ToolResult("", f"{name} was not run: there is no conversation in a test suite", "failed")

    def current_turn(self) -> Turn | None:
        return None

    def setting(self, key: str) -> object:
        return ""


class SuiteScope:
    """A plugin's scope without background work."""

    def __init__(self) -> None:
        self.clients, self.stack = ClientScope(), AsyncExitStack()

    def run(self, work: Coroutine[Any, Any, object], name: str) -> "asyncio.Task[object]":
        work.close()
        raise RuntimeError(f"{name} was not started: there is no app in a test suite")


class SuiteBridge(Bridge):
    """The bridge of a test suite: all calls run where they are made."""

    def __init__(self, home: Path) -> None:
        self.suite_host = SuiteHost()
        super().__init__(self.suite_host, Settings(home=home))
        setup = PluginSetup(owner=PluginOwner("suite"), config={}, folder=home / "plugin-data", sync_hooks=True)
        self.suite_contributions = Contributions()
        self.suite_context = Context(
            setup, hooks=Hooks(), contributions=self.suite_contributions, host=self.suite_host, scope=SuiteScope()
        )
        self.suite_context.publish()

    @property
    def home(self) -> Path:
        return Path(process_environment().get("HERMES_HOME") or self.settings.home)

    def context(self, *things: object) -> Context:
        return self.suite_context

    def any_context(self) -> Context:
        return self.suite_context

    def on_loop(self) -> bool:
        return True

    async def off_loop(self, act: Callable[[], T]) -> T:
        return await asyncio.to_thread(act)

    def wait(self, context: Context, work: Coroutine[Any, Any, T], timeout: float | None = None) -> T:
        return asyncio.run(work)


class HermesDoor:
    """The `ctx` for a plugin's `register`, and what it registered."""

    def __init__(self, bridge: SuiteBridge) -> None:
        self._bridge = bridge
        self.host = bridge.suite_host
        self.ctx = PluginContext(bridge, bridge.suite_context, PluginManifest(name="suite"))

    @property
    def tools(self) -> dict[str, ToolEntry]:
        return self._bridge.tools

    @property
    def platforms(self) -> dict[str, PlatformEntry]:
        return self._bridge.platforms

    @property
    def hooks(self) -> tuple[str, ...]:
        """Names of its hooks, as the plugin registered them."""
        return tuple(self._bridge.suite_context.registered)

    @property
    def commands(self) -> tuple[str, ...]:
        return tuple(each.name for each in self._bridge.suite_contributions.all(CommandContribution))

    @property
    def providers(self) -> dict[str, Any]:
        """By `kind:name`, such as `tts:voice`."""
        provided = self._bridge.suite_contributions.all(ProviderContribution)
        return {f"{each.kind}:{each.name}": each.thing for each in provided}


_OPEN: list[SuiteBridge] = []


def _open_suite() -> None:
    if not _OPEN:
        bridge = SuiteBridge(Path(tempfile.mkdtemp(prefix="alipes-hermes-suite-")))
        install.install(bridge)
        _OPEN.append(bridge)


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests() -> None:
    """With `-p`, the modules are there before the suite's conftest.py is imported."""
    _open_suite()


def pytest_configure(config: pytest.Config) -> None:
    _open_suite()
    config.addinivalue_line("markers", "asyncio: an async test")


def pytest_unconfigure() -> None:
    while _OPEN:
        bridge = _OPEN.pop()
        install.uninstall(bridge)
        shutil.rmtree(bridge.settings.home, ignore_errors=True)


def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run async tests if no other plugin does."""
    if not iscoroutinefunction(pyfuncitem.obj):
        return None
    given = {name: pyfuncitem.funcargs[name] for name in pyfuncitem._fixtureinfo.argnames}
    asyncio.run(pyfuncitem.obj(**given))
    return True


@pytest.fixture(autouse=True)
def hermes_door(monkeypatch: pytest.MonkeyPatch) -> Iterator[HermesDoor]:
    """A new door for each test: `register(hermes_door.ctx)`, then look at `hermes_door.tools` and so on."""
    (before,) = _OPEN
    bridge = SuiteBridge(before.settings.home)
    monkeypatch.setenv("HERMES_HOME", str(bridge.settings.home))
    install.install(bridge)
    yield HermesDoor(bridge)
    install.uninstall(bridge)


@asynccontextmanager
async def hosted(adapter: Any) -> AsyncIterator[list[Any]]:
    """Run an adapter without a gateway: the messages that it hands over are collected."""
    events: list[Any] = []

    async def collect(event: Any) -> None:
        events.append(event)

    adapter.set_message_handler(collect)
    connected = await adapter.connect()
    assert connected is not False, getattr(adapter, "fatal_error_message", "")
    try:
        yield events
    finally:
        await adapter.disconnect()
