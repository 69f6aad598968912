"""Install requirements with pip and show what it is doing: one line with count, name and size.

    python tools/install.py TITLE [PIP OPTIONS]... -r FILE

Uses only the standard library, because it runs before anything is installed.
"""

import re
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from itertools import pairwise
from pathlib import Path

_STEP = re.compile(r"\s*(Downloading|Using cached) (\S+?)(?:-\d\S*)?(?:\.whl|\.tar\.gz)? \(([\d.]+) ?(\w+)\)")
_UNITS = {"bytes": 1e-6, "b": 1e-6, "kb": 1e-3, "mb": 1.0, "gb": 1e3}
WIDTH = 72


def count_requirements(file: Path) -> int:
    """Packages in a requirements file."""
    return sum(re.match(r"[A-Za-z0-9].*(==| @ )", line) is not None for line in file.read_text().splitlines())


def describe_steps(lines: Iterable[str], total: int) -> Iterator[str]:
    """One text per package that pip fetches, with the megabytes so far."""
    done, megabytes = 0, 0.0
    for line in lines:
        if ".metadata" in line:
            continue
        if found := _STEP.match(line):
            done += 1
            megabytes += float(found[3]) * _UNITS.get(found[4].lower(), 0.0)
            name = found[2].rpartition("/")[2].partition("-")[0]
            yield f"package {min(done, total)} of {total}, {megabytes:.0f} MB: {name}"
        elif line.startswith("Installing collected packages"):
            yield f"installing {'it' if total == 1 else f'{total} packages'} ({megabytes:.0f} MB downloaded)"


def main(title: str, options: list[str]) -> int:
    total = sum(count_requirements(Path(file)) for flag, file in pairwise(options) if flag == "-r")
    print(f"alipes: {title}", file=sys.stderr, flush=True)
    pip = [sys.executable, "-m", "pip", "install", "--disable-pip-version-check", "--progress-bar", "off", "--compile"]
    output: list[str] = []
    began, live = time.monotonic(), sys.stderr.isatty()
    with subprocess.Popen(
        [*pip, *options], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
    ) as process:
        assert process.stdout is not None

        def read() -> Iterator[str]:
            for line in process.stdout or ():
                output.append(line)
                yield line

        for step in describe_steps(read(), total):
            text = f"  {step}"
            sys.stderr.write(f"\r{text[:WIDTH]:<{WIDTH}}" if live else f"{text}\n")
            sys.stderr.flush()
    if live:
        sys.stderr.write(f"\r{'':<{WIDTH}}\r")
    if process.returncode:
        sys.stderr.write("".join(output[-40:]))
    else:
        print(f"  done in {time.monotonic() - began:.0f} s", file=sys.stderr)
    return process.returncode


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1], sys.argv[2:]))
