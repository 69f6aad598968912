"""One plan, run to its end through all its deaths; what was wrong on the way, and at the end."""

import asyncio
import hashlib

from msgspec import Struct

from alipes.kernel.errors import StoreError
from tests.simulation.checks import judge
from tests.simulation.fake_network import Outside
from tests.simulation.loop import MORGUE, Crashed, SeededLoop, Stuck
from tests.simulation.machine import Machine, collect, running
from tests.simulation.observer import Witness
from tests.simulation.plan import Fault, Plan
from tests.simulation.process import live

PATIENCE = 700.0
"""Virtual seconds after the last thing that was done, in which all must be settled."""
LEAVING = 30.0
"""Virtual seconds for a process to end that was asked to."""
LIVES = 12


class Outcome(Struct, frozen=True):
    plan: Plan
    wrong: tuple[str, ...]
    """What never may be; empty: all is well."""
    digest: str
    """Of everything that happened: the same for the same plan."""
    steps: int
    lives: int
    seconds: float
    """Virtual ones."""
    trace: tuple[tuple[object, ...], ...] = ()


def run(plan: Plan) -> Outcome:
    if len(MORGUE) > 2000:
        collect()
    machine = Machine(plan.seed)
    outside = Outside(machine, plan.faults)
    run = _Run(plan, machine, outside)
    with running(machine):
        try:
            run.all_lives()
        except Stuck:
            machine.blame("nothing is left that could happen, and not all is done")
    trace = tuple(machine.trace)
    digest = hashlib.sha256(repr((trace, machine.wrong)).encode()).hexdigest()[:16]
    machine.disk.halt()
    return Outcome(plan, tuple(machine.wrong), digest, run.steps, run.lives, machine.clock[0] - 100.0, trace)


class _Run:
    def __init__(self, plan: Plan, machine: Machine, outside: Outside) -> None:
        self._plan, self._machine, self._outside = plan, machine, outside
        self._witness = Witness(machine, outside, plan)
        self._ends = [each for each in plan.faults if each.kind in ("crash", "power", "term")]
        machine.full_at = next((each.nth for each in plan.faults if each.kind == "full"), 0)
        machine.disk.cuts = any(each.kind == "power" for each in plan.faults)
        self._deeds = list(plan.deeds)
        self._over = False
        self._seen = self._stepped = -1
        self._limit = 100.0 + max((each.at for each in plan.deeds), default=0.0) + PATIENCE
        self.steps = self.lives = 0

    def all_lives(self) -> None:
        while not self._over:
            self.lives += 1
            if self.lives > LIVES:
                self._machine.blame(f"it does not settle within {LIVES} processes")
                break
            self._life(self._ends.pop(0) if self._ends else None)
        judge(self._machine, self._outside, self._witness, self._plan)

    def _life(self, end: Fault | None) -> None:
        machine = self._machine
        loop = machine.loop = SeededLoop(machine.clock, machine.dice)
        self._witness.turns.clear()
        self._witness.acting.clear()
        loop.on_task, loop.on_rest, loop.on_step = self._witness.on_task, self._rest, self._step
        loop.set_exception_handler(self._unheard)
        root = loop.create_task(live(machine, self._outside, self._witness, self._plan))
        root.add_done_callback(lambda _root: loop.stop())
        if end is not None:
            loop.crash_at = end.nth
            if end.kind == "term":
                loop.on_crash = root.cancel  # type: ignore[assignment]
        self._outside.begin()
        for deed in self._deeds:
            loop.call_at(max(100.0 + deed.at, loop.time()), self._happen, deed)
        try:
            loop.run_forever()
            if not root.done():  # all is well: it ends as by a signal
                root.cancel()
                self._over = True
                loop.crash_at = 0
                self._wait(loop, root)
            self._ended(loop, root, end)
        except Crashed:
            self._crash(loop, end)
        finally:
            self.steps += loop.steps
            if root.done() and not root.cancelled():
                root.exception()  # it ended, and died the same moment
            loop.drop()
        machine.clock[0] += machine.dice.choice((0.1, 1.0, 5.0))

    def _wait(self, loop: SeededLoop, root: "asyncio.Task[None]") -> None:
        until = loop.time() + LEAVING
        while not root.done():
            if loop.time() >= until:
                self._machine.blame(f"it does not end within {LEAVING:.0f} s of being asked to")
                raise Crashed
            loop.call_later(LEAVING, loop.stop)
            loop.run_forever()

    def _happen(self, deed: object) -> None:
        self._deeds.remove(deed)  # type: ignore[arg-type]
        self._outside.happen(deed)  # type: ignore[arg-type]

    def _step(self) -> None:
        """After every step that changed something outside the process."""
        if self._machine.notes != self._stepped:
            self._stepped = self._machine.notes
            self._witness.look(rest=False)

    def _rest(self) -> None:
        """At every moment at which nothing can be done at once."""
        machine = self._machine
        if machine.wrong:  # it is not worth waiting for the rest
            self._limit = min(self._limit, machine.clock[0] + 60.0)
        if machine.clock[0] > self._limit and not self._over:
            machine.blame(f"not all is done after {PATIENCE:.0f} s")
            self._over = True
            machine.loop.stop()
        if machine.notes == self._seen:
            return
        self._seen = machine.notes
        self._witness.look(rest=True)
        if not self._over and not self._deeds and not self._outside.expected and self._settled():
            self._over = True
            machine.loop.call_later(8.0, machine.loop.stop)

    def _settled(self) -> bool:
        (open_,) = self._machine.disk.rows(
            "SELECT (SELECT count(*) FROM turns WHERE ending IS NULL) + "
            "(SELECT count(*) FROM outbox WHERE state IN ('queued', 'sending')) + "
            "(SELECT count(*) FROM inbox WHERE handled IS NULL)"
        )
        return not open_[0]

    def _ended(self, loop: SeededLoop, root: "asyncio.Task[None]", end: Fault | None) -> None:
        machine = self._machine
        machine.note("ended")
        error = None if root.cancelled() else root.exception()
        if error is not None and not (
            isinstance(error, StoreError) and machine.writes >= machine.full_at > 0
        ):
            machine.blame(f"the process ended by {error!r}")
        left = [each.get_name() for each in loop.everyone if not each.done()]
        if left:
            machine.blame(f"tasks outlive the process: {left}")
        if +self._outside.asking:
            machine.blame("a request to the model outlives the process")
        if +self._witness.acting:
            machine.blame("a tool outlives the process")
        self._outside.crash()

    def _crash(self, loop: SeededLoop, end: Fault | None) -> None:
        machine = self._machine
        machine.note("crash")
        loop.dead, self._over = True, False
        self._outside.crash()
        machine.alive = ""
        if end is not None and end.kind == "power":
            machine.disk.cut_power()
            self._witness.forget()
        else:
            machine.disk.halt()

    def _unheard(self, _loop: object, about: dict[str, object]) -> None:
        self._machine.blame(f"unheard: {about.get('message')} {about.get('exception')!r}")
