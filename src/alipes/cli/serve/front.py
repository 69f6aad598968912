"""Which platforms are served, and how: from settings to the gateway. What it serves, it does not know."""

import asyncio
import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, cast

from msgspec import structs

from alipes.app import App
from alipes.cli.serve.opening import open_messenger
from alipes.config.messengers import MESSENGERS, Meeting
from alipes.config.paths import make_private
from alipes.config.settings import Settings
from alipes.config.variables import inherited
from alipes.gateway.gateway import Gateway
from alipes.gateway.guests import Guest, guests
from alipes.gateway.hearing import Transcribe, by_command, by_endpoint
from alipes.gateway.manners import Manners, Rules
from alipes.gateway.owing import Owing
from alipes.kernel.errors import AlipesError, ConfigError
from alipes.kernel.platforms import Arrival, Platform, Take, Tell
from alipes.platforms.telegram import Telegram
from alipes.runtime.clients import ClientScope
from alipes.tools.environment import child_environment
from alipes.tools.paths import Places
from alipes.web.readiness import Line
from alipes.web.service import Bring

HEARTBEAT = 60.0
"""Seconds between two signs of life of a platform that does not say how often it gives them."""


RESERVED_NAMES = ("terminal", "web", "api", "webhook", "cron", "plugin", "home")
"""Where words of the house itself come from, or lead to."""


class HeldBack(AlipesError):
    """We leave: whoever brought this is to bring it again."""


class Gate:
    """A platform whose messages are held back once we leave: unconfirmed, so that it brings them again.

    Commands and buttons still pass, as they may help what runs to its end. `pushed`: whoever brings a
    message waits for our answer, and is told at once (`HeldBack`).
    """

    def __init__(self, platform: Platform, leaving: asyncio.Event, *, pushed: bool = False) -> None:
        self._platform, self._leaving, self._pushed = platform, leaving, pushed

    def __getattr__(self, name: str) -> Any:
        return getattr(self._platform, name)

    async def listen(self, take: Take, tell: Tell) -> None:
        async def taking(arrival: Arrival) -> None:
            if self._leaving.is_set() and not arrival.pressed and not arrival.text.startswith("/"):
                if self._pushed:
                    raise HeldBack("we are leaving")
                await asyncio.Event().wait()
            await take(arrival)

        await self._platform.listen(taking, tell)


class Front:
    """The platforms that are enabled, and the gateway that serves them."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self.leaving = asyncio.Event()
        self.notes: list[str] = []
        """Why a platform that is wanted is not served."""
        self.webhooks: dict[str, Bring] = {}
        self._wanted = settings.messengers.wanted
        self._patience: dict[str, float] = {}
        self.workdir = settings.workdir or os.getcwd()
        places = Places(home=os.path.expanduser("~"), own=str(settings.home))
        self.owing = Owing(tuple(self._wanted), _sendable(settings, self.workdir), keeps=places.keeps)
        self.gateway: Gateway

    def open(self, app: App, restart: Callable[[], None]) -> None:
        """Nothing is connected before the gateway runs. A platform that cannot be opened is noted."""
        make_private(self._settings.paths.outgoing)
        platforms: dict[str, Platform] = {}
        guests = self._guests(app)
        self.owing.serve(*guests)
        for name in self._wanted:
            try:
                platform = self._open(name, app.scope)
            except ConfigError as error:
                self.notes.append(f"{name} is not served: {error}")
                continue
            pushed = f"/{name}" in self.webhooks
            platforms[name] = cast("Platform", Gate(platform, self.leaving, pushed=pushed))
        for name, guest in guests.items():
            platforms[name] = cast("Platform", Gate(guest, self.leaving))
        self.gateway = Gateway(
            app,
            platforms,
            self._rules(guests),
            owing=self.owing,
            restart=restart,
            transcribe=_transcribing(self._settings, app.scope),
        )

    def _open(self, name: str, scope: ClientScope) -> Platform:
        settings = self._settings
        folder = make_private(make_private(settings.paths.files) / name)
        platform = open_messenger(name, settings, folder, scope)
        if isinstance(platform, Telegram):
            self._patience[name] = settings.messengers.telegram.poll
            if settings.messengers.telegram.mode == "webhook":
                self.webhooks["/telegram"] = answering(platform.on_webhook)
        return platform

    def _guests(self, app: App) -> dict[str, Guest]:
        """Those of plugins, but for names that are the house's own."""
        ours = (*MESSENGERS, *RESERVED_NAMES)
        found = guests(app.offers)
        self.notes += [
            f"{name} is not served: this name is the house's own" for name in found if name in ours
        ]
        return {name: Guest(name, app.offers) for name in found if name not in ours}

    def _rules(self, guests: Mapping[str, Guest]) -> Rules:
        settings = self._settings
        manners = {name: _manners(each) for name, each in self._wanted.items()}
        for name, guest in guests.items():
            usual = _manners(settings.platforms.get(name, Meeting()))
            manners[name] = structs.replace(usual, knows=guest.role)
        return Rules(
            manners=manners,
            pairing=settings.gateway.pairing,
            expiry=settings.gateway.expiry,
            tries=settings.gateway.tries,
            workdir=self.workdir,
            outgoing=str(settings.paths.outgoing),
        )

    def lines(self) -> list[Line]:
        """How each platform stands; one that was not heard from in twice its time is not ready."""
        found = [Line(note.partition(" ")[0], False, note) for note in self.notes]
        for state in self.gateway.states():
            late = time.time() - state.polled > 2 * self._patience.get(state.name, HEARTBEAT)
            why = state.cause or state.sending or ("nothing was heard from it for too long" if late else "")
            found.append(Line(state.name, not why and state.condition == "ready", why))
        return found

    def messages(self) -> Mapping[tuple[str, str], int]:
        """What came and went, by platform and fate."""
        counts = self.gateway.counts
        fates = {
            "in": counts.arrived,
            "stranger": counts.strangers,
            "out": counts.sent,
            "uncertain": counts.uncertain,
            "postponed": counts.postponed,
            "dead": counts.dead,
            "expired": counts.expired,
        }
        names = [state.name for state in self.gateway.states()]
        return {(name, fate): counted[name] for fate, counted in fates.items() for name in names}

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(state.name for state in self.gateway.states())


def answering(bring: Bring) -> Bring:
    """The same, but for what is held back: that is answered at once, and brought again later."""

    async def bringing(headers: Mapping[str, str], body: bytes) -> int:
        try:
            return await bring(headers, body)
        except HeldBack:
            return 503

    return bringing


def _manners(chosen: Meeting) -> Manners:
    return Manners(chosen.allow, chosen.owners, chosen.busy, chosen.progress, chosen.group)


def _sendable(settings: Settings, workdir: str) -> tuple[str, ...]:
    """Where files lie that may be sent to a chat: never a folder around our own secrets."""
    around = Path(os.path.realpath(settings.home)).is_relative_to(os.path.realpath(workdir))
    return (str(settings.paths.outgoing), *(() if around else (workdir,)))


def _transcribing(settings: Settings, scope: ClientScope) -> Transcribe | None:
    chosen = settings.gateway
    if chosen.stt_command:
        return by_command(chosen.stt_command, child_environment(inherited(), settings.secrets()))
    if chosen.stt_url:
        return by_endpoint(scope.http("stt"), chosen.stt_url, model=chosen.stt_model, key=chosen.stt_key)
    return None
