"""Small reproductions of bugs that the simulation found."""

import asyncio

import pytest

from alipes.gateway.inbound.batcher import Batcher
from alipes.gateway.platform_runner import PlatformRunner
from alipes.gateway.policy import LateTaskGroup
from alipes.kernel.errors import Fenced
from alipes.platforms.telegram.receive import ChatOrder
from alipes.store.sqlite.database import open_database
from alipes.store.sqlite.files import WalFile
from alipes.store.sqlite.store import open_store
from tests.unit.store.sqlite.test_database import insert_session, session_ids
from tests.world.environment import LIMIT_S
from tests.world.fake_platform import FakePlatform
from tests.world.gateway_harness import make_message


async def test_the_holder_and_the_waiter_of_a_chat_can_be_cancelled_together():
    """As when the process is stopped while it handles two updates of one chat."""
    order, inside = ChatOrder(), asyncio.Event()

    async def take():
        async with order.turn(1, ""):
            inside.set()
            await asyncio.Event().wait()

    tasks = [asyncio.create_task(take()) for _ in range(2)]
    await inside.wait()
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)
    assert all(task.cancelled() for task in tasks)


class FailsWhileStopping(FakePlatform):
    """Fails in its own child task at the moment it is asked to stop."""

    async def listen(self, take, tell):
        async with asyncio.TaskGroup() as group:
            group.create_task(self.fail_at_the_end())
            self.connected.set()
            await asyncio.Event().wait()

    async def fail_at_the_end(self):
        try:
            await asyncio.Event().wait()
        finally:
            raise RuntimeError("as planned")


async def test_a_platform_that_fails_while_stopping_still_stops():
    """A group that is cancelled while a child fails raises only the error of the child (seed 1008752)."""
    messenger = FailsWhileStopping()
    serving = asyncio.create_task(PlatformRunner(messenger).serve(lambda _arrival: None))
    await messenger.connected.wait()
    serving.cancel()
    with pytest.raises(asyncio.CancelledError):
        async with asyncio.timeout(LIMIT_S):
            await serving


async def test_a_message_whose_receiver_was_cancelled_is_merged_with_its_copy(tmp_path):
    """As when the platform breaks while the first part of an album is being stored (seed 379)."""
    batches = []

    async def on_batch(arrivals):
        batches.append([each.id for each in arrivals])

    async with open_store(tmp_path) as store, asyncio.TaskGroup() as tasks:
        group = LateTaskGroup()
        group.open(tasks)
        batcher = Batcher(store.inbox, on_batch, window=1.0, tasks=group)
        await batcher.recover("test")
        first, second = make_message("a", id="1", album="x"), make_message("b", id="2", album="x")
        await store.inbox.add(first)  # and its receiver is cancelled
        await batcher.add(first)
        await batcher.add(first)
        await batcher.add(second)
    assert batches == [["1", "2"]]


@pytest.mark.parametrize("follows", ["nothing", "nothing that stays", "something"])
async def test_a_write_that_changes_nothing_does_not_count_as_a_sync(tmp_path, follows, monkeypatch):
    """SQLite syncs only if something was changed: relying on an empty write lost an acknowledged message in a
    power cut (seed 18463)."""
    synced = []
    monkeypatch.setattr(WalFile, "sync", lambda _log: synced.append(True))

    def late(db):
        insert_session("half")(db)
        raise Fenced("late")

    async with open_database(tmp_path / "a.db") as database:
        await database.run(insert_session("a"), sync=False)
        if follows == "something":
            await database.run(insert_session("b"))
        else:
            works = [database.submit(late if follows == "nothing that stays" else session_ids) for _ in range(2)]
            await asyncio.wait(works)
            assert {type(each.exception()) for each in works} <= {Fenced, type(None)}
        await database.wait_synced()
    assert bool(synced) is (follows != "something")
