"""What the simulation found, as small as it goes."""

import asyncio

import pytest

from alipes.gateway.anteroom import Anteroom
from alipes.gateway.channels import Channel
from alipes.gateway.group import Group
from alipes.platforms.telegram.order import Order
from alipes.store.opening import open_store
from tests.world.gatehouse import arrival
from tests.world.messenger import Messenger


async def test_who_is_in_a_chat_and_who_waits_for_it_can_be_cancelled_together():
    """As when the process is asked to end while two updates of one chat are taken in."""
    order, inside = Order(), asyncio.Event()

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


class Frail(Messenger):
    """Breaks in a child of its own at the very moment that it is told to end."""

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


async def test_a_platform_that_breaks_as_it_is_told_to_end_ends_all_the_same():
    """A group that is cancelled while a child of it fails tells of the child only (seed 1008752)."""
    messenger = Frail()
    serving = asyncio.create_task(Channel(messenger).serve(lambda _arrival: None))
    await messenger.connected.wait()
    serving.cancel()
    with pytest.raises(asyncio.CancelledError):
        async with asyncio.timeout(5):
            await serving


async def test_what_stands_in_no_line_because_its_bringer_was_cut_off_is_joined_by_its_copy(tmp_path):
    """As when the platform breaks while the first part of an album is being kept (seed 379)."""
    became = []

    async def become(arrivals):
        became.append([each.id for each in arrivals])

    async with open_store(tmp_path) as store, asyncio.TaskGroup() as tasks:
        group = Group()
        group.open(tasks)
        room = Anteroom(store.arrivals, become, burst=0.05, group=group)
        await room.recall(())
        first, second = arrival("a", id="1", album="x"), arrival("b", id="2", album="x")
        await store.arrivals.keep(first)  # and its bringer is no more
        await room.take(first)
        await room.take(first)
        await room.take(second)
    assert became == [["1", "2"]]
