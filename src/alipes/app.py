"""The composition root: opens everything and connects it. Imported only by the CLI and the test kit."""

import os
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from functools import cache
from importlib import import_module

from alipes.agent.approval.egress import AskEgress
from alipes.agent.auxiliary import ConversationTitles
from alipes.agent.model_call import RetryPolicy
from alipes.config.settings import Settings
from alipes.core.app import App
from alipes.core.resources import hide_secrets, open_resources
from alipes.core.tools import open_tools
from alipes.features.checkpoints.hooks import TurnCheckpoints
from alipes.features.mcp.files import add_project_servers
from alipes.features.schedules.editor import ScheduledTurns
from alipes.gateway.outbound.policy import OutboundPolicy
from alipes.kernel.conversations import ApprovalDecision
from alipes.kernel.messages import ToolCall
from alipes.kernel.ports import Provider
from alipes.kernel.turns import Turn
from alipes.plugins.loader import PluginLoader, open_plugins
from alipes.plugins.owner import CORE
from alipes.sessions.services import OutboundFor, SessionDefaults
from alipes.tools.common import make_places

__all__ = ["App", "make_outbound_policy", "open_app", "open_for_checks"]
HERMES = "alipes.compat.hermes.loader"
"""Imported only if a Hermes plugin or hook is to be loaded."""


@asynccontextmanager
async def open_app(
    settings: Settings,
    *,
    interactive: bool = False,
    lent: Mapping[str, Provider] | None = None,
    retry: RetryPolicy | None = None,
    outbound: OutboundFor | None = None,
    workdir: str = "",
) -> AsyncIterator[App]:
    """Open everything, serve sessions meanwhile, and close everything in reverse order.

    `interactive`: a person watches who can answer questions and send messages while a turn runs. `lent`:
    in-process providers, by the name of the endpoint they replace. `retry`: how model calls are retried.
    `outbound`: the chat messages to send for the events of a turn, of a process that serves.
    `workdir`: resume interrupted turns of this folder
    only.
    """
    settings = add_project_servers(settings, settings.workdir or os.getcwd())
    hide_secrets(settings)

    async def ask(call: ToolCall, reason: str, turn: Turn) -> ApprovalDecision:
        return await app.sessions.questions.ask_approval(call, reason, turn)

    async with AsyncExitStack() as stack:
        resources = await open_resources(stack, settings, lent, ask, serves=outbound is not None)
        defaults = SessionDefaults(
            busy=settings.terminal.busy if interactive else "queue",
            interactive=interactive,
            runs_on=interactive,
            permission_mode=settings.approvals.mode,
            workdir=workdir,
            background=resources.background,
            max_silence=settings.silence,
            outbound=outbound or make_outbound_policy(settings),
            share=resources.chat_files.share_outbound,
            max_subagent_seconds=settings.delegation.minutes * 60,
            mask=resources.secrets,
        )
        app = App(settings, resources, defaults=defaults, retry=retry or RetryPolicy())
        await open_tools(stack, app, resources)
        turn_checkpoints = TurnCheckpoints(app.checkpoints, app.contributions, app.store, resources.tasks)
        await stack.enter_async_context(turn_checkpoints)
        app.hooks.add(CORE, turn_checkpoints.around_tool, patient=True)
        app.hooks.add(CORE, turn_checkpoints.turn_ended)
        set_title = app.store.sessions.set_title_if_empty
        app.hooks.add(CORE, ConversationTitles(app.auxiliary, set_title, resources.tasks).turn_ended)
        if interactive:  # otherwise the process ends with the turn
            app.hooks.add(CORE, app.learning.turn_ended)
        app.hooks.add(CORE, app.compactor.turn_ended)
        app.hooks.add(CORE, app.search.turn_ended)
        app.hooks.add(CORE, app.compactor.session_left)
        app.hooks.add(CORE, ScheduledTurns(app.store).turn_ended)
        app.plugins = await stack.enter_async_context(
            open_plugins(
                settings, hooks=app.hooks, contributions=app.contributions, host=app.host, loaders=_plugin_loaders(app)
            )
        )
        async with app.sessions.serve():
            yield app


async def _ask_nobody(_call: ToolCall, _reason: str, _turn: Turn) -> ApprovalDecision:
    return None


@asynccontextmanager
async def open_for_checks(settings: Settings, ask: AskEgress = _ask_nobody) -> AsyncIterator[App]:
    """An app that loads no plugin and runs no turn, for commands that look at tools and MCP servers. `ask`: asks about
    connections of servers."""
    settings = add_project_servers(settings, settings.workdir or os.getcwd())
    async with AsyncExitStack() as stack:
        resources = await open_resources(stack, settings, None, ask)
        app = App(settings, resources, defaults=SessionDefaults(), retry=RetryPolicy())
        await open_tools(stack, app, resources)
        await app.backend.choose()
        yield app


def make_outbound_policy(settings: Settings) -> OutboundPolicy:
    """A turn of a chat may be finished by any process: its answer is sent to the chat in any case."""
    folders = (str(settings.paths.outgoing),)
    private = make_places(settings).is_withheld
    return OutboundPolicy(tuple(settings.messengers.configured), folders, is_private=private)


def _plugin_loaders(app: App) -> Mapping[str, Callable[[], PluginLoader]]:
    @cache
    def hermes() -> PluginLoader:
        loader: PluginLoader = import_module(HERMES).open_loader(app.host, app.settings, lambda: app.schedules)
        return loader

    return dict.fromkeys(("hermes", "file-hook", "shell-hooks"), hermes)
