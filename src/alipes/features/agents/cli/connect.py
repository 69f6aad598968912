"""`alipes agents test` and `login`: the actions that start the program, in its sandbox as always."""

import asyncio
import os
import sys
import termios
import time
import tty
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress

from acp import RequestError
from msgspec import Struct

from alipes.app import open_for_checks
from alipes.config.settings import Settings
from alipes.console.common import print_json
from alipes.console.render import sanitize
from alipes.console.stdio import is_terminal
from alipes.core.app import App
from alipes.features.agents.agents import Agents
from alipes.features.agents.feature import AgentsFeature
from alipes.features.agents.launch import ProgramLaunch
from alipes.features.agents.program import AgentProgram
from alipes.features.agents.wire import ProgramEnded
from alipes.kernel.errors import AlipesError, ConfigError
from alipes.kernel.turns import Address, Inbound, Turn
from alipes.runtime.processes.child import Child
from alipes.runtime.sandbox.backend import CommandScope

READ_BYTES = 65536
WRITE_TIMEOUT_S = 10.0
COMMANDS_S = 2.0
"""Seconds for a program to list its slash commands after its session was opened."""


class AgentReport(Struct, frozen=True):
    name: str
    seconds: float
    """Until its session was open."""
    agent: str
    continues: bool
    """It can open an old session again."""
    images: bool
    choices: dict[str, str]
    """Its mode and options."""
    commands: tuple[str, ...]


def run_test(settings: Settings, name: str, *, json: bool) -> int:
    try:
        report = asyncio.run(_test(settings, name))
    except (ProgramEnded, RequestError, AlipesError) as error:
        sys.stderr.write(f"{sanitize(f'{name}: {error}')}\n")
        return 1
    if json:
        print_json(report)
        return 0
    print(f"{name} works: {sanitize(report.agent)}, {report.seconds:g} s until its session was open.")
    print(
        f"  continues old sessions: {'yes' if report.continues else 'no: a summary of the transcript is sent instead'}"
    )
    for id, value in report.choices.items():
        print(f"  {sanitize(id)}: {sanitize(value)}")
    if report.commands:
        print(f"  commands: {sanitize(', '.join(report.commands))}")
    return 0


@asynccontextmanager
async def _open(settings: Settings) -> AsyncIterator[tuple[App, Agents]]:
    async with open_for_checks(settings) as app:
        service = app.features.get(AgentsFeature).service
        assert service is not None
        yield app, await service.load()


async def _test(settings: Settings, name: str) -> AgentReport:
    async with _open(settings) as (_, agents):
        began = time.monotonic()
        program = await agents.make_program(name, _make_turn())
        await program.start(None, "")
        seconds = round(time.monotonic() - began, 2)
        with suppress(TimeoutError):
            async with asyncio.timeout(COMMANDS_S):
                await program.listed_commands.wait()
        report = _describe(program, seconds)
        program.leave("it was only tried")
        await program.wait_until_gone()
        return report


def _describe(program: AgentProgram, seconds: float) -> AgentReport:
    able, info = program.able.agent_capabilities, program.able.agent_info
    takes = able.prompt_capabilities if able is not None else None
    return AgentReport(
        program.launch.name,
        seconds,
        f"{info.title or info.name} {info.version}" if info is not None else "it does not say what it is",
        able is not None and bool(able.load_session),
        takes is not None and bool(takes.image),
        {each.id: f"{each.value} (of {', '.join(each.values)})" for each in program.choices},
        tuple(command for command, _, _ in program.commands),
    )


def _make_turn() -> Turn:
    """Of a person at this terminal, who trusts the program to connect where it wants to."""
    inbound = Inbound("", Address("terminal", "agents"), "owner", "", workdir=os.getcwd(), trusted=True, owner=True)
    return Turn("agents", "agents", inbound)


def run_login(settings: Settings, name: str, words: tuple[str, ...]) -> int:
    """Run the program's own login. What it stores is in its folder, and nobody else reads it."""
    if not is_terminal(sys.stdin):
        raise ConfigError("A login needs a terminal.")
    return asyncio.run(_login(settings, name, words))


async def _login(settings: Settings, name: str, words: tuple[str, ...]) -> int:
    async with _open(settings) as (app, agents):
        turn = _make_turn()
        program = await agents.make_program(name, turn)
        launch = program.launch if words else await _find_login(program)
        words = words or launch.argv
        await app.backend.choose()
        scope = CommandScope(f"login:{name}", os.getcwd(), turn, write=launch.write, read=launch.read)
        env = {**launch.env, "TERM": os.environ.get("TERM", "xterm")}  # noqa: TID251
        print(f"Running the login of {name}: {' '.join(words)}")
        async with app.backend.open(words, scope, cwd=os.getcwd(), env=env, link="terminal") as child:
            with _raw_terminal():
                await _pass_on(child)
            return min(abs(await child.wait()), 1)


async def _find_login(program: AgentProgram) -> ProgramLaunch:
    """How it logs in: as it says itself, else as the preset says."""
    launch, preset = program.launch, program.launch.preset
    with suppress(ProgramEnded, RequestError, AlipesError):
        await program.start(None, "")
    program.leave("only its logins were asked for")
    await program.wait_until_gone()
    for each in program.able.auth_methods or ():
        if getattr(each, "type", "") == "terminal":
            given = {pair.name: pair.value for pair in getattr(each, "env", None) or ()}
            return launch.with_words((launch.argv[0], *(getattr(each, "args", None) or ())), given)
    if not preset.login:
        raise ConfigError(f"{launch.name} does not say how it logs in: give the command after --.")
    return launch.with_words(preset.login)


@contextmanager
def _raw_terminal() -> Iterator[None]:
    """Keys reach the program as they are."""
    before = termios.tcgetattr(0)
    tty.setraw(0)
    try:
        yield
    finally:
        termios.tcsetattr(0, termios.TCSADRAIN, before)


async def _pass_on(child: Child) -> None:
    """Connect the terminal with the program until it ends."""
    loop, keys = asyncio.get_running_loop(), asyncio.Queue[bytes]()
    loop.add_reader(0, lambda: keys.put_nowait(os.read(0, READ_BYTES)))

    async def type_keys() -> None:
        with suppress(OSError):
            while True:
                await child.input.write(await keys.get(), WRITE_TIMEOUT_S)

    try:
        async with asyncio.TaskGroup() as group:
            typing = group.create_task(type_keys())
            while piece := await child.read():
                os.write(1, piece)
            typing.cancel()
    finally:
        loop.remove_reader(0)
