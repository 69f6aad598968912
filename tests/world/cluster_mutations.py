"""Breaks a worker on purpose, one part at a time: the fault injector must notice each.

Used by the light worker only; the product does not know of them. The mutations of SQL functions are applied to the
schema of a test by `mutate_sql`.
"""

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

MUTATIONS = ("no fence lock", "no admit lock", "no deadline", "no life lock", "no notify")


def apply(name: str) -> None:
    """Replace a method of this process. Mutations of SQL functions change nothing here."""
    if name:
        PYTHON.get(name, lambda: None)()


def _remove_deadline() -> None:
    """The worker acts however long ago its lease was confirmed."""
    from alipes.store.postgres.workers import Workers

    _replace(Workers, "check_lease", lambda self: None)


def _remove_life_lock() -> None:
    """Nobody holds or awaits an advisory lock: a death is seen only when the lease is over."""
    from alipes.store.postgres import workers

    async def take_nothing(self: Any, life: Any) -> None:
        return None

    async def watch_nobody(workers: Any) -> None:
        await asyncio.Event().wait()

    _replace(workers.Workers, "_take_lock", take_nothing)
    _replace(workers, "_watch_ring", watch_nobody)


def _remove_notify() -> None:
    """No notification is sent: others notice work by their poll only."""
    from alipes.store.postgres.notifications import _Outgoing

    def take_nothing(self: Any, sender: str) -> Iterator[str]:
        self.controls.clear()
        self.events.clear()
        return iter(())

    _replace(_Outgoing, "take_payloads", take_nothing)


def set_poll(seconds: float) -> None:
    """How often the dispatcher of this process looks for work without a notification."""
    from alipes.store.postgres import dispatcher

    dispatcher.POLL_S = seconds


def _replace(owner: Any, name: str, made: Callable[..., Any]) -> None:
    assert hasattr(owner, name), f"{owner.__name__} has no {name}"
    setattr(owner, name, made)


PYTHON = {"no deadline": _remove_deadline, "no life lock": _remove_life_lock, "no notify": _remove_notify}


_LOCKED = "FILTER (WHERE v->>1 <> '')"
"""In `apply`: the calls whose lease rows are locked."""


def mutate_sql(name: str, source: str) -> str:
    """The source of a SQL function without the lock that `name` removes; unchanged for other mutations."""
    match name:
        case "no fence lock":
            return source.replace(_LOCKED, "FILTER (WHERE v->>1 <> '' AND v->>0 NOT IN ('record', 'call', 'finish'))")
        case "no admit lock":
            return source.replace(_LOCKED, "FILTER (WHERE v->>1 <> '' AND v->>0 <> 'admit')")
    return source


SQL = ("no fence lock", "no admit lock")
