"""How many callers continue in one step of the event loop."""

import asyncio

from alipes.runtime.step_limit import StepLimit


async def count_steps(limit: StepLimit, callers: int, *, cancelled: tuple[int, ...] = ()) -> list[list[int]]:
    """By step of the loop, the callers that continued in it."""
    steps: list[list[int]] = [[]]

    async def call(number: int) -> None:
        await limit.wait()
        steps[-1].append(number)

    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(call(number)) for number in range(callers)]
        await asyncio.sleep(0)
        for number in cancelled:
            tasks[number].cancel()
        while not all(task.done() for task in tasks):
            steps.append([])
            await asyncio.sleep(0)
    return [step for step in steps if step]


async def test_callers_of_one_moment_continue_in_order_a_few_in_each_step():
    limit = StepLimit(3)
    assert await count_steps(limit, 8) == [[0, 1, 2], [3, 4, 5], [6, 7]]
    assert await count_steps(limit, 4) == [[0, 1, 2], [3]]


async def test_a_caller_alone_does_not_wait():
    limit = StepLimit(1)
    for _ in range(3):
        assert await count_steps(limit, 1) == [[0]]


async def test_a_cancelled_caller_takes_no_place():
    assert await count_steps(StepLimit(2), 7, cancelled=(2, 3)) == [[0, 1], [4, 5], [6]]
