"""How figures are measured: whole processes, by kernel counters, both sides in turn."""

import asyncio
import os
import statistics
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple


class Run(NamedTuple):
    status: int
    cpu: float
    """User and system seconds."""
    wall: float
    stdout: str
    stderr: str


class Row(NamedTuple):
    """One line of the table that `make bench` prints."""

    what: str
    ours: str
    limit: str
    ratio: str
    reach: str
    ok: bool


def run(argv: Sequence[str], env: dict[str, str], cwd: Path | None = None) -> Run:
    """Run a program to its end; returns its cost."""
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err, open(os.devnull, "rb") as empty:
        began = time.perf_counter()
        here = os.getcwd()
        os.chdir(cwd or here)
        try:
            pid = os.posix_spawn(
                argv[0],
                argv,
                env,
                file_actions=[
                    (os.POSIX_SPAWN_DUP2, empty.fileno(), 0),
                    (os.POSIX_SPAWN_DUP2, out.fileno(), 1),
                    (os.POSIX_SPAWN_DUP2, err.fileno(), 2),
                ],
            )
        finally:
            os.chdir(here)
        _, status, usage = os.wait4(pid, 0)
        wall = time.perf_counter() - began
        out.seek(0)
        err.seek(0)
        return Run(
            os.waitstatus_to_exitcode(status),
            usage.ru_utime + usage.ru_stime,
            wall,
            out.read().decode(),
            err.read().decode(),
        )


async def peak(argv: Sequence[str], env: dict[str, str], cwd: Path) -> float:
    """Megabytes of its largest process, looked at every few milliseconds.

    The kernel's figure for an ended child includes memory of the parent at the time of the fork.
    """
    most, quiet = 0.0, asyncio.subprocess.DEVNULL
    process = await asyncio.create_subprocess_exec(*argv, env=env, cwd=cwd, stdin=quiet, stdout=quiet, stderr=quiet)
    while process.returncode is None:
        for pid in (process.pid, *descendants(process.pid)):
            with suppress(OSError, IndexError):
                status = Path(f"/proc/{pid}/status").read_text()
                most = max(most, int(status.partition("VmHWM:")[2].split()[0]) / 1024)
        await asyncio.sleep(0.004)
    return most


def in_turn(times: int, *sides: Sequence[str], env: dict[str, str], cwd: Path) -> list[list[Run]]:
    """Run the sides alternately, so that other load falls on both; the first round warms up."""
    runs: list[list[Run]] = [[] for _ in sides]
    for lap in range(times + 1):
        for n, argv in enumerate(sides):
            one = run(argv, env, cwd)
            if one.status != 0:
                raise SystemExit(f"{argv} ended with {one.status}:\n{one.stdout[-500:]}\n{one.stderr[-2000:]}")
            if lap:
                runs[n].append(one)
    return runs


def median_cpu(runs: list[Run]) -> float:
    return statistics.median(one.cpu for one in runs)


def p(values: Sequence[float], percent: float) -> float:
    """The value below which `percent` of the values lie."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * percent / 100))]


def compare(what: str, ours: float, limit: float, reach: float, unit: str = "ms CPU") -> Row:
    ratio = ours / limit
    return Row(
        what, f"{ours * 1000:.1f} {unit}", f"{limit * 1000:.1f} {unit}", f"{ratio:.2f}", f"<= {reach}", ratio <= reach
    )


def bounded(what: str, ours: float, reach: float, unit: str) -> Row:
    return Row(what, f"{ours:.2f} {unit}", "", "", f"<= {reach:g} {unit}", ours <= reach)


def wait_gone(pid: int) -> "asyncio.Future[float]":
    """The wall-clock time at which the process ends."""
    loop = asyncio.get_running_loop()
    seen: asyncio.Future[float] = loop.create_future()
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        seen.set_result(time.time())
        return seen

    def ended() -> None:
        if not seen.done():
            seen.set_result(time.time())
        loop.remove_reader(handle)
        os.close(handle)

    loop.add_reader(handle, ended)
    return seen


def descendants(pid: int) -> Iterator[int]:
    """All descendants of the process at this moment."""
    for tasks in Path(f"/proc/{pid}/task").glob("*/children"):
        with suppress(OSError):
            for child in map(int, tasks.read_text().split()):
                yield child
                yield from descendants(child)
