"""Which platforms are served, and how: from settings to the gateway. What it serves, it does not know."""

import asyncio
import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, cast

from msgspec import structs

from alipes.app import App
from alipes.config.environment import inherited
from alipes.config.paths import make_private
from alipes.config.platforms import MESSENGERS, Meeting
from alipes.config.settings import Settings
from alipes.gateway.gateway import Gateway
from alipes.gateway.inbound.transcription import Transcribe, by_command, by_endpoint
from alipes.gateway.outbound.owed import Owing
from alipes.gateway.plugin_platforms import Guest, guests
from alipes.gateway.policy import Manners, Rules
from alipes.kernel.errors import AlipesError, ConfigError
from alipes.kernel.platform import Arrival, Platform, Take, Tell
from alipes.platforms.discord.settings import DiscordSettings, open_discord
from alipes.platforms.email.settings import EmailSettings, open_email
from alipes.platforms.irc.platform import IrcSettings, open_irc
from alipes.platforms.matrix.settings import MatrixSettings, open_matrix
from alipes.platforms.slack.settings import SlackSettings, open_slack
from alipes.platforms.telegram.platform import Telegram, TelegramSettings, open_telegram
from alipes.runtime.http.clients import ClientScope
from alipes.tools.common import Places, child_environment
from alipes.web.health import Bring, Line


def open_messenger(name: str, settings: Settings, folder: Path, scope: ClientScope) -> Platform:
    """`folder` is its own, for files that come and for what it has to remember. Raises ConfigError."""
    return _OPENERS[name](settings, folder, scope)


def _telegram(settings: Settings, folder: Path, scope: ClientScope) -> Platform:
    chosen = settings.messengers.telegram
    return open_telegram(
        TelegramSettings(
            token=chosen.token,
            folder=folder,
            base_url=chosen.base_url,
            mode=chosen.mode,
            webhook_url=chosen.webhook_url,
            group=chosen.group,
            per_user=chosen.per_user,
            poll=chosen.poll,
        ),
        scope,
    )


def _discord(settings: Settings, folder: Path, _scope: ClientScope) -> Platform:
    chosen = settings.messengers.discord
    return open_discord(
        DiscordSettings(
            token=chosen.token,
            folder=folder,
            base_url=chosen.base_url,
            group=chosen.group,
            per_user=chosen.per_user,
            proxy=_proxy(settings),
        )
    )


def _slack(settings: Settings, folder: Path, _scope: ClientScope) -> Platform:
    chosen = settings.messengers.slack
    return open_slack(
        SlackSettings(
            token=chosen.token,
            app_token=chosen.app_token,
            folder=folder,
            base_url=chosen.base_url,
            group=chosen.group,
            per_user=chosen.per_user,
            proxy=_proxy(settings),
        )
    )


def _matrix(settings: Settings, folder: Path, scope: ClientScope) -> Platform:
    chosen = settings.messengers.matrix
    return open_matrix(
        MatrixSettings(
            base_url=chosen.base_url,
            user=chosen.user,
            token=chosen.token,
            password=chosen.password,
            device=chosen.device,
            encryption=chosen.encryption,
            folder=folder,
            group=chosen.group,
            per_user=chosen.per_user,
        ),
        scope,
    )


def _email(settings: Settings, folder: Path, _scope: ClientScope) -> Platform:
    chosen = settings.messengers.email
    return open_email(
        EmailSettings(
            address=chosen.address,
            user=chosen.user or chosen.address,
            password=chosen.password,
            imap=(chosen.imap_host, chosen.imap_port, chosen.imap_security),
            smtp=(chosen.smtp_host or chosen.imap_host, chosen.smtp_port, chosen.smtp_security),
            mailbox=chosen.folder,
            trust=chosen.trust,
            authserv=chosen.authserv,
            folder=folder,
            ca_file=settings.ca_file,
        )
    )


def _irc(settings: Settings, folder: Path, _scope: ClientScope) -> Platform:
    chosen = settings.messengers.irc
    return open_irc(
        IrcSettings(
            host=chosen.host,
            port=chosen.port,
            tls=chosen.tls,
            nick=chosen.nick,
            channels=chosen.channels,
            password=chosen.password,
            pace=chosen.pace,
            folder=folder,
            group=chosen.group,
            per_user=chosen.per_user,
            ca_file=settings.ca_file,
        )
    )


def _proxy(settings: Settings) -> str:
    return settings.proxies.https or settings.proxies.all


_OPENERS: dict[str, Callable[[Settings, Path, ClientScope], Platform]] = {
    "telegram": _telegram,
    "discord": _discord,
    "slack": _slack,
    "matrix": _matrix,
    "email": _email,
    "irc": _irc,
}


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
