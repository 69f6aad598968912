"""A failing plan made small: what can be left out while it still fails is left out."""

import re
from collections.abc import Callable

from msgspec import structs

from tests.simulation.plan import Plan, without
from tests.simulation.run import Outcome, run

_PARTICULARS = re.compile(r"\(at .*|c\d+[a-z]\d+\S*|\b[0-9a-f]{8,}\b|\d+")


def kind(wrong: str) -> str:
    """A complaint without its particulars."""
    return _PARTICULARS.sub("#", wrong)


def shrink(failed: Outcome, tries: int = 400) -> Outcome:
    """The smallest that was found in so many tries and fails in the same way: fewer deeds and faults, plainer
    words."""
    left, sought = [tries], kind(failed.wrong[0])

    def attempt(plan: Plan) -> Outcome | None:
        if left[0] <= 0:
            return None
        left[0] -= 1
        outcome = run(plan)
        return outcome if sought in map(kind, outcome.wrong) else None

    while (smaller := _smaller(failed.plan, attempt)) is not None:
        failed = smaller
    return failed


def _smaller(plan: Plan, attempt: Callable[[Plan], Outcome | None]) -> Outcome | None:
    for candidate in _candidates(plan):
        if (outcome := attempt(candidate)) is not None:
            return outcome
    return None


def _candidates(plan: Plan) -> list[Plan]:
    """The same with one thing less; large pieces first."""
    deeds, faults = len(plan.deeds), len(plan.faults)
    found = [without(plan, set(range(deeds)) - {each}, set()) for each in range(deeds) if deeds > 1]
    found += [without(plan, set(), {each}) for each in range(faults)]
    found += [without(plan, {each}, set()) for each in range(deeds) if deeds > 1]
    for number, deed in enumerate(plan.deeds):
        verb, _, token = deed.text.partition(" ")
        if deed.kind == "say" and verb != "echo":
            plain = structs.replace(deed, text=f"echo {token}")
            replaced = (*plan.deeds[:number], plain, *plan.deeds[number + 1 :])
            found.append(structs.replace(plan, deeds=replaced))
    if plan.busy != "queue":
        found.append(structs.replace(plan, busy="queue"))
    if plan.progress != "off":
        found.append(structs.replace(plan, progress="off"))
    return found
