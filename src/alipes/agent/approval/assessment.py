"""Assessment of tool calls: which of them are dangerous, and why."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from importlib import import_module
from typing import Any

from msgspec import structs

from alipes.agent.approval.files import FILE_TOOLS, FileApproval
from alipes.agent.approval.risk import Counts, Risk, first_risk
from alipes.kernel.errors import ToolError
from alipes.kernel.messages import ToolCall
from alipes.kernel.turns import Turn
from alipes.tools.boundary import FileBoundary
from alipes.tools.common import Places

COMMAND_TOOLS = frozenset(("terminal", "process", "execute_code"))
"""Tools that run in the sandbox, if there is one."""
MAX_CHARS = 256_000
"""Longest text that is checked; a longer one needs approval."""
MAX_LINES = 100
"""Lines of input to a process that are checked one by one."""
MAX_REASONS = 6
_EXACT_RULES = frozenset(("secret", "own", "startup", "trusted", "outside", "judge", "unclear", "hidden", "credential"))
"""Rules whose approval is for one call only; no pattern covers it."""


async def assess_off_loop(
    call: ToolCall, turn: Turn, files: FileApproval, *, contained: bool = False, protected: bool = False
) -> Risk | None:
    """In a thread: a long text takes a while, and files are opened and script files are read."""
    workdir, places = turn.inbound.workdir, files.boundary.places
    if call.name in FILE_TOOLS:
        return _join_risks(await asyncio.to_thread(files.assess, call, (turn.session, call.id), workdir, turn))
    assess = partial(assess_call, call, workdir, places, contained=contained, protected=protected)
    return await asyncio.to_thread(assess) if call.name in COMMAND_TOOLS else assess()


def assess_call(
    call: ToolCall, workdir: str, places: Places, *, contained: bool = False, protected: bool = False
) -> Risk | None:
    """The risk of a call, the same in every mode; None if it needs no approval.

    `contained`: the call runs in a sandbox; `protected`: that also protects hooks and CI files of the project. Several
    risks are joined, except for one that nothing allows.
    """
    outside = bool(call.args.get("outside"))
    if call.name in FILE_TOOLS:
        return _assess_files(call, workdir, places)
    if call.name in COMMAND_TOOLS and contained and not outside:
        counts = _crosses_protection if protected else _crosses_boundary
        return _join_risks(_find_risks(call, workdir, places, counts, contained=True))
    risks = _find_risks(call, workdir, places, _any_risk)
    risk = _join_risks(risks)
    if risk is not None and not risk.floor:
        risk = _assess(call, workdir, places, _is_floor) or risk
    if call.name in COMMAND_TOOLS and outside:
        reason = f"runs outside the sandbox; {risk.reason}" if risk else "runs outside the sandbox"
        return Risk("outside", reason, floor=risk is not None and risk.floor, exact=True)
    return risk


def _find_risks(call: ToolCall, workdir: str, places: Places, counts: Counts, *, contained: bool = False) -> list[Risk]:
    """All risks with different reasons: each pass looks for one that is not known yet."""
    found: list[Risk] = []
    while len(found) < MAX_REASONS:
        known = {each.reason for each in found}

        def is_new(risk: Risk, known: set[str] = known) -> bool:
            return counts(risk) and risk.reason not in known and not (known and risk.rule == "unclear")

        risk = _assess(call, workdir, places, is_new, contained=contained)
        if risk is None or risk.reason in known:
            break
        found.append(structs.replace(risk, also=()))
    return found


def _join_risks(risks: list[Risk]) -> Risk | None:
    """One risk with all reasons. Its rule is that of the first; reading a secret comes before others."""
    if not risks:
        return None
    if (floor := next((each for each in risks if each.floor), None)) is not None:
        return floor
    risks = [*{each.reason: each for each in reversed(risks)}.values()][: -MAX_REASONS - 1 : -1]
    first = next((each for each in risks if each.rule == "secret"), risks[0])
    exact = any(each.exact or each.unseen or each.rule in _EXACT_RULES for each in risks)
    same = all((each.rule, each.scope) == (first.rule, first.scope) for each in risks)
    scope = first.scope if same else "machine"
    paths = tuple(path for each in risks for path in each.paths)
    whys = "; ".join(each.why or each.reason for each in risks)
    joined = first if len(risks) == 1 else structs.replace(first, question=None, why=whys)
    reasons = "; ".join(each.reason for each in risks)
    return structs.replace(joined, reason=reasons, scope=scope, exact=exact, paths=paths)


def _assess_files(call: ToolCall, workdir: str, places: Places) -> Risk | None:
    boundary, key = FileBoundary(places), ("", call.id)
    try:
        return _join_risks(FileApproval(boundary).assess(call, key, workdir))
    finally:
        boundary.release(*key)


def _crosses_boundary(risk: Risk) -> bool:
    return risk.scope != "machine"


def _crosses_protection(risk: Risk) -> bool:
    """The sandbox itself prevents changes of trusted files that the rules only suspect."""
    return _crosses_boundary(risk) and (risk.rule != "trusted" or bool(risk.paths))


def _any_risk(risk: Risk) -> bool:
    return True


def _is_floor(risk: Risk) -> bool:
    return risk.floor


def _shell_rules(*, contained: bool) -> Any:
    """The rules for commands, imported with the first one that is checked: they are a dozen modules, and those for a
    machine without a sandbox as many again."""
    return import_module(f"alipes.agent.approval.shell.{'rules' if contained else 'host.rules'}")


def _assess(call: ToolCall, workdir: str, places: Places, counts: Counts, *, contained: bool = False) -> Risk | None:
    with suppress(ToolError):  # an invalid path, which the tool reports
        match call.name, call.args:
            case "terminal", {"command": str(command), **more}:
                folder = more.get("workdir")
                start = str(places.resolve(folder, workdir)) if isinstance(folder, str) and folder else ""
                if len(command) > MAX_CHARS:
                    return _too_long(command, counts)
                rules = _shell_rules(contained=contained)
                found: Risk | None = rules.judge(command, places, workdir, start, counts=counts)
                return found
            case "execute_code", {"code": str(code)}:
                if len(code) > MAX_CHARS:
                    return _too_long(code, counts)
                found = _shell_rules(contained=contained).judge_code(code, places, workdir, counts=counts)
                return found  # noqa: RET504 - typed
            case "process", {"action": "write", "data": str(data)}:  # it may go to a shell or to another program
                if len(data) > MAX_CHARS:
                    return _too_long(data, counts)
                judge = partial(_shell_rules(contained=contained).judge, places=places, workdir=workdir, counts=counts)
                return _assess_input(data, judge)
    return None


def _too_long(text: str, counts: Counts) -> Risk | None:
    risk = Risk("unclear", f"is too long to check ({len(text) // 1000} KB)")
    return risk if counts(risk) else None


def _assess_input(data: str, judge: Callable[[str], Risk | None]) -> Risk | None:
    """Input that cannot be parsed may be unfinished, or for another program than a shell: then line by line."""
    risk = judge(data)
    if risk is None or risk.rule != "unclear":
        return risk
    lines = map(judge, data.splitlines()[-MAX_LINES:])
    return first_risk(risk for risk in lines if risk and risk.rule != "unclear")
