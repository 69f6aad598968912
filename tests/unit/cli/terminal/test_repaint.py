"""When the screen is repainted."""

import asyncio
import time

from alipes.cli.terminal.screen.repaint import MAX_FPS, RepaintTimer
from alipes.cli.terminal.screen.status import StatusLine
from alipes.kernel.turns import TurnEnded, TurnStarted


class Screen:
    def __init__(self) -> None:
        self.status = StatusLine()
        self.status.activity = ""
        self.times: list[float] = []
        self.pulse = RepaintTimer(self.status, self.paint, lambda: self.times[-1] if self.times else 0.0)

    def paint(self) -> None:
        self.times.append(time.monotonic())


async def test_many_changes_are_combined_into_few_repaints():
    screen = Screen()
    began = time.monotonic()
    while time.monotonic() - began < 0.5:
        screen.pulse.refresh()
        await asyncio.sleep(0.001)
    assert 2 <= len(screen.times) <= 0.6 * MAX_FPS + 2
    await asyncio.sleep(2 / MAX_FPS)
    painted = len(screen.times)
    await asyncio.sleep(0.3)
    assert len(screen.times) == painted  # nothing changed since


async def test_paint_now_repaints_at_once():
    screen = Screen()
    screen.pulse.paint_now()
    screen.pulse.paint_now()
    assert len(screen.times) == 2


async def test_the_elapsed_time_is_repainted_during_a_turn():
    screen = Screen()
    screen.status.handle_event(TurnStarted("t", "s"))
    screen.pulse.refresh()
    await asyncio.sleep(1.3)
    assert len(screen.times) == 2
    screen.status.handle_event(TurnEnded("t", "answered"))
    screen.pulse.refresh()
    await asyncio.sleep(1.3)
    painted = len(screen.times)
    await asyncio.sleep(1.2)
    assert len(screen.times) == painted
    screen.pulse.stop()


async def test_a_hint_disappears_by_itself_and_the_latest_wins():
    screen = Screen()
    screen.pulse.hint("one", 0.1)
    screen.pulse.hint("two", 0.2)
    assert screen.status.hint == "two"
    await asyncio.sleep(0.15)
    assert screen.status.hint == "two"
    await asyncio.sleep(0.2)
    assert screen.status.hint == "" and screen.times
    screen.pulse.hint("three", 60)
    screen.pulse.stop()
