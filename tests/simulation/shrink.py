"""Shrinks a failing plan: removes everything that is not needed for the failure."""

import re
from collections.abc import Callable

from msgspec import structs

from tests.simulation.plan import Plan, without
from tests.simulation.run import Outcome, run

_DETAILS = re.compile(r"\(at .*|c\d+[a-z]\d+\S*|\b[0-9a-f]{8,}\b|\d+")


def kind(violations: str) -> str:
    """A violation without names and numbers."""
    return _DETAILS.sub("#", violations)


def shrink(failed: Outcome, tries: int = 400) -> Outcome:
    """The smallest plan found in `tries` runs that fails in the same way."""
    left, sought = [tries], kind(failed.violations[0])

    def attempt(plan: Plan) -> Outcome | None:
        if left[0] <= 0:
            return None
        left[0] -= 1
        outcome = run(plan)
        return outcome if sought in map(kind, outcome.violations) else None

    while (smaller := _smaller(failed.plan, attempt)) is not None:
        failed = smaller
    return failed


def _smaller(plan: Plan, attempt: Callable[[Plan], Outcome | None]) -> Outcome | None:
    for candidate in _candidates(plan):
        if (outcome := attempt(candidate)) is not None:
            return outcome
    return None


def _candidates(plan: Plan) -> list[Plan]:
    """The plan with one entry less; large reductions first."""
    actions, faults = len(plan.actions), len(plan.faults)
    found = [without(plan, set(range(actions)) - {each}, set()) for each in range(actions) if actions > 1]
    found += [without(plan, set(), {each}) for each in range(faults)]
    found += [without(plan, {each}, set()) for each in range(actions) if actions > 1]
    for number, action in enumerate(plan.actions):
        verb, _, token = action.text.partition(" ")
        if action.kind == "say" and verb != "echo":
            plain = structs.replace(action, text=f"echo {token}")
            replaced = (*plan.actions[:number], plain, *plan.actions[number + 1 :])
            found.append(structs.replace(plan, actions=replaced))
    found += [structs.replace(plan, jobs=tuple(job for job in plan.jobs if job != each)) for each in plan.jobs]
    if plan.busy != "queue":
        found.append(structs.replace(plan, busy="queue"))
    if plan.progress != "off":
        found.append(structs.replace(plan, progress="off"))
    return found
