"""One plugin in one version of its code, from opening to closing, in its own task."""

import asyncio
import logging
import traceback
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Any

from msgspec import Struct

from alipes.config.environment import current_variables
from alipes.config.settings import Settings
from alipes.kernel.errors import AlipesError, ConfigError, PluginError
from alipes.plugins.context import Context, Host, PluginSetup
from alipes.plugins.discovery import DiscoveredPlugin, PluginStatus, State, first_import_error, is_hermes_name
from alipes.plugins.dispatch import Hooks, guard
from alipes.plugins.interruption.attribution import cancel_tasks, on_behalf_of, track_tasks
from alipes.plugins.native_loader import PluginLoader, plugin_settings
from alipes.plugins.owner import PluginOwner
from alipes.plugins.registry import (
    CliContribution,
    CommandContribution,
    Contributions,
    ProviderContribution,
    SkillContribution,
    ToolContribution,
)
from alipes.runtime.http.clients import ClientScope

log = logging.getLogger(__name__)
GRACE = 3.0
"""Seconds that closing a plugin's resources may take."""


class OpenPluginScope:
    """Created and closed by `open_scope`, in the task that opened it: tasks first, then resources in reverse
    order."""

    def __init__(self, owner: PluginOwner, clients: ClientScope, group: asyncio.TaskGroup) -> None:
        self.clients = clients
        self.stack = AsyncExitStack()
        self._owner, self._group = owner, group
        self._running: set[asyncio.Task[object]] = set()
        self._closed = False

    def run(self, work: Coroutine[Any, Any, object], name: str) -> asyncio.Task[object]:
        """Run until it is done or the plugin is closed. If it raises, that is a strike."""
        if self._closed:
            work.close()
            raise RuntimeError(f"the plugin {self._owner.name} is closed and cannot start anything")
        with on_behalf_of(None):  # the task belongs to alipes: it lasts until the plugin's work has ended
            task = self._group.create_task(self._guarded(work, name), name=f"plugin {self._owner.name}: {name}")
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        return task

    async def _guarded(self, work: Coroutine[Any, Any, object], name: str) -> object:
        with suppress(PluginError):  # already reported and counted
            return await guard(self._owner, name, work)
        return None

    async def close(self, grace: float) -> None:
        """Cancel the tasks, then close the resources, latest first. Time-limited."""
        self._closed = True
        try:
            for task in self._running:
                task.cancel()
            if self._running:
                await asyncio.wait(self._running)
        finally:
            await _close(self._owner, "closing what it opened", self.stack.aclose(), grace)


@asynccontextmanager
async def open_scope(
    owner: PluginOwner, clients: ClientScope, *, grace: float = GRACE
) -> AsyncIterator[OpenPluginScope]:
    """A plugin's scope. Leave it in the task that entered it."""
    await clients.__aenter__()
    try:
        async with track_tasks(owner), asyncio.TaskGroup() as group:
            scope = OpenPluginScope(owner, clients, group)
            try:
                yield scope
            finally:
                await scope.close(grace)
    finally:
        await _close(owner, "closing its clients", clients.__aexit__(None, None, None), grace)


async def _close(owner: PluginOwner, what: str, work: Coroutine[Any, Any, object], grace: float) -> None:
    """Close resources, also of a disabled plugin and despite errors."""
    leaving = PluginOwner(owner.name)
    with suppress(PluginError):
        await guard(leaving, what, work, deadline=grace)
    await cancel_tasks(leaving)


MAX_OPEN_BLOCK = 5.0
"""Seconds for which a plugin may block the loop while it is opened."""
OPEN_TIMEOUT = 30.0
"""Seconds within which a plugin must be open."""


class LoadEnvironment(Struct, frozen=True):
    """What plugins are opened with."""

    settings: Settings
    hooks: Hooks
    contributions: Contributions
    host: Host
    loaders: Mapping[str, Callable[[], PluginLoader]]
    opening: float = OPEN_TIMEOUT


class PluginInstance:
    """Run it as a task: opens the plugin, waits for `request_close`, and closes everything."""

    def __init__(self, found: DiscoveredPlugin, house: LoadEnvironment) -> None:
        self.found = found
        self.owner = PluginOwner(found.name)
        self.owner.required = found.name in house.settings.plugins.required
        self.state: State = "failed"
        self.reason = ""
        self.ready = asyncio.Event()
        """Set once it is open and registered, or has failed with a `reason`."""
        self.closed = asyncio.Event()
        self._environment = house
        self._leave = asyncio.Event()
        self._context: Context | None = None

    async def run(self) -> None:
        settings = self._environment.settings
        try:
            table, may_override = self._prepare()
            clients = ClientScope(settings.proxies, trust=settings.ca_file or None)
            async with open_scope(self.owner, clients) as scope:
                self._context = Context(
                    self._standing(table, may_override),
                    hooks=self._environment.hooks,
                    contributions=self._environment.contributions,
                    host=self._environment.host,
                    scope=scope,
                )
                if await self._opened(self._context):
                    self.state = "on"
                    self.ready.set()
                    await self._leave.wait()
        except ConfigError as error:
            self.reason = str(error)
        finally:
            self.ready.set()
            self.closed.set()

    def activate(self, on_off: Callable[[PluginOwner], None]) -> bool:
        """Activate what it registered, in one step: no turn sees a part of it. `on_off` is called if the
        plugin is disabled later."""
        if self.state != "on":
            return False
        assert self._context is not None
        try:
            self._context.publish()
        except PluginError as refused:
            self.state, self.reason = "failed", str(refused)
            self.request_close()
            return False
        self._environment.hooks.add_owner(self.owner)
        self.owner.on_disabled = on_off
        return True

    def deactivate(self) -> None:
        """Remove what it registered, for turns that start from now on."""
        self._environment.hooks.remove(self.owner)
        self._environment.contributions.remove(self.owner)

    def request_close(self) -> None:
        """Close it even if it is still in use."""
        self._leave.set()

    async def close_when_unused(self) -> None:
        """Close it once no turn uses it."""
        async with asyncio.TaskGroup() as group:
            unused = group.create_task(self.owner.wait_unused())
            unused.add_done_callback(lambda _: self.request_close())
            await self.closed.wait()
            unused.cancel()

    def status(self) -> PluginStatus:
        offers = self._environment.contributions.by_owner(self.owner)
        about, hooks = self.found.manifest, self._context.registered if self._context else []

        def names(kind: type) -> tuple[str, ...]:
            return tuple(each.name for each in offers if isinstance(each, kind))

        return PluginStatus(
            name=self.found.name,
            state=self.state,
            why=self.reason,
            kind=self.found.kind,
            source=self.found.source,
            path=str(self.found.path or ""),
            version=about.version,
            description=about.description,
            hooks=tuple(dict.fromkeys(hooks)),
            tools=names(ToolContribution),
            commands=names(CommandContribution),
            cli=names(CliContribution),
            skills=names(SkillContribution),
            provides=tuple(f"{each.kind}:{each.name}" for each in offers if isinstance(each, ProviderContribution)),
            strikes=self.owner.strikes,
            silenced=dict(self.owner.silenced),
        )

    def _prepare(self) -> tuple[dict[str, object], bool]:
        """Its settings, and whether it may replace built-in tools. Raises ConfigError if its manifest or
        settings cannot be read. Variables that it declares and that are not set are only logged: it may work
        without them."""
        found, paths = self.found, self._environment.settings.paths
        if found.manifest.error:
            raise ConfigError(f"cannot read its manifest: {found.manifest.error}")
        variables = current_variables(paths)
        if missing := [name for name in found.manifest.requires_env if name and not variables.get(name)]:
            hint = f"run `alipes config set {missing[0]} -` or set it in the environment"
            log.warning("plugin %s needs %s, which is not set: %s", found.name, ", ".join(missing), hint)
        table, may_override = plugin_settings(self._environment.settings, found.name)
        return {**table}, may_override

    def _standing(self, table: Mapping[str, object], may_override: bool) -> PluginSetup:
        settings = self._environment.settings
        return PluginSetup(
            owner=self.owner,
            config=dict(table),
            folder=settings.home / "plugin-data" / self.found.slug,
            may_override=may_override,
            deadlines=settings.plugins.deadlines,
            sync_hooks=self.found.kind != "native",
            secret=lambda name: current_variables(settings.paths).get(name),
        )

    async def _opened(self, context: Context) -> bool:
        try:
            work, deadline = self._enter(context), self._environment.opening
            await guard(self.owner, "opening", work, deadline=deadline, max_block=MAX_OPEN_BLOCK)
        except PluginError as error:
            self.reason = describe_failure(error, self.found.path)
        return not self.reason

    async def _enter(self, context: Context) -> None:
        opened = self._environment.loaders.get(self.found.kind)
        if opened is None:
            why = f"{self.found.kind} plugins are not supported here"
            raise PluginError(self.found.name, "opening", why)
        await opened().open(self.found, context)


def describe_failure(error: PluginError, folder: Path | None) -> str:
    """Why a plugin could not be opened, for the person who can fix it."""
    cause = error.__cause__
    match first_import_error(cause) if isinstance(cause, ImportError) else cause:
        case None | TimeoutError() | asyncio.CancelledError():
            return str(error)
        case AlipesError() as ours:
            return str(ours)
        case ModuleNotFoundError(name=str(name)) if is_hermes_name(name):
            return f"it needs {name} of Hermes Agent, which alipes does not provide"
        case ModuleNotFoundError(name=str(name)):
            return f"it needs the module {name}, which is not installed: pip install {name.partition('.')[0]}"
        case SyntaxError(filename=str(file), lineno=line, msg=what):
            return f"{file}:{line}: {what}"
        case other:
            return f"{_place(other, folder)}{type(other).__name__}: {other}"


def _place(error: BaseException, folder: Path | None) -> str:
    """The last line of the plugin's own code in the traceback."""
    own = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if folder is not None and frame.filename.startswith(str(folder))
    ]
    return f"{own[-1].filename}:{own[-1].lineno}: " if own else ""
