"""Opens the platforms and the gateway of `alipes serve` from the settings."""

import asyncio
import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import cast

from msgspec import structs

from alipes.agent.speech import make_speech
from alipes.config.paths import make_private
from alipes.config.platforms import MessengerConfig, PluginPlatformConfig
from alipes.config.settings import Settings
from alipes.core.app import App
from alipes.gateway.drain import DrainGate, MessageHeld
from alipes.gateway.gateway import Gateway
from alipes.gateway.outbound.policy import OutboundPolicy
from alipes.gateway.plugin_platforms import PluginPlatform, plugin_platform_names
from alipes.gateway.policy import GatewayPolicy, PlatformPolicy
from alipes.kernel.errors import ConfigError
from alipes.kernel.platform import Platform
from alipes.platforms.registry import open_messenger
from alipes.runtime.http.clients import ClientScope
from alipes.tools.common import make_places
from alipes.web.health import PlatformHealth, ReceiveWebhook

RESERVED_NAMES = ("terminal", "web", "api", "webhook", "cron", "schedule", "plugin", "home")
"""Platform names that alipes uses itself."""


class ServedPlatforms:
    """The enabled platforms and their gateway."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self.leaving = asyncio.Event()
        self._clustered = False
        self.notes: list[str] = []
        """Why a configured platform is not served."""
        self.webhooks: dict[str, ReceiveWebhook] = {}
        self._wanted = settings.messengers.configured
        self.workdir = settings.workdir or os.getcwd()
        places = make_places(settings)
        self.outbound = OutboundPolicy(
            tuple(self._wanted), _sendable_dirs(settings, self.workdir), is_private=places.is_withheld
        )
        self.gateway: Gateway

    def open(self, app: App, restart: Callable[[], None]) -> None:
        """Open the platforms; they connect when the gateway runs. Failures go to `notes`."""
        make_private(self._settings.paths.outgoing)
        self._clustered = app.store.clustered
        platforms: dict[str, Platform] = {}
        guests = self._plugin_platforms(app)
        self.outbound.add_platforms(*guests)
        for name in self._wanted:
            try:
                platforms[name] = self._open(name, app.scope)
            except ConfigError as error:
                self.notes.append(f"{name} is not served: {error}")
        cluster = app.store.cluster
        is_full = cluster.is_full if cluster is not None else None
        gates = {
            name: cast("Platform", DrainGate(each, self.leaving, pushed=bool(each.webhook_path), is_full=is_full))
            for name, each in {**platforms, **guests}.items()
        }
        speech = make_speech(self._settings, app.scope, app.contributions)
        self.gateway = Gateway(
            app, gates, self._rules(guests), outbound=self.outbound, restart=restart, transcribe=speech.transcribe
        )

    def _open(self, name: str, scope: ClientScope) -> Platform:
        platform = open_messenger(name, self._settings, scope)
        if platform.webhook_path:
            self.webhooks[platform.webhook_path] = refuse_when_held(platform.on_webhook)
        return platform

    def _plugin_platforms(self, app: App) -> dict[str, PluginPlatform]:
        """The platforms of plugins, without reserved names and those of built-in platforms that are set up."""
        found = plugin_platform_names(app.contributions)
        self.notes += [f"{name} is not served: the name is reserved" for name in found if name in RESERVED_NAMES]
        taken = [name for name in found if name in self._wanted]
        self.notes += [f"the {name} of a plugin is not served: the built-in one is set up" for name in taken]
        ours = (*self._wanted, *RESERVED_NAMES)
        return {name: PluginPlatform(name, app.contributions, app.sessions) for name in found if name not in ours}

    def _rules(self, guests: Mapping[str, PluginPlatform]) -> GatewayPolicy:
        settings = self._settings
        manners = {name: _platform_policy(each) for name, each in self._wanted.items()}
        for name, guest in guests.items():
            usual = _platform_policy(settings.platforms.get(name, PluginPlatformConfig()))
            manners[name] = structs.replace(usual, known_role=guest.role, wanted_busy=guest.wanted_busy)
        return GatewayPolicy(
            platforms=manners,
            pairing=settings.gateway.pairing,
            expiry=settings.gateway.expiry,
            max_attempts=settings.gateway.tries,
            page_address=settings.page.address,
            workdir=self.workdir,
            outgoing=str(settings.paths.outgoing),
            files=str(settings.paths.files),
        )

    def health(self) -> list[PlatformHealth]:
        """The health of each platform; one is not ready after twice its interval without a sign of life."""
        found = [PlatformHealth(note.partition(" ")[0], False, note) for note in self.notes]
        for state in self.gateway.states():
            if self._clustered and not state.receiving:  # another worker does, and reports it
                found.append(PlatformHealth(state.name, True, state.sending))
                continue
            interval = self._wanted.get(state.name, PluginPlatformConfig()).heartbeat_s
            late = time.time() - state.polled > 2 * interval
            why = state.cause or state.sending or ("no sign of life for too long" if late else "")
            found.append(PlatformHealth(state.name, not why and state.condition == "ready", why))
        return found

    def messages(self) -> Mapping[tuple[str, str], int]:
        counts = self.gateway.counters
        fates = {"in": counts.arrived, "stranger": counts.strangers, "out": counts.sent, "uncertain": counts.uncertain}
        fates |= {"postponed": counts.postponed, "dead": counts.failed, "expired": counts.expired}
        return {(name, fate): counted[name] for fate, counted in fates.items() for name in self.names}

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(state.name for state in self.gateway.states())


def refuse_when_held(bring: ReceiveWebhook) -> ReceiveWebhook:
    """`bring`, with status 503 for held messages, so that the sender tries again later."""

    async def bringing(headers: Mapping[str, str], body: bytes) -> int:
        try:
            return await bring(headers, body)
        except MessageHeld:
            return 503

    return bringing


def _platform_policy(chosen: MessengerConfig | PluginPlatformConfig) -> PlatformPolicy:
    busy = None if chosen.busy == "auto" else chosen.busy
    return PlatformPolicy(chosen.allow, chosen.owners, busy, chosen.progress, chosen.group)


def _sendable_dirs(settings: Settings, workdir: str) -> tuple[str, ...]:
    """Directories whose files may be sent to a chat, never one that contains a home."""
    homes = (Path(os.path.realpath(each)) for each in (settings.home, settings.paths.root, *settings.paths.shared))
    around = any(home.is_relative_to(os.path.realpath(workdir)) for home in homes)
    return (str(settings.paths.outgoing), *(() if around else (workdir,)))
