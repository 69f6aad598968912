"""One plugin in one version of its code, from opening to closing, in a task of its own. It calls no hook."""

import asyncio
import traceback
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Any

from msgspec import Struct

from alipes.config.settings import Settings
from alipes.config.settings_parts import variables_now
from alipes.kernel.errors import AlipesError, ConfigError, PluginError
from alipes.plugins.attribution import end_tasks, on_behalf_of, tracking
from alipes.plugins.context import Context, Host, Standing
from alipes.plugins.discovery import Found, PluginFacts, State
from alipes.plugins.dispatch import Hooks, guard
from alipes.plugins.native_loader import Door, table_of
from alipes.plugins.owner import Owner
from alipes.plugins.registry import CliOffer, CommandOffer, Offers, ProviderOffer, SkillOffer, ToolOffer
from alipes.runtime.http.clients import ClientScope

GRACE = 3.0
"""Seconds that the closing of what a plugin opened may take."""


class Scope:
    """Made by `open_scope`, and closed there: by the task that opened it, tasks first, then in reverse."""

    def __init__(self, owner: Owner, clients: ClientScope, group: asyncio.TaskGroup) -> None:
        self.clients = clients
        self.stack = AsyncExitStack()
        self._owner, self._group = owner, group
        self._running: set[asyncio.Task[object]] = set()
        self._closed = False

    def run(self, work: Coroutine[Any, Any, object], name: str) -> asyncio.Task[object]:
        """Beside the turns, until it is done or the plugin is closed. If it raises, that is a strike."""
        if self._closed:
            work.close()
            raise RuntimeError(f"the plugin {self._owner.name} is closed, and begins nothing any more")
        with on_behalf_of(None):  # the house's own: it lasts until the plugin's work is seen to its end
            task = self._group.create_task(
                self._guarded(work, name), name=f"plugin {self._owner.name}: {name}"
            )
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        return task

    async def _guarded(self, work: Coroutine[Any, Any, object], name: str) -> object:
        with suppress(PluginError):  # it was told, and counted
            return await guard(self._owner, name, work)
        return None

    async def close(self, grace: float) -> None:
        """End the tasks, then close what was entered, the latest first. Nothing here lasts for ever."""
        self._closed = True
        try:
            for task in self._running:
                task.cancel()
            if self._running:
                await asyncio.wait(self._running)
        finally:
            await _closing(self._owner, "closing what it opened", self.stack.aclose(), grace)


@asynccontextmanager
async def open_scope(owner: Owner, clients: ClientScope, *, grace: float = GRACE) -> AsyncIterator[Scope]:
    """A plugin's scope. Leave it in the task that entered it."""
    await clients.__aenter__()
    try:
        async with tracking(owner), asyncio.TaskGroup() as group:
            scope = Scope(owner, clients, group)
            try:
                yield scope
            finally:
                await scope.close(grace)
    finally:
        await _closing(owner, "closing its clients", clients.__aexit__(None, None, None), grace)


async def _closing(owner: Owner, what: str, work: Coroutine[Any, Any, object], grace: float) -> None:
    """Also of a plugin that is off: what it opened is closed all the same, whatever goes wrong at it."""
    leaving = Owner(owner.name)
    with suppress(PluginError):
        await guard(leaving, what, work, deadline=grace)
    await end_tasks(leaving)


HOLDING = 5.0
"""Seconds for which its code may hold the loop while it is opened: it may have much to get ready."""
OPENING = 30.0
"""Seconds in which a plugin must be open."""


class House(Struct, frozen=True):
    """What plugins are opened into."""

    settings: Settings
    hooks: Hooks
    offers: Offers
    host: Host
    doors: Mapping[str, Callable[[], Door]]
    opening: float = OPENING


class Lodging:
    """Run it as a task: it opens the plugin, waits until it is told to leave, and closes what was opened."""

    def __init__(self, found: Found, house: House) -> None:
        self.found = found
        self.owner = Owner(found.name)
        self.state: State = "failed"
        self.why = ""
        self.ready = asyncio.Event()
        """It is open, and registered; or it has failed, and `why` says how."""
        self.closed = asyncio.Event()
        self._house = house
        self._leave = asyncio.Event()
        self._context: Context | None = None

    async def run(self) -> None:
        settings = self._house.settings
        try:
            table, may_override = self._prepare()
            clients = ClientScope(settings.proxies, trust=settings.ca_file or None)
            async with open_scope(self.owner, clients) as scope:
                self._context = Context(
                    self._standing(table, may_override),
                    hooks=self._house.hooks,
                    offers=self._house.offers,
                    host=self._house.host,
                    scope=scope,
                )
                if await self._opened(self._context):
                    self.state = "on"
                    self.ready.set()
                    await self._leave.wait()
        except ConfigError as error:
            self.why = str(error)
        finally:
            self.ready.set()
            self.closed.set()

    def settled(self, on_off: Callable[[Owner], None]) -> bool:
        """Does what it registered count from now on? In one step: no turn sees a part of it. `on_off` is told
        when it is switched off."""
        if self.state != "on":
            return False
        assert self._context is not None
        try:
            self._context.publish()
        except PluginError as refused:
            self.state, self.why = "failed", str(refused)
            self.leave()
            return False
        self._house.hooks.join(self.owner)
        self.owner.on_off = on_off
        return True

    def withdraw(self) -> None:
        """What it registered counts no more for turns that begin from now on."""
        self._house.hooks.remove(self.owner)
        self._house.offers.remove(self.owner)

    def leave(self) -> None:
        """Close it, whoever still uses it."""
        self._leave.set()

    async def see_off(self) -> None:
        """Close it once no turn uses it."""
        async with asyncio.TaskGroup() as group:
            unused = group.create_task(self.owner.unused())
            unused.add_done_callback(lambda _: self.leave())
            await self.closed.wait()
            unused.cancel()

    def facts(self) -> PluginFacts:
        offers = self._house.offers.of(self.owner)
        about, hooks = self.found.manifest, self._context.registered if self._context else []

        def names(kind: type) -> tuple[str, ...]:
            return tuple(each.name for each in offers if isinstance(each, kind))

        return PluginFacts(
            name=self.found.name,
            state=self.state,
            why=self.why,
            kind=self.found.kind,
            source=self.found.source,
            path=str(self.found.path or ""),
            version=about.version,
            description=about.description,
            hooks=tuple(dict.fromkeys(hooks)),
            tools=names(ToolOffer),
            commands=names(CommandOffer),
            cli=names(CliOffer),
            skills=names(SkillOffer),
            provides=tuple(f"{each.kind}:{each.name}" for each in offers if isinstance(each, ProviderOffer)),
            strikes=self.owner.strikes,
        )

    def _prepare(self) -> tuple[dict[str, object], bool]:
        """Its table of settings, and whether it may replace tools. Raises ConfigError for what is missing."""
        found, paths = self.found, self._house.settings.paths
        if found.manifest.trouble:
            raise ConfigError(f"its manifest cannot be read: {found.manifest.trouble}")
        variables = variables_now(paths)
        if missing := [name for name in found.manifest.requires_env if name and not variables.get(name)]:
            names = ", ".join(missing)
            raise ConfigError(
                f"it needs {names}, which is not set: run `alipes config set {missing[0]} -`, or set it in "
                "the environment."
            )
        table, may_override = table_of(self._house.settings, found.name)
        return {**table}, may_override

    def _standing(self, table: Mapping[str, object], may_override: bool) -> Standing:
        settings = self._house.settings
        return Standing(
            owner=self.owner,
            config=dict(table),
            folder=settings.home / "plugin-data" / self.found.slug,
            may_override=may_override,
            deadlines=settings.plugins.deadlines,
            sync_hooks=self.found.kind != "native",
            secret=lambda name: variables_now(settings.paths).get(name),
        )

    async def _opened(self, context: Context) -> bool:
        try:
            work, deadline = self._enter(context), self._house.opening
            await guard(self.owner, "opening", work, deadline=deadline, holding=HOLDING)
        except PluginError as error:
            self.why = told(error, self.found.path)
        return not self.why

    async def _enter(self, context: Context) -> None:
        opened = self._house.doors.get(self.found.kind)
        if opened is None:
            why = f"there is no door for {self.found.kind} plugins here"
            raise PluginError(self.found.name, "opening", why)
        await opened().open(self.found, context)


def told(error: PluginError, folder: Path | None) -> str:
    """Why a plugin could not be opened, in a sentence for who can do something about it."""
    match error.__cause__:
        case None | TimeoutError() | asyncio.CancelledError():
            return str(error)
        case AlipesError() as ours:
            return str(ours)
        case ModuleNotFoundError(name=str(name)):
            return f"it needs the module {name}, which is not installed: pip install {name.partition('.')[0]}"
        case SyntaxError(filename=str(file), lineno=line, msg=what):
            return f"{file}:{line}: {what}"
        case cause:
            place = _place(cause, folder)
            return f"{place}{type(cause).__name__}: {cause}"


def _place(error: BaseException, folder: Path | None) -> str:
    """The last line of the plugin's own that was running."""
    own = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if folder is not None and frame.filename.startswith(str(folder))
    ]
    return f"{own[-1].filename}:{own[-1].lineno}: " if own else ""
