"""Runs one plan through all its crashes and collects the violations."""

import asyncio
import hashlib

from msgspec import Struct

from alipes.kernel.errors import StoreError
from tests.simulation.checks import check_outcome
from tests.simulation.fake_network import FakeNetwork
from tests.simulation.loop import DROPPED_TASKS, Crashed, Deadlock, SeededLoop
from tests.simulation.machine import Machine, collect_dropped, install
from tests.simulation.observer import Observer
from tests.simulation.plan import Fault, Plan
from tests.simulation.process import run_process

SETTLE_LIMIT = 700.0
"""Virtual seconds after the last action within which everything must settle."""
EXIT_LIMIT = 30.0
"""Virtual seconds that a cancelled process has to end."""
MAX_PROCESSES = 12


class Outcome(Struct, frozen=True):
    plan: Plan
    violations: tuple[str, ...]
    """Empty if the run passed."""
    digest: str
    """Hash of the trace: the same for the same plan."""
    steps: int
    processes: int
    seconds: float
    """Virtual seconds."""
    trace: tuple[tuple[object, ...], ...] = ()


def run(plan: Plan) -> Outcome:
    if len(DROPPED_TASKS) > 2000:
        collect_dropped()
    machine = Machine(plan.seed)
    network = FakeNetwork(machine, plan.faults)
    run = _Run(plan, machine, network)
    with install(machine):
        try:
            run.run_all()
        except Deadlock:
            machine.report("deadlock: nothing is scheduled, but work is left")
    trace = tuple(machine.trace)
    digest = hashlib.sha256(repr((trace, machine.violations)).encode()).hexdigest()[:16]
    machine.disk.halt()
    return Outcome(plan, tuple(machine.violations), digest, run.steps, run.processes, machine.clock[0] - 100.0, trace)


class _Run:
    def __init__(self, plan: Plan, machine: Machine, network: FakeNetwork) -> None:
        self._plan, self._machine, self._network = plan, machine, network
        self._observer = Observer(machine, network, plan)
        self._ends = [each for each in plan.faults if each.kind in ("crash", "power", "term")]
        machine.full_at = next((each.nth for each in plan.faults if each.kind == "full"), 0)
        machine.disk.cuts = any(each.kind == "power" for each in plan.faults)
        self._actions = list(plan.actions)
        self._over = False
        self._seen = self._stepped = -1
        self._limit = 100.0 + max((each.at for each in plan.actions), default=0.0) + SETTLE_LIMIT
        self.steps = self.processes = 0

    def run_all(self) -> None:
        while not self._over:
            self.processes += 1
            if self.processes > MAX_PROCESSES:
                self._machine.report(f"it does not settle within {MAX_PROCESSES} processes")
                break
            self._run_one(self._ends.pop(0) if self._ends else None)
        check_outcome(self._machine, self._network, self._observer, self._plan)

    def _run_one(self, end: Fault | None) -> None:
        machine = self._machine
        loop = machine.loop = SeededLoop(machine.clock, machine.rng)
        self._observer.turns.clear()
        self._observer.running_tools.clear()
        loop.on_task, loop.on_idle, loop.on_step = self._observer.on_task, self._on_idle, self._on_step
        loop.set_exception_handler(self._on_unhandled)
        root = loop.create_task(run_process(machine, self._network, self._observer, self._plan))
        root.add_done_callback(lambda _root: loop.stop())
        if end is not None:
            loop.crash_at = end.nth
            if end.kind == "term":
                loop.on_crash = root.cancel  # type: ignore[assignment]
        self._network.start_process()
        for action in self._actions:
            loop.call_at(max(100.0 + action.at, loop.time()), self._apply, action)
        try:
            loop.run_forever()
            if not root.done():  # finished: end it as a signal would
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
                root.exception()  # it ended and crashed at the same moment
            loop.drop()
        machine.clock[0] += machine.rng.choice((0.1, 1.0, 5.0))

    def _wait(self, loop: SeededLoop, root: "asyncio.Task[None]") -> None:
        until = loop.time() + EXIT_LIMIT
        while not root.done():
            if loop.time() >= until:
                self._machine.report(f"it does not end within {EXIT_LIMIT:.0f} s of being cancelled")
                raise Crashed
            loop.call_later(EXIT_LIMIT, loop.stop)
            loop.run_forever()

    def _apply(self, action: object) -> None:
        self._actions.remove(action)  # type: ignore[arg-type]
        self._network.apply(action)  # type: ignore[arg-type]

    def _on_step(self) -> None:
        """After every step that changed something outside the process."""
        if self._machine.changes != self._stepped:
            self._stepped = self._machine.changes
            self._observer.check(rest=False)

    def _on_idle(self) -> None:
        """Called whenever nothing is ready."""
        machine = self._machine
        if machine.violations:  # no need to wait for the rest
            self._limit = min(self._limit, machine.clock[0] + 60.0)
        if machine.clock[0] > self._limit and not self._over:
            machine.report(f"work is left after {SETTLE_LIMIT:.0f} s")
            self._over = True
            machine.loop.stop()
        if machine.changes == self._seen:
            return
        self._seen = machine.changes
        self._observer.check(rest=True)
        if not self._over and not self._actions and not self._network.expected and self._settled():
            self._over = True
            machine.loop.call_later(8.0, machine.loop.stop)

    def _settled(self) -> bool:
        (open_,) = self._machine.disk.rows(
            "SELECT (SELECT count(*) FROM turns WHERE ending IS NULL AND held = 0) + "
            "(SELECT count(*) FROM outbox WHERE state IN ('queued', 'sending')) + "
            "(SELECT count(*) FROM inbox WHERE handled IS NULL) + "
            "(SELECT count(*) FROM schedule_runs WHERE state IN ('waiting', 'running') OR settled = 0) + "
            "(SELECT count(*) FROM schedules WHERE state = 'on')"
        )
        jobs = self._machine.disk.rows("SELECT count(DISTINCT schedule_id) FROM schedule_runs")
        return not open_[0] and jobs[0][0] == len(self._plan.jobs)

    def _ended(self, loop: SeededLoop, root: "asyncio.Task[None]", end: Fault | None) -> None:
        machine = self._machine
        machine.record("ended")
        error = None if root.cancelled() else root.exception()
        if error is not None and not (isinstance(error, StoreError) and machine.writes >= machine.full_at > 0):
            machine.report(f"the process ended by {error!r}")
        left = [each.get_name() for each in loop.tasks if not each.done()]
        if left:
            machine.report(f"tasks outlive the process: {left}")
        if +self._network.asking:
            machine.report("a request to the model outlives the process")
        if +self._observer.running_tools:
            machine.report("a tool outlives the process")
        self._network.crash()

    def _crash(self, loop: SeededLoop, end: Fault | None) -> None:
        machine = self._machine
        machine.record("crash")
        loop.dead, self._over = True, False
        self._network.crash()
        machine.alive = ""
        if end is not None and end.kind == "power":
            machine.disk.cut_power()
            self._observer.forget()
        else:
            machine.disk.halt()

    def _on_unhandled(self, _loop: object, about: dict[str, object]) -> None:
        self._machine.report(f"unhandled: {about.get('message')} {about.get('exception')!r}")
