"""The composition root: opens everything and connects it. Imported by the commands and the test kit only."""

import os
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TypeAlias

from alipes.agent.approval.egress import AskEgress
from alipes.agent.auxiliary import ConversationTitles
from alipes.agent.model_call import RetryPolicy
from alipes.config.settings import Settings
from alipes.core.app import App
from alipes.core.resources import hide_secrets, open_resources
from alipes.core.tools import open_tools
from alipes.features.all import FEATURES
from alipes.features.feature import Feature
from alipes.gateway.outbound.policy import make_outbound_policy
from alipes.kernel.conversations import ApprovalDecision
from alipes.kernel.messages import ToolCall
from alipes.kernel.ports import Provider
from alipes.kernel.turns import Turn
from alipes.sessions.services import OutboundFor, SessionDefaults

Features: TypeAlias = tuple[type[Feature], ...]


@asynccontextmanager
async def open_app(  # noqa: PLR0913
    settings: Settings,
    *,
    interactive: bool = False,
    lent: Mapping[str, Provider] | None = None,
    retry: RetryPolicy | None = None,
    outbound: OutboundFor | None = None,
    workdir: str = "",
    features: Features = FEATURES,
) -> AsyncIterator[App]:
    """Open everything, serve sessions meanwhile, and close everything in reverse order.

    `interactive`: a person watches who can answer questions and send messages while a turn runs. `lent`:
    in-process providers, by the name of the endpoint they replace. `retry`: how model calls are retried.
    `outbound`: the chat messages to send for the events of a turn, of a process that serves.
    `workdir`: resume interrupted turns of this folder only. `features`: what is opened beside the core.
    """
    settings = extend_settings(settings, features)
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
            effort=settings.effort,
            workdir=workdir,
            waits_for_limits=any(each.on_limit == "wait" for each in settings.providers.values()),
            background=resources.background,
            max_silence=settings.silence,
            outbound=outbound or make_outbound_policy(settings),
            share=resources.chat_files.share_outbound,
            max_subagent_seconds=settings.delegation.minutes * 60,
            mask=resources.secrets,
        )
        app = App(settings, resources, defaults=defaults, retry=retry or RetryPolicy())
        open_tools(app, resources)
        set_title = app.store.sessions.set_title_if_empty
        app.add_hooks(ConversationTitles(app.auxiliary, set_title, resources.tasks).turn_ended)
        await open_features(stack, app, features)
        app.add_hooks(app.compactor.turn_ended, app.search.turn_ended, app.compactor.session_left)
        await stack.enter_async_context(app.plugins.open())
        async with app.sessions.serve():
            yield app


def extend_settings(settings: Settings, features: Features) -> Settings:
    for kind in features:
        settings = kind.extend_settings(settings, settings.workdir or os.getcwd())
    return settings


async def open_features(stack: AsyncExitStack, app: App, features: Features) -> None:
    for kind in features:
        app.contributions.add_commands(kind.commands)
        feature = kind(app)
        app.features.add(feature)
        await feature.open(stack)


async def _ask_nobody(_call: ToolCall, _reason: str, _turn: Turn) -> ApprovalDecision:
    return None


@asynccontextmanager
async def open_for_checks(
    settings: Settings, ask: AskEgress = _ask_nobody, *, features: Features = FEATURES
) -> AsyncIterator[App]:
    """An app that loads no plugin and runs no turn, for commands that look at tools and MCP servers. `ask`: asks about
    connections of servers."""
    settings = extend_settings(settings, features)
    async with AsyncExitStack() as stack:
        resources = await open_resources(stack, settings, None, ask)
        app = App(settings, resources, defaults=SessionDefaults(), retry=RetryPolicy())
        open_tools(app, resources)
        await open_features(stack, app, features)
        await app.backend.choose()
        yield app
