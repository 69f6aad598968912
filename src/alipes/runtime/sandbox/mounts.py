"""The file system of sandboxed commands: which parts of this machine it has, and what is placed into them.

Its root is empty but for SYSTEM; the rest of this machine is not there, so that nobody has to know what to hide in it.
"""

import os
import stat
from collections.abc import Iterator
from typing import Literal, NamedTuple, TypeAlias

from alipes.runtime.sandbox.policy import CACHES, SandboxPolicy, is_inside, list_folders_around

SYSTEM = (
    *("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/opt", "/etc", "/nix", "/gnu", "/sys"),
    *("/run/current-system", "/run/systemd/resolve", "/var/lib/dpkg", "/var/lib/rpm", "/var/lib/pacman"),
    *("/var/lib/ca-certificates", "/var/lib/texmf", "/var/lib/ghostscript", "/var/cache/fontconfig"),
)
"""Programs, libraries and settings of this machine, read-only."""
FRESH = ("/run", "/var/tmp", "/dev/shm")
"""Folders that are empty for each command."""
KERNEL_SETTINGS = ("/proc/sys", "/proc/sysrq-trigger", "/proc/irq", "/proc/bus", "/proc/fs")
"""Files that root may write without any capability."""

SystemMount: TypeAlias = tuple[Literal["readonly", "link"], str, str]
"""Kind, source or what the link says, and target."""


class Place(NamedTuple):
    """Something that is put into the root, in order: later ones cover earlier ones."""

    kind: Literal["bind", "readonly", "file", "around", "protect", "hide", "cover"]
    """`file`: read-only, and left out if its place cannot be made. `around`, `protect`: what is there, on itself,
    writable or read-only. `hide`, `cover`: empty, or as git tracks it; what is covered must exist."""
    source: str
    target: str


def list_system() -> tuple[SystemMount, ...]:
    """What the root has of this machine."""
    found = list[SystemMount]()
    for path in SYSTEM:
        if os.path.islink(path):
            found.append(("link", os.readlink(path), path))
        elif os.path.exists(path):
            found.append(("readonly", path, path))
    return tuple(found)


def list_places(policy: SandboxPolicy) -> Iterator[Place]:
    """What a command sees besides the system."""
    yield Place("bind", policy.scratch, "/tmp")
    yield Place("bind", policy.scratch, policy.scratch)
    if policy.private_home:
        yield Place("bind", policy.private_home, policy.home)
        yield from (Place("bind", policy.caches, f"{policy.home}/{CACHES}"),) if policy.caches else ()
    else:
        yield Place("readonly", policy.workdir, policy.workdir)
    yield from (Place("readonly", path, path) for path in policy.readable)
    yield from _list_changeable(policy, inner=False)
    tracked = dict(policy.tracked)
    for path in policy.hidden:
        in_project = any(is_inside(path, root) for root in (*policy.writable, policy.workdir))
        yield Place("cover" if in_project else "hide", tracked.get(path, policy.empty), path)
    yield from (Place("hide", policy.empty, path) for path in policy.sockets)
    yield from _list_changeable(policy, inner=True)
    yield from (Place("file", source, seen) for seen, source in policy.files)


def _list_changeable(policy: SandboxPolicy, *, inner: bool) -> Iterator[Place]:
    """What commands may change, and what is read-only in it: what is in the home of alipes, or everything else."""

    def is_meant(path: str) -> bool:
        return any(is_inside(path, root) for root in policy.inner) is inner

    yield from (Place("bind", path, path) for path in policy.writable if is_meant(path))
    yield from (Place("around", "", path) for path in list_folders_around(policy) if is_meant(path))
    yield from (Place("protect", "", path) for path in policy.protected if is_meant(path))


def list_kernel_settings() -> tuple[str, ...]:
    """Folders and files of /proc that must be read-only."""
    return tuple(path for path in KERNEL_SETTINGS if os.getuid() == 0 and os.path.exists(path))


def list_kept(places: tuple[Place, ...], system: tuple[SystemMount, ...]) -> tuple[str, ...]:
    """What is shown again in the folders that are fresh for each command."""
    shown = [target for _, _, target in system]
    shown += [place.target for place in places if place.kind in ("bind", "readonly", "file")]
    below = sorted({path for path in shown if any(is_inside(path, folder) for folder in FRESH)})
    return tuple(path for path in below if not any(path != other and is_inside(path, other) for other in below))


def find_identities(paths: Iterator[str]) -> tuple[tuple[int, int], ...]:
    """Device and inode of each path: a mount shows what was there when it was made."""
    found = []
    for path in paths:
        try:
            facts = os.lstat(path)
        except OSError:
            found.append((0, 0))
            continue
        found.append((facts.st_dev, 0 if stat.S_ISLNK(facts.st_mode) else facts.st_ino))
    return tuple(found)


def find_host_path(path: str, policy: SandboxPolicy) -> str:
    """Where a path that commands see is on this machine."""
    for place in reversed([*list_places(policy)]):
        if place.kind in ("bind", "readonly", "file") and is_inside(path, place.target):
            return place.source + path[len(place.target) :]
    return path
