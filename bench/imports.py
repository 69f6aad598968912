"""Import of a large home of Hermes: the plan, the import, memory, and how long a loop beside it is held.

python -m bench.imports [CONVERSATIONS] [MESSAGES]
"""

import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.world.imports import write_hermes

from alipes.config.loader import load_settings
from alipes.kernel.turns import Address
from alipes.store.open import open_home_store

PAUSE_S = 0.01


def run(home: Path, *words: str) -> tuple[float, float]:
    """Seconds and peak megabytes of `alipes WORDS`."""
    code = "import resource,runpy,sys; sys.argv=['alipes',*sys.argv[1:]]\n"
    code += "try: runpy.run_module('alipes', run_name='__main__')\n"
    code += "finally: sys.stderr.write(f'PEAK {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss}')"
    started = time.monotonic()
    environ = {**os.environ, "ALIPES_HOME": str(home)}
    done = subprocess.run([sys.executable, "-c", code, *words], env=environ, capture_output=True, text=True)
    if "PEAK" not in done.stderr or done.returncode:
        raise SystemExit(f"failed: {done.stderr[-2000:]}")
    return time.monotonic() - started, int(done.stderr.rpartition("PEAK ")[2]) / 1024


async def watch(home: Path) -> None:
    """Print the longest delays of a loop with the store of the home open, and of a write, until the input ends."""
    late = slow = number = 0.0
    async with open_home_store(load_settings(home, {})) as store:
        print("ready", flush=True)
        ended = asyncio.create_task(asyncio.to_thread(sys.stdin.read))
        while not ended.done():
            started = time.monotonic()
            await asyncio.sleep(PAUSE_S)
            late = max(late, time.monotonic() - started - PAUSE_S)
            started, number = time.monotonic(), number + 1
            await store.sessions.open(Address("terminal", f"bench-{number % 5:.0f}"))
            slow = max(slow, time.monotonic() - started)
    print(json.dumps({"loop_held_ms": late * 1000, "write_ms": slow * 1000}))


def hold(home: Path, source: Path) -> dict[str, float]:
    """What `watch` sees while another process imports."""
    home.mkdir(mode=0o700)
    words = (sys.executable, "-m", "bench.imports", "watch", str(home))
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as watcher:
        assert watcher.stdout is not None
        watcher.stdout.readline()
        run(home, "import", "hermes", str(source), "--yes")
        out, _ = watcher.communicate("")
    return json.loads(out)


def main() -> None:
    conversations, messages = map(int, sys.argv[1:3] if len(sys.argv) > 2 else (2000, 100_000))
    with tempfile.TemporaryDirectory() as folder:
        source = write_hermes(Path(folder, "hermes"), conversations, messages)
        figures = {"conversations": conversations, "messages": messages}
        figures["plan_s"], figures["plan_mb"] = run(Path(folder, "one"), "import", "hermes", str(source), "--dry-run")
        figures["import_s"], figures["import_mb"] = run(Path(folder, "one"), "import", "hermes", str(source), "--yes")
        figures["again_s"], _ = run(Path(folder, "one"), "import", "hermes", str(source), "--yes")
        figures |= hold(Path(folder, "two"), source)
    print(json.dumps({name: round(value, 2) for name, value in figures.items()}, indent=1))


if __name__ == "__main__":
    asyncio.run(watch(Path(sys.argv[2]))) if sys.argv[1:2] == ["watch"] else main()
