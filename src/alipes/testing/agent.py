"""A session to talk to: a whole app in a home of its own, a scripted model, plugins. Nothing is patched."""

import asyncio
import sys
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from types import ModuleType, TracebackType
from typing import Any, Literal, Self, TypeAlias

import tomlkit

from alipes.agent.model_call import Patience
from alipes.app import App, open_app
from alipes.config.settings import Settings, load
from alipes.kernel.errors import NotTaken, PluginError
from alipes.kernel.ports import Provider
from alipes.kernel.turns import Address, Answer, ApprovalAsked, Consent, Event, Inbound, Op, Stop
from alipes.plugins.discovery import look_at
from alipes.sessions import commands
from alipes.testing.clock import Clock
from alipes.testing.replies import Points, Reply, Running
from alipes.testing.scripted_model import Model, ScriptLine

Plugin: TypeAlias = ModuleType | Path | str
"""A module, or the folder of one."""


@contextmanager
def installed(home: Path, plugins: Iterable[Plugin]) -> Iterator[tuple[str, ...]]:
    """Their names, to be enabled. A folder is linked into the home; a module is, until this is left, what a
    package on `sys.path` brings along: so it is the very module that the test knows."""
    plugins = tuple(plugins)
    modules = [each for each in plugins if isinstance(each, ModuleType)]
    folders = {_name(each): Path(each).absolute() for each in plugins if not isinstance(each, ModuleType)}
    for name, folder in folders.items():
        _link(home / "plugins" / name, folder)
    packages = str(home / "packages")
    if modules:
        _package(Path(packages, "plugins_of_this_test-0.dist-info"), modules)
        sys.path.append(packages)
    try:
        yield tuple(_name(each) for each in plugins)
    finally:
        if modules:
            sys.path.remove(packages)


def demand(app: App) -> None:
    """Raise `PluginError` with the reason where one could not be opened: a test must not go on without."""
    for facts in app.plugins.facts():
        if facts.state != "on":
            raise PluginError(facts.name, "not loaded", facts.why)


def _name(plugin: Plugin) -> str:
    if isinstance(plugin, ModuleType):
        return plugin.__name__.rpartition(".")[2]
    found = look_at(Path(plugin))
    if found is None:
        raise PluginError(str(plugin), "not loaded", "there is no plugin in this folder")
    return found.name


def _link(link: Path, folder: Path) -> None:
    link.parent.mkdir(parents=True, exist_ok=True)
    link.unlink(missing_ok=True)
    link.symlink_to(folder)


def _package(folder: Path, modules: Iterable[ModuleType]) -> None:
    """What an installed package leaves on the disk: its name, and its entry points."""
    folder.mkdir(parents=True, exist_ok=True)
    for module in modules:
        sys.modules.setdefault(module.__name__, module)  # one that was made by hand can be imported nowhere
    points = [f"{_name(module)} = {module.__name__}" for module in modules]
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: plugins-of-this-test\nVersion: 0\n")
    (folder / "entry_points.txt").write_text("\n".join(["[alipes.plugins]", *points, ""]))


Script: TypeAlias = Iterable[ScriptLine] | Provider | None
Person: TypeAlias = Consent | Literal["nobody", "trusts"]
"""Who sits there: nobody, someone who gives this word on every question, or who said yes beforehand."""
MODEL = "scripted"
_IDS = count(1)


class Conversation:
    """Talks with an agent as a person does, through the same doors as the terminal."""

    def __init__(
        self, app: App, model: Any, followers: asyncio.TaskGroup, *, person: Person, work: Path
    ) -> None:
        self.app, self.model = app, model
        self.workdir = work
        """Where tools work."""
        self.address = Address("test", "me")
        self._followers, self._person = followers, person
        self._living: list[Running] = []

    @property
    def key(self) -> str:
        return self.address.key

    async def say(self, text: str, **more: Any) -> Reply:
        """Say something, and have the whole reply: once its turn has ended, however that was."""
        return await (await self.start(text, **more)).reply()

    async def start(self, text: str, **more: Any) -> Running:
        """Say something, and go on while it is answered; returns once it is accepted.

        `more`: what else an `Inbound` has, such as `attachments`, `model` or `sender`.
        """
        running = Running(self.post)
        self._living = [*(each for each in self._living if not each.over.is_set()), running]
        following = self._follow(self._inbound(text, **more), running)
        running.follower = self._followers.create_task(following, name=f"the person who said {text!r}")
        await running.accepted.wait()
        return running

    async def stop(
        self, reason: str = "user_stop", invalidation_reason: str = "stop_command"
    ) -> Reply | None:
        """End what runs, as `/stop` does; the reply as far as it came. None if nothing ran."""
        living = next((each for each in self._living if not each.over.is_set()), None)
        if living is not None:
            return await living.stop(reason, invalidation_reason)
        for turn in (await self.app.lobby.unfinished(self.key))[:1]:  # somebody else's, as over a platform
            await self.post(Stop(reason, invalidation_reason, turn))
        return None

    async def post(self, op: Op) -> None:
        """Ask something of the session, such as `Stop` or `Answer`."""
        await self.app.lobby.post(self.key, op)

    async def command(self, text: str) -> commands.Reply:
        """Give a command, such as `/new`. Raises `ValueError` where the text is none."""
        parsed = commands.parse(text, self.app.offers)
        if parsed is None:
            raise ValueError(f"{text!r} is no command: it would be taken for a message")
        return await commands.run(self.app.context(self._inbound(text)), parsed)

    async def stop_at(self, number: int, text: str, **more: Any) -> Reply:
        """Say `text`, and stop the turn at its point `number`, from 1; see `Points` for what is one.

        The turn goes no further than that point: what runs there is cancelled where it waits. The reply's
        `point` tells which it was, and is None if the turn had ended before it came so far.
        """
        with Points(self.app.hooks, number) as points:
            running = await self.start(text, **more)
            running.when_over(points.give_up)
            point = await points.reached()
            if point is not None:
                await self.post(Stop("user_stop", "session_interrupt", running.turn))
            return await running.reply(point)

    def leave(self) -> None:
        """Listen no more. What still runs is cut short by the end of the app, as at the end of a process."""
        for running in self._living:
            if running.follower is not None:
                running.follower.cancel()

    async def settled(self) -> None:
        """Return once nothing is left to be done."""
        await self.app.lobby.settled()

    async def _follow(self, inbound: Inbound, running: Running) -> None:
        try:
            async with self.app.lobby.ask(inbound) as following:
                running.turn = following.turn or ""
                running.accepted.set()
                async for event in following:
                    await self._answer(event)
                    running.hear(event)
        except NotTaken as refusal:
            running.refused = str(refusal)
        finally:
            running.end()

    async def _answer(self, event: Event) -> None:
        if isinstance(event, ApprovalAsked) and self._person in ("once", "session", "always", "no"):
            await self.post(Answer(event.ask, self._person, "person"))

    def _inbound(self, text: str, **more: Any) -> Inbound:
        given = {
            "workdir": str(self.workdir),
            "trusted": self._person == "trusts",
            "sender": "person",
            **more,
        }
        return Inbound(id=f"kit-{next(_IDS)}", address=self.address, text=text, **given)


@asynccontextmanager
async def open_agent(
    *,
    plugins: Iterable[Plugin] = (),
    model: Script = None,
    config: Mapping[str, Any] | None = None,
    home: Path | None = None,
    clock: Clock | None = None,
    person: Person = "nobody",
) -> AsyncIterator[Conversation]:
    """A whole app, and a conversation with it.

    `plugins`: modules, or folders of plugins. `model`: what the model says, line by line (see `Model`), or a
    provider of your own. `config`: as in config.toml; the machine's own configuration and keys are not
    seen. `home`: where all is kept, else a folder that is gone at the end. `clock`: by which a
    model's failures are waited out.
    """
    speaker = Model(model) if model is None or isinstance(model, Iterable) else model
    caught = _Caught()
    async with AsyncExitStack() as stack:
        spare = stack.enter_context(_spare(home))
        place = home or spare / "home"
        settings = _settings(place, config or {}, stack.enter_context(installed(place, plugins)))
        patience = Patience() if clock is None else Patience(clock=clock, sleep=clock.sleep)
        watched = person not in ("nobody", "trusts")
        app = await stack.enter_async_context(
            open_app(settings, interactive=watched, lent={MODEL: speaker}, patience=patience)
        )
        demand(app)
        followers = await stack.enter_async_context(asyncio.TaskGroup())
        (work := spare / "work").mkdir()
        conversation = Conversation(app, speaker, followers, person=person, work=work)
        with caught:
            yield conversation
        conversation.leave()
    if caught.error is not None:
        raise caught.error


@contextmanager
def _spare(home: Path | None) -> Iterator[Path]:
    """A folder that is gone at the end: beside the home, so that even who is killed leaves none elsewhere."""
    if home is not None:
        home.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(prefix="alipes-", dir=home and home.parent) as name:
        yield Path(name)


def _settings(home: Path, config: Mapping[str, Any], plugins: tuple[str, ...]) -> Settings:
    """Through the file, so that what is wrong with it is told as it would be told to the operator."""
    home.mkdir(parents=True, exist_ok=True)
    about = dict(config.get("plugins", {}))
    about["enabled"] = [*about.get("enabled", ()), *plugins]
    (home / "config.toml").write_text(tomlkit.dumps({"model": MODEL, **config, "plugins": about}))
    settings = load(home, {})
    settings.paths.make()
    return settings


class _Caught:
    """Keeps the error of a test until all is closed: task groups on its way would make a group of it."""

    def __init__(self) -> None:
        self.error: BaseException | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        passes = isinstance(error, asyncio.CancelledError | GeneratorExit | KeyboardInterrupt | SystemExit)
        self.error = None if passes else error
        return not passes
