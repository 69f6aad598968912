"""The agents of an app: a conversation with each, its program while it is used, and what they use of the app."""

import asyncio
import os
from collections.abc import Coroutine, Mapping
from functools import partial
from typing import Any

from alipes.config.settings import AGENT_PREFIX
from alipes.core.app import App
from alipes.core.resources import tool_environment
from alipes.features.agents.conversation import AgentConversation, Around
from alipes.features.agents.hands import OFFERED, Hands
from alipes.features.agents.history import SessionStates
from alipes.features.agents.launch import ProgramLaunch, prepare_launch
from alipes.features.agents.program import AgentProgram, ProgramServices
from alipes.features.agents.prompt import ProgramCall, Prompt
from alipes.features.agents.requests import ProgramRequests, run_for
from alipes.kernel.approvals import AGENT_TOOL
from alipes.kernel.errors import ConfigError
from alipes.kernel.messages import Json, Message, ToolCall, ToolResult
from alipes.kernel.ports import ToolSpec
from alipes.kernel.turns import Turn
from alipes.plugins import specs
from alipes.plugins.registry import PromptTemplate
from alipes.runtime.sandbox.backend import CommandScope
from alipes.runtime.sandbox.policy import short_hash

IDLE_S = 600.0
"""Seconds after its last turn until a program is ended; its session is opened again when it is needed."""
MAX_IDLE = 8
"""Programs that are kept although no turn uses them."""


class Agents:
    def __init__(self, app: App, group: asyncio.TaskGroup, *, idle_s: float = IDLE_S) -> None:
        """`group`: runs the programs, and ends with the app."""
        self._app, self._group, self._idle_s = app, group, idle_s
        self._env = tool_environment(app.settings)
        self.folder = app.settings.home / "agents"
        questions, permissions = app.sessions.questions, app.sessions.permissions
        self.requests = ProgramRequests(
            app.boundary, lambda: app.hooks.dispatcher, questions.ask_approval, permissions.of_turn, app.secrets
        )
        self._states = {name: SessionStates(self.folder / name / "sessions") for name in app.settings.agents}
        self._open: dict[tuple[str, str], AgentConversation] = {}
        """By conversation and agent, those used last at the end."""
        self._timers: dict[tuple[str, str], asyncio.TimerHandle] = {}

        for each in self._states.values():
            each.remove_old()

    def close(self) -> None:
        """Nothing new begins, and the programs end."""
        for timer in self._timers.values():
            timer.cancel()
        for each in self._open.values():
            if each.program is not None:
                each.program.leave("alipes ends")

    def conversation(self, name: str, session: str) -> AgentConversation:
        key = (session, name)
        if key not in self._open:
            around = Around(self.make_program, self._app.notify, self._before_prompt)
            self._open[key] = AgentConversation(name, session, self._states[name], around)
        return self._open[key]

    def find(self, session: str) -> tuple[AgentConversation, ...]:
        """The conversations of a session with agents, as far as they are known to this process."""
        return tuple(each for (owner, _), each in self._open.items() if owner == session)

    def find_call(self, turn: Turn, call: str) -> tuple[Prompt | None, ProgramCall | None]:
        for each in self.find(turn.session):
            prompt = each.prompt
            if prompt is not None and prompt.turn.id == turn.id:
                return prompt, prompt.ours.get(call)
        return None, None

    def launch(self, name: str) -> ProgramLaunch:
        """Raises `ConfigError`."""
        return prepare_launch(name, self._app.settings.agents[name], folder=self.folder, environ=self._env)

    async def make_program(self, name: str, turn: Turn) -> AgentProgram:
        app = self._app
        await app.extras.require("acp", turn)
        launch = await asyncio.to_thread(self.launch, name)
        await app.backend.choose()
        await self._make_room()
        workdir = _find_folder(name, app.settings.agents[name].folder or turn.inbound.workdir or app.workdir)
        sandbox = f"agent:{name}:{short_hash(turn.session)}"
        return AgentProgram(launch, self.services(), sandbox=sandbox, workdir=workdir)

    def services(self) -> ProgramServices:
        app = self._app
        return ProgramServices(
            backend=app.backend,
            requests=self.requests,
            set_own_hosts=app.network.rights.set_own_hosts,
            set_turn=app.resources.namespaces.set_turn,
            close_network=app.resources.namespaces.close,
            make_hands=self._make_hands,
            spawn=self._spawn,
            mask=app.secrets,
        )

    def _spawn(self, work: Coroutine[Any, Any, None], name: str) -> "asyncio.Task[None]":
        return self._group.create_task(work, name=name)

    def _make_hands(self, program: AgentProgram, scope: CommandScope) -> Hands:
        folder, seen = self._app.backend.scratch(scope)

        async def list_tools() -> tuple[ToolSpec, ...]:
            turn = scope.turn if program.prompt is None else program.prompt.turn
            if turn is None:
                return ()
            names = await self._app.tool_names(turn)
            known = self._app.contributions.tools()
            return tuple(known[name].spec for name in OFFERED if name in names)

        async def use(name: str, args: dict[str, Json]) -> ToolResult:
            prompt = program.prompt
            if prompt is None or prompt.dropped:
                return ToolResult("", "no turn is running, so this cannot be used now", "failed")
            return await run_for(program, prompt, self.requests.use_tool(prompt, f"Use {name}", name, args))

        return Hands(folder, seen, list_tools=list_tools, use=use)

    async def _before_prompt(self, turn: Turn) -> None:
        """A program may write whenever it works: a checkpoint is made as before a write of ours."""

        async def go(_args: Mapping[str, Json]) -> str:
            return ""

        call = ToolCall(os.urandom(6).hex(), AGENT_TOOL, {"title": "begin", "kind": "other"})
        await self._app.hooks.dispatcher.wrap(specs.around_tool, go, call.args, call=call, turn=turn)

    def count_running(self, name: str) -> int:
        return sum(key[1] == name and each.program is not None for key, each in self._open.items())

    def templates(self) -> dict[str, PromptTemplate]:
        """The slash commands of running programs as `/agent:command`."""
        found = {}
        for (_, agent), each in self._open.items():
            for command, text, hint in each.program.commands if each.program is not None else ():
                name = f"{agent}:{command}".lower()
                found[name] = PromptTemplate(
                    name=name,
                    path=f"the command {command} of {agent}",
                    text="",
                    description=text or f"a command of {agent}",
                    hint=hint,
                    model=f"{AGENT_PREFIX}/{agent}",
                    fill=partial(_fill_command, command),
                )
        return found

    async def _make_room(self) -> None:
        idle = [key for key, each in self._open.items() if each.program is not None and not each.is_busy]
        for key in idle[: max(0, len(idle) - MAX_IDLE + 1)]:
            await self._close(key)

    async def _close(self, key: tuple[str, str]) -> None:
        if timer := self._timers.pop(key, None):
            timer.cancel()
        found = self._open.pop(key, None)
        if found is not None and found.program is not None:
            found.program.leave("it was not used")
            await found.program.wait_until_gone()

    def _leave_idle(self, key: tuple[str, str]) -> None:
        found = self._open.get(key)
        if found is not None and not found.is_busy:
            self._group.create_task(self._close(key), name="idle agent")

    def stop(self, turn: str) -> None:
        for each in self._open.values():
            each.stop(turn)
        self.requests.forget(turn)

    def end_turn(self, turn: Turn, ending: str, said: tuple[Message, ...]) -> None:
        self.requests.forget(turn.id)
        for key in [key for key in self._open if key[0] == turn.session]:
            self._open[key].end_turn(turn, said, suspended=ending == "suspended")
            if timer := self._timers.pop(key, None):
                timer.cancel()
            loop = asyncio.get_running_loop()
            self._timers[key] = loop.call_later(self._idle_s, self._leave_idle, key)

    async def leave(self, session: str) -> None:
        for key in [key for key in self._open if key[0] == session]:
            await self._close(key)


def _find_folder(name: str, folder: str) -> str:
    """Raises `ConfigError` if there is no such folder."""
    real = os.path.realpath(os.path.expanduser(folder))
    if not os.path.isdir(real):
        raise ConfigError(f"{name} cannot work in {folder}: there is no such folder.")
    return real


async def _fill_command(command: str, args: str) -> str:
    return f"/{command} {args}".rstrip()
