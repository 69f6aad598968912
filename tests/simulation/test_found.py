"""What the simulation found, as small as it goes. What is not mended yet is named in `judging.KNOWN`."""

import asyncio

from alipes.platforms.telegram.order import Order


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
