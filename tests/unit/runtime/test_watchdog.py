"""Who blocks the loop is named while it blocks, by a thread that sleeps when nobody does anything."""

import asyncio
import logging
import math
import threading
import time

import pytest

from alipes.runtime.watchdog import LOOP_ACTIVITY, LoopActivity, Watchdog
from tests.world.wait import until

LOGGER = "alipes.runtime.watchdog"


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


class Nap:
    """A deed with a name, that remembers what it was sent."""

    patience = math.inf

    def __init__(self, name: str = "the nap") -> None:
        self.name, self.received = name, []

    def __str__(self) -> str:
        return self.name

    def blocked(self, seconds: float) -> None:
        self.received.append(round(seconds, 6))

    def interrupted(self, seconds: float) -> None:
        raise AssertionError("nobody may interrupt it")


class Heard(logging.Handler):
    """Log lines as they come, from whichever thread, and an event for the first of them."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []
        self.first = threading.Event()

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())
        self.first.set()


@pytest.fixture
def heard():
    heard, logger = Heard(), logging.getLogger(LOGGER)
    logger.addHandler(heard)
    yield heard
    logger.removeHandler(heard)


def threads() -> list[str]:
    return [each.name for each in threading.enumerate() if each.name.startswith("watchdog")]


def naps_until(seen: threading.Event) -> None:
    assert seen.wait(5), "nobody was named while it blocked"


def test_a_short_deed_costs_nothing_but_its_time(heard):
    clock, nap = Clock(), Nap()
    watch = LoopActivity(clock=clock)
    before = watch.begin(nap)
    assert watch.deed is nap
    clock.now += 0.25
    assert watch.end(before) == pytest.approx(0.25)
    assert watch.deed is None and nap.received == [] and heard.lines == []


def test_a_long_call_is_reported_with_its_total_when_it_ends(heard):
    clock, nap = Clock(), Nap()
    watch = LoopActivity(clock=clock)
    before = watch.begin(nap)
    clock.now += 2
    watch.end(before)
    assert nap.received == [2.0]
    assert heard.lines == ["the nap blocked the event loop for 2.00 s"]


def test_the_time_of_an_inner_deed_is_not_the_outer_ones():
    clock, outer, inner = Clock(), Nap("outer"), Nap("inner")
    watch = LoopActivity(clock=clock)
    first = watch.begin(outer)
    clock.now += 0.2
    second = watch.begin(inner)
    clock.now += 1
    watch.end(second)
    assert watch.deed is outer
    clock.now += 0.04
    assert watch.end(first) == pytest.approx(0.24)
    assert outer.received == [] and inner.received == [1.0]


def test_our_own_code_inside_a_call_is_not_attributed_to_it(heard):
    clock, outer = Clock(), Nap("outer")
    watch = LoopActivity(clock=clock)
    first = watch.begin(outer)
    second = watch.begin(None)
    clock.now += 1
    watch.end(second)
    assert watch.end(first) == 0
    assert outer.received == [] and heard.lines == []


async def test_who_blocks_is_named_while_it_blocks_with_the_place_where_it_is(heard):
    watch, nap = LoopActivity(limit=0.02), Nap("plugin sleepy in on_event")
    async with Watchdog(watch):
        before = watch.begin(nap)
        naps_until(heard.first)  # the loop's thread waits here, and it is the watchdog's that tells
        watch.end(before)
    while_it_blocked, at_its_end = heard.lines
    assert while_it_blocked.startswith("plugin sleepy in on_event has been blocking the event loop for 0.")
    assert "naps_until" in while_it_blocked and "test_watchdog.py" in while_it_blocked
    assert while_it_blocked.count("called from") <= 3
    assert at_its_end.startswith("plugin sleepy in on_event blocked the event loop for ")
    assert len(nap.received) == 1


async def test_the_second_who_blocks_is_named_too_and_each_once(heard):
    watch, limit = LoopActivity(limit=0.02), 0.02
    async with Watchdog(watch):
        for name in ("one", "two"):
            heard.first.clear()
            before = watch.begin(Nap(name))
            naps_until(heard.first)
            time.sleep(limit * 5)
            watch.end(before)
    assert [line.partition(" ")[0] for line in heard.lines] == ["one", "one", "two", "two"]


async def test_many_short_deeds_are_not_mistaken_for_a_long_one(heard):
    watch, nap = LoopActivity(limit=0.2), Nap()
    async with Watchdog(watch):
        end = time.monotonic() + 0.5
        while time.monotonic() < end:
            watch.end(watch.begin(nap))
            await asyncio.sleep(0)
    assert [line for line in heard.lines if "has been" in line] == []


async def test_the_thread_begins_with_the_first_deed_and_ends_with_the_scope():
    watch = LoopActivity(limit=0.01)
    async with Watchdog(watch):
        await asyncio.sleep(0)
        assert threads() == []
        watch.end(watch.begin(Nap()))
        assert len(threads()) == 1
        await until(lambda: watch.asleep)
        watch.end(watch.begin(Nap()))
        assert len(threads()) == 1
    assert threads() == []
    watch.end(watch.begin(Nap()))
    assert threads() == [] and not watch.asleep


async def test_when_nothing_is_done_the_thread_is_not_woken_by_anything():
    watch, looks = LoopActivity(limit=0.01), 0

    def clock() -> float:
        nonlocal looks
        looks += threading.current_thread() is not threading.main_thread()
        return time.monotonic()

    watch.clock = clock
    async with Watchdog(watch) as dog:
        watch.end(watch.begin(Nap()))
        await until(lambda: watch.asleep)
        looks_before = looks
        ticks = dog._woken.is_set()
        await asyncio.sleep(0.1)  # ten times as long as it would wait between two looks
        assert watch.asleep and looks == looks_before and not ticks


async def test_a_deed_that_begins_as_the_thread_falls_asleep_is_seen_all_the_same(heard):
    watch = LoopActivity(limit=0.002)
    async with Watchdog(watch):
        for _ in range(30):
            heard.first.clear()
            before = watch.begin(Nap())
            naps_until(heard.first)
            watch.end(before)
            await asyncio.sleep(0.004)  # about as long as it takes to fall asleep
    assert len([line for line in heard.lines if "has been" in line]) == 30


async def test_a_second_watchdog_leaves_the_work_to_the_first():
    watch = LoopActivity(limit=0.01)
    async with Watchdog(watch):
        async with Watchdog(watch):
            watch.end(watch.begin(Nap()))
            assert len(threads()) == 1
        watch.end(watch.begin(Nap()))
        assert len(threads()) == 1
    assert threads() == []


async def test_without_a_watchdog_a_block_is_still_reported_when_it_ends(heard):
    watch, nap = LoopActivity(limit=0.01), Nap()
    before = watch.begin(nap)
    time.sleep(0.02)
    watch.end(before)
    assert len(heard.lines) == 1 and len(nap.received) == 1


def test_one_loop_is_watched_with_a_limit_of_a_quarter_of_a_second():
    assert isinstance(LOOP_ACTIVITY, LoopActivity) and LOOP_ACTIVITY.limit == 0.25
