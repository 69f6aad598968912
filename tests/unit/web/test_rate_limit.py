"""Rate limits of several processes, counted together."""

import asyncio
from contextlib import asynccontextmanager

import pytest

from alipes.web.endpoint import HttpProblem
from alipes.web.rate_limit import RateLimiter
from tests.world.postgres_server import open_postgres_store, postgres_server
from tests.world.wait import until


@pytest.fixture(scope="session", autouse=True)
def server():
    """Started before the first test, so that it does not count as left over by one."""
    return postgres_server()


def count_allowed(limiter, name, requests, rate):
    allowed = 0
    for _ in range(requests):
        try:
            limiter.check(name, rate)
        except HttpProblem:
            continue
        allowed += 1
    return allowed


@asynccontextmanager
async def shared(home):
    """Two limiters of two workers; their clock does not move."""
    async with open_postgres_store(home) as one, open_postgres_store(home) as other, asyncio.TaskGroup() as group:
        limiters = [RateLimiter("api", clock=lambda: 100.0) for _ in range(2)]
        tasks = [group.create_task(limiter.share(store)) for limiter, store in zip(limiters, (one, other), strict=True)]
        await until(lambda: all(store.bus._remote.get("rates:api") for store in (one, other)))
        await until(lambda: all(limiter._bus is not None for limiter in limiters))
        yield limiters
        for task in tasks:
            task.cancel()


async def test_two_workers_together_allow_little_more_than_the_limit(tmp_path):
    async with shared(tmp_path) as (one, other):
        allowed = 0
        for _ in range(40):
            allowed += count_allowed(one, "key", 10, 300) + count_allowed(other, "key", 10, 300)
            one.publish()
            other.publish()
            left = 300 - allowed
            await until(lambda left=left: one.left("key") == other.left("key") == left)
        assert 300 <= allowed <= 330


async def test_a_part_of_the_limit_is_announced_at_once(tmp_path):
    async with shared(tmp_path) as (one, other):
        assert count_allowed(one, "key", 50, 100) == 50
        await until(lambda: other._buckets.get("key") is not None and other.left("key") <= 54)
        assert count_allowed(other, "key", 100, 100) <= 54
        assert count_allowed(other, "another", 100, 100) == 100


async def test_the_requests_of_a_worker_alone_are_not_limited_by_a_share(tmp_path):
    async with shared(tmp_path) as (one, _):
        assert count_allowed(one, "key", 200, 100) == 100
