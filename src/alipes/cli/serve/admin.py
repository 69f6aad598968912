"""What the administration endpoints need of the process that serves: platforms, the outbox, doctor, restart."""

import asyncio
import sys
import time
from collections.abc import Mapping, Sequence
from typing import TypeVar

import msgspec
from msgspec import structs

from alipes.cli.doctor import DoctorReport
from alipes.cli.plugins.list import check_needs, list_plugins, list_powers
from alipes.cli.plugins.offer import check_removable, delete, install, look_at
from alipes.cli.serve.platforms import ServedPlatforms
from alipes.cli.serve.signals import ExitRequest
from alipes.config.environment import process_environment
from alipes.config.loader import load_settings
from alipes.config.messengers import MESSENGERS
from alipes.config.paths import PROFILE_VARIABLE
from alipes.config.settings import Settings
from alipes.core.app import App
from alipes.kernel.checks import CheckResult
from alipes.kernel.errors import ConfigError
from alipes.plugins.discovery import find_plugins
from alipes.runtime.processes.child import open_child
from alipes.web.control import CheckStatus, DoctorCheck, PlatformStatus, PluginFacts, PluginOffer

T = TypeVar("T")
DOCTOR_TIMEOUT_S = 120.0
MAX_ERROR_BYTES = 1000
"""Of the output of a command that failed."""
_LABELS = {"irc": "IRC", "email": "Email"}
_STATUSES: dict[str, CheckStatus] = {"ok": "ok", "note": "warn", "wrong": "error"}


class ServeControl:
    """Implements `ServerControl`."""

    def __init__(self, app: App, platforms: ServedPlatforms, exit_request: ExitRequest, address: str) -> None:
        self._app, self._platforms, self._exit_request = app, platforms, exit_request
        self.address, self.started = address, time.time()
        self.environ = process_environment()

    def platforms(self) -> Sequence[PlatformStatus]:
        """All messengers, those that are not set up too."""
        platforms, counters = self._platforms, self._platforms.gateway.counters
        states = {state.name: state for state in platforms.gateway.states()}
        found = []
        for health in platforms.health():
            state = states.get(health.name)
            found.append(
                PlatformStatus(
                    health.name,
                    _label(health.name),
                    ready=health.ready,
                    why=health.why,
                    since=state.since if state else 0.0,
                    restarts=state.restarts if state else 0,
                    sent=counters.sent[health.name],
                    received=counters.arrived[health.name],
                )
            )
        named = {each.name for each in found}
        missing = (self._describe_missing(name) for name in MESSENGERS if name not in named)
        return [*found, *missing]

    def _describe_missing(self, name: str) -> PlatformStatus:
        needs = self._app.settings.messengers.get(name).needs
        keys = ", ".join(key for key, is_set in needs.items() if not is_set)
        return PlatformStatus(
            name, _label(name), configured=False, why=f"Not set up: set {keys}. See docs/messengers.md."
        )

    def notify_outbox(self, platform: str, lane: str) -> None:
        self._platforms.gateway.delivery.notify(platform, lane)

    def check_settings(self) -> None:
        load_settings(self._app.settings.home, self.environ)

    def restart(self) -> None:
        self._exit_request.request("restart")

    async def describe_plugins(self) -> Mapping[str, PluginFacts]:
        return await asyncio.to_thread(self._read_plugins)

    def _read_plugins(self) -> dict[str, PluginFacts]:
        settings = load_settings(self._app.settings.home, self.environ)
        found = {each.name: each for each in find_plugins(settings)}
        facts = {}
        for entry in list_plugins(settings):
            plugin = found.get(entry.name)
            asks = list_powers(plugin, settings) if plugin is not None else ()
            needs = check_needs(plugin, settings) if plugin is not None else ()
            facts[entry.name] = PluginFacts(
                entry.version,
                entry.description,
                entry.source,
                entry.adds,
                tuple(asks),
                tuple(f"{need.says}: {need.advice}" for need in needs),
            )
        return facts

    async def check_plugin(self, name: str) -> Sequence[DoctorCheck]:
        return self._to_checks(await self._run("plugins", "doctor", name, "--json", into=list[CheckResult]))

    async def look_at_plugin(self, source: str) -> PluginOffer:
        found = await look_at(await self._load(), source)
        details = tuple((label, self._app.secrets(text)) for label, text in found.details)
        return structs.replace(found, details=details)

    async def install_plugin(self, source: str, sha256: str) -> str:
        return await install(await self._load(), source, sha256)

    async def check_plugin_removable(self, name: str) -> None:
        await asyncio.to_thread(check_removable, await self._load(), name)

    async def delete_plugin(self, name: str) -> None:
        await asyncio.to_thread(delete, await self._load(), name)

    async def _load(self) -> Settings:
        """The settings as the files are now."""
        return await asyncio.to_thread(load_settings, self._app.settings.home, self.environ)

    async def check(self, *, live: bool) -> Sequence[DoctorCheck]:
        words = ["doctor", "--json", *(["--live"] if live else [])]
        return self._to_checks((await self._run(*words, into=DoctorReport)).findings)

    async def _run(self, *words: str, into: type[T]) -> T:
        """What a command prints as JSON. It runs in a process of its own, so that it does not delay the server."""
        argv = [sys.executable, "-m", "alipes", *words]
        environ = {**self.environ, "ALIPES_HOME": str(self._app.settings.home)}
        environ.pop(PROFILE_VARIABLE, None)
        command, output = f"`alipes {' '.join(words)}`".replace(" --json", ""), bytearray()
        try:
            async with asyncio.timeout(DOCTOR_TIMEOUT_S), open_child(argv, cwd=self._app.workdir, env=environ) as child:
                while piece := await child.read():
                    output += piece
        except TimeoutError:
            raise ConfigError(f"the checks took longer than {DOCTOR_TIMEOUT_S:.0f} s: run {command}") from None
        except OSError as error:
            raise ConfigError(f"the checks could not be started: {error.strerror}. Run {command}") from error
        lines = [line for line in bytes(output).splitlines() if line.startswith((b"{", b"["))]
        try:
            return msgspec.json.decode(lines[-1] if lines else b"", type=into)
        except (msgspec.DecodeError, UnicodeDecodeError):
            why = self._app.secrets(bytes(output[-MAX_ERROR_BYTES:]).decode("utf-8", "replace").strip())
            raise ConfigError(f"{command} failed: {why or 'no output'}") from None

    def _to_checks(self, found: Sequence[CheckResult]) -> list[DoctorCheck]:
        mask = self._app.secrets
        return [DoctorCheck(each.about, _STATUSES[each.state], mask(each.says), mask(each.advice)) for each in found]


def _label(name: str) -> str:
    return _LABELS.get(name, name.capitalize())
