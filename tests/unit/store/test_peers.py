"""Where the processes of a home find each other: in its own folder, however long its name is."""

import asyncio

import pytest

from alipes.runtime.unix_socket_path import short
from alipes.store.peers import peers
from alipes.store.store import open_store


@pytest.mark.parametrize("length", [1, 200])
async def test_processes_of_a_home_talk_in_its_own_folder_and_leave_nothing_in_it(tmp_path, length):
    home = tmp_path / ("h" * length)
    async with open_store(home) as store, open_store(home) as other:
        assert {each.suffix for each in (home / "run").iterdir()} == {".lock", ".sock"}
        (peer,) = store.hosts.others()
        assert peer.host == other.host and peer.socket == str(home / "run" / f"{other.host}.sock")
        with short(peer.socket) as name:
            _, writer = await asyncio.open_unix_connection(name)
        writer.close()
        await writer.wait_closed()
    assert list((home / "run").iterdir()) == []


def test_what_the_dead_left_there_is_swept_by_the_next(tmp_path):
    home = tmp_path / ("h" * 200)
    dead = peers.open_hosts(home, within=1)
    joined = dead.join()
    door = dead.listen()
    joined.__enter__()
    lock, sock = home / "run" / f"{dead.me}.lock", home / "run" / f"{dead.me}.sock"
    (home / "kept").hardlink_to(lock)
    joined.__exit__(None, None, None)  # the kernel lets go of its lock, and nobody tidies up
    lock.hardlink_to(home / "kept")
    door.close()
    assert lock.exists() and sock.exists()
    peers.open_hosts(home, within=1)
    assert not lock.exists() and not sock.exists()
