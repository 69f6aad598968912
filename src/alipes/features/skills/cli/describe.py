"""Shows a skill before a person accepts it: its fields, files, and warnings about them."""

from collections.abc import Iterable, Iterator
from pathlib import Path

from alipes.config.settings import Settings
from alipes.console.common import DescriptionRow, print_lines, print_rows
from alipes.features.skills.scan import SkillFinding, scan_skill
from alipes.features.skills.skill import Skill
from alipes.features.skills.versions import SkillFiles
from alipes.kernel.approvals import reveal
from alipes.kernel.formatting import format_count, format_size
from alipes.plugins.install.scan import POWER_LABELS, scan_code
from alipes.tools.common import make_places

MAX_FILES_SHOWN = 20
MAX_FINDINGS_SHOWN = 30


def show_skill(settings: Settings, skill: Skill, files: SkillFiles, *, source: str, folder: Path) -> None:
    """Print what a person needs to decide about a skill. `folder`: where its files are now."""
    print_rows((label, reveal(text)) for label, text in describe_skill(settings, skill, files, source, folder))


def describe_skill(
    settings: Settings, skill: Skill, files: SkillFiles, source: str, folder: Path
) -> Iterator[DescriptionRow]:
    """What a person needs to decide about a skill. `folder`: where its files are now."""
    size = sum(len(file.data) for file in files.values())
    yield "", skill.name
    yield "", skill.description
    yield "", ""
    yield "from", source
    yield "files", f"{_join(sorted(files), MAX_FILES_SHOWN)} ({format_size(size)})"
    scripts = [path for path, file in sorted(files.items()) if file.executable or file.data.startswith(b"#!")]
    if scripts:
        yield "scripts", _join(scripts, MAX_FILES_SHOWN)
    if skill.license:
        yield "license", skill.license
    if skill.compatibility:
        yield "needs", skill.compatibility
    if skill.allowed_tools:
        yield "tools", f"{', '.join(skill.allowed_tools)} (it gets no rights by that)"
    code = scan_code(folder, [folder / path for path in sorted(files) if path.endswith(".py")])
    for power, label in POWER_LABELS.items():
        if used := code.powers.get(power):
            yield label, _join([f"{what} ({places[0]})" for what, places in used.items()], MAX_FILES_SHOWN)
    yield from (("remark", each) for each in skill.remarks)
    yield from describe_findings(scan_skill(files, make_places(settings)))
    yield "", ""
    yield "", "The model follows a skill when it fits a task. What it then does is asked about as usual."


def describe_findings(findings: Iterable[SkillFinding]) -> Iterator[DescriptionRow]:
    listed = list(findings)
    for each in listed[:MAX_FINDINGS_SHOWN]:
        yield "look at", f"{each.place}: {each.kind}: {each.says}"
    if len(listed) > MAX_FINDINGS_SHOWN:
        yield "look at", f"{format_count(len(listed) - MAX_FINDINGS_SHOWN, 'more place')}"


def print_diff(diff: str) -> None:
    print_lines(reveal(line) for line in diff.splitlines())


def _join(names: list[str], most: int) -> str:
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more
