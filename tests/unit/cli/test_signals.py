"""The first signal asks the turn to stop, the second leaves, and nothing of ours stays installed."""

import asyncio
import os
import signal

import pytest

from alipes.cli.signals import Interrupts
from alipes.kernel.turns import Stop


@pytest.mark.parametrize(
    ("number", "stop"),
    [
        (signal.SIGINT, Stop("user_stop", "session_interrupt", "t1")),
        (signal.SIGTERM, Stop("shutdown", "shutdown", "t1")),
        (signal.SIGHUP, Stop("disconnected", "disconnected", "t1")),
    ],
)
async def test_the_first_signal_asks_for_a_stop_and_says_who_asked(number, stop):
    with Interrupts() as interrupts:
        interrupts.begin()
        os.kill(os.getpid(), number)
        await interrupts.asked.wait()
        assert interrupts.stop("t1") == stop
        assert not interrupts.insisted.is_set()


async def test_the_second_signal_insists():
    with Interrupts() as interrupts:
        interrupts.begin()
        os.kill(os.getpid(), signal.SIGINT)
        await interrupts.asked.wait()
        os.kill(os.getpid(), signal.SIGTERM)
        await interrupts.insisted.wait()
        assert interrupts.stop("t").reason == "user_stop"


@pytest.mark.parametrize("phase", ["before", "after"])
async def test_without_a_living_turn_the_first_signal_leaves(phase):
    async def work() -> None:
        with Interrupts() as interrupts:
            if phase == "after":
                interrupts.begin()
                interrupts.end()
            os.kill(os.getpid(), signal.SIGTERM)
            await asyncio.Event().wait()

    async with asyncio.TaskGroup() as group:
        working = group.create_task(work())
    assert working.cancelled()


async def test_a_stop_asked_for_without_a_signal_keeps_its_first_reason():
    with Interrupts() as interrupts:
        interrupts.begin()
        interrupts.ask("disconnected")
        interrupts.ask("user_stop", "session_interrupt")
        assert interrupts.stop("t") == Stop("disconnected", "disconnected", "t")


async def test_a_hang_up_that_is_ignored_stays_ignored():
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with Interrupts():
            assert signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
        assert signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)


async def test_afterwards_signals_mean_what_they_meant():
    with Interrupts():
        pass
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
