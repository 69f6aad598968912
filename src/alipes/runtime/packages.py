"""Installs pinned packages into the environment of the Python that runs, with uv or pip, and names each step.

Uses only the standard library: `make run` calls it before anything is installed. As a program it takes a requirements
file and prints a line per step; if it fails, the reason is on standard error.
"""

import fcntl
import os
import re
import shutil
import struct
import subprocess
import sys
import sysconfig
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

STRIPPED = ("xllamacpp",)
"""Packages whose libraries are mostly debug information, which is cut off."""
LOCK = ".alipes-install.lock"
_STEP = re.compile(r"\s*(Downloading|Using cached) (\S+?)(?:-\d\S*)?(?:\.whl|\.tar\.gz)? \(([\d.]+) ?(\w+)\)")
_UNITS = {"bytes": 1e-6, "b": 1e-6, "kb": 1e-3, "mb": 1.0, "gb": 1e3, "kib": 1.024e-3, "mib": 1.049}
_OFFLINE = ("temporary failure in name resolution", "newconnectionerror", "connection refused", "dns error")
_OFFLINE_ALSO = ("network is unreachable", "error sending request", "timed out", "from versions: none", "proxyerror")


class InstallError(Exception):
    """Why packages were not installed, as a sentence."""


def count_requirements(text: str) -> int:
    """Packages in a requirements file."""
    return sum(re.match(r"[A-Za-z0-9].*(==| @ )", line) is not None for line in text.splitlines())


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


def find_obstacle(paths: Mapping[str, str] | None = None, *, virtual: bool = sys.prefix != sys.base_prefix) -> str:
    """Why nothing can be installed into this environment, as a sentence; empty if it can."""
    paths = paths or sysconfig.get_paths()
    site, standard_library = Path(paths["purelib"]), Path(paths["stdlib"])
    if not virtual and (standard_library / "EXTERNALLY-MANAGED").exists():
        return "This Python belongs to the system, which installs its packages itself: install alipes with uv or pipx."
    if not os.access(site, os.W_OK):
        return f"{site} is read-only, so nothing can be installed there: install it where alipes comes from."
    return ""


def install(file: Path, show: Callable[[str], None] = print, *, options: Iterable[str] = ()) -> None:
    """Install exactly the packages in `file`; `show` gets each step. Raises `InstallError`.

    uv is used if it is on the PATH. If it fails, pip is tried, which has other settings.
    """
    if obstacle := find_obstacle():
        raise InstallError(obstacle)
    commands = list(_commands(file, options))
    if not commands:
        raise InstallError("Neither uv nor pip is there to install packages: run `python -m ensurepip`, or install uv.")
    total, output = count_requirements(file.read_text()), list[str]()
    with _locked(Path(sys.prefix)):
        for command in commands:
            output.clear()
            if _run(command, output, total, show) == 0:
                break
        else:
            raise InstallError(_explain("".join(output)))
        for name in STRIPPED:
            for library in Path(sysconfig.get_path("platlib"), name).glob("*.so"):
                cut_debug_information(library)


def _commands(file: Path, options: Iterable[str]) -> Iterator[list[str]]:
    given = ["--no-deps", "--require-hashes", *options, "-r", str(file)]
    if uv := shutil.which("uv"):
        yield [uv, "pip", "install", "--python", sys.executable, "--compile-bytecode", *given]
    if find_spec("pip") is not None:
        pip = [sys.executable, "-I", "-m", "pip", "install", "--no-input", "--disable-pip-version-check"]
        yield [*pip, "--progress-bar", "off", "--compile", *given]


def _run(command: list[str], output: list[str], total: int, show: Callable[[str], None]) -> int:
    def read(lines: Iterable[str]) -> Iterator[str]:
        for line in lines:
            output.append(line)
            yield line

    piped = subprocess.PIPE
    with subprocess.Popen(command, stdout=piped, stderr=subprocess.STDOUT, text=True, errors="replace") as process:
        for step in describe_steps(read(process.stdout or ()), total):
            show(step)
    return process.returncode


@contextmanager
def _locked(environment: Path) -> Iterator[None]:
    """One installation at a time in an environment."""
    with (environment / LOCK).open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _explain(output: str) -> str:
    if any(sign in output.lower() for sign in (*_OFFLINE, *_OFFLINE_ALSO)):
        return "The packages could not be downloaded: check the network and the proxy, then try again."
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    errors = [line for line in lines if "error" in line.lower()] or lines
    return f"The packages could not be installed: {' '.join(errors[-3:])[:600] or 'no reason was given'}"


def cut_debug_information(file: Path) -> int:
    """Cut off what follows the loaded part of an ELF library; the bytes saved. Another file is left alone.

    The file is replaced, because uv links it to its cache.
    """
    data = bytearray(file.read_bytes())
    if data[:6] != b"\x7fELF\x02\x01" or len(data) < 64:  # 64 bits, little-endian
        return 0
    (start,), (size, count) = struct.unpack_from("<Q", data, 32), struct.unpack_from("<HH", data, 54)
    places = [start + size * number for number in range(count)]
    loaded = [place for place in places if struct.unpack_from("<I", data, place)[0] == 1]
    if not loaded:
        return 0
    end = max(sum(struct.unpack_from("<Q", data, place + offset)[0] for offset in (8, 32)) for place in loaded)
    saved: int = len(data) - max(end, start + size * count)
    if saved <= 0:
        return 0
    del data[-saved:]
    struct.pack_into("<Q", data, 40, 0)
    struct.pack_into("<HHH", data, 58, 0, 0, 0)
    draft = file.with_name(f"{file.name}.cut")
    draft.write_bytes(data)
    shutil.copymode(file, draft)
    draft.replace(file)
    return saved


def main(file: str) -> int:
    try:
        install(Path(file), lambda step: print(step, flush=True))
    except InstallError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1]))
