"""Checks before a turn of an API client is admitted: its model exists, and not too many are at work."""

from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from alipes.core.app import App
from alipes.kernel.errors import ConfigError
from alipes.web.endpoint import PLATFORM, Caller, HttpProblem

DEFAULT_MODEL = "alipes"
"""Model name that means the default model."""
RETRY_AFTER_S = 5
"""When a client that met the ceiling should try again."""


class TurnAdmission:
    """One for all endpoints. `max_runs` and `max_runs_per_key` count running and queued turns; zero: no limit."""

    def __init__(self, app: App, *, max_runs: int = 0, max_runs_per_key: int = 0) -> None:
        self._app, self._max_runs, self._max_per_key = app, max_runs, max_runs_per_key
        self._store, self._cluster = app.store.api_runs, app.store.cluster
        self._admitting: Counter[str] = Counter()
        """By caller, turns that are being stored."""
        self._most: Counter[str] | None = None
        """By caller, at most so many turns are unfinished: those counted last, and all that were stored since. Nobody
        else stores turns of the API, except in a cluster."""
        self._stored: Counter[str] = Counter()
        """By caller, turns stored since the start."""

    async def resolve_model(self, name: str) -> str:
        """The full name of a model; empty for the default. Raises `HttpProblem` with similar names."""
        if not name or name == DEFAULT_MODEL:
            return ""
        try:
            return (await self._app.models.open(name)).name
        except ConfigError as error:
            why = f"model {name!r} is not available. {error} GET /v1/models lists the available ones."
            raise HttpProblem(404, why, code="model_not_found", param="model") from error

    @asynccontextmanager
    async def open_slot(self, caller: Caller) -> AsyncIterator[None]:
        """Around the storing of a new turn. Raises `HttpProblem` if too many turns are at work."""
        if self._cluster is not None and await self._cluster.is_full():
            why = "all workers are busy and sessions wait for them; try again later"
            raise HttpProblem(503, why, code="cluster_full", headers={"retry-after": str(RETRY_AFTER_S)})
        if not (self._max_runs or self._max_per_key):
            yield
            return
        self._admitting[caller.name] += 1
        try:
            if self._most is None or self._cluster is not None or self._find_excess(caller, self._most):
                self._most = await self._count()
            if why := self._find_excess(caller, self._most):
                raise HttpProblem(429, why, code="too_many_runs", headers={"retry-after": str(RETRY_AFTER_S)})
            yield
            self._most[caller.name] += 1
            self._stored[caller.name] += 1
        finally:
            self._admitting[caller.name] -= 1
            self._admitting += Counter()  # drops those at zero

    async def _count(self) -> Counter[str]:
        """The unfinished turns by caller. Those that are stored meanwhile count too, perhaps twice."""
        before = self._stored.copy()
        return Counter(await self._store.count_unfinished(PLATFORM)) + (self._stored - before)

    def _find_excess(self, caller: Caller, unfinished: Counter[str]) -> str:
        """Why no other turn fits, as a sentence; empty if one does."""
        mine, every = unfinished[caller.name] + self._admitting[caller.name], unfinished.total()
        if self._max_per_key and mine > self._max_per_key:
            what = f"{self._max_per_key} runs of this key are at work (api.max_runs_per_key)"
        elif self._max_runs and every + self._admitting.total() > self._max_runs:
            what = f"{self._max_runs} runs are at work (api.max_runs)"
        else:
            return ""
        return f"{what}; wait for one of them, or stop it"
