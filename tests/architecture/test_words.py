"""Plain words: none of the listed words may occur in code, strings, comments, names or docs."""

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]
RULES = tomllib.loads((ROOT / "architecture.toml").read_text())["words"]
FORBIDDEN = re.compile(rf"(?<![A-Za-z])({'|'.join(map(re.escape, RULES['forbidden']))})(?![A-Za-z])", re.IGNORECASE)
KINDS = {".py", ".md", ".toml", ".sh", ".html", ".js", ""}


def texts() -> list[Path]:
    """Every text file of the repository, except those that quote the words."""
    tops = [ROOT / name for name in RULES["folders"]]
    paths = [*ROOT.glob("*"), *(path for top in tops for path in top.rglob("*"))]
    wanted = [path for path in paths if path.suffix in KINDS and path.is_file()]
    return [path for path in wanted if str(path.relative_to(ROOT)) not in RULES["exempt"]]


def test_no_forbidden_word_is_used():
    found = [
        f"{path.relative_to(ROOT)}:{number}: {match[1]}"
        for path in texts()
        for number, line in enumerate(path.read_text(errors="replace").splitlines(), 1)
        for match in FORBIDDEN.finditer(line.replace("_", " "))
    ]
    assert found == [], f"{len(found)} forbidden words; say it in plain English (architecture.toml)"


def test_the_check_finds_a_word_in_a_name_and_in_a_sentence():
    assert FORBIDDEN.search("def test_who_is_told".replace("_", " "))
    assert FORBIDDEN.search("It goes on.") and not FORBIDDEN.search("It understands.")
