"""What a checkpoint of a project of 10,000 files costs, against plain git in a repository of its own."""

import os
import random
import resource
import statistics
import subprocess
import tempfile
import time
from pathlib import Path

from alipes.config.settings import CheckpointsConfig
from alipes.features.checkpoints.checkpoints import Checkpoints
from alipes.features.checkpoints.store import CheckpointRecord
from alipes.tools.common import Places
from bench.measure import Row, bounded

FILES, ROUNDS = 10_000, 11
COLD_REACH_MS, WARM_REACH_MS = 2_000.0, 150.0


async def checkpoints() -> list[Row]:
    """The first checkpoint, later ones after one change, and those of an unchanged project; medians."""
    with tempfile.TemporaryDirectory() as folder:
        home, project = Path(folder, "home"), Path(folder, "home", "project")
        _make_project(project)
        cold, plain_cold, used = [], [], list[float]()
        for number in range(3):
            engine = _make_engine(home, f".alipes{number}")
            cold.append(await _checkpoint(engine, project))
            plain_cold.append(_run_git(Path(folder, f"git{number}"), project))
        warm, same, plain = [], [], []
        for number in range(ROUNDS):
            (project / f"d{number}" / "changed.py").write_text(f"{number}\n")
            plain.append(_run_git(Path(folder, "git0"), project))
            before = _cpu_ms()
            warm.append(await _checkpoint(engine, project))
            used.append(_cpu_ms() - before)
            same.append(await _checkpoint(engine, project))
    return [
        _row(f"checkpoint of {FILES:,} files, cold", cold, plain_cold, COLD_REACH_MS),
        _row(f"checkpoint of {FILES:,} files, warm", warm, plain, WARM_REACH_MS),
        bounded("the same, CPU (median)", statistics.median(used), WARM_REACH_MS, "ms"),
        _row(f"checkpoint of {FILES:,} files, unchanged", same, plain, WARM_REACH_MS),
    ]


def _make_project(project: Path) -> None:
    chance = random.Random(1)
    for number in range(FILES):
        file = project / f"d{number % 200}" / f"f{number}.py"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"line {number}\n" * chance.randint(20, 300))


def _make_engine(home: Path, name: str) -> Checkpoints:
    places = Places(home=str(home), alipes_home=str(home / name))
    return Checkpoints(home / name / "checkpoints", CheckpointsConfig(), places)


async def _checkpoint(engine: Checkpoints, project: Path) -> float:
    began = time.perf_counter()
    await engine.make(str(project), CheckpointRecord(turn="bench", session="bench", words="bench"))
    return (time.perf_counter() - began) * 1000


def _cpu_ms() -> float:
    """CPU of this process and of its children that have ended."""
    both = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(each.ru_utime + each.ru_stime for each in both) * 1000


def _run_git(directory: Path, project: Path) -> float:
    """`git add -A` and `git write-tree`, without a record."""
    env = {"PATH": os.environ["PATH"], "GIT_DIR": str(directory), "GIT_WORK_TREE": str(project), "HOME": "/nonexistent"}
    if not directory.exists():
        subprocess.run(["git", "init", "-q"], env=env, check=True)
    began = time.perf_counter()
    for command in (["add", "-A"], ["write-tree"]):
        subprocess.run(["git", *command], env=env, cwd=project, check=True, stdout=subprocess.DEVNULL)
    return (time.perf_counter() - began) * 1000


def _row(what: str, ours: list[float], plain: list[float], reach_ms: float) -> Row:
    ms, limit = statistics.median(ours), statistics.median(plain)
    return Row(what, f"{ms:.0f} ms", f"{limit:.0f} ms", f"{ms / limit:.1f}", f"{reach_ms:.0f} ms", ms <= reach_ms)
