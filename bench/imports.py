"""Import of a large home of Hermes: the plan, the import, memory, and how long a loop beside it is held.

python -m bench.imports [CONVERSATIONS] [MESSAGES]
"""

import asyncio
import json
import os
import resource
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


async def hold(home: Path, source: Path) -> tuple[float, float]:
    """The longest delays, in seconds, of a loop with the store of the home open, and of a write there, during an
    import by another process."""
    environ = {**os.environ, "ALIPES_HOME": str(home)}
    late = slow = 0.0
    async with open_home_store(load_settings(home, {})) as store:
        words = ("-m", "alipes", "import", "hermes", str(source), "--yes", "--json")
        process = await asyncio.create_subprocess_exec(
            sys.executable, *words, env=environ, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        ended = asyncio.create_task(process.wait())
        number = 0
        while not ended.done():
            started = time.monotonic()
            await asyncio.sleep(PAUSE_S)
            late = max(late, time.monotonic() - started - PAUSE_S)
            started = time.monotonic()
            number += 1
            await store.sessions.open(Address("terminal", f"bench-{number % 5}"))
            slow = max(slow, time.monotonic() - started)
        assert ended.result() == 0
    return late, slow


def main() -> None:
    conversations, messages = map(int, sys.argv[1:3] if len(sys.argv) > 2 else (2000, 100_000))
    with tempfile.TemporaryDirectory() as folder:
        source = write_hermes(Path(folder, "hermes"), conversations, messages)
        figures = {"conversations": conversations, "messages": messages}
        figures["plan_s"], figures["plan_mb"] = run(Path(folder, "one"), "import", "hermes", str(source), "--dry-run")
        figures["import_s"], figures["import_mb"] = run(Path(folder, "one"), "import", "hermes", str(source), "--yes")
        figures["again_s"], _ = run(Path(folder, "one"), "import", "hermes", str(source), "--yes")
        late, slow = asyncio.run(hold(Path(folder, "two"), source))
        figures |= {"loop_held_ms": late * 1000, "write_ms": slow * 1000}
    figures["own_mb"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(json.dumps({name: round(value, 2) for name, value in figures.items()}, indent=1))


if __name__ == "__main__":
    main()
