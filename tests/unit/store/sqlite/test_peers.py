"""The processes of a home find each other in its run directory, even if its path is long."""

import asyncio

import pytest

from alipes.kernel.turns import Address, Inbound
from alipes.runtime.process_lock import short_socket_path
from alipes.store.sqlite import peers
from alipes.store.sqlite.store import open_store


@pytest.mark.parametrize("length", [1, 200])
async def test_processes_use_the_run_directory_of_the_home_and_clean_it_up(tmp_path, length):
    home = tmp_path / ("h" * length)
    async with open_store(home) as store, open_store(home) as other:
        assert {each.suffix for each in (home / "run").iterdir()} == {".lock", ".sock"}
        (peer,) = store.processes.list_peers()
        assert peer.host == other.host and peer.socket == str(home / "run" / f"{other.host}.sock")
        with short_socket_path(peer.socket) as name:
            _, writer = await asyncio.open_unix_connection(name)
        writer.close()
        await writer.wait_closed()
    assert list((home / "run").iterdir()) == []


def test_files_of_a_dead_process_are_removed_by_the_next_one(tmp_path):
    home = tmp_path / ("h" * 200)
    dead = peers.open_processes(home, timeout_s=1)
    joined = dead.register()
    server = dead.open_socket()
    joined.__enter__()
    lock, sock = home / "run" / f"{dead.own_name}.lock", home / "run" / f"{dead.own_name}.sock"
    (home / "kept").hardlink_to(lock)
    joined.__exit__(None, None, None)  # the kernel releases its lock, and nobody removes the files
    lock.hardlink_to(home / "kept")
    server.close()
    assert lock.exists() and sock.exists()
    peers.open_processes(home, timeout_s=1)
    assert not lock.exists() and not sock.exists()


async def test_work_of_a_process_that_is_slow_to_exit_is_taken_over_once_it_is_gone(tmp_path):
    inbound = Inbound("1", Address("terminal", "chat"), "owner", "hello")
    key = inbound.address.key
    async with open_store(tmp_path, peer_timeout_s=0.05) as store:
        await store.turns.accept(inbound)
        exiting = peers.open_processes(tmp_path, timeout_s=1)
        wakes: asyncio.Queue[str] = asyncio.Queue()
        async with asyncio.TaskGroup() as group:
            serving = group.create_task(store.dispatcher.run(lambda key, op: wakes.put_nowait(key)))
            with exiting.register():  # it holds its lock, and its socket is closed already
                await store.database.execute("UPDATE leases SET holder = ? WHERE key = ?", exiting.own_name, key)
                await store.dispatcher.wake(key)
                assert wakes.empty()
            assert await wakes.get() == key
            serving.cancel()
