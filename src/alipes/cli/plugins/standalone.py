"""Plugins opened outside of any conversation: for their own commands, their skills, and the doctor."""

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

from alipes.config.settings import Settings, load
from alipes.kernel.errors import ProviderError, SessionError, ToolError
from alipes.kernel.formatting import did_you_mean
from alipes.kernel.messages import Json, Message, ToolResult
from alipes.kernel.models import Secret
from alipes.kernel.ports import Act, Output, Request, ToolSpec
from alipes.kernel.turns import Inbound, Op, Replied, Turn
from alipes.plugins.attribution import on_behalf_of
from alipes.plugins.context import Host
from alipes.plugins.discovery import anything_wanted
from alipes.plugins.dispatch import Hooks, guard
from alipes.plugins.loader import Door, Plugins, open_plugins
from alipes.plugins.registry import CliOffer, Offers
from alipes.providers.registry import Models, choose
from alipes.runtime import threads
from alipes.runtime.http.clients import ClientScope
from alipes.runtime.log_file import open_log
from alipes.sessions.commands import BY_NAME

TOOLS = (
    *("terminal", "process", "read_file", "write_file", "patch", "search_files"),
    *("delegate_task", "mixture_of_agents", "vision_analyze", "image_generate"),
    *("todo", "clarify", "execute_code"),
)
"""Our own, by name; a test compares them with those of a conversation."""
_NOBODY = "there is no conversation here: a plugin's own command runs by itself"


class Alone:
    """The house for a plugin that nobody talks through: it may ask a model, and that is all."""

    def __init__(self, settings: Settings, scope: ClientScope, models: Models) -> None:
        self._settings, self._scope, self._models = settings, scope, models

    async def submit(self, inbound: Inbound) -> str | None:
        raise SessionError(_NOBODY)

    async def post(self, key: str, op: Op) -> None:
        raise SessionError(_NOBODY)

    async def unfinished(self, key: str) -> tuple[str, ...]:
        return ()

    async def ask(
        self, messages: tuple[Message, ...], *, system: str = "", model: str = "", max_tokens: int = 0
    ) -> Replied:
        name = model or (await choose(self._settings, self._scope)).model
        backend = await self._models.open(name)
        request = Request(backend.model, system, messages, max_tokens=max_tokens or self._settings.max_tokens)
        async with backend.provider.stream(request) as deltas:
            async for delta in deltas:
                if isinstance(delta, Replied):
                    return delta
        raise ProviderError(f"{backend.name} ended without an answer")

    async def use(self, name: str, args: Mapping[str, Json], *, turn: Turn | None = None) -> ToolResult:
        return ToolResult("", f"{name} was not run: {_NOBODY}", "failed")

    def living(self) -> Turn | None:
        return None

    def setting(self, key: str) -> object:
        value: object = self._settings
        for name in key.split("."):
            value = value.get(name) if isinstance(value, Mapping) else getattr(value, name, None)
        return None if isinstance(value, Secret | Struct) or callable(value) else value


class Opened(Struct, frozen=True):
    plugins: Plugins
    offers: Offers


@asynccontextmanager
async def open_alone(settings: Settings) -> AsyncIterator[Opened]:
    """The enabled plugins, open, and what they offer. What fails is told by `plugins.facts()`."""
    async with open_host(settings) as host:
        offers = new_offers()
        async with open_plugins(
            settings, hooks=Hooks(), offers=offers, host=host, doors=doors(host, settings)
        ) as plugins:
            yield Opened(plugins, offers)


@asynccontextmanager
async def open_host(settings: Settings) -> AsyncIterator[Host]:
    async with (
        ClientScope(settings.proxies, trust=settings.ca_file or None) as scope,
        Models(settings, scope) as models,
    ):
        yield Alone(settings, scope, models)


class _Taken:
    """Stands where one of our own tools stands in a conversation, so that nobody else takes its name."""

    def __init__(self, spec: ToolSpec) -> None:
        self.spec = spec

    async def run(self, args: Mapping[str, Json], act: Act) -> str | Output:
        raise ToolError(_NOBODY)


def new_offers() -> Offers:
    """Empty; names of commands and tools that are ours are refused, as in a conversation."""
    offers = Offers(lambda: BY_NAME)
    offers.build_in(*(_Taken(ToolSpec(name, "", {})) for name in TOOLS))
    return offers


def doors(host: Host, settings: Settings) -> dict[str, Callable[[], Door]]:
    """One door for all that was written for Hermes, loaded when the first of it is opened."""
    made: list[Door] = []

    def hermes() -> Door:
        if not made:
            made.append(import_module("alipes.compat.hermes.loader").open_door(host, settings))
        return made[0]

    return dict.fromkeys(("hermes", "file-hook", "shell-hooks"), hermes)


def run(name: str, argv: list[str], ours: tuple[str, ...]) -> int:
    """Run what an enabled plugin offers as `name`; if none does, say which commands there are."""
    settings = load()
    if not anything_wanted(settings):
        return _refuse(name, ours)
    with open_log(settings.paths.make().log, settings.log_level, settings.secrets()):
        return threads.run(_run(settings, name, argv, ours))


async def _run(settings: Settings, name: str, argv: list[str], ours: tuple[str, ...]) -> int:
    act: _Act | None = None
    try:
        async with open_alone(settings) as opened:
            offer = opened.offers.find(CliOffer, name)
            if offer is None:
                return _absent(opened, name, ours)
            act = _Act(offer, argv)
            return await guard(offer.owner, f"alipes {name}", act.done())
    finally:
        if act is not None and act.blocks:  # it waits for a key, perhaps: nothing can make its thread end
            sys.stdout.flush()
            os._exit(130)


class _Act:
    """One command of a plugin. It runs in a thread: it may block, or make a loop of its own."""

    def __init__(self, offer: CliOffer, argv: list[str]) -> None:
        self._offer, self._argv = offer, argv
        self.blocks = False
        """Its thread is at work."""

    async def done(self) -> int:
        """Its status, once it is done."""
        try:
            with on_behalf_of(self._offer.owner):
                answer = await asyncio.to_thread(self._begin)
                if inspect.isawaitable(answer):
                    answer = await answer
        except SystemExit as left:
            answer = _left(left)
        if isinstance(answer, str):
            print(answer)
        return answer if isinstance(answer, int) else 0

    def _begin(self) -> Any:
        self.blocks = True
        try:
            parser = argparse.ArgumentParser(
                prog=f"alipes {self._offer.name}", description=self._offer.help or None
            )
            self._offer.prepare(parser)
            given = parser.parse_args(self._argv)
            act: Callable[[Any], Any] | None = self._offer.run or getattr(given, "func", None)
            if act is None:
                parser.print_help(sys.stderr)
                return 2
            return act(given)
        except SystemExit as left:  # must not leave a thread as such: it would end the loop
            return _left(left)
        finally:
            self.blocks = False


def _left(left: SystemExit) -> int:
    """The status of who leaves as argparse does; a text as status is the reason."""
    if isinstance(left.code, str):
        sys.stderr.write(f"{left.code}\n")
        return 1
    return left.code or 0


def _absent(opened: Opened, name: str, ours: tuple[str, ...]) -> int:
    theirs = tuple(offer.name for offer in opened.offers.all(CliOffer))
    status = _refuse(name, (*ours, *theirs))
    for facts in opened.plugins.facts():
        if facts.state != "on":
            sys.stderr.write(f"The plugin {facts.name} could not be loaded: {facts.why}\n")
    return status


def _refuse(name: str, known: tuple[str, ...]) -> int:
    sys.stderr.write(
        f"alipes: there is no command {name!r}.{did_you_mean(name, known)}\nTry `alipes --help`.\n"
    )
    return 2
