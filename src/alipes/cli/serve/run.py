"""Runs `alipes serve`: app, gateway and HTTP server in one loop, and their shutdown."""

import asyncio
import logging
import socket
import sys
from collections.abc import Callable, Coroutine, Iterator
from contextlib import closing, contextmanager, suppress
from functools import partial
from types import TracebackType
from typing import Any

from msgspec import Struct

from alipes import __version__
from alipes.app import open_app
from alipes.cli.doctor import find_connection_error
from alipes.cli.serve.admin import ServeControl
from alipes.cli.serve.api_keys import key_finder, make_host_rules
from alipes.cli.serve.platforms import ServedPlatforms
from alipes.cli.serve.signals import ExitAction, ExitRequest, ExitSignals
from alipes.config.loader import load_settings
from alipes.config.paths import DEFAULT_PROFILE, LOCK_NAME
from alipes.config.sections.cluster import ROLES
from alipes.config.settings import Settings
from alipes.core.app import App
from alipes.features.server import Server
from alipes.gateway.drain import TurnDrain
from alipes.gateway.outbound.target import address_message
from alipes.kernel.errors import AlipesError, ConfigError, LeaseLost, StoreError, StoreFull
from alipes.kernel.formatting import format_count
from alipes.kernel.turns import Address
from alipes.runtime import process_setup
from alipes.runtime.process_lock import hold_process_lock
from alipes.runtime.process_setup import raise_file_limit
from alipes.runtime.systemd import SystemdNotifier
from alipes.runtime.tasks import first_error, handle_uncaught_errors
from alipes.sessions.session import LEAVE_SECONDS
from alipes.web.admin.endpoints import admin_endpoints
from alipes.web.admission import TurnAdmission
from alipes.web.auth import Authenticator, RequestLimits
from alipes.web.endpoint import ServerState, endpoints_of
from alipes.web.files import UPLOADS, ApiFiles
from alipes.web.health import ModelHealth, Readiness, ServiceRoutes
from alipes.web.metrics import QueueDepths, ServerMetrics
from alipes.web.page.browsers import BrowserEndpoints, BrowserLogins
from alipes.web.page.location import PageLocator
from alipes.web.page.shares import SharedConversations
from alipes.web.page.static import PageFiles
from alipes.web.router import ApiRouter
from alipes.web.runs.events import LiveRuns
from alipes.web.server import bind_socket, endpoints, open_server, server_url

WEB = "web"
"""The role of workers that answer more than /health, /ready and /metrics."""
FIRST_REOPEN_S = 0.05
MAX_REOPEN_S = 0.5
"""Longest pause between two attempts to open a store that is out of reach."""
FULL_REOPEN_S = 2.0
"""Pause before a store whose disk was full is opened again: opening may work although turns cannot run."""
log = logging.getLogger(__name__)
DELIVERY_TIMEOUT_S = 5.0
"""Time after the drain to deliver queued messages; the rest stays queued."""


class ServeContext(Struct, frozen=True):
    """Inputs of `serve`."""

    settings: Settings
    notifier: SystemdNotifier


async def serve(serving: ServeContext) -> ExitAction:
    """Serve until a signal or /restart; returns which. Raises ConfigError at the start, or StoreError."""
    notifier = serving.notifier

    def on_open(status: str) -> None:
        process_setup.tune_garbage_collector()
        notifier.ready(status)

    with open_process() as exit_signals:
        await serve_home(serving.settings, notifier, exit_signals, on_open)
        return exit_signals.action


@contextmanager
def open_process() -> Iterator[ExitSignals]:
    """What belongs to the process and not to a home: the limit of open files, signals, uncaught errors."""
    raise_file_limit()
    at_terminal = sys.stdin is not None and sys.stdin.isatty()
    with ExitSignals(at_terminal=at_terminal) as exit_signals, handle_uncaught_errors(print_error):
        yield exit_signals


async def serve_home(
    settings: Settings, notifier: SystemdNotifier, exit_request: ExitRequest, on_open: Callable[[str], None]
) -> None:
    """Serve one home until an exit is requested. `on_open(status)` is called each time it can answer.

    A worker of a cluster that loses its lease is closed and opened again under a new id, at the same address.
    """
    with (
        hold_process_lock(settings.paths.run / LOCK_NAME) as claimed,
        closing(bind_socket(settings.serve.host, settings.serve.port)) as door,
    ):
        claimed.write_address(server_url(door))
        reopening = _Reopening(exit_request)

        def on_opened(status: str) -> None:
            reopening.on_open()
            on_open(status)

        while not reopening.finished:
            async with reopening:
                with closing(door.dup()) as listening:
                    await _serve_app(settings, notifier, exit_request, on_opened, listening)


async def _serve_app(
    settings: Settings,
    notifier: SystemdNotifier,
    exit_request: ExitRequest,
    on_open: Callable[[str], None],
    door: socket.socket,
) -> None:
    """Open the app, serve it until an exit is requested, and close it."""
    address, platforms = server_url(door), ServedPlatforms(settings)
    async with open_app(settings, interactive=True, outbound=platforms.outbound) as app:
        # No await before the hooks are added: resumed turns need them from the start.
        server = _Server(app, platforms, exit_request, address)
        async with asyncio.TaskGroup() as group, open_server(server.service(), door):
            beside = [group.create_task(each) for each in server.background(notifier)]
            await server.print_addresses(address)
            on_open(f"serving {', '.join(platforms.names) or 'no platform'} at {address}")
            await wait_for_exit(exit_request, load_settings)
            await server.shut_down(notifier)
            for task in beside:
                task.cancel()


class _Reopening:
    """Decides whether the app is opened again after it was closed, and waits while PostgreSQL is away or full."""

    def __init__(self, exit_request: ExitRequest) -> None:
        self._exit_request = exit_request
        self._lost, self._pause_s = False, FIRST_REOPEN_S
        self.finished = False

    def on_open(self) -> None:
        self._lost, self._pause_s = False, FIRST_REOPEN_S

    async def __aenter__(self) -> None:
        return None

    async def __aexit__(
        self, _kind: type[BaseException] | None, error: BaseException | None, _trace: TracebackType | None
    ) -> bool:
        if error is None or not self._may_reopen(error):
            self.finished = True
            return False
        with suppress(TimeoutError):
            async with asyncio.timeout(self._pause_s):
                await self._exit_request.requested.wait()
        self._pause_s = min(self._pause_s * 2, MAX_REOPEN_S)
        self.finished = self._exit_request.requested.is_set()
        return True

    def _may_reopen(self, error: BaseException) -> bool:
        if _has_error(error, LeaseLost):
            print_error("the lease of this process in the store was lost; it starts over under a new id")
            log.warning("the lease was lost: %s", first_error(error))
            self._lost = True
            return True
        if _has_error(error, StoreFull):
            print_error("the disk of PostgreSQL is full; free some space. This process starts over until there is some")
            log.warning("the disk of the store is full: %s", first_error(error))
            self._lost, self._pause_s = True, FULL_REOPEN_S
            return True
        return self._lost and _has_error(error, StoreError)


def _has_error(error: BaseException, kind: type[BaseException]) -> bool:
    if isinstance(error, BaseExceptionGroup):
        return any(_has_error(each, kind) for each in error.exceptions)
    return isinstance(error, kind)


async def wait_for_exit(exit_request: ExitRequest, check: Callable[[], object]) -> None:
    """Wait for a request to exit. A restart with wrong settings is refused: `check` loads them."""
    while True:
        await exit_request.requested.wait()
        if exit_request.action == "leave":
            return
        try:
            check()
        except ConfigError as error:
            log.error("not restarted: %s", error)
            print_error(f"not restarted, because the settings have errors:\n{error}")
            exit_request.withdraw_request()
        else:
            return


class _Server:
    """The parts of the server."""

    def __init__(self, app: App, platforms: ServedPlatforms, exit_request: ExitRequest, address: str) -> None:
        self._app, self._platforms, self._exit_request = app, platforms, exit_request
        self._tally, self._drain = ServerMetrics(__version__, app.settings.profile), TurnDrain()
        self._model_reach = ModelHealth(self._model)
        platforms.open(app, partial(exit_request.request, "restart"))
        self._runs = LiveRuns(app, workdir=platforms.workdir)
        self._control = ServeControl(app, platforms, exit_request, address)
        self._api: ApiRouter
        self._server: Server
        for each in (self._tally, self._model_reach, self._drain):
            each.register(app.hooks)
        self._state = ServerState(profile=app.settings.profile)
        self._readiness = Readiness(
            platforms=platforms.health,
            write=app.store.health.check_writable,
            model=self._model_reach,
            state=self._state,
            cluster=app.store.cluster,
        )

    def service(self) -> Any:
        settings, platforms = self._app.settings, self._platforms
        service = ServiceRoutes(
            self._tally,
            self._readiness,
            self._depths,
            messages=platforms.messages,
            webhooks=platforms.webhooks if self._is_web() else {},
            egress=self._app.network.proxy.counts,
        )
        store = self._app.store
        secrets, finder = self._app.secrets, key_finder(store.api_keys)
        keys = Authenticator(settings.serve.key.reveal(), finder, secrets=secrets, run=settings.paths.run)
        chosen = settings.api
        limits = RequestLimits(chosen.body, chosen.body_seconds, chosen.wait, chosen.rate)
        admission = TurnAdmission(self._app, max_runs=chosen.max_runs, max_runs_per_key=chosen.max_runs_per_key)
        files = ApiFiles(
            settings.paths.files / UPLOADS, platforms.outbound, self._app.files, limits, self._app.chat_files
        )
        server = self._server = Server(
            workdir=platforms.workdir,
            gateway=platforms.gateway,
            outbound=platforms.outbound,
            runs=self._runs,
            admission=admission,
            control=self._control,
            state=self._state,
            keys=keys,
            files=files,
            resolve_target=self._target,
        )
        locator = PageLocator(settings.page.address, settings.page.trusted_proxies)
        logins = BrowserLogins(store.browsers, keys, locator, home=str(settings.home), secrets=secrets)
        browsers = BrowserEndpoints(logins, settings.page.address)
        shares = SharedConversations(self._app, logins, settings.page.address)
        served = (
            *endpoints(self._app, self._runs, admission, files),
            *endpoints_of(browsers),
            *endpoints_of(shares),
            *admin_endpoints(self._app, self._control),
            *(endpoint for feature in self._app.features for endpoint in feature.endpoints(server)),
        )
        api = self._api = ApiRouter(served, keys, limits, state=self._state, logins=logins)
        added = [route for feature in self._app.features for route in feature.routes(server, api)]
        if not self._is_web():
            return service.app(make_host_rules(settings), keys)
        routes = [*PageFiles().routes(), *logins.routes(), *shares.routes(), *added]
        return service.app(make_host_rules(settings), keys, api, routes)

    def _is_web(self) -> bool:
        cluster = self._app.store.cluster
        return WEB in (ROLES if cluster is None else cluster.roles)

    async def _target(self, name: str) -> Address:
        """The address for the answer of a webhook."""
        people = self._app.store.people
        return (await address_message(people, name, "an answer", self._platforms.names)).address

    def background(self, notifier: SystemdNotifier) -> Iterator[Coroutine[Any, Any, None]]:
        """Coroutines that run while the server runs."""
        yield self._platforms.gateway.run()
        yield self._tally.watch_loop()
        yield self._runs.run()
        yield from self._server.background
        if self._app.store.clustered:
            yield self._api.rate_limiter.share(self._app.store)
        yield notifier.send_watchdog_pings()

    async def print_addresses(self, address: str) -> None:
        """Print what is served, and which configured platforms are not."""
        names = ", ".join(self._platforms.names)
        profile = self._app.settings.profile
        whose = "" if profile == DEFAULT_PROFILE else f" (profile {profile})"
        where = f"alipes {__version__}{whose} serves {names or 'no platform yet'} at {address}"
        hint = "" if names else "; see docs/messengers.md to add one"
        print(where + hint)
        added = [note for list_notes in self._server.notes for note in await list_notes()]
        for note in (*self._platforms.notes, *await self._app.notes(), *added):
            print(f"  {note}")
        if self._is_web():
            self._print_pages(address)
        print("  Status: /health, /ready, /metrics. Press Ctrl-C to exit", flush=True)

    def _print_pages(self, address: str) -> None:
        print(f"  Page: {self._app.settings.page.address or address}/ (log in with `alipes page`)")
        print(f"  API: {address}/v1 (get a key with `alipes serve key`)")

    async def shut_down(self, notifier: SystemdNotifier) -> None:
        """Let turns reach a safe point, suspend those that do not, and deliver queued messages, within the time limits.

        Only then are platforms and clients disconnected: a plugin can still notify them that its turn is suspended.
        """
        exit_request, patience = self._exit_request, self._app.settings.serve.drain
        restarting = exit_request.action == "restart"
        self._state.shutdown_reason = "alipes is restarting" if restarting else "alipes is shutting down"
        if exit_request.action == "restart":
            notifier.reloading()
        else:
            notifier.stopping("bringing turns to a safe point")
        log.info("%s requested: no new messages are accepted", exit_request.action)
        if busy := self._drain.unsafe_turns:
            what = "restarting" if restarting else "shutting down"
            print(f"  {what}; waiting for {format_count(busy, 'turn')}", flush=True)
        self._platforms.leaving.set()
        self._drain.start()
        if not await _finish_within(patience, self._drain.wait_until_safe(), exit_request.hurry):
            left = format_count(self._drain.unsafe_turns, "turn")
            log.warning("%s interrupted; will resume at the next start", left)
        await _finish_within(LEAVE_SECONDS, self._app.sessions.suspend(), exit_request.hurry)
        if not await _finish_within(
            DELIVERY_TIMEOUT_S, self._platforms.gateway.delivery.wait_idle(), exit_request.hurry
        ):
            log.warning("some messages could not be delivered in time; they stay queued")
        self._runs.disconnect_all()
        await self._api.disconnect_all()

    async def _depths(self) -> QueueDepths:
        return QueueDepths(*await self._app.store.health.read_status())

    async def _model(self) -> str:
        try:
            choice = await self._app.models.default()
        except AlipesError as error:
            return str(error)
        return await find_connection_error(self._app.settings, choice.model)


async def _finish_within(seconds: float, work: Coroutine[Any, Any, None], hurried: asyncio.Event) -> bool:
    """Run `work`; False if it was interrupted by the timeout or a second signal."""
    async with asyncio.TaskGroup() as group:
        working = group.create_task(work)
        both = {working, group.create_task(_wait_for(hurried))}
        done, _ = await asyncio.wait(both, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        for task in both:
            task.cancel()
    return working in done


async def _wait_for(event: asyncio.Event) -> None:
    await event.wait()


def print_error(line: str) -> None:
    sys.stderr.write(f"alipes: {line}\n")
