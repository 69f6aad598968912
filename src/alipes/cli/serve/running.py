"""`alipes serve` while it serves: app, gateway and HTTP door in one loop, and the way they end together."""

import asyncio
import logging
import sys
from collections.abc import Coroutine, Iterator
from contextlib import closing
from functools import partial
from typing import Any

from msgspec import Struct

from alipes import __version__
from alipes.app import App, open_app
from alipes.cli.examination import unreachable
from alipes.cli.serve.draining import Draining
from alipes.cli.serve.front import Front
from alipes.cli.serve.keys import doorway, named
from alipes.cli.serve.orders import Order, Orders
from alipes.cli.serve.succession import CLAIM
from alipes.config.settings import Settings, load
from alipes.gateway.sending import addressed
from alipes.kernel.errors import AlipesError, ConfigError
from alipes.kernel.turns import Address
from alipes.kernel.wording import count
from alipes.runtime import garbage
from alipes.runtime.claim import claim
from alipes.runtime.descriptors import make_room
from alipes.runtime.guard import guarding
from alipes.runtime.notify import Notifier
from alipes.store.callers import SqliteCallers
from alipes.store.pulse import pulse, touch
from alipes.store.webhooks import SqliteWebhooks
from alipes.web.door import address_of, listen, open_door
from alipes.web.keys import Keys
from alipes.web.limits import Limits
from alipes.web.readiness import Reach, Readiness
from alipes.web.rooms import endpoints
from alipes.web.runs_living import Runs
from alipes.web.service import Service
from alipes.web.serving import Api
from alipes.web.tally import Depths, Tally
from alipes.web.webhooks import Webhooks

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
                garbage.stay()
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
