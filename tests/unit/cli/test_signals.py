"""Signals during `alipes ask` and `alipes serve`."""

import asyncio
import os
import signal

import pytest

from alipes.cli.ask import InterruptSignals
from alipes.cli.serve.signals import ExitSignals
from alipes.kernel.turns import Stop


@pytest.mark.parametrize(
    ("number", "stop"),
    [
        (signal.SIGINT, Stop("user_stop", "session_interrupt", "t1")),
        (signal.SIGTERM, Stop("shutdown", "shutdown", "t1")),
        (signal.SIGHUP, Stop("disconnected", "disconnected", "t1")),
    ],
)
async def test_the_first_signal_requests_a_stop_with_its_reason(number, stop):
    with InterruptSignals() as interrupts:
        interrupts.turn_started()
        os.kill(os.getpid(), number)
        await interrupts.stop_requested.wait()
        assert interrupts.stop("t1") == stop
        assert not interrupts.exit_requested.is_set()


async def test_the_second_signal_requests_an_exit():
    with InterruptSignals() as interrupts:
        interrupts.turn_started()
        os.kill(os.getpid(), signal.SIGINT)
        await interrupts.stop_requested.wait()
        os.kill(os.getpid(), signal.SIGTERM)
        await interrupts.exit_requested.wait()
        assert interrupts.stop("t").reason == "user_stop"


@pytest.mark.parametrize("phase", ["before", "after"])
async def test_without_a_turn_the_first_signal_exits(phase):
    async def work() -> None:
        with InterruptSignals() as interrupts:
            if phase == "after":
                interrupts.turn_started()
                interrupts.turn_ended()
            os.kill(os.getpid(), signal.SIGTERM)
            await asyncio.Event().wait()

    async with asyncio.TaskGroup() as group:
        working = group.create_task(work())
    assert working.cancelled()


async def test_a_stop_requested_without_a_signal_keeps_its_first_reason():
    with InterruptSignals() as interrupts:
        interrupts.turn_started()
        interrupts.ask("disconnected")
        interrupts.ask("user_stop", "session_interrupt")
        assert interrupts.stop("t") == Stop("disconnected", "disconnected", "t")


async def test_an_ignored_sighup_stays_ignored():
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with InterruptSignals():
            assert signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
        assert signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)


async def test_signal_handlers_are_restored():
    with InterruptSignals():
        pass
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL


async def test_the_first_signal_requests_an_exit_and_the_second_hurries():
    with ExitSignals() as orders:
        os.kill(os.getpid(), signal.SIGHUP)
        await orders.requested.wait()
        assert orders.action == "restart" and not orders.hurry.is_set()
        os.kill(os.getpid(), signal.SIGTERM)
        await orders.hurry.wait()
        assert orders.action == "leave"
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


async def test_a_restart_does_not_override_an_exit():
    orders = ExitSignals()
    orders.request("leave")
    orders.request("restart")
    assert orders.action == "leave"


async def test_after_a_withdrawn_request_the_next_one_counts_as_the_first():
    with ExitSignals() as orders:
        for _ in range(3):
            os.kill(os.getpid(), signal.SIGHUP)
            await orders.requested.wait()
            assert not orders.hurry.is_set()
            orders.withdraw_request()
        assert not orders.requested.is_set()


async def test_a_closed_terminal_means_exit():
    with ExitSignals(at_terminal=True) as orders:
        os.kill(os.getpid(), signal.SIGHUP)
        await orders.requested.wait()
        assert orders.action == "leave"
