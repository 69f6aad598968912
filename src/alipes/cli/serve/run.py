"""`alipes serve` while it serves: app, gateway and HTTP door in one loop, and the way they end together."""

import asyncio
import logging
import os
import re
import sys
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping
from contextlib import closing
from functools import partial
from typing import Any

from msgspec import Struct

from alipes import __version__
from alipes.app import App, open_app
from alipes.cli.doctor import unreachable
from alipes.cli.serve.api_keys import doorway, named
from alipes.cli.serve.platforms import Front
from alipes.cli.serve.signals import CLAIM, Order, Orders
from alipes.config.settings import Settings, load
from alipes.gateway.outbound.send import addressed
from alipes.kernel.errors import AlipesError, ConfigError
from alipes.kernel.formatting import count
from alipes.kernel.messages import Json, ToolCall
from alipes.kernel.ports import Output
from alipes.kernel.turns import Address, Turn
from alipes.plugins.dispatch import Hooks
from alipes.plugins.owner import CORE
from alipes.runtime import process_setup
from alipes.runtime.process_lock import claim
from alipes.runtime.process_setup import make_room
from alipes.runtime.systemd import Notifier
from alipes.runtime.unhandled import guarding
from alipes.store.api_keys import SqliteCallers, SqliteWebhooks
from alipes.store.quick_reads import pulse, touch
from alipes.web.auth import Keys, Limits
from alipes.web.health import Reach, Readiness, Service
from alipes.web.metrics import Depths, Tally
from alipes.web.routing import Api
from alipes.web.runs.events import Runs
from alipes.web.server import address_of, endpoints, listen, open_door
from alipes.web.webhooks import Webhooks

DELEGATE = "delegate_task"
LOOK = 0.05
"""Seconds between two looks."""
QUIET = 0.3
"""Seconds after which a turn that neither asks nor acts is taken to wait for somebody."""
_OVERSEERS = re.compile(
    r"\b(alipes|systemctl|service|supervisorctl|s6-svc|sv|docker|podman|launchctl|reboot|shutdown|pkill|killall)\b"
)
"""Programs by which a turn asks for our own end, and which may then wait for it."""


class Phase:
    """What a turn is at."""

    __slots__ = ("acting", "asking", "overseeing", "parked", "since")

    def __init__(self) -> None:
        self.asking = self.parked = False
        self.acting = self.overseeing = 0
        self.since = time.monotonic()

    def safe(self) -> bool:
        """Nothing of it would be cut off: before a question, or while it waits for a person's word."""
        if self.overseeing:
            return True  # it waits for us to leave, and we do not wait for it
        idle = not self.asking and not self.acting
        return self.parked or (idle and time.monotonic() - self.since > QUIET)


class Draining:
    """Follows turns by the hooks of the house. Once `begin` was called no turn asks a model any more: each
    comes to rest before its next question, from where the next process takes it up."""

    def __init__(self) -> None:
        self._turns: dict[str, Phase] = {}
        self._leaving = False
        self._never = asyncio.Event()

    def listen(self, hooks: Hooks) -> None:
        hooks.add(CORE, self.request_sent, patient=True)
        hooks.add(CORE, self.request_answered)
        hooks.add(CORE, self.request_failed)
        hooks.add(CORE, self.around_tool, patient=True)
        hooks.add(CORE, self.turn_ended)

    async def request_sent(self, turn: Turn) -> None:
        phase = self._phase(turn)
        if self._leaving:
            phase.parked = True
            await self._never.wait()
        phase.asking = True

    async def request_answered(self, turn: Turn) -> None:
        self._phase(turn).asking = False

    async def request_failed(self, turn: Turn) -> None:
        self._phase(turn).asking = False

    async def around_tool(
        self,
        go: Callable[[Mapping[str, Json]], Awaitable[str | Output]],
        args: Mapping[str, Json],
        call: ToolCall,
        turn: Turn,
    ) -> str | Output:
        # who waits for subagents is found waiting again; each of them is followed by itself
        phase, oversees = self._phase(turn), call.name == DELEGATE or asks_for_our_end(call)
        phase.acting += 1
        phase.overseeing += oversees
        try:
            return await go(args)
        finally:
            phase.acting -= 1
            phase.overseeing -= oversees
            phase.since = time.monotonic()

    async def turn_ended(self, turn: Turn) -> None:
        self._turns.pop(turn.id, None)

    def begin(self) -> None:
        self._leaving = True

    async def drained(self) -> None:
        """Return once no living turn would be cut off."""
        while self.unsafe:  # noqa: ASYNC110
            await asyncio.sleep(LOOK)

    @property
    def unsafe(self) -> int:
        """Turns that would be cut off now."""
        return sum(not phase.safe() for phase in self._turns.values())

    def _phase(self, turn: Turn) -> Phase:
        phase = self._turns.setdefault(turn.id, Phase())
        phase.since = time.monotonic()
        return phase


def asks_for_our_end(call: ToolCall) -> bool:
    """A command that may wait until this very process has left."""
    command = call.args.get("command")
    if not isinstance(command, str):
        return False
    return bool(_OVERSEERS.search(command)) or re.search(rf"\b{os.getpid()}\b", command) is not None


log = logging.getLogger(__name__)
LAST_WORDS = 5.0
"""Seconds, beyond the drain, in which what is owed must be delivered; what is not stays owed."""


class Serving(Struct, frozen=True):
    """What serving needs from outside."""

    settings: Settings
    notifier: Notifier


async def serve(serving: Serving) -> Order:
    """Until told otherwise; what we were told. Raises what ends the store, and ConfigError at the start."""
    settings, notifier = serving.settings, serving.notifier
    make_room()
    with (
        Orders(at_terminal=sys.stdin is not None and sys.stdin.isatty()) as orders,
        guarding(_complain),
        claim(settings.paths.run / CLAIM) as claimed,
        closing(listen(settings.serve.host, settings.serve.port)) as door,
    ):
        address = address_of(door)
        claimed.say(address)
        front = Front(settings)
        async with open_app(settings, interactive=True, owes=front.owing) as app:
            # Nothing is waited for between here and the hooks: turns that are taken up again begin with them.
            house = _House(app, front, orders)
            async with asyncio.TaskGroup() as group, open_door(house.service(), door):
                beside = [group.create_task(each) for each in house.beside(notifier)]
                house.introduce(address)
                process_setup.stay()
                notifier.ready(f"serving {', '.join(front.names) or 'no platform'} at {address}")
                await _told_for_good(orders)
                await house.leave(notifier)
                for task in beside:
                    task.cancel()
        return orders.order


async def _told_for_good(orders: Orders) -> None:
    """Wait until we are to go; not for a restart that would end at wrong settings."""
    while True:
        await orders.given.wait()
        if orders.order == "leave":
            return
        try:
            load()
        except ConfigError as error:
            log.error("not restarted: %s", error)
            _complain(f"not restarted, as the settings are wrong now:\n{error}")
            orders.withdraw()
        else:
            return


class _House:
    """Everything that serves, put together."""

    def __init__(self, app: App, front: Front, orders: Orders) -> None:
        self._app, self._front, self._orders = app, front, orders
        self._tally, self._draining = Tally(__version__), Draining()
        self._reach = Reach(self._model)
        front.open(app, partial(orders.give, "restart"))
        self._runs = Runs(app, workdir=front.workdir)
        self._api: Api
        for each in (self._tally, self._reach, self._draining):
            each.listen(app.hooks)
        self._readiness = Readiness(
            lines=front.lines, write=partial(touch, app.store.database), reach=self._reach
        )

    def service(self) -> Any:
        settings, front = self._app.settings, self._front
        service = Service(
            self._tally, self._readiness, self._depths, messages=front.messages, webhooks=front.webhooks
        )
        database = self._app.store.database
        keys = Keys(settings.serve.key.reveal(), named(SqliteCallers(database)))
        chosen = settings.api
        limits = Limits(chosen.body, chosen.body_seconds, chosen.wait, chosen.rate)
        api = self._api = Api(endpoints(self._app, self._runs), keys, limits, leaving=self._leaving)
        hooks = Webhooks(
            self._app.lobby,
            SqliteWebhooks(database),
            self._target,
            workdir=front.workdir,
            leaving=self._leaving,
        )
        return service.app(doorway(settings), keys, api, hooks.routes())

    def _leaving(self) -> str:
        return self._readiness.leaving

    async def _target(self, name: str) -> Address:
        """Where a webhook's answer goes."""
        people = self._app.store.people
        return (await addressed(people, name, "an answer", self._front.names)).address

    def beside(self, notifier: Notifier) -> Iterator[Coroutine[Any, Any, None]]:
        """What goes on as long as we serve."""
        yield self._front.gateway.run()
        yield self._tally.watch_loop()
        yield self._runs.run()
        yield notifier.live()

    def introduce(self, address: str) -> None:
        """What is served, and what is not though it was wanted."""
        names = ", ".join(self._front.names)
        where = f"alipes {__version__} serves {names or 'no platform yet'} at {address}"
        hint = "" if names else "; docs/gateway.md tells how to add one"
        print(where + hint)
        for note in (*self._front.notes, *self._app.notes):
            print(f"  {note}")
        print(f"  the API is at {address}/v1, for who shows a key: `alipes serve key` (docs/api.md)")
        print("  /health, /ready and /metrics are there; Ctrl-C leaves", flush=True)

    async def leave(self, notifier: Notifier) -> None:
        """To a safe point, and out: what lives comes to rest, what is owed is delivered as far as may be."""
        orders, patience = self._orders, self._app.settings.serve.drain
        self._readiness.leaving = "it is restarting" if orders.order == "restart" else "it is leaving"
        if orders.order == "restart":
            notifier.reloading()
        else:
            notifier.stopping("bringing turns to a safe point")
        log.info("told to %s: taking nothing more in", orders.order)
        if busy := self._draining.unsafe:
            print(f"  {self._readiness.leaving}, once {count(busy, 'turn')} came to rest", flush=True)
        self._front.leaving.set()
        self._draining.begin()
        if not await _within(patience, self._draining.drained(), orders.hurried):
            left = count(self._draining.unsafe, "turn")
            log.warning("%s cut off; going on at the next start", left)
        if not await _within(LAST_WORDS, self._front.gateway.delivery.drained(), orders.hurried):
            log.warning("not everything owed could be delivered; it stays owed")
        self._runs.hang_up()
        await self._api.hang_up()

    async def _depths(self) -> Depths:
        return Depths(*await pulse(self._app.store.database))

    async def _model(self) -> str:
        try:
            choice = await self._app.choice()
        except AlipesError as error:
            return str(error)
        return await unreachable(self._app.settings, choice.model)


async def _within(seconds: float, work: Coroutine[Any, Any, None], hurried: asyncio.Event) -> bool:
    """Whether it was done in time, and before anyone lost patience."""
    async with asyncio.TaskGroup() as group:
        working = group.create_task(work)
        both = {working, group.create_task(_told(hurried))}
        done, _ = await asyncio.wait(both, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        for task in both:
            task.cancel()
    return working in done


async def _told(event: asyncio.Event) -> None:
    await event.wait()


def _complain(line: str) -> None:
    sys.stderr.write(f"alipes: {line}\n")
