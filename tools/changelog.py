"""Assemble CHANGELOG.md from the fragments in changelog.d/.

    python tools/changelog.py          write CHANGELOG.md
    python tools/changelog.py --check  fail if it is out of date

A fragment is `NNNN-topic.md`: a list of changes that a user can notice. The topic becomes its heading; higher
numbers come first. Those of the next release are in `changelog.d/`, those of a release in a folder with its number.
`highlights.md` is what a person notices first.
"""

import re
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "CHANGELOG.md"
FRAGMENT = re.compile(r"(\d{4})-([a-z0-9-]+)")
NAMES = {
    "http": "HTTP",
    "api": "API",
    "irc": "IRC",
    "openai": "OpenAI",
    "hermes": "Hermes",
    "discord": "Discord",
    "mcp": "MCP",
}
HEAD = """\
# Changelog

Assembled from `changelog.d/` by `tools/changelog.py`; edit the fragments, not this file.
"""
HIGHLIGHTS = "highlights.md"


def assemble(root: Path = ROOT) -> str:
    """The text of CHANGELOG.md. Raises `ValueError` for a fragment with another name."""
    source = (root / "src" / "alipes" / "__init__.py").read_text()
    (version,) = re.findall(r'^__version__ = "(.*)"$', source, re.MULTILINE)
    fragments = root / "changelog.d"
    releases = sorted((each for each in fragments.iterdir() if each.is_dir()), key=_release_order, reverse=True)
    return HEAD + "".join(
        _section(name, folder) for name, folder in [(version, fragments), *((x.name, x) for x in releases)]
    )


def _section(version: str, folder: Path) -> str:
    """What one release changed."""
    parts = [f"\n## {version}\n"]
    if (first := folder / HIGHLIGHTS).is_file():
        parts.append(f"{first.read_text().strip()}\n")
    for path in sorted((each for each in folder.glob("*.md") if each.name != HIGHLIGHTS), key=_order):
        parts.append(f"\n### {_title(_match(path)[2])}\n{path.read_text().strip()}\n")
    return "".join(parts)


def _release_order(folder: Path) -> tuple[int, ...]:
    return tuple(map(int, folder.name.split(".")))


def _title(topic: str) -> str:
    first, *rest = (NAMES.get(word, word) for word in topic.split("-"))
    return " ".join([first[0].upper() + first[1:], *rest])


def _order(path: Path) -> tuple[int, str]:
    return -int(_match(path)[1]), path.name


def _match(path: Path) -> re.Match[str]:
    found = FRAGMENT.fullmatch(path.stem)
    if found is None:
        raise ValueError(f"{path}: name it NNNN-topic.md, in lower case")
    return found


def main() -> int:
    text = assemble()
    if "--check" in sys.argv[1:]:
        return 0 if PAGE.is_file() and PAGE.read_text() == text else 1
    PAGE.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
