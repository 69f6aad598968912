"""Install extras, or the packages of a requirements file, and show one line with count, name and size.

    python tools/install.py TITLE NAME...      extras: `base`, `all` or their names, and the core
    python tools/install.py TITLE -r FILE

Uses only the standard library, because it runs before anything is installed.
"""

import os
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "src"))

from alipes.config import extras
from alipes.runtime.packages import InstallError, install

WIDTH = 72


def find_requirements(words: list[str], home: Path) -> str:
    """The requirements that the words mean. With `base` come the extras that were added at first use."""
    if words[0] == "-r":
        return Path(words[1]).read_text()
    added = extras.read_added(home) if "base" in words else ()
    return extras.select_requirements({*extras.expand(words), *added}, core=True)


def main(title: str, words: list[str]) -> int:
    print(f"alipes: {title}", file=sys.stderr, flush=True)
    home = Path(os.environ.get("ALIPES_HOME") or Path.home() / ".alipes")
    began, live = time.monotonic(), sys.stderr.isatty()

    def show(step: str) -> None:
        text = f"  {step}"
        sys.stderr.write(f"\r{text[:WIDTH]:<{WIDTH}}" if live else f"{text}\n")
        sys.stderr.flush()

    with tempfile.NamedTemporaryFile("w", suffix=".txt") as file:
        file.write(find_requirements(words, home))
        file.flush()
        try:
            install(Path(file.name), show)
        except InstallError as error:
            sys.stderr.write(f"\n  {error}\n")
            return 1
    if live:
        sys.stderr.write(f"\r{'':<{WIDTH}}\r")
    print(f"  done in {time.monotonic() - began:.0f} s", file=sys.stderr)
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1], sys.argv[2:]))
