"""The report of an import: what was taken, what was left out and why, and what to do next."""

import time
from pathlib import Path
from typing import Any

import msgspec

from alipes.features.importer.importer import ImportResult, ItemResult
from alipes.features.importer.journal import replace_file
from alipes.features.importer.plan import Plan
from alipes.features.importer.records import Kind
from alipes.features.importer.targets.people import AS_OWNER
from alipes.features.importer.targets.schedules import ARRIVES_PAUSED

REPORT = "report"
_NEXT: dict[Kind, str] = {
    "schedules": "Schedules arrived paused. Stop the other program, then: alipes schedule resume NAME",
    "mcp": "MCP servers are disabled, because they run as you. Look at them: alipes mcp list",
    "plugins": "Plugins and hooks are disabled. Look at them: alipes plugins doctor, alipes plugins enable NAME",
    "skills": "Look at skills with scripts before you use them: alipes skills list",
    "people": "People have access as users. Make yourself the owner: [PLATFORM] owners in config.toml",
}


def next_steps(result: ImportResult) -> list[str]:
    """What the person does next, a sentence for each."""
    taken = [each.item for each in result.results if not each.problem]
    kinds = {item.kind for item in taken}
    if not any(item.kind == "skills" and item.sensitive for item in taken):
        kinds.discard("skills")
    if not any(item.kind == "schedules" and ARRIVES_PAUSED in item.why for item in taken):
        kinds.discard("schedules")
    if any(item.kind == "people" and item.why == AS_OWNER for item in taken):
        kinds.discard("people")
    steps = [text for kind, text in _NEXT.items() if kind in kinds]
    left = [item for item in result.plan.items if item.kind == "keys" and item.state == "left out"]
    if any(item.why.startswith("only with") for item in left):
        steps.append("Keys were not copied. Set them, or import again with --secrets --only keys")
    if any(item.why.startswith("logins") for item in left):
        steps.append("Log in again where the other program was logged in: alipes setup")
    if any(item.kind == "permissions" for item in result.plan.items):
        steps.append("Standing permissions were not taken over: alipes asks you again")
    return steps


def sum_results(result: ImportResult) -> dict[str, dict[str, int]]:
    """By kind: how many were imported, failed, and were as they are already or left out."""
    sums: dict[str, dict[str, int]] = {}
    for each in result.results:
        found = sums.setdefault(each.item.kind, {})
        name = "problem" if each.problem else "imported"
        found[name] = found.get(name, 0) + 1
    for kind, counts in result.plan.sums().items():
        found = sums.setdefault(kind, {})
        found |= {state: counts[state] for state in ("same", "left out") if state in counts}
    return sums


def write_report(folder: Path, result: ImportResult) -> Path:
    """Both files; returns the one for people."""
    document = {
        "id": result.id,
        "at": time.time(),
        "sums": sum_results(result),
        "plan": result.plan,
        "problems": [{"id": each.item.id, "problem": each.problem} for each in result.results if each.problem],
        "differences": result.differences,
        "plugins": result.plugins,
        "next": next_steps(result),
    }
    replace_file(folder / f"{REPORT}.json", msgspec.json.format(msgspec.json.encode(document), indent=1))
    page = folder / f"{REPORT}.md"
    replace_file(page, "\n".join([*_page(result), ""]).encode())
    return page


def mark_undone(folder: Path, kept: tuple[str, ...]) -> None:
    """Say in the report that the import was taken back."""
    file = folder / f"{REPORT}.json"
    document: dict[str, Any] = msgspec.json.decode(file.read_bytes()) if file.is_file() else {}
    document |= {"undone": time.time(), "kept": kept}
    replace_file(file, msgspec.json.format(msgspec.json.encode(document), indent=1))
    page = folder / f"{REPORT}.md"
    text = page.read_text() if page.is_file() else ""
    lines = ["", "## Taken back", *(f"- kept: {line}" for line in kept), ""]
    replace_file(page, (text + "\n".join(lines)).encode())


def _page(result: ImportResult) -> list[str]:
    plan = result.plan
    lines = [f"# Import {result.id} from {plan.title}", "", f"From `{plan.home}`{_describe_version(plan)}.", ""]
    lines += ["| | " + " | ".join(("imported", "problem", "same", "left out")) + " |", "|---|---|---|---|---|"]
    for kind, counts in sum_results(result).items():
        cells = [str(counts.get(name, "")) for name in ("imported", "problem", "same", "left out")]
        lines.append(f"| {kind} | {' | '.join(cells)} |")
    problems = [f"- {each.item.kind}: {_code(each)}: {each.problem}" for each in result.results if each.problem]
    for head, found in (
        ("Not imported", problems),
        ("Different from the plan", [f"- {line}" for line in result.differences]),
        ("Plugins", [f"- {line}" for line in result.plugins]),
        ("Left out", [f"- {each.kind}: {each.what}: {each.why}" for each in plan.items if each.state == "left out"]),
        ("Kept as it was here", [f"- {each.kind}: {each.what}: {each.why}" for each in _kept(plan)]),
        ("Imported", [_line(each) for each in result.results if not each.problem]),
        ("What to do next", [f"- {step}" for step in next_steps(result)]),
        ("To take it back", [f"- alipes import undo {result.id}"]),
    ):
        if found:
            lines += ["", f"## {head}", *found]
    return lines


def _kept(plan: Plan) -> list[Any]:
    return [each for each in plan.items if each.state == "conflict" and plan.conflicts == "keep"]


def _line(each: ItemResult) -> str:
    item = each.item
    to = f" -> {item.target}" if item.target else ""
    why = f" ({item.why})" if item.why else ""
    return f"- {item.kind}: {item.what}{to}{why}"


def _code(each: ItemResult) -> str:
    return each.item.what


def _describe_version(plan: Plan) -> str:
    return f" ({plan.version})" if plan.version else ""
