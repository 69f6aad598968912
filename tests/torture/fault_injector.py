"""Runs a plan of faults against a cluster of light workers while people write, and checks the history.

    python -m tests.torture.fault_injector --seeds 10 --minutes 20
    python -m tests.torture.fault_injector --first 7 --seeds 1 --minutes 2     # seed 7 again

prints a line for each seed and a total, and ends with status 1 if a rule was violated. Even seeds run on a primary
with a synchronous standby that is promoted, odd ones on one server.
"""

import argparse
import asyncio
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest
from msgspec import Struct, field

from tests.torture.cluster_checker import HISTORY_SQL, Violation, check_history, count_by_rule, count_in_flight
from tests.torture.cluster_history import load_history
from tests.torture.fault_plan import FaultKind, PlannedFault, make_plan
from tests.world.cluster import LightCluster, LightWorkerProcess, MessageLoad, open_light_cluster
from tests.world.cluster_mutations import SQL, mutate_sql
from tests.world.postgres_pair import PostgresNode, PostgresPair, open_node, open_pair

WORKERS, CHATS, RATE = 4, 40, 20.0
SETTLE_S = 180.0
"""Nothing is called lost before this time has passed since the last fault."""
SQLITE_KINDS: tuple[FaultKind, ...] = ("kill",)
NODE_KINDS: tuple[FaultKind, ...] = ("kill", "pause", "silence", "cut", "restart", "replace")


class FaultReport(Struct):
    seed: int
    messages: int = 0
    faults: list[str] = field(default_factory=list)
    kinds: dict[str, int] = field(default_factory=dict)
    """How many faults of each kind."""
    violations: list[Violation] = field(default_factory=list)
    in_flight: int = 0
    """Tool calls that were running when their session was taken over."""
    longest_wait_s: float = 0.0
    """From a message's acceptance to the claim of its turn."""

    @property
    def summary(self) -> str:
        """One line."""
        faults = ", ".join(f"{count} {kind}" for kind, count in sorted(self.kinds.items()))
        return (
            f"seed {self.seed}: {self.messages} messages, {len(self.faults)} faults ({faults}), longest wait "
            f"{self.longest_wait_s:.1f} s, {self.in_flight} calls in flight at a take-over, "
            f"{len(self.violations)} violations"
        )

    def __str__(self) -> str:
        head = f"seed {self.seed}: {self.messages} messages, {count_by_rule(self.violations)}"
        shown = [f"{violation.rule}: {violation.what}" for violation in self.violations[:20]]
        return "\n".join([head, *self.faults, *shown])


class FaultInjector:
    """Does what the plan says; every fault is over when `run` returns."""

    def __init__(self, cluster: LightCluster, pair: PostgresPair | PostgresNode | None) -> None:
        self._cluster, self._server = cluster, pair
        self._locks = [asyncio.Lock() for _ in cluster.workers]
        """One fault at a time for each worker, though it may take long to start."""
        self._server_lock = asyncio.Lock()
        """One fault of the servers at a time: a new standby is copied from a running primary."""
        self.log: list[str] = []
        self.kinds: Counter[str] = Counter()

    async def run(self, plan: Sequence[PlannedFault]) -> None:
        began = time.monotonic()
        async with asyncio.TaskGroup() as group:
            for fault in plan:
                await asyncio.sleep(max(0.0, began + fault.at - time.monotonic()))
                self.log.append(str(fault))
                self.kinds[fault.kind] += 1
                group.create_task(self._cause(fault))

    async def _cause(self, fault: PlannedFault) -> None:
        match fault.kind:
            case "restart":
                async with self._server_lock:
                    await self._restart(fault.length_s)
            case "promote":
                async with self._server_lock:
                    await self._promote()
            case "replace":
                for worker, lock in zip(self._cluster.workers, self._locks, strict=True):
                    async with lock:
                        await worker.leave()
                        await worker.start()
            case _:
                async with self._locks[fault.worker]:
                    await self._strike(self._cluster.workers[fault.worker], fault)

    async def _strike(self, worker: LightWorkerProcess, fault: PlannedFault) -> None:
        match fault.kind:
            case "kill":
                await worker.kill()
                await asyncio.sleep(fault.length_s)
                await worker.start()
            case "pause":
                worker.pause()
                await asyncio.sleep(fault.length_s)
                worker.resume()
            case "silence":
                for proxy in worker.proxies:
                    proxy.silence()
                await asyncio.sleep(fault.length_s)
                for proxy in worker.proxies:
                    proxy.restore()
            case "cut":
                for proxy in worker.proxies:
                    proxy.cut()

    async def _restart(self, away_s: float) -> None:
        node = self._server.primary if isinstance(self._server, PostgresPair) else self._server
        assert node is not None, "there is no server to restart"
        await node.restart(away_s)

    async def _promote(self) -> None:
        assert isinstance(self._server, PostgresPair), "there is no standby to promote"
        await self._server.promote()
        await self._server.rebuild()


async def run_on_sqlite(folder: Path, seed: int, seconds: float) -> FaultReport:
    """One worker on a file that is killed: shows that harness and checker work without a cluster."""
    async with open_light_cluster(folder, 1) as cluster:
        plan = [fault for fault in make_plan(seed, seconds, 2, SQLITE_KINDS) if fault.worker == 0]
        return await _run(cluster, None, plan, seed, seconds)


async def run_on_node(
    folder: Path, seed: int, seconds: float, plan: Sequence[PlannedFault] | None = None
) -> FaultReport:
    """Four workers on one server, with the plan of the seed or with this one."""
    async with open_node(track_commit_timestamp="on") as node, open_light_cluster(folder, WORKERS, (node,)) as cluster:
        await node.query(HISTORY_SQL)
        plan = make_plan(seed, seconds, WORKERS, NODE_KINDS) if plan is None else plan
        return await _run(cluster, node, plan, seed, seconds)


async def run_on_pair(
    folder: Path, seed: int, seconds: float, plan: Sequence[PlannedFault] | None = None
) -> FaultReport:
    """Four workers on a primary with a synchronous standby that is promoted."""
    async with (
        open_pair(track_commit_timestamp="on") as pair,
        open_light_cluster(folder, WORKERS, (pair.primary, pair.standby)) as cluster,
    ):
        await pair.primary.query(HISTORY_SQL)
        plan = make_plan(seed, seconds, WORKERS) if plan is None else plan
        return await _run(cluster, pair, plan, seed, seconds)


async def remove_locks(node: PostgresNode, mutation: str) -> None:
    """Replace the SQL functions that the mutation changes."""
    sql = """SELECT oid FROM pg_proc WHERE pronamespace = 'public'::regnamespace AND proname = 'apply'
        AND prolang IN (SELECT oid FROM pg_language WHERE lanname IN ('sql', 'plpgsql'))"""
    if mutation not in SQL:
        return
    changes = 0
    for oid in (await node.query(sql)).split():
        source = await node.query(f"SELECT pg_get_functiondef({oid})")
        if (changed := mutate_sql(mutation, source)) != source:
            await node.query(changed)
            changes += 1
    assert changes, f"no function has the lock that {mutation!r} removes"


async def _run(
    cluster: LightCluster,
    server: PostgresPair | PostgresNode | None,
    plan: Sequence[PlannedFault],
    seed: int,
    seconds: float,
) -> FaultReport:
    load = MessageLoad(cluster.workers, CHATS, random.Random(seed))
    injector = FaultInjector(cluster, server)
    async with asyncio.TaskGroup() as group:
        group.create_task(load.run(RATE, seconds))
        group.create_task(injector.run(plan))
    await cluster.wait_until_done(SETTLE_S)
    crashed = bool(injector.kinds["restart"] or injector.kinds["promote"])
    history = await asyncio.to_thread(load_history, cluster, load, server_crashed=crashed)
    return FaultReport(
        seed,
        len(load.accepted),
        injector.log,
        dict(injector.kinds),
        check_history(history),
        count_in_flight(history),
        max(waits(cluster, load), default=0.0),
    )


def waits(cluster: LightCluster, load: MessageLoad) -> list[float]:
    """Seconds from the acceptance of each message to the first claim of its turn."""
    claimed = dict[str, float]()
    for event in (event for worker in cluster.workers for event in worker.events if event["kind"] == "claimed"):
        token = event["text"].split()[-1]
        claimed[token] = min(event["at"], claimed.get(token, event["at"]))
    return [claimed[each.token] - load.times[each.id] for each in load.accepted if each.token in claimed]


async def run_seed(seed: int, seconds: float) -> FaultReport:
    with tempfile.TemporaryDirectory(prefix="faults-") as folder:
        run = run_on_node if seed % 2 else run_on_pair
        return await run(Path(folder), seed, seconds)


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Faults against a cluster of light workers, by seed.")
    parser.add_argument("--seeds", type=int, default=10, help="how many seeds (default: 10)")
    parser.add_argument("--first", type=int, default=1, help="the first of them (default: 1)")
    parser.add_argument("--minutes", type=float, default=20.0, help="of faults, for all seeds together (default: 20)")
    given = parser.parse_args(words)
    reports = list[FaultReport]()
    for seed in range(given.first, given.first + given.seeds):
        try:
            report = asyncio.run(run_seed(seed, given.minutes * 60 / given.seeds))
        except pytest.skip.Exception as missing:
            print(missing, file=sys.stderr)
            return 2
        reports.append(report)
        print(report.summary, flush=True)
        if report.violations:
            print(report, flush=True)
    violations = sum(len(report.violations) for report in reports)
    messages, faults = sum(report.messages for report in reports), sum(len(report.faults) for report in reports)
    print(f"total: {len(reports)} seeds, {messages} messages, {faults} faults, {violations} violations")
    return 1 if violations else 0


if __name__ == "__main__":
    sys.exit(main())
