"""Faults of a cluster: a killed leader, a server that is away, a pooler, a stop that nobody can take yet."""

import asyncio
import shutil
import signal
import socket

import pytest

from alipes.kernel.errors import ConfigError, LeaseLost
from alipes.kernel.turns import Address, Inbound, Stop, Wake
from alipes.store.postgres.store import open_postgres_store
from alipes.store.postgres.workers import open_workers
from tests.unit.store.postgres.cluster import ROLES, add_sessions, fetch, open_member, run_child
from tests.world.environment import skip
from tests.world.wait import until

ADDRESS = Address("cli", "a")


async def test_the_next_worker_leads_when_the_leader_is_killed(url):
    async with open_postgres_store(url) as store, run_child(url) as (process, _), asyncio.TaskGroup() as group:
        following = group.create_task(store.leaders.lead("account", asyncio.Event().wait))
        process.kill()
        await until(lambda: store.leaders.leads("account"))
        following.cancel()


async def test_a_stop_is_stored_while_nobody_holds_the_session(url):
    async with open_postgres_store(url) as alone:
        await alone.turns.admit(Inbound("1", ADDRESS, "me", "hello"))
        await alone.dispatcher.signal(ADDRESS.key, Stop())
    async with open_member(url) as worker:
        await until(lambda: (ADDRESS.key, Wake()) in worker.ops)
        assert await worker.turns.take_ops(ADDRESS.key) == (Stop(),) or (ADDRESS.key, Stop()) in worker.ops


async def test_a_session_that_is_taken_is_delivered_to_one_worker(url):
    async with open_member(url, capacity=2) as one, open_member(url, capacity=2) as two:
        await add_sessions(url, 6)
        one.dispatcher.look()
        two.dispatcher.look()
        await until(lambda: len(one.ops) == len(two.ops) == 2)
        assert len({key for key, _ in (*one.ops, *two.ops)}) == 4
        assert await fetch(url, "SELECT count(*) FROM leases WHERE holder IS NULL") == [(2,)]


async def test_workers_lose_their_leases_while_the_server_is_away_for_longer(own_server):
    with pytest.raises(LeaseLost):
        async with open_postgres_store(own_server.url) as store:
            own_server.stop(signal.SIGQUIT)
            await store.processes.lost.wait()
            await asyncio.Event().wait()
    own_server.start()
    async with open_postgres_store(own_server.url) as store:
        assert await store.turns.admit(Inbound("1", ADDRESS, "me", "hello"))
    own_server.stop()


def _listens(port: int) -> bool:
    with socket.socket() as client:
        return client.connect_ex(("127.0.0.1", port)) == 0


async def test_a_pooler_is_refused(server, tmp_path):
    program = shutil.which("pgbouncer") or skip("pgbouncer is not installed")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    config = tmp_path / "pgbouncer.ini"
    config.write_text(
        f"[databases]\npostgres = host=127.0.0.1 port={server.port} user=alipes pool_size=2\n"
        f"[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {port}\nauth_type = any\npool_mode = transaction\n"
        f"unix_socket_dir =\nuser = nobody\n"
    )
    config.chmod(0o644)
    process = await asyncio.create_subprocess_exec(program, "-q", str(config))
    try:
        await until(lambda: process.returncode is not None or _listens(port))
        with pytest.raises(ConfigError, match="store_direct"):
            async with open_workers(f"postgresql://alipes@127.0.0.1:{port}/postgres", ROLES):
                pass
    finally:
        process.terminate()
        await process.wait()
