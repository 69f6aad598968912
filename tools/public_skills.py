"""Loads every SKILL.md below a folder, as with packages that were unpacked there, and prints which ones do not load.

    python tools/public_skills.py FOLDER

The figures in docs/skills.md were made with it. Each folder in FOLDER counts as one package.
"""

import sys
from collections import Counter
from pathlib import Path

from alipes.features.skills.scan import scan_skill
from alipes.features.skills.skill import SKILL_FILE, parse_skill
from alipes.features.skills.versions import SkillFile
from alipes.tools.common import Places


def main(folder: Path) -> int:
    places = Places(home="/home/user", alipes_home="/home/user/.alipes")
    packages: dict[str, Counter[str]] = {}
    seen: set[bytes] = set()
    for file in sorted(folder.rglob(SKILL_FILE)):
        data = file.read_bytes()
        if data in seen:
            continue
        seen.add(data)
        counts = packages.setdefault(file.relative_to(folder).parts[0], Counter())
        counts["skills"] += 1
        try:
            parsed = parse_skill(data.decode("utf-8", "replace"), str(file.parent))
        except ValueError as error:
            print(f"{file.relative_to(folder)}: {error}")
            continue
        counts["loaded"] += 1
        counts["with remarks"] += bool(parsed.skill.remarks)
        for finding in scan_skill({SKILL_FILE: SkillFile(data)}, places):
            counts[finding.kind] += 1
    total: Counter[str] = Counter()
    for name, counts in packages.items():
        total += counts
        print(f"{name}: {dict(counts)}")
    print(f"all: {dict(total)}")
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
