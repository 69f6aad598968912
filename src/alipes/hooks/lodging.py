"""One plugin in one version of its code, from opening to closing, in a task of its own. It calls no hook."""

import asyncio
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path

from msgspec import Struct

from alipes.config.plugins import variables_now
from alipes.config.settings import Settings
from alipes.hooks.configuring import table_of
from alipes.hooks.context import Context, Host, Standing
from alipes.hooks.facts import PluginFacts, State
from alipes.hooks.finding import Found
from alipes.hooks.native import Door
from alipes.hooks.offers import CliOffer, CommandOffer, Offers, ProviderOffer, SkillOffer, ToolOffer
from alipes.hooks.owners import Owner
from alipes.hooks.relay import Hooks, guard
from alipes.hooks.scope import open_scope
from alipes.kernel.errors import AlipesError, ConfigError, PluginError
from alipes.runtime.clients import ClientScope

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
