"""The files of a database on a real disk: lost, emptied, deleted under a process, read where nothing can be written."""

import os
import shutil
import sqlite3
from contextlib import closing

import pytest

from alipes.kernel.errors import StoreError
from alipes.kernel.turns import Address, Inbound
from alipes.store.sqlite.files import find_loss, open_readable
from alipes.store.sqlite.store import open_store

MESSAGE = Inbound("1", Address("test", "me"), "me", "hello")


async def make_store(home):
    async with open_store(home) as store:
        await store.turns.accept(MESSAGE)
    return home / "alipes.db"


async def test_a_new_home_gets_a_database(tmp_path):
    path = await make_store(tmp_path)
    assert path.stat().st_size and not find_loss(path)


@pytest.mark.parametrize("loss", ["gone", "empty"])
async def test_a_lost_database_is_reported_and_not_replaced(tmp_path, loss):
    path = await make_store(tmp_path)
    path.unlink() if loss == "gone" else os.truncate(path, 0)
    with pytest.raises(StoreError, match=f"is {loss}.*alipes restore"):
        await make_store(tmp_path)
    assert not path.exists() or path.stat().st_size == 0
    assert f"is {loss}" in find_loss(path)


async def test_a_write_ahead_log_without_its_database_is_a_loss_too(tmp_path):
    (tmp_path / "alipes.db-wal").write_bytes(b"frames")
    with pytest.raises(StoreError, match="is gone"):
        await make_store(tmp_path)


async def test_a_person_may_start_without_the_lost_database(tmp_path):
    path = await make_store(tmp_path)
    path.unlink()
    path.with_name("alipes.db.created").unlink()
    await make_store(tmp_path)
    assert path.stat().st_size


async def test_a_home_of_an_older_release_is_marked_at_its_next_use(tmp_path):
    path = await make_store(tmp_path)
    path.with_name("alipes.db.created").unlink()
    await make_store(tmp_path)
    path.unlink()
    assert find_loss(path)


@pytest.mark.parametrize("name", ["alipes.db", "alipes.db-wal"])
@pytest.mark.parametrize("change", ["deleted", "replaced"])
async def test_a_file_that_vanishes_under_a_process_makes_it_not_ready(tmp_path, name, change):
    async with open_store(tmp_path) as store:
        await store.database.check_writable()
        file = tmp_path / name
        if change == "replaced":
            shutil.copyfile(file, tmp_path / "other")
            (tmp_path / "other").rename(file)
        else:
            file.unlink()
        with pytest.raises(StoreError, match=f"{name} was {change}"):
            await store.database.check_writable()


async def test_many_writes_and_checkpoints_keep_it_ready(tmp_path):
    async with open_store(tmp_path) as store:
        await store.database.check_writable()
        with closing(sqlite3.connect(tmp_path / "alipes.db")) as other:
            other.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        await store.database.check_writable()


async def test_a_writable_database_is_read_where_it_is(tmp_path):
    path = await make_store(tmp_path)
    with open_readable(path) as uri:
        assert str(path) in uri
