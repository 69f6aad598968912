"""Slash commands for tests, and the services that they are run with."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, cast

from msgspec import Struct

from alipes.agent.auxiliary import AuxiliaryModels
from alipes.agent.budget import SpendingLimits
from alipes.agent.compaction.compaction import Compactor
from alipes.agent.loop import Agent
from alipes.config.settings import Settings
from alipes.features.all import FEATURES
from alipes.kernel.turns import Turn
from alipes.plugins.features import OpenFeatures
from alipes.plugins.loader import Plugins
from alipes.plugins.registry import Contributions, PromptTemplate
from alipes.sessions.commands.context import CommandServices
from alipes.sessions.commands.registry import COMMANDS
from alipes.sessions.tool_access import ToolAccess
from alipes.sessions.user_shell import UserShell
from alipes.tools.common import Places


class NamedCommand(Struct, frozen=True):
    name: str
    aliases: tuple[str, ...] = ()


class NoProcesses:
    """Background processes of an app in which none was started."""

    def running(self, _session: str) -> tuple[()]:
        return ()

    processes_of = running


async def _all_available() -> dict[str, str]:
    return {}


def make_services(house: Any, models: Any, contributions: Contributions | None = None, **more: Any) -> CommandServices:
    """Those of a house with store, sessions and hooks; the model of its choice is the first one. `more`: fields that
    are not the usual ones."""
    contributions, settings = contributions or core_commands(), Settings(home=Path("/nonexistent"))

    async def choose() -> str:
        return str((await models.default()).model)

    async def open_agent(_turn: Turn) -> Agent:
        return Agent(models, await choose())

    spending = SpendingLimits(house.store.usage_ledger, ask_approval=house.sessions.questions.ask_approval)
    auxiliary = AuxiliaryModels(models, spending, choice=choose)
    usual: dict[str, Any] = {
        "sessions": house.sessions,
        "store": house.store,
        "models": models,
        "plugins": Plugins(settings, house.hooks, contributions, host=cast(Any, None), loaders={}),
        "features": OpenFeatures(),
        "tools": ToolAccess(settings, contributions, house.store.tool_choices, _all_available),
        "processes": NoProcesses(),
        "compactor": Compactor(auxiliary, house.store.compaction),
        "shell": UserShell(house.store, contributions, Places(home="/nonexistent", alipes_home="/nonexistent")),
        "search": house.store.archive,
        "open_agent": open_agent,
        "auxiliary": auxiliary,
    }
    return CommandServices(**{**usual, **more})


def core_commands(templates: Callable[[], Mapping[str, PromptTemplate]] = dict) -> Contributions:
    return Contributions(lambda: COMMANDS, templates)


def all_commands(templates: Callable[[], Mapping[str, PromptTemplate]] = dict) -> Contributions:
    """Those of the core and of the features."""
    offers = core_commands(templates)
    for feature in FEATURES:
        offers.add_commands(feature.commands)
    return offers
