"""An agent for tests: a whole app with its own home, a scripted model and plugins. Stops a turn at every point."""

import asyncio
import sys
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, contextmanager
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from types import ModuleType, TracebackType
from typing import Any, Literal, Self, TypeAlias

import tomlkit
from msgspec import Struct

from alipes.agent.model_call import RetryPolicy
from alipes.app import open_app
from alipes.config.loader import load_settings
from alipes.config.settings import Settings
from alipes.core.app import App
from alipes.kernel.errors import MessageRejected, PluginError
from alipes.kernel.ports import Provider
from alipes.kernel.turns import Address, AnswerApproval, ApprovalAsked, ApprovalChoice, Event, Inbound, Op, Stop
from alipes.plugins.discovery import inspect_folder
from alipes.sessions.commands import registry as commands
from alipes.sessions.commands.context import CommandReply
from alipes.testing.clock import Clock
from alipes.testing.leaks import LeakCheck, LeakError
from alipes.testing.replies import PendingReply, StopPoint, StopPoints, TurnReply
from alipes.testing.scripted_model import ScriptedModel, ScriptLine

Plugin: TypeAlias = ModuleType | Path | str
"""A module, or the folder of a plugin."""


@contextmanager
def install_plugins(home: Path, plugins: Iterable[Plugin]) -> Iterator[tuple[str, ...]]:
    """Install plugins and return their names. Folders are linked into the home; modules are entry points of a
    package on `sys.path` until this is left, so the plugin is the module that the test imported."""
    plugins = tuple(plugins)
    modules = [each for each in plugins if isinstance(each, ModuleType)]
    folders = {_name(each): Path(each).absolute() for each in plugins if not isinstance(each, ModuleType)}
    for name, folder in folders.items():
        link = home / "plugins" / name
        link.parent.mkdir(parents=True, exist_ok=True)
        link.unlink(missing_ok=True)
        link.symlink_to(folder)
    packages = str(home / "packages")
    if modules:
        _write_package(Path(packages, "plugins_of_this_test-0.dist-info"), modules)
        sys.path.append(packages)
    try:
        yield tuple(_name(each) for each in plugins)
    finally:
        if modules:
            sys.path.remove(packages)


def require_loaded(app: App) -> None:
    """Raise `PluginError` if a plugin could not be loaded."""
    for facts in app.plugins.statuses():
        if facts.state != "on":
            raise PluginError(facts.name, "not loaded", facts.why)


def _name(plugin: Plugin) -> str:
    if isinstance(plugin, ModuleType):
        return plugin.__name__.rpartition(".")[2]
    found = inspect_folder(Path(plugin))
    if found is None:
        raise PluginError(str(plugin), "not loaded", "no plugin in this folder")
    return found.name


def _write_package(folder: Path, modules: Iterable[ModuleType]) -> None:
    """Write the metadata of an installed package with entry points."""
    folder.mkdir(parents=True, exist_ok=True)
    for module in modules:
        sys.modules.setdefault(module.__name__, module)  # a module built in the test cannot be imported otherwise
    points = [f"{_name(module)} = {module.__name__}" for module in modules]
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: plugins-of-this-test\nVersion: 0\n")
    (folder / "entry_points.txt").write_text("\n".join(["[alipes.plugins]", *points, ""]))


Script: TypeAlias = Iterable[ScriptLine] | Provider | None
Person: TypeAlias = ApprovalChoice | Literal["nobody", "trusts"]
"""The user: nobody, one who gives this answer to every question, or one who approves everything."""
MODEL = "scripted"
NO_CHECKPOINTS = {"checkpoints": {"enabled": False}}
"""Unless a test asks for them: the folder in which tests run is not to be saved before every call."""
NO_LEARNING = {"learning": {"mode": "off"}}
"""Unless a test asks for it: a script has no line for requests between turns."""
_MESSAGE_NUMBERS = count(1)


class Conversation:
    """A conversation with the agent, through the same interfaces as the terminal."""

    def __init__(self, app: App, model: Any, followers: asyncio.TaskGroup, *, person: Person, work: Path) -> None:
        self.app, self.model = app, model
        self.workdir = work
        """Working directory of tools."""
        self.address = Address("test", "me")
        self._tasks, self._person = followers, person
        self._pending: list[PendingReply] = []

    @property
    def key(self) -> str:
        return self.address.key

    async def say(self, text: str, **more: Any) -> TurnReply:
        """Send a message and return the whole reply when its turn has ended."""
        return await (await self.start(text, **more)).reply()

    async def start(self, text: str, **more: Any) -> PendingReply:
        """Send a message without waiting for its reply; returns when it is accepted.

        `more`: further fields of `Inbound`, such as `attachments`, `model` or `sender`.
        """
        running = PendingReply(self.post)
        self._pending = [*(each for each in self._pending if not each.ended.is_set()), running]
        following = self._follow(self._inbound(text, **more), running)
        running.task = self._tasks.create_task(following, name=f"follow {text!r}")
        await running.accepted.wait()
        return running

    async def stop(self, reason: str = "user_stop", invalidation_reason: str = "stop_command") -> TurnReply | None:
        """Stop the running turn like `/stop`, and return its reply. None if nothing was running.

        Messages queued behind it are held, as after `/stop`: `command("/queue send")` sends them.
        """
        pending = next((each for each in self._pending if not each.ended.is_set()), None)
        if pending is not None and reason != "user_stop":
            return await pending.stop(reason, invalidation_reason)
        turn = pending.turn if pending is not None else ""  # empty: started by somebody else, perhaps on a platform
        await self.app.sessions.stop(self.key, Stop(reason, invalidation_reason, turn))
        return None if pending is None else await pending.reply()

    async def post(self, op: Op) -> None:
        """Send an op such as `Stop` or `Answer` to the session."""
        await self.app.sessions.post(self.key, op)

    async def command(self, text: str) -> CommandReply:
        """Run a command such as `/new`. Raises `ValueError` if the text is not a command."""
        parsed = commands.parse(text, self.app.contributions)
        if parsed is None or isinstance(parsed, commands.UnknownCommand):
            raise ValueError(f"{text!r} is not a command")
        return await commands.run(self.app.context(self._inbound(text)), parsed)

    async def stop_at(self, number: int, text: str, **more: Any) -> TurnReply:
        """Send `text` and stop the turn at its point `number`, counted from 1; see `StopPoints`.

        The turn does not pass that point: the running call is cancelled at its `await`. The reply's `point`
        says which it was; None if the turn ended before.
        """
        with StopPoints(self.app.hooks, number) as points:
            running = await self.start(text, **more)
            running.on_end(points.turn_ended)
            point = await points.wait()
            if point is not None:
                await self.post(Stop("user_stop", "session_interrupt", running.turn))
            return await running.reply(point)

    def leave(self) -> None:
        """Stop following. Running turns are cut off when the app closes, as at the end of a process."""
        for running in self._pending:
            if running.task is not None:
                running.task.cancel()

    async def wait_until_idle(self) -> None:
        """Return when there is nothing left to do."""
        await self.app.sessions.wait_idle()

    async def _follow(self, inbound: Inbound, running: PendingReply) -> None:
        try:
            async with self.app.sessions.ask(inbound) as following:
                running.turn = following.turn or ""
                running.accepted.set()
                async for event in following:
                    await self._answer(event)
                    running.add_event(event)
        except MessageRejected as refusal:
            running.refused = str(refusal)
        finally:
            running.end()

    async def _answer(self, event: Event) -> None:
        if isinstance(event, ApprovalAsked) and self._person in ("once", "session", "always", "no"):
            await self.post(AnswerApproval(event.ask, self._person, "person"))

    def _inbound(self, text: str, **more: Any) -> Inbound:
        known: dict[str, Any] = {"workdir": str(self.workdir), "sender": "person", "owner": True}
        fields = {**known, "trusted": self._person == "trusts", **more}
        return Inbound(id=f"kit-{next(_MESSAGE_NUMBERS)}", address=self.address, text=text, **fields)


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
    """Open a whole app and a conversation with it.

    `plugins`: modules or folders. `model`: the lines of a script (see `ScriptedModel`), or a provider.
    `config`: as in config.toml; the configuration and keys of the machine are not read. `home`: the home
    folder; by default a temporary one. `clock`: used for retries of model calls.
    """
    speaker = ScriptedModel(model) if model is None or isinstance(model, Iterable) else model
    caught = _HeldError()
    async with AsyncExitStack() as stack:
        spare = stack.enter_context(_temporary_folder(home))
        place = home or spare / "home"
        settings = _write_settings(place, config or {}, stack.enter_context(install_plugins(place, plugins)))
        patience = RetryPolicy() if clock is None else RetryPolicy(clock=clock, sleep=clock.sleep)
        watched = person not in ("nobody", "trusts")
        app = await stack.enter_async_context(
            open_app(settings, interactive=watched, lent={MODEL: speaker}, retry=patience)
        )
        require_loaded(app)
        followers = await stack.enter_async_context(asyncio.TaskGroup())
        (work := spare / "work").mkdir()
        conversation = Conversation(app, speaker, followers, person=person, work=work)
        with caught:
            yield conversation
        conversation.leave()
    if caught.error is not None:
        raise caught.error


@contextmanager
def _temporary_folder(home: Path | None) -> Iterator[Path]:
    """A temporary folder beside the home, so that a killed test leaves nothing elsewhere."""
    if home is not None:
        home.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(prefix="alipes-", dir=home and home.parent) as name:
        yield Path(name)


def _write_settings(home: Path, config: Mapping[str, Any], plugins: tuple[str, ...]) -> Settings:
    """Write config.toml and load it, so that mistakes are reported as to an operator."""
    home.mkdir(parents=True, exist_ok=True)
    about = dict(config.get("plugins", {}))
    for list_name in ("enabled", "unpinned"):  # a plugin under test may change between two starts
        about[list_name] = [*about.get(list_name, ()), *plugins]
    (home / "config.toml").write_text(
        tomlkit.dumps({"model": MODEL, **NO_CHECKPOINTS, **NO_LEARNING, **config, "plugins": about})
    )
    settings = load_settings(home, {})
    settings.paths.make()
    return settings


class _HeldError:
    """Holds the error of a test until all is closed: task groups would wrap it in an exception group."""

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


OpenAgent: TypeAlias = Callable[[], AbstractAsyncContextManager[Conversation]]
NEXT_ANSWER = "fine"


class StopAttempt(Struct, frozen=True):
    """One stop and its results. Everything is closed again."""

    point: StopPoint
    reply: TurnReply
    """Reply of the stopped turn."""
    after: TurnReply
    """Reply to the next message."""


def every_stop(opens: OpenAgent, text: str, *, after: str = "and now?") -> "EveryStop":
    """Iterate over all stops of the turn that `text` starts: at its first point, its second, until it ends first.

    `opens` is called for each attempt, as in `every_stop(lambda: open_agent(...), "hello")`. Raises `AssertionError` if
    a stopped turn does not end as `stopped`, the next message is not answered, or the last turn, which is not stopped,
    is not answered; and `LeakError` if something stays open.
    """
    return EveryStop(opens, text, after)


class EveryStop:
    def __init__(self, opens: OpenAgent, text: str, after: str) -> None:
        self._open, self._text, self._after = opens, text, after
        self._number = 0
        self.completed: TurnReply | None = None
        """Reply of the last turn, which was not stopped."""

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> StopAttempt:
        attempt = await self._try() if self.completed is None else None
        if attempt is None:
            raise StopAsyncIteration
        return attempt

    async def _try(self) -> StopAttempt | None:
        self._number += 1
        check = LeakCheck().begin()
        async with self._open() as agent:
            reply = await agent.stop_at(self._number, self._text)
            if reply.point is None:
                _require_ending(reply, "answered", "the turn without a stop")
                self.completed = reply
                return None
            _require_ending(reply, "stopped", f"the turn stopped at {_describe(reply.point)}")
            if isinstance(agent.model, ScriptedModel):
                agent.model.set_script(NEXT_ANSWER)
            after = await agent.say(self._after)
            _require_ending(after, "answered", f"the message after a stop at {_describe(reply.point)}")
        try:
            await check.settle()
        except LeakError as leaked:
            raise LeakError(f"after a stop at {_describe(reply.point)}, {leaked}") from None
        return StopAttempt(reply.point, reply, after)


def _require_ending(reply: TurnReply, ending: str, what: str) -> None:
    if reply.ending != ending:
        raise AssertionError(f"{what} ended as {reply.ending or 'no turn'}: {reply.detail}")


def _describe(point: StopPoint) -> str:
    return f"point {point.number} ({point.where})"
