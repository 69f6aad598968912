"""Contract of the view of a cluster: what operators see. A home on SQLite has none."""

from alipes.kernel.turns import Address, Inbound
from tests.world.wait import until

HERE = Address("cli", "here")


def make_inbound(id: str, chat: str = "here") -> Inbound:
    return Inbound(id=id, address=Address("cli", chat), sender="me", text="hello")


async def test_workers_are_listed_with_their_sessions_if_the_store_is_shared(opened):
    async with opened() as store:
        if not store.clustered:
            assert store.cluster is None
            return
        await store.turns.accept(make_inbound("1"))
        await store.turns.claim_next(HERE.key)
        async with opened() as other:
            status = await other.cluster.status()
        assert {worker.id: worker.sessions for worker in status.workers} == {store.host: 1, other.host: 0}
        assert all(worker.roles == ("listen", "web", "work") for worker in status.workers)
        assert all(worker.pid and worker.host and worker.started for worker in status.workers)
        assert all(0 <= worker.lease_age_s < 3 for worker in status.workers)
        assert (status.waiting, status.oldest_waiting_s) == (0, 0)


async def test_sessions_without_a_worker_are_counted_as_waiting(opened):
    async with opened() as store:
        if store.cluster is None:
            return
        for chat in ("one", "two"):
            await store.turns.accept(make_inbound(chat, chat))
        status = await store.cluster.status()
        assert status.waiting == 2
        assert 0 < status.oldest_waiting_s < 60
        assert not await store.cluster.is_full()


async def test_commits_and_the_lag_of_the_bus_are_measured(opened):
    async with opened() as store:
        if store.cluster is None:
            return
        await store.turns.accept(make_inbound("1"))
        counts = store.cluster.counts
        assert counts.commits > 0 and counts.writes >= counts.commits and counts.seconds > 0
        await store.cluster.status()
        await until(lambda: 0 < store.cluster.bus_lag_s < 1)
