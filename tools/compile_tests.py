"""Compile the tests in parallel, before pytest starts: without it every worker of pytest would compile all of them.

Modules whose assertions pytest rewrites are written to its own cache, the others to the one of Python.
"""

import ast
import compileall
import sys
from concurrent.futures import ProcessPoolExecutor
from importlib.util import source_hash
from pathlib import Path

from _pytest.assertion.rewrite import PYC_TAIL, _read_pyc, _write_pyc_fp, get_cache_dir, rewrite_asserts

TESTS = Path(__file__).parents[1] / "tests"
REWRITTEN = ("test_*.py", "conftest.py")


def compile_test(path: Path) -> None:
    """Write the code of `path` as pytest would load it, unless that is there already."""
    cached = get_cache_dir(path) / f"{path.stem}{PYC_TAIL}"
    if _read_pyc(path, cached) is not None:
        return
    source = path.read_bytes()
    tree = ast.parse(source, filename=str(path))
    rewrite_asserts(tree, source, str(path))
    code = compile(tree, str(path), "exec", dont_inherit=True)
    cached.parent.mkdir(exist_ok=True)
    unfinished = cached.with_suffix(".unfinished")
    with unfinished.open("wb") as file:
        _write_pyc_fp(file, source_hash(source), code)
    unfinished.replace(cached)


def main() -> int:
    paths = [path for pattern in REWRITTEN for path in TESTS.rglob(pattern)]
    with ProcessPoolExecutor() as pool:
        for _ in pool.map(compile_test, paths, chunksize=8):
            pass
    return 0 if compileall.compile_dir(TESTS, quiet=1, workers=0) else 1


if __name__ == "__main__":
    sys.exit(main())
