"""Leader election in a cluster: one worker at a time runs the work of a name, such as listening to an account."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress

from alipes.runtime.tasks import unwrap_error_group
from alipes.store.postgres.direct import ConnectionLost, DirectConnection, open_direct
from alipes.store.postgres.workers import RECONNECT_S, Workers, application_name

log = logging.getLogger(__name__)

ELECTION_S = 0.2
"""How often a worker that does not lead tries to."""
ANSWER_TIMEOUT_S = 1.0
_LOCK = "hashtextextended('alipes leader ' || current_schema() || ' ' || name, 0)"


class _Candidacy:
    """One name that this worker leads or wants to lead."""

    def __init__(self) -> None:
        self.elected, self.lost = asyncio.Event(), asyncio.Event()


class Leaders:
    """Elections by advisory locks, all on one direct connection: with it, all of them are lost."""

    def __init__(self, workers: Workers) -> None:
        self._workers = workers
        self._candidacies: dict[str, _Candidacy] = {}
        self._changed = asyncio.Event()

    def leads(self, name: str) -> bool:
        candidacy = self._candidacies.get(name)
        return candidacy is not None and candidacy.elected.is_set() and not candidacy.lost.is_set()

    async def lead(self, name: str, work: Callable[[], Awaitable[None]]) -> None:
        """Run `work` while this worker leads `name`, again after each election; until cancelled, or until `work`
        returns. It is cancelled when the leadership is lost."""
        while True:
            candidacy = self._candidacies[name] = _Candidacy()
            self._changed.set()
            try:
                await candidacy.elected.wait()
                log.info("this worker leads %s", name)
                if await self._run_while_leading(candidacy, work):
                    return
            finally:
                del self._candidacies[name]
                self._changed.set()
            log.warning("this worker no longer leads %s", name)

    async def _run_while_leading(self, candidacy: _Candidacy, work: Callable[[], Awaitable[None]]) -> bool:
        """True if `work` returned; False if the leadership was lost."""
        finished = False

        async def run() -> None:
            nonlocal finished
            await work()
            finished = True
            candidacy.lost.set()

        with unwrap_error_group():
            async with asyncio.TaskGroup() as group:
                task = group.create_task(run())
                await candidacy.lost.wait()
                task.cancel()
        return finished

    async def run(self) -> None:
        """Hold elections until cancelled."""
        while True:
            try:
                name = application_name(self._workers.own_name)
                async with open_direct(self._workers.url, name) as connection:
                    await self._hold_elections(connection)
            except ConnectionLost as error:
                log.info("elections are held on another connection: %s", error)
                await asyncio.sleep(RECONNECT_S)
            finally:
                for candidacy in self._candidacies.values():
                    if candidacy.elected.is_set():
                        candidacy.lost.set()

    async def _hold_elections(self, connection: DirectConnection) -> None:
        held: dict[str, _Candidacy] = {}
        while True:
            self._workers.check_lease()
            resigned = [name for name, candidacy in held.items() if self._candidacies.get(name) is not candidacy]
            if resigned:
                sql = f"SELECT pg_advisory_unlock({_LOCK}) FROM unnest(%s::text[]) AS names (name)"
                await connection.fetch(sql, resigned, timeout_s=ANSWER_TIMEOUT_S)
                for name in resigned:
                    del held[name]
            wanted = [name for name in self._candidacies if name not in held]
            sql = f"SELECT name, pg_try_advisory_lock({_LOCK}) FROM unnest(%s::text[]) AS names (name)"
            for name, elected in await connection.fetch(sql, wanted, timeout_s=ANSWER_TIMEOUT_S):
                if elected:
                    held[name] = self._candidacies.get(name) or _Candidacy()
                    held[name].elected.set()
            self._changed.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(ELECTION_S):
                    await self._changed.wait()
