"""`python -m tests.simulation SEED` replays one seed, `python -m tests.simulation FIRST LAST` runs many."""

import sys
import time

from tests.simulation.plan import plan
from tests.simulation.run import Outcome, run
from tests.simulation.shrink import shrink


def replay(seed: int) -> int:
    """Run the seed twice; print its trace, its violations and the smallest plan that still fails."""
    outcome, again = run(plan(seed)), run(plan(seed))
    _show(outcome)
    print(f"digest {outcome.digest}, again {again.digest}")
    if not outcome.violations:
        return 0
    smallest = shrink(outcome)
    print(f"\nthe smallest plan that still fails ({smallest.plan.size} of {outcome.plan.size} entries):")
    _show(smallest)
    return 1


def many(first: int, last: int) -> int:
    began, bad = time.process_time(), 0
    for seed in range(first, last):
        outcome = run(plan(seed))
        if outcome.violations:
            bad += 1
            print(f"seed {seed}: {outcome.violations[0]}", flush=True)
    spent = time.process_time() - began
    print(f"{last - first} seeds, {bad} failed, {(last - first) / spent * 60:.0f} per CPU-minute")
    return int(bad > 0)


def _show(outcome: Outcome) -> None:
    plan = outcome.plan
    print(f"seed {plan.seed}, busy {plan.busy}, progress {plan.progress}")
    for each in (*plan.actions, *plan.faults):
        print(f"  {each}")
    before: list[object] = []
    for at, step, *what in outcome.trace:
        if what == before:
            continue
        before = what
        print(f"  {at!s:>12} {step!s:>5}  {' '.join(str(each)[:100] for each in what)}")
    print(f"  {outcome.processes} processes, {outcome.steps} steps, {outcome.seconds:.1f} virtual seconds")
    for each in outcome.violations:
        print(f"  VIOLATION: {each}")


if __name__ == "__main__":
    numbers = [int(each) for each in sys.argv[1:]]
    sys.exit(replay(numbers[0]) if len(numbers) == 1 else many(*(numbers or [0, 500])))
