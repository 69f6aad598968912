"""How a search is put to ripgrep, or to our own walker where there is none. It runs neither."""

import re
import sys
from pathlib import Path
from typing import Literal, TypeAlias

import msgspec
from msgspec import Struct

import alipes
from alipes.tools.globs import Wanted

Mode: TypeAlias = Literal["content", "files_only", "count", "files"]
LARGEST = 16 << 20
"""Bytes of a file that is searched when it was not named itself."""
_PLAIN = re.compile(r"[\w.*?+@ -]+", re.ASCII)
_KERNEL = ("/proc", "/sys", "/dev")
_WALKER = (
    "import sys; sys.path.append(sys.argv[1]); from alipes.tools import walker; walker.main(sys.argv[2])"
)


class Order(Struct, frozen=True):
    """What is wanted of an engine. Paths in its answer begin with `start`."""

    folder: str
    """Where it runs."""
    mode: Mode
    pattern: str = ""
    start: str = "."
    """The folder itself, or `./name` for one file in it."""
    glob: str = ""
    context: int = 0

    @property
    def largest(self) -> int:
        """0: of any size."""
        return LARGEST if self.start == "." else 0

    @property
    def skipped(self) -> list[str]:
        """Folders of the kernel's: some of their files never end. Whoever means them names them."""
        return [path for path in _KERNEL if self.folder == "/"]


def ripgrep(program: str, order: Order) -> list[str]:
    # --no-messages: its complaints would come between the rows, for a child has one pipe
    argv = [program, "--no-config", "--no-messages", "--no-ignore-global", "--color=never", "--sort=path"]
    if order.mode == "files":
        argv += ["--files", "--null"]
    else:
        argv += ["--engine=auto", "--crlf", f"--regexp={order.pattern}"]
        argv += {
            "content": ["--json", f"--context={order.context}"],
            "files_only": ["--files-with-matches", "--null"],
            "count": ["--count", "--with-filename", "--null"],
        }[order.mode]
    if order.largest and order.mode != "files":
        argv.append(f"--max-filesize={order.largest}")
    if order.glob:
        # no --glob: that would bring back what is ignored. A type knows names only; the rest is sifted later
        names = Wanted(order.glob).names
        if names and all(_PLAIN.fullmatch(name) for name in names):
            argv += [f"--type-add=wanted:{name}" for name in names] + ["--type=wanted"]
    argv += [f"--glob=!{path}" for path in order.skipped]
    return [*argv, "--", order.start]


def walker(order: Order) -> list[str]:
    """Our own, in an interpreter without site packages: it starts in half the time."""
    order_text = msgspec.json.encode(
        {
            "mode": order.mode,
            "pattern": order.pattern,
            "start": order.start,
            "glob": order.glob,
            "context": order.context,
            "largest": order.largest,
            "skipped": order.skipped,
        }
    )
    package = str(Path(alipes.__file__).parents[1])
    return [sys.executable, "-I", "-S", "-c", _WALKER, package, order_text.decode()]


def misgiving(said: str) -> str:
    """What an engine that found nothing had against the pattern; empty when it was something else."""
    found = re.search(r"^error: (.*)$", said, re.MULTILINE) or re.search(
        r"PCRE2: error.*?: (.*)$", said, re.M
    )
    return found[1].strip() if found else ""
