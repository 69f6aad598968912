"""When the screen is repainted, on an event loop whose clock jumps to the next timer."""

import asyncio
from collections.abc import Callable, Coroutine
from functools import wraps
from typing import Any

from alipes.cli.terminal.screen.repaint import MAX_FPS, RepaintTimer
from alipes.cli.terminal.screen.status import StatusLine
from alipes.kernel.turns import TurnEnded, TurnStarted


class JumpingLoop(asyncio.SelectorEventLoop):
    """Never waits: if nothing is ready, it is time for the next timer."""

    now = 1000.0

    def time(self) -> float:
        return self.now

    def _run_once(self) -> None:
        if not self._ready and self._scheduled:
            self.now = max(self.now, self._scheduled[0].when())
        super()._run_once()


def without_waiting(test: Callable[[], Coroutine[Any, Any, None]]) -> Callable[[], None]:
    @wraps(test)
    def run() -> None:
        with asyncio.Runner(loop_factory=JumpingLoop) as runner:
            runner.run(test())

    return run


class Screen:
    def __init__(self) -> None:
        self.status = StatusLine()
        self.status.activity = ""
        self.times: list[float] = []
        self.pulse = RepaintTimer(self.status, self.paint, lambda: self.times[-1] if self.times else 0.0)

    def paint(self) -> None:
        self.times.append(asyncio.get_running_loop().time())


@without_waiting
async def test_many_changes_are_combined_into_few_repaints():
    screen = Screen()
    for _ in range(500):
        screen.pulse.refresh()
        await asyncio.sleep(0.001)
    assert 0.4 * MAX_FPS <= len(screen.times) <= 0.6 * MAX_FPS + 1
    await asyncio.sleep(2 / MAX_FPS)
    painted = len(screen.times)
    await asyncio.sleep(60)
    assert len(screen.times) == painted, "nothing changed since"


@without_waiting
async def test_paint_now_repaints_at_once():
    screen = Screen()
    screen.pulse.paint_now()
    screen.pulse.paint_now()
    assert len(screen.times) == 2


@without_waiting
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
    await asyncio.sleep(60)
    assert len(screen.times) == painted
    screen.pulse.stop()


@without_waiting
async def test_a_hint_disappears_by_itself_and_the_latest_wins():
    screen = Screen()
    screen.pulse.hint("one", 1)
    screen.pulse.hint("two", 2)
    await asyncio.sleep(1.5)
    assert screen.status.hint == "two"
    await asyncio.sleep(1)
    assert screen.status.hint == "" and screen.times
    screen.pulse.hint("three", 60)
    screen.pulse.stop()
