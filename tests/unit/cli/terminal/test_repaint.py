"""When the screen is painted: seldom enough, soon enough, and not at all without a reason."""

import asyncio
import time

from alipes.cli.terminal.repaint import PAINTINGS, Pulse
from alipes.cli.terminal.status import Status
from alipes.kernel.turns import TurnEnded, TurnStarted


class Screen:
    def __init__(self) -> None:
        self.status = Status()
        self.status.doing = ""
        self.times: list[float] = []
        self.pulse = Pulse(self.status, self.paint, lambda: self.times[-1] if self.times else 0.0)

    def paint(self) -> None:
        self.times.append(time.monotonic())


async def test_many_changes_are_painted_seldom():
    screen = Screen()
    began = time.monotonic()
    while time.monotonic() - began < 0.5:
        screen.pulse.refresh()
        await asyncio.sleep(0.001)
    assert 2 <= len(screen.times) <= 0.6 * PAINTINGS + 2
    await asyncio.sleep(2 / PAINTINGS)
    painted = len(screen.times)
    await asyncio.sleep(0.3)
    assert len(screen.times) == painted  # nothing changed since


async def test_what_is_waited_for_is_painted_at_once():
    screen = Screen()
    screen.pulse.now()
    screen.pulse.now()
    assert len(screen.times) == 2


async def test_the_clock_of_a_turn_is_painted_and_stops_with_it():
    screen = Screen()
    screen.status.tell(TurnStarted("t", "s"))
    screen.pulse.refresh()
    await asyncio.sleep(1.3)
    assert len(screen.times) == 2
    screen.status.tell(TurnEnded("t", "answered"))
    screen.pulse.refresh()
    await asyncio.sleep(1.3)
    painted = len(screen.times)
    await asyncio.sleep(1.2)
    assert len(screen.times) == painted
    screen.pulse.stop()


async def test_a_hint_goes_away_by_itself_and_the_latest_counts():
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
