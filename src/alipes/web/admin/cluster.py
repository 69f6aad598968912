"""Endpoint for the cluster: its workers, waiting conversations and leaders."""

from msgspec import Struct
from starlette.responses import Response

from alipes.core.app import App
from alipes.store.ports.cluster import ClusterStatus, ClusterView
from alipes.web.endpoint import ApiCall, ApiEndpoint, HttpProblem, json_response


class ClusterWorker(Struct, frozen=True):
    id: str
    host: str
    """The machine it runs on."""
    pid: int
    roles: tuple[str, ...]
    started: float
    sessions: int
    """Sessions that it holds."""
    lease_age: float
    """Seconds since it renewed its lease; it is lost after 3."""
    leads: tuple[str, ...]
    """What it alone does, such as `platform telegram` or `schedules`."""


class ClusterWrites(Struct, frozen=True):
    """Of the worker that answers, since its start."""

    commits: int
    writes: int
    seconds: float
    fenced: int
    """Writes that were refused because another worker had taken over."""
    bus_lag: float
    """Seconds of a notification through the server."""


class ClusterDocument(Struct, frozen=True):
    worker: str
    """The worker that answers."""
    workers: tuple[ClusterWorker, ...]
    waiting: int
    """Sessions that wait for a worker."""
    oldest_waiting: float
    """Seconds that the first of them has waited."""
    full: bool
    """New work is refused, because sessions wait for long."""
    takeovers: dict[str, int]
    """Sessions freed from dead workers, by cause: `death` or `lease`."""
    vacant: tuple[str, ...]
    """Elections that no worker has won."""
    writes: ClusterWrites


class ClusterEndpoints:
    def __init__(self, app: App) -> None:
        self._app = app

    @ApiEndpoint("GET", "/v1/cluster", "admin", readable=True, answer=ClusterDocument, errors=(404,))
    async def look(self, _call: ApiCall) -> Response:
        """Get the workers of the cluster, the waiting conversations and the leaders."""
        cluster = self._app.store.cluster
        if cluster is None:
            raise HttpProblem(404, "the store is SQLite, which one process serves", code="no_cluster")
        status = await cluster.status()
        return json_response(_to_document(status, cluster, full=await cluster.is_full()))


def _to_document(status: ClusterStatus, cluster: ClusterView, *, full: bool) -> ClusterDocument:
    workers = tuple(
        ClusterWorker(
            each.id,
            each.host,
            each.pid,
            each.roles,
            each.started,
            each.sessions,
            each.lease_age_s,
            tuple(name for name, leader in sorted(status.leaders.items()) if leader == each.id),
        )
        for each in status.workers
    )
    counts = cluster.counts
    return ClusterDocument(
        cluster.worker,
        workers,
        status.waiting,
        status.oldest_waiting_s,
        full,
        dict(status.takeovers),
        tuple(name for name, leader in sorted(status.leaders.items()) if not leader),
        ClusterWrites(
            counts.commits, counts.writes, round(counts.seconds, 3), counts.fenced, round(cluster.bus_lag_s, 6)
        ),
    )
