"""Print the fifty slowest tests and files of the last `make test` or `make test-all`: `python tools/slowest.py`."""

import json
import sys
from collections import Counter
from pathlib import Path

DURATIONS = Path(__file__).parents[1] / ".venv" / "test-durations.json"
MOST = 50


def main() -> int:
    if not DURATIONS.exists():
        sys.exit("slowest: nothing is known yet; run `make test` first")
    tests = Counter[str](json.loads(DURATIONS.read_text())["seconds"])
    files, counts = Counter[str](), Counter[str]()
    for test, seconds in tests.items():
        files[test.partition("::")[0]] += seconds
        counts[test.partition("::")[0]] += 1
    print(f"{sum(tests.values()):.0f} s in {len(tests)} tests of {len(files)} files, one after the other\n")
    for file, seconds in files.most_common(MOST):
        print(f"{seconds:8.1f} s {counts[file]:5} tests  {file}")
    print()
    for test, seconds in tests.most_common(MOST):
        print(f"{seconds:8.1f} s  {test}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
