"""One MCP server: started with its first use, shared by all conversations, restarted with backoff after it ended.

A connection is opened and closed by one task, its owner. Calls run in tasks of their own, so that a stopped turn need
not wait until the server has read the cancellation.
"""

import asyncio
import logging
import os
from collections.abc import Callable, Coroutine
from time import monotonic
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypeVar

from msgspec import Struct

from alipes.features.mcp.client.connection import open_connection
from alipes.features.mcp.client.definitions import McpError, SessionLost
from alipes.features.mcp.client.host import McpHost, sandbox_session, server_folder
from alipes.features.mcp.settings import McpServerConfig
from alipes.kernel.turns import Inbound, Turn

if TYPE_CHECKING:
    from alipes.features.mcp.client.sdk import McpConnection

log = logging.getLogger(__name__)
T = TypeVar("T")
State: TypeAlias = Literal["idle", "starting", "connected", "failed", "off"]
FIRST_BACKOFF_S, MAX_BACKOFF_S = 0.5, 60.0
MAX_WAIT_S = 3.0
"""A call waits for the end of a backoff that is not longer; else it fails at once."""
STABLE_S = 30.0
"""A connection that lasted this long was good: the next one is not delayed."""
REFRESH_EVERY_S = 2.0
"""Seconds between two lists of tools, however often a server reports changes."""
MAX_INSTANCES = 4
"""Processes of one server for different working directories; more end the one that was used least recently."""


class Outcome:
    """How a block ended. Its error is kept for those who wait for it, and does not end the other servers."""

    def __init__(self) -> None:
        self.error: BaseException | None = None

    def __enter__(self) -> "Outcome":
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, error: BaseException | None, _trace: TracebackType | None
    ) -> bool:
        self.error = error
        return error is not None and not isinstance(error, asyncio.CancelledError | KeyboardInterrupt | SystemExit)


class Backoff:
    """When a server may be started again."""

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self.failures = 0
        self._until = 0.0

    @property
    def seconds_left(self) -> float:
        return max(0.0, self._until - self._clock())

    def note_end(self, lasted_s: float) -> None:
        """Count the end of a connection that lasted this long."""
        self.failures = 1 if lasted_s >= STABLE_S else self.failures + 1
        delay = min(MAX_BACKOFF_S, FIRST_BACKOFF_S * 2.0 ** (self.failures - 1))
        self._until = self._clock() + (0.0 if lasted_s >= STABLE_S else delay)

    def forget(self) -> None:
        self.failures, self._until = 0, 0.0


class Instance:
    """A server for one working directory: at most one connection, and the task that owns it."""

    def __init__(self, server: "McpServer", workdir: str) -> None:
        self._server, self.workdir = server, workdir
        self.state: State = "idle"
        self.last_error = ""
        self.last_used = 0.0
        self.running = 0
        """Calls that are not finished."""
        self.backoff = Backoff(server.clock)
        self._opened: asyncio.Future[McpConnection] | None = None
        self._connection: McpConnection | None = None
        self._owner: asyncio.Task[None] | None = None
        self._leaving = False

    @property
    def connection(self) -> "McpConnection | None":
        """The connection, if it works at this moment."""
        found = self._connection
        return None if found is None or found.ended or self._leaving else found

    async def connect(self, turn: Turn | None = None) -> "McpConnection":
        """The connection; opened if there is none. Raises `McpError` with the reason, also during a backoff."""
        self.last_used = self._server.clock()
        while (connection := self.connection) is None:
            if self._opened is None:
                await self._wait_for_end()
                if (seconds := self.backoff.seconds_left) > MAX_WAIT_S:
                    raise McpError(f"{self.last_error}. It is tried again in {seconds:.0f} s")
                await asyncio.sleep(seconds)
                self.start(turn)
            opened = self._opened
            if opened is not None:
                await asyncio.wait({opened})
                if opened.done() and (error := opened.exception()) is not None:
                    raise McpError(str(error)) from error
        return connection

    async def wait_until_opened(self) -> None:
        """Wait until the connection is open or has failed."""
        if (opened := self._opened) is not None:
            await asyncio.wait({opened})

    def start(self, turn: Turn | None = None) -> None:
        """Open the connection in the background, unless that has begun."""
        if self._opened is not None or self._owner is not None or self.connection is not None:
            return
        self.state, self._leaving = "starting", False
        self._opened = asyncio.get_running_loop().create_future()
        self._opened.add_done_callback(_retrieve_error)
        self._owner = self._server.spawn(self._own(self._opened, turn), f"MCP server {self._server.name}")

    async def stop(self) -> None:
        """Close the connection and wait until its processes have ended."""
        self._leaving = True
        if self._connection is not None:
            self._connection.signal.set()
        elif self._owner is not None:
            self._owner.cancel()
        await self._wait_for_end()
        self.state = "idle"
        self.backoff.forget()

    async def _wait_for_end(self) -> None:
        while (owner := self._owner) is not None and not owner.done():
            await asyncio.wait({owner})

    async def _own(self, opened: "asyncio.Future[McpConnection]", turn: Turn | None) -> None:
        """Open the connection, keep it until it ends, and close it: all in this task."""
        began, outcome, why = self._server.clock(), Outcome(), ""
        try:
            with outcome:
                why = await self._serve(opened, turn)
        finally:
            error = outcome.error
            self._connection, self._opened, self._owner = None, None, None
            self.state = "idle" if self._leaving else "failed"
            self._note_end(str(error) if isinstance(error, McpError) else why, error, began)
            if not opened.done():
                opened.set_exception(McpError(self.last_error or f"{self._server.name} was stopped"))
            self._server.on_change()

    def _note_end(self, why: str, error: BaseException | None, began: float) -> None:
        if self._leaving or isinstance(error, asyncio.CancelledError):
            return
        if error is not None and not isinstance(error, McpError):
            log.error("MCP server %s failed", self._server.name, exc_info=error)
            why = f"{self._server.name}: {type(error).__name__}: {error}"
        self.last_error = why or f"{self._server.name} ended"
        self.backoff.note_end(self._server.clock() - began)
        log.warning("MCP server %s", self.last_error)

    async def _serve(self, opened: "asyncio.Future[McpConnection]", turn: Turn | None) -> str:
        server = self._server
        scope = open_connection(server.name, server.config, server.host, workdir=self.workdir, turn=turn)
        async with scope as connection:
            server.on_offer(connection)
            self._connection, self.state, self.last_error = connection, "connected", ""
            self._opened = None
            opened.set_result(connection)
            server.on_change()
            while not self._leaving and not connection.ended:
                await connection.signal.wait()
                connection.signal.clear()
                if connection.tools_changed and not connection.ended and not self._leaving:
                    await connection.refresh()
                    server.on_offer(connection)
                    await asyncio.sleep(REFRESH_EVERY_S)
        return f"{server.name}: {connection.ended}" if connection.ended else ""


class ServerStatus(Struct, frozen=True):
    """One server for people: `/mcp`, `alipes doctor`."""

    name: str
    state: State
    where: str
    """Its command or URL."""
    tools: int = 0
    pending: tuple[str, ...] = ()
    """Tools that need to be accepted."""
    error: str = ""
    source: str = ""
    approve: str = ""
    tool_names: tuple[str, ...] = ()
    """The accepted tools, by the server's own names."""

    @property
    def line(self) -> str:
        """All of it in one line."""
        shown = f"{self.state} ({self.error})" if self.error and self.state in ("failed", "off") else self.state
        parts = [shown, f"{self.tools} {'tool' if self.tools == 1 else 'tools'}"]
        parts += [f"{len(self.pending)} not accepted ({', '.join(self.pending[:5])})"] if self.pending else []
        return ", ".join(parts)


class McpServer:
    """A configured server and its instances. HTTP servers have one; started ones have one per working directory."""

    def __init__(
        self,
        name: str,
        config: McpServerConfig,
        host: McpHost,
        *,
        spawn: Callable[[Coroutine[Any, Any, Any], str], "asyncio.Task[Any]"],
        on_offer: Callable[["McpServer", "McpConnection"], None],
        on_change: Callable[[], None] = lambda: None,
    ) -> None:
        """`spawn` starts a task that ends with the app. `on_offer` is called with each new list of tools."""
        self.name, self.config, self.host, self.spawn = name, config, host, spawn
        self.only_in: set[str] | None = None
        """Keys of the conversations that have it; None: all."""
        self._on_offer, self.on_change = on_offer, on_change
        self.clock: Callable[[], float] = monotonic
        self.instances: dict[str, Instance] = {}
        self.was_started = False
        self.retired = False
        """Its settings were changed or removed: it ends with the calls that run, and takes no new ones."""

    def on_offer(self, connection: "McpConnection") -> None:
        self._on_offer(self, connection)

    def limit_to(self, conversations: set[str]) -> None:
        """Only these conversations have it from now on."""
        self.only_in = conversations

    def mark_started(self) -> None:
        self.was_started = True

    def retire(self) -> None:
        self.retired = True
        self._stop_if_unused()

    def _stop_if_unused(self) -> None:
        if self.retired and not any(each.running for each in self.instances.values()):
            self.spawn(self.stop(), f"end of MCP server {self.name}")

    def serves(self, message: Inbound) -> bool:
        """True if the conversation of the message has this server; a subagent has those of the one it works for."""
        place = message.address if message.origin is None else message.origin.address
        return self.only_in is None or place.key in self.only_in

    def instance(self, workdir: str = "") -> Instance:
        """The instance for a working directory; not started yet if it is new."""
        key = "" if self.config.url or self.config.cwd else os.path.realpath(workdir or os.getcwd())
        if key not in self.instances:
            self.instances[key] = Instance(self, key)
        return self.instances[key]

    async def connect(self, workdir: str = "", turn: Turn | None = None) -> Instance:
        """An instance that is connected. Raises `McpError`."""
        if self.retired:
            raise McpError(f"the settings of the MCP server {self.name} were changed: they hold from the next turn on")
        instance = self.instance(workdir)
        self.mark_started()
        if instance.connection is None:
            await self._make_room(instance)
            await instance.connect(turn)
        if turn is not None and self.host.network is not None and self.config.command:
            folder = server_folder(self.config, instance.workdir)
            self.host.network.set_turn(sandbox_session(self.name, folder), turn)
        return instance

    async def _make_room(self, wanted: Instance) -> None:
        others = [each for each in self.instances.values() if each is not wanted and each.connection is not None]
        idle = sorted((each for each in others if not each.running), key=lambda each: each.last_used)
        for each in idle[: max(0, len(others) - MAX_INSTANCES + 1)]:
            await each.stop()
            self.instances.pop(each.workdir, None)

    async def use(
        self, work: "Callable[[McpConnection], Coroutine[Any, Any, T]]", workdir: str = "", turn: Turn | None = None
    ) -> T:
        """Await `work` with the connection. If cancelled, it is cancelled too, but not waited for."""
        try:
            return await self._use(work, workdir, turn)
        except SessionLost:  # an HTTP server was restarted
            return await self._use(work, workdir, turn)

    async def _use(
        self, work: "Callable[[McpConnection], Coroutine[Any, Any, T]]", workdir: str, turn: Turn | None
    ) -> T:
        instance = await self.connect(workdir, turn)
        connection = instance.connection
        if connection is None:
            raise McpError(instance.last_error or f"{self.name} ended")
        instance.running += 1
        done: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        task = self.spawn(_run_for(work(connection), done), f"call of MCP server {self.name}")
        try:
            return await done
        finally:
            instance.running -= 1
            instance.last_used = self.clock()
            self._stop_if_unused()
            if not task.done():
                task.cancel()

    async def stop(self) -> None:
        for instance in tuple(self.instances.values()):
            await instance.stop()
        self.instances.clear()

    @property
    def state(self) -> State:
        if not self.config.is_on:
            return "off"
        states = {each.state for each in self.instances.values()}
        return next((each for each in ("connected", "starting", "failed") if each in states), "idle")

    @property
    def last_error(self) -> str:
        if self.config.enabled and self.config.problem:
            return self.config.problem
        return next((each.last_error for each in reversed(self.instances.values()) if each.last_error), "")


async def _run_for(work: Coroutine[Any, Any, T], done: "asyncio.Future[T]") -> None:
    """Await `work` and pass on how it ended."""
    outcome = Outcome()
    try:
        with outcome:
            result = await work
            if not done.done():
                done.set_result(result)
    finally:
        if not done.done():
            error = outcome.error
            stopped = error is None or isinstance(error, asyncio.CancelledError)
            done.set_exception(McpError("the server was stopped") if stopped or error is None else error)
            done.add_done_callback(_retrieve_error)


def _retrieve_error(future: "asyncio.Future[Any]") -> None:
    """Nobody may be waiting for it."""
    if not future.cancelled():
        future.exception()
