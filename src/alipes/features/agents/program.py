"""One running program: its process in the sandbox, its session with us, its prompt, and how it is stopped."""

import asyncio
import logging
import signal
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from typing import Any, Protocol

from acp import PROTOCOL_VERSION, RequestError
from acp.schema import (
    AuthCapabilities,
    AuthenticateRequest,
    AuthenticateResponse,
    AvailableCommandsUpdate,
    CancelNotification,
    ClientCapabilities,
    ConfigOptionUpdate,
    CurrentModeUpdate,
    FileSystemCapabilities,
    Implementation,
    InitializeRequest,
    InitializeResponse,
    LoadSessionRequest,
    LoadSessionResponse,
    McpServerStdio,
    NewSessionRequest,
    NewSessionResponse,
    PromptRequest,
    PromptResponse,
    ResumeSessionRequest,
    SessionNotification,
    SetSessionConfigOptionResponse,
    SetSessionConfigOptionSelectRequest,
    SetSessionModeRequest,
    SetSessionModeResponse,
)
from msgspec import Struct

from alipes import __version__
from alipes.features.agents.hands import RELAY, SERVER, Hands
from alipes.features.agents.launch import ProgramLaunch
from alipes.features.agents.presets import Preset
from alipes.features.agents.prompt import Prompt
from alipes.features.agents.wire import AUTH_REQUIRED, ProgramEnded, ProgramWire
from alipes.kernel.errors import NotAuthorised
from alipes.kernel.turns import Turn
from alipes.runtime.processes.child import Child
from alipes.runtime.processes.process_tree import send_signal
from alipes.runtime.sandbox.backend import CommandBackend, CommandScope
from alipes.runtime.tasks import first_error

log = logging.getLogger(__name__)
START_TIMEOUT_S = 120.0
"""Seconds for each step of a start; some programs look for updates or index the project first."""
STOP_GRACE_S = 2.0
"""Seconds in which a program has to end its prompt after a stop; then its process is ended."""
LAST_WORDS_S = 1.0
"""Seconds to read what it sent before it ended; processes that it left may hold its output open."""
KILL_EVERY_S = 0.02
MAX_REQUESTS = 256
"""Requests of it that are open at the same time."""


class ProgramChoice(Struct, frozen=True):
    """A mode or an option of the program, and what it can be set to."""

    id: str
    name: str
    value: str
    values: tuple[str, ...]


class Requests(Protocol):
    """Answers what the program asks of us while a prompt runs."""

    async def handle(self, program: "AgentProgram", prompt: Prompt, method: str, params: dict[str, Any]) -> Any: ...


class ProgramServices(Struct, frozen=True):
    """What programs use of the app."""

    backend: CommandBackend
    requests: Requests
    set_own_hosts: Callable[[str, tuple[str, ...]], None]
    set_turn: Callable[[str, Turn], None]
    close_network: Callable[[str], Awaitable[None]]
    make_hands: "Callable[[AgentProgram, CommandScope], Hands]"
    spawn: Callable[[Coroutine[Any, Any, None], str], "asyncio.Task[None]"]
    mask: Callable[[str], str]


class AgentProgram:
    """The program of one conversation. It is started with `start` and ends by itself, by `leave`, or with the app."""

    def __init__(self, launch: ProgramLaunch, around: ProgramServices, *, sandbox: str, workdir: str) -> None:
        self.launch, self.workdir, self.sandbox = launch, workdir, sandbox
        self.session = ""
        self.commands: tuple[tuple[str, str, str], ...] = ()
        """Its slash commands: name, description, hint."""
        self.listed_commands = asyncio.Event()
        """Set when it has listed them, which not every program does."""
        self.modes: ProgramChoice | None = None
        self.options: tuple[ProgramChoice, ...] = ()
        self.able = InitializeResponse(protocol_version=PROTOCOL_VERSION)
        self.prompt: Prompt | None = None
        self.ended = ""
        """Why it has gone or is about to."""
        self._around = around
        self._wire: ProgramWire | None = None
        self._child: Child | None = None
        self._group: asyncio.TaskGroup | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._leaving, self._idle = asyncio.Event(), asyncio.Event()
        self._idle.set()
        self._baseline: frozenset[int] = frozenset()
        self._owner: asyncio.Task[None] | None = None
        self._open_requests = 0

    async def start(self, turn: Turn | None, loads: str) -> bool:
        """Start it and open its session `loads`, if it can; else a new one. True if the old one was opened.

        Raises `ProgramEnded`, `RequestError` and `NotAuthorised`.
        """
        opened: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._owner = self._around.spawn(self._own(turn, loads, opened), f"agent {self.launch.name}")
        try:
            return await asyncio.shield(opened)
        except asyncio.CancelledError:
            opened.add_done_callback(_retrieve)
            self.leave("it was stopped while it started")
            raise

    def leave(self, why: str) -> None:
        """End it; `wait_until_gone` waits for it."""
        self.ended = self.ended or why
        self._leaving.set()

    async def wait_until_gone(self) -> None:
        if self._owner is not None:
            await asyncio.wait({self._owner})

    async def _own(self, turn: Turn | None, loads: str, opened: "asyncio.Future[bool]") -> None:
        """Everything of the program, in one task."""
        launch, around = self.launch, self._around
        scope = CommandScope(
            self.sandbox,
            self.workdir,
            turn,
            write=launch.write,
            read=(*launch.read, RELAY),
            protect=launch.protect,
            title=launch.preset.title or launch.name,
        )
        around.set_own_hosts(self.sandbox, launch.hosts)
        try:
            async with around.backend.open(
                launch.argv, scope, cwd=self.workdir, env=launch.env, link="streams"
            ) as child:
                await self._serve(child, scope, loads, opened)
        except OSError as error:
            self.ended = f"it could not be started: {error}"
        except ExceptionGroup as errors:
            self.ended = self.ended or str(first_error(errors))
        finally:
            self._leaving.set()
            around.set_own_hosts(self.sandbox, ())
            self._end_prompt()
            await around.close_network(self.sandbox)
            if not opened.done():
                opened.set_exception(ProgramEnded(self.ended or "it ended"))

    async def _serve(self, child: Child, scope: CommandScope, loads: str, opened: "asyncio.Future[bool]") -> None:
        self._child = child
        wire = self._wire = ProgramWire(child, self._handle, self._around.mask)
        hands = self._around.make_hands(self, scope)
        async with asyncio.TaskGroup() as group:
            self._group = group
            self.spawn(_read_errors(child, wire), "agent log")
            self.spawn(hands.serve(), "agent tools")
            self.spawn(self._watch_exit(child, wire), "agent exit")
            self.spawn(self._watch_output(wire), "agent output")
            self.spawn(self._open_session(wire, hands, loads, opened), "agent session")
            try:
                await self._leaving.wait()
            finally:
                self._group = None
                await wire.close()
                for task in tuple(self._tasks):
                    task.cancel()

    def spawn(self, work: Coroutine[Any, Any, None], name: str) -> "asyncio.Task[None] | None":
        """A task that ends with the program; None if that has ended."""
        if self._group is None:
            work.close()
            return None
        task = self._group.create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _watch_exit(self, child: Child, wire: ProgramWire) -> None:
        await child.wait()
        with suppress(TimeoutError):  # what it said last
            async with asyncio.timeout(LAST_WORDS_S):
                await wire.wait_until_read()
        self.leave(await wire.describe_end())

    async def _watch_output(self, wire: ProgramWire) -> None:
        await wire.wait_until_read()
        self.leave(await wire.describe_end())

    async def _open_session(self, wire: ProgramWire, hands: Hands, loads: str, opened: "asyncio.Future[bool]") -> None:
        try:
            loaded = await self._begin(wire, hands, loads)
        except (ProgramEnded, RequestError, NotAuthorised, TimeoutError) as error:
            late = ProgramEnded(f"it did not answer within {START_TIMEOUT_S:g} s")
            self.leave(str(error))
            if not opened.done():
                opened.set_exception(late if isinstance(error, TimeoutError) else error)
        else:
            if not opened.done():
                opened.set_result(loaded)

    async def _begin(self, wire: ProgramWire, hands: Hands, loads: str) -> bool:
        self.able = await wire.ask(
            "initialize", describe_client(self.launch.preset), InitializeResponse, START_TIMEOUT_S
        )
        if self.able.protocol_version != PROTOCOL_VERSION:
            theirs = self.able.protocol_version
            raise ProgramEnded(f"it speaks version {theirs} of the protocol; alipes speaks {PROTOCOL_VERSION}")
        command, *args = hands.command
        servers: list[Any] = [McpServerStdio(name=SERVER, command=command, args=args, env=[])]
        if loads and await self._load(wire, servers, loads):
            return True
        ask = NewSessionRequest(cwd=self.workdir, mcp_servers=servers)
        try:
            answer = await wire.ask("session_new", ask, NewSessionResponse, START_TIMEOUT_S)
        except RequestError as error:
            if error.code != AUTH_REQUIRED:
                raise
            await self._authenticate(wire)
            answer = await wire.ask("session_new", ask, NewSessionResponse, START_TIMEOUT_S)
        self.session = answer.session_id
        self._take_choices(answer)
        return False

    async def _load(self, wire: ProgramWire, servers: list[Any], session: str, *, logged_in: bool = False) -> bool:
        """True if the program has opened its old session. `logged_in`: just now, which helps once."""
        able = self.able.agent_capabilities
        resumes = (
            able is not None and able.session_capabilities is not None and able.session_capabilities.resume is not None
        )
        if able is None or not (able.load_session or resumes):
            return False
        kind, method = (ResumeSessionRequest, "session_resume") if resumes else (LoadSessionRequest, "session_load")
        ask = kind(session_id=session, cwd=self.workdir, mcp_servers=servers)
        try:
            answer = await wire.ask(method, ask, LoadSessionResponse, START_TIMEOUT_S)
        except RequestError as error:
            if error.code == AUTH_REQUIRED and not logged_in:
                await self._authenticate(wire)
                return await self._load(wire, servers, session, logged_in=True)
            log.info("%s did not open its session: %s", self.launch.name, error)
            return False
        self.session = session
        self._take_choices(answer)
        return True

    async def _authenticate(self, wire: ProgramWire) -> None:
        """With a key that its settings give it; raises `NotAuthorised` if there is none."""
        offered = {each.id for each in self.able.auth_methods or ()}
        for variable, method in self.launch.preset.key_methods:
            if method in offered and self.launch.env.get(variable):
                ask = AuthenticateRequest(method_id=method)
                await wire.ask("authenticate", ask, AuthenticateResponse, START_TIMEOUT_S)
                return
        name = self.launch.name
        raise NotAuthorised(f"{name} is not logged in: run `alipes agents login {name}` in a terminal.")

    def _take_choices(self, answer: "NewSessionResponse | LoadSessionResponse") -> None:
        if (modes := answer.modes) is not None:
            values = tuple(each.id for each in modes.available_modes)
            self.modes = ProgramChoice("mode", "mode", modes.current_mode_id, values)
        self._take_options(answer.config_options or ())

    def _take_options(self, given: Any) -> None:
        found = []
        for each in given:
            if each.type == "select":
                flat = [inner for option in each.options for inner in getattr(option, "options", None) or (option,)]
                found.append(
                    ProgramChoice(each.id, each.name, each.current_value, tuple(option.value for option in flat))
                )
        self.options = tuple(found)

    @property
    def choices(self) -> tuple[ProgramChoice, ...]:
        """Its mode and its options."""
        named = {each.id for each in self.options}
        return (*((self.modes,) if self.modes is not None and "mode" not in named else ()), *self.options)

    async def choose(self, id: str, value: str) -> None:
        """Set its mode or an option. Raises `ProgramEnded` and `RequestError`."""
        assert self._wire is not None
        options = {each.id: each for each in self.options}
        if id in options:
            ask = SetSessionConfigOptionSelectRequest(session_id=self.session, config_id=id, value=value)
            answer = await self._wire.ask(
                "session_set_config_option", ask, SetSessionConfigOptionResponse, START_TIMEOUT_S
            )
            self._take_options(answer.config_options or ())
        elif id == "mode" and self.modes is not None:
            change = SetSessionModeRequest(session_id=self.session, mode_id=value)
            await self._wire.ask("session_set_mode", change, SetSessionModeResponse, START_TIMEOUT_S)
            self.modes = ProgramChoice("mode", "mode", value, self.modes.values)

    def send(self, prompt: Prompt, blocks: list[Any]) -> None:
        """Begin a prompt; its updates and its end arrive in `prompt`. Only when `wait_until_idle` has returned."""
        assert self._child is not None
        self.prompt = prompt
        self._idle.clear()
        self._around.set_turn(self.sandbox, prompt.turn)
        self._baseline = frozenset(each.pid for each in self._child.tree.living())
        if self.spawn(self._run_prompt(prompt, blocks), "agent prompt") is None:
            self._end_prompt()

    async def wait_until_idle(self) -> None:
        """Return when no prompt runs: the last one has ended, or the program."""
        await self._idle.wait()

    async def _run_prompt(self, prompt: Prompt, blocks: list[Any]) -> None:
        assert self._wire is not None
        ask = PromptRequest(session_id=self.session, prompt=blocks)
        try:
            prompt.finish(await self._wire.ask("session_prompt", ask, PromptResponse))
        except (ProgramEnded, RequestError) as error:
            prompt.fail(error)
        finally:
            self._end_prompt()

    def _end_prompt(self) -> None:
        if self.prompt is not None and self._leaving.is_set() and not self.prompt.has_ended:
            self.prompt.fail(ProgramEnded(self.ended or "it ended"))
        self.prompt = None
        self._idle.set()

    def stop(self) -> None:
        """Stop its prompt: from this moment on its events are dropped and its requests refused."""
        prompt = self.prompt
        if prompt is None or prompt.dropped:
            return
        prompt.drop()
        self._kill_children()
        self.spawn(self._cancel_prompt(), "agent cancel")

    async def _cancel_prompt(self) -> None:
        assert self._wire is not None
        self.spawn(self._wire.tell("session_cancel", CancelNotification(session_id=self.session)), "session/cancel")
        with suppress(TimeoutError):
            async with asyncio.timeout(STOP_GRACE_S):
                while not self._idle.is_set():
                    self._kill_children()
                    with suppress(TimeoutError):
                        async with asyncio.timeout(KILL_EVERY_S):
                            await self._idle.wait()
                return
        log.info("%s did not obey a stop and is ended", self.launch.name)
        self.leave("it did not obey a stop")

    def _kill_children(self) -> None:
        """End the processes that it has started since its prompt began."""
        if self._child is not None and self._child.returncode is None:
            for each in self._child.tree.living():
                if each.pid not in self._baseline:
                    send_signal(each, signal.SIGKILL)

    async def _handle(self, method: str, params: dict[str, Any]) -> Any:
        if method == "session/update":
            self._take_update(SessionNotification.model_validate(params))
            return None
        prompt = self.prompt
        if prompt is None or prompt.dropped:
            if method == "session/request_permission":
                return {"outcome": {"outcome": "cancelled"}}
            raise RequestError(-32600, "no turn is running")
        if self._open_requests >= MAX_REQUESTS:
            raise RequestError(-32600, f"{MAX_REQUESTS} requests are open already")
        self._open_requests += 1
        try:
            return await self._around.requests.handle(self, prompt, method, params)
        finally:
            self._open_requests -= 1

    def _take_update(self, note: SessionNotification) -> None:
        match note.update:
            case AvailableCommandsUpdate(available_commands=listed):
                hint = [getattr(getattr(each.input, "root", None), "hint", "") or "" for each in listed]
                self.commands = tuple(
                    (each.name, each.description, text) for each, text in zip(listed, hint, strict=True)
                )
                self.listed_commands.set()
            case CurrentModeUpdate(current_mode_id=mode) if self.modes is not None:
                self.modes = ProgramChoice("mode", "mode", mode, self.modes.values)
            case ConfigOptionUpdate(config_options=options):
                self._take_options(options)
            case update if self.prompt is not None and note.session_id == self.session and not self.prompt.dropped:
                if not self.prompt.take(update, self.workdir):
                    self.prompt.fail(ProgramEnded("it said or did far too much in one turn"))
                    self.leave("it said or did far too much in one turn")


def describe_client(preset: Preset) -> InitializeRequest:
    able = ClientCapabilities(
        fs=FileSystemCapabilities(read_text_file=preset.reads_files, write_text_file=True),
        terminal=True,
        auth=AuthCapabilities(terminal=True),
    )
    info = Implementation(name="alipes", title="alipes", version=__version__)
    return InitializeRequest(protocol_version=PROTOCOL_VERSION, client_capabilities=able, client_info=info)


async def _read_errors(child: Child, wire: ProgramWire) -> None:
    while piece := await child.read_errors():
        wire.lines.feed(piece)


def _retrieve(future: "asyncio.Future[Any]") -> None:
    """Nobody waits for it any longer."""
    if not future.cancelled():
        future.exception()
