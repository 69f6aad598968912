"""Loads plugins without a conversation: for their commands, their skills and the doctor."""

import argparse
import asyncio
import inspect
import os
import sys
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from importlib import import_module
from typing import Any

from msgspec import Struct

from alipes.config.loader import load_settings
from alipes.config.settings import Settings
from alipes.features.browser import specs as browser_specs
from alipes.kernel.errors import ProviderError, SessionError, ToolError
from alipes.kernel.formatting import did_you_mean
from alipes.kernel.messages import Json, Message, ToolResult
from alipes.kernel.models import Secret
from alipes.kernel.ports import Request, ToolContext, ToolOutput, ToolSpec
from alipes.kernel.turns import Inbound, ModelReply, Op, Turn
from alipes.plugins.context import Host
from alipes.plugins.discovery import has_plugins
from alipes.plugins.dispatch import Hooks, guard
from alipes.plugins.interruption.attribution import on_behalf_of
from alipes.plugins.loader import PluginLoader, Plugins, open_plugins
from alipes.plugins.registry import CliContribution, Contributions
from alipes.providers.registry import Models, choose_model, open_models
from alipes.runtime import tasks
from alipes.runtime.http.clients import ClientScope
from alipes.runtime.log_file import open_log
from alipes.sessions.commands.registry import BY_NAME

TOOLS = (
    *("terminal", "process", "read_file", "write_file", "patch", "search_files"),
    *("delegate_task", "mixture_of_agents", "vision_analyze", "image_generate"),
    *("todo", "memory", "clarify", "execute_code", "send_file", "session_search", "cronjob"),
    *("web_search", "web_extract"),
    *("skills_list", "skill_view", "skill_manage"),
    *(spec.name for spec in browser_specs.ALL),
)
"""Names of the built-in tools; a test compares them with those of a conversation."""
_NO_CONVERSATION = "no conversation is available in a command of a plugin"


class StandaloneHost:
    """The host of a plugin without a conversation: it can only ask a model."""

    def __init__(self, settings: Settings, scope: ClientScope, models: Models) -> None:
        self._settings, self._scope, self._models = settings, scope, models

    async def submit(self, inbound: Inbound) -> str | None:
        raise SessionError(_NO_CONVERSATION)

    async def post(self, key: str, op: Op) -> None:
        raise SessionError(_NO_CONVERSATION)

    async def unfinished(self, key: str) -> tuple[str, ...]:
        return ()

    async def ask(
        self, messages: tuple[Message, ...], *, system: str = "", model: str = "", max_tokens: int = 0
    ) -> ModelReply:
        name = model or (await choose_model(self._settings, self._scope)).model
        backend = await self._models.open(name)
        request = Request(backend.model, system, messages, max_tokens=max_tokens or self._settings.max_tokens)
        async with backend.provider.stream(request) as deltas:
            async for delta in deltas:
                if isinstance(delta, ModelReply):
                    return delta
        raise ProviderError(f"{backend.name} gave no answer")

    async def run_tool(self, name: str, args: Mapping[str, Json], *, turn: Turn | None = None) -> ToolResult:
        return ToolResult("", f"{name} was not run: {_NO_CONVERSATION}", "failed")

    def current_turn(self) -> Turn | None:
        return None

    def setting(self, key: str) -> object:
        value: object = self._settings
        for name in key.split("."):
            value = value.get(name) if isinstance(value, Mapping) else getattr(value, name, None)
        return None if isinstance(value, Secret | Struct) or callable(value) else value


class LoadedPlugins(Struct, frozen=True):
    plugins: Plugins
    contributions: Contributions

    def report_failures(self) -> None:
        for facts in self.plugins.statuses():
            if facts.state != "on":
                sys.stderr.write(f"plugin {facts.name} could not be loaded: {facts.why}\n")


@asynccontextmanager
async def open_standalone(settings: Settings) -> AsyncIterator[LoadedPlugins]:
    """Load the enabled plugins. `plugins.statuses()` has the failures."""
    offers = make_registry()
    async with (
        open_host(settings) as host,
        open_plugins(
            settings, hooks=Hooks(), contributions=offers, host=host, loaders=doors(host, settings)
        ) as plugins,
    ):
        yield LoadedPlugins(plugins, offers)


@asynccontextmanager
async def open_host(settings: Settings) -> AsyncIterator[Host]:
    async with open_models(settings) as (scope, models):
        yield StandaloneHost(settings, scope, models)


class _ReservedTool:
    """Reserves the name of a built-in tool, as in a conversation."""

    def __init__(self, spec: ToolSpec) -> None:
        self.spec = spec

    async def run(self, args: Mapping[str, Json], act: ToolContext) -> str | ToolOutput:
        raise ToolError(_NO_CONVERSATION)


def make_registry() -> Contributions:
    """An empty registry that refuses the names of built-in commands and tools."""
    offers = Contributions(lambda: BY_NAME)
    offers.add_builtin(*(_ReservedTool(ToolSpec(name, "", {})) for name in TOOLS))
    return offers


def doors(host: Host, settings: Settings) -> dict[str, Callable[[], PluginLoader]]:
    """Loaders for Hermes plugins, imported with the first one."""
    made: list[PluginLoader] = []

    def hermes() -> PluginLoader:
        if not made:
            made.append(import_module("alipes.compat.hermes.loader").open_loader(host, settings))
        return made[0]

    return dict.fromkeys(("hermes", "file-hook", "shell-hooks"), hermes)


def run(name: str, argv: list[str], ours: tuple[str, ...], *, is_question: bool = False) -> int | None:
    """Run the command `name` of an enabled plugin, or report that it is unknown.

    `is_question`: the words may be a question instead; then None if `name` is not like a command.
    """
    settings = load_settings()
    if not has_plugins(settings):
        return _unknown_command(name, ours, is_question)
    with open_log(settings.paths.make().log, settings.log_level, settings.secrets()):
        return tasks.run_event_loop(_run(settings, name, argv, ours, is_question=is_question))


async def _run(
    settings: Settings, name: str, argv: list[str], ours: tuple[str, ...], *, is_question: bool
) -> int | None:
    act: _PluginCommand | None = None
    try:
        async with open_standalone(settings) as opened:
            offer = opened.contributions.find(CliContribution, name)
            if offer is None:
                theirs = tuple(offer.name for offer in opened.contributions.all(CliContribution))
                status = _unknown_command(name, (*ours, *theirs), is_question)
                if status is not None:
                    opened.report_failures()
                return status
            act = _PluginCommand(offer, argv)
            return await guard(offer.owner, f"alipes {name}", act.run())
    finally:
        if act is not None and act.thread_running:  # its thread cannot be ended, for example while it waits for a key
            sys.stdout.flush()
            os._exit(130)


class _PluginCommand:
    """A command of a plugin. It runs in a thread, because it may block or start its own event loop."""

    def __init__(self, offer: CliContribution, argv: list[str]) -> None:
        self._offer, self._argv = offer, argv
        self.thread_running = False

    async def run(self) -> int:
        """Run the command and return its exit status."""
        try:
            with on_behalf_of(self._offer.owner):
                answer = await asyncio.to_thread(self._run_in_thread)
                if inspect.isawaitable(answer):
                    answer = await answer
        except SystemExit as left:
            answer = _exit_status(left)
        if isinstance(answer, str):
            print(answer)
        return answer if isinstance(answer, int) else 0

    def _run_in_thread(self) -> Any:
        self.thread_running = True
        try:
            parser = argparse.ArgumentParser(prog=f"alipes {self._offer.name}", description=self._offer.help or None)
            self._offer.prepare(parser)
            given = parser.parse_args(self._argv)
            act: Callable[[Any], Any] | None = self._offer.run or getattr(given, "func", None)
            if act is None:
                parser.print_help(sys.stderr)
                return 2
            return act(given)
        except SystemExit as left:  # must not leave the thread: it would end the event loop
            return _exit_status(left)
        finally:
            self.thread_running = False


def _exit_status(left: SystemExit) -> int:
    """The exit status of a SystemExit; a text is printed as an error."""
    if isinstance(left.code, str):
        sys.stderr.write(f"{left.code}\n")
        return 1
    return left.code or 0


def _unknown_command(name: str, known: tuple[str, ...], is_question: bool) -> int | None:
    near = did_you_mean(name, known)
    if is_question and not near:
        return None
    ask = f"`alipes ask {name} ...` to ask a question"
    sys.stderr.write(f"alipes: unknown command {name!r}.{near}\nTry `alipes --help`, or {ask}.\n")
    return 2
