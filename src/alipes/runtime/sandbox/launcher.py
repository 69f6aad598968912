"""Restricts itself and runs a command. Arguments: RESTRICTIONS PROGRAM ARGUMENT...

A program of its own that imports nothing of alipes, because it starts once per command. RESTRICTIONS is a dict in
hexadecimal marshal format, which needs no import (`json` costs as much as starting Python):

    groups      files of control groups to join
    namespaces  descriptors of a user namespace, and of a network namespace if any, to enter
    mounts      (kind, source, target) in this order, with `namespaces`: `bind` and `readonly` show a path, `hide`
                covers one, `devpts` mounts terminals of its own; everything else is read-only
    directory   where to run the command
    limits      (resource, soft and hard limit)
    landlock    (handled file rights, handled network rights, scopes)
    rules       (path, rights); paths that do not exist are left out
    except      paths below those of rules that get no rights; what contains one is allowed child by child
    seccomp     system call filter

Order matters: mounts need rights, rules need the mounts, and nothing is allowed after the filter.
"""

from __future__ import annotations

import ctypes
import marshal
import os
import resource
import stat
import sys

TYPE_CHECKING = False  # `typing` takes as long to import as everything else
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

CANNOT_RUN = 126
NOT_FOUND = 127
_LIBC = ctypes.CDLL(None, use_errno=True)
_NEW_MOUNTS, _NEW_NAMES, _NEW_IPC, _NEW_PROCESSES = 0x20000, 0x4000000, 0x8000000, 0x20000000
_MAX_DESCRIPTORS = 1 << 20
_IGNORED_BY_PYTHON = (13, 25)
"""SIGPIPE and SIGXFSZ."""
_ASKED_TO_END = (1, 2, 3, 15)
"""SIGHUP, SIGINT, SIGQUIT and SIGTERM."""
_IGNORE, _KILL = 1, 9
_BIND, _RECURSIVE, _PRIVATE, _NO_SUID, _NO_DEVICES, _NO_PROGRAMS = 4096, 16384, 1 << 18, 2, 4, 8
_OPEN_TREE, _MOVE_MOUNT, _MOUNT_SETATTR = 428, 429, 442
_HERE, _ALL, _EMPTY_PATH, _CLONE, _MOVE_FROM_EMPTY_PATH, _READ_ONLY = -100, 0x8000, 0x1000, 1, 4, 1
_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_PATH_BENEATH = 1
_FILE_RIGHTS = 0xC007
"""Rights that a rule for a file may have: execute, write, read, truncate, ioctl."""
_SET_PARENT_DEATH_SIGNAL = 1
_SET_NO_NEW_PRIVILEGES, _SET_SECCOMP, _FILTER, _DROP_BOUNDING, _AMBIENT, _CLEAR_ALL = 38, 22, 2, 24, 47, 4
_LAST_CAPABILITY, _CAPABILITY_VERSION = 63, 0x20080522


class _RulesetAttributes(ctypes.Structure):
    _fields_ = (("files", ctypes.c_uint64), ("network", ctypes.c_uint64), ("scopes", ctypes.c_uint64))


class _PathRule(ctypes.Structure):
    _pack_ = 1
    _fields_ = (("rights", ctypes.c_uint64), ("parent", ctypes.c_int32))


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("steps", ctypes.c_char_p))


def landlock_version() -> int:
    """The ABI version of Landlock in this kernel; 0 if there is none."""
    if sys.platform != "linux":
        return 0
    return max(0, int(_LIBC.syscall(_CREATE_RULESET, None, ctypes.c_size_t(0), 1)))


def main(argv: list[str]) -> int:
    restrictions, command = marshal.loads(bytes.fromhex(argv[1])), [os.fsencode(word) for word in argv[2:]]
    for number in _IGNORED_BY_PYTHON:
        _LIBC.signal(number, None)
    try:
        _restrict(restrictions)
        # not that of `os`, which imports more modules, and they are out of reach now
        _call("execvp", command[0], (ctypes.c_char_p * (len(command) + 1))(*command, None))
    except OSError as error:
        subject = argv[2] if error.filename == "execvp" else f"the sandbox cannot be made ({error.filename})"
        print(f"{subject}: {error.strerror}", file=sys.stderr)
        return NOT_FOUND if isinstance(error, FileNotFoundError) else CANNOT_RUN
    return 0


def _restrict(restrictions: dict[str, Any]) -> None:
    for group in restrictions["groups"]:
        with open(group, "w") as file:
            file.write("0")
    _call("prctl", _SET_NO_NEW_PRIVILEGES, 1, 0, 0, 0)
    if namespaces := restrictions.get("namespaces"):
        _enter(namespaces)
        _mount_all(restrictions["mounts"])
    os.chdir(restrictions["directory"])
    os.closerange(3, _MAX_DESCRIPTORS)
    ruleset = _create_ruleset(restrictions["landlock"])
    for path, rights in restrictions["rules"]:
        _allow(ruleset, path, rights, restrictions.get("except", ()))
    for kind, limit in restrictions["limits"]:
        _set_limit(kind, limit)
    _drop_capabilities()
    _call("syscall", _RESTRICT_SELF, ruleset, 0)
    os.close(ruleset)
    steps = restrictions["seccomp"]
    _call("prctl", _SET_SECCOMP, _FILTER, ctypes.byref(_Program(len(steps) // 8, steps)), 0, 0)


def _call(name: str, *arguments: object) -> int:
    """Call a function of libc; raises OSError if it fails."""
    converted = [ctypes.c_long(value) if isinstance(value, int) else value for value in arguments]
    result = int(getattr(_LIBC, name)(*converted))
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code), name)
    return result


def _enter(namespaces: Sequence[int]) -> None:
    """Enter the given namespaces, then new ones; returns in the process that is to run the command.

    Two others wait for it: the first process of the pid namespace, with whose end the kernel ends all others in it,
    and this one, outside of it. They ignore what asks the command to end.
    """
    for handle in namespaces:
        _call("setns", handle, 0)
        os.close(handle)
    _call("unshare", _NEW_MOUNTS | _NEW_IPC | _NEW_NAMES | _NEW_PROCESSES)
    for _ in ("outside", "first"):
        if child := os.fork():
            _wait_and_exit(child)
        _call("prctl", _SET_PARENT_DEATH_SIGNAL, _KILL, 0, 0, 0)


def _wait_and_exit(child: int) -> None:
    for number in _ASKED_TO_END:
        _LIBC.signal(number, ctypes.c_void_p(_IGNORE))
    nothing = os.open("/dev/null", os.O_RDWR)
    for stream in range(3):
        os.dup2(nothing, stream)
    ended, status = 0, 0
    while ended != child:
        ended, status = os.wait()
    code = os.waitstatus_to_exitcode(status)
    os._exit(code if code >= 0 else 128 - code)


def _mount_all(mounts: Sequence[tuple[str, str, str]]) -> None:
    """Make everything read-only, then add the mounts; their sources are those of the view before."""
    _mount("none", "/", _RECURSIVE | _PRIVATE)
    trees = [_copy_tree(source, read_only=kind == "readonly") if source else -1 for kind, source, _ in mounts]
    _set_read_only(_HERE, "/", _ALL)
    _mount("proc", "/proc", _READ_ONLY | _NO_SUID | _NO_DEVICES | _NO_PROGRAMS)
    for (kind, _, target), tree in zip(mounts, trees, strict=True):
        if tree >= 0:
            _create_target(target, tree)
            _call("syscall", _MOVE_MOUNT, tree, b"", _HERE, target.encode(), _MOVE_FROM_EMPTY_PATH)
            os.close(tree)
        elif kind == "devpts":
            _mount("devpts", target, _NO_SUID, "newinstance,ptmxmode=0666,mode=0620")
            _mount(f"{target}/ptmx", "/dev/ptmx", _BIND)
        else:
            _hide(target)


def _copy_tree(source: str, *, read_only: bool) -> int:
    tree = _call("syscall", _OPEN_TREE, _HERE, source.encode(), _CLONE | _ALL)
    if read_only:
        _set_read_only(tree, "", _ALL | _EMPTY_PATH)
    return tree


def _set_read_only(handle: int, path: str, flags: int) -> None:
    attributes = (ctypes.c_uint64 * 4)(_READ_ONLY)
    _call("syscall", _MOUNT_SETATTR, handle, path.encode(), flags, ctypes.byref(attributes), 32)


def _hide(target: str) -> None:
    """Put an empty directory or an empty file over it, if it exists."""
    if os.path.isdir(target):
        _mount("tmpfs", target, _NO_SUID | _NO_DEVICES, "mode=0755")
    elif os.path.exists(target):
        _mount("/dev/null", target, _BIND)


def _mount(source: str, target: str, flags: int, options: str = "") -> None:
    """Mount a file system named by `source`, or an existing path with the flag for it."""
    texts = [text.encode() for text in (source, target, source, options)]
    if _LIBC.mount(texts[0], texts[1], texts[2], ctypes.c_ulong(flags), texts[3]) < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code), target)


def _create_target(target: str, source: int) -> None:
    """An empty file or directory to mount on, in a private directory of the sandbox."""
    if os.path.lexists(target):
        return
    is_folder = stat.S_ISDIR(os.fstat(source).st_mode)
    os.makedirs(target if is_folder else os.path.dirname(target), exist_ok=True)
    if not is_folder:
        os.close(os.open(target, os.O_CREAT | os.O_WRONLY, 0o600))


def _create_ruleset(handled: tuple[int, int, int]) -> int:
    attributes = _RulesetAttributes(*handled)
    # an older kernel does not know the last fields, and refuses a longer struct unless they are zero
    return _call("syscall", _CREATE_RULESET, ctypes.byref(attributes), ctypes.sizeof(attributes), 0)


def _allow(ruleset: int, path: str, rights: int, exceptions: Sequence[str]) -> None:
    """Allow a path and everything below, without the exceptions: if there are some, child by child."""
    if path in exceptions:
        return
    below = tuple(other for other in exceptions if other.startswith(path.rstrip("/") + "/"))
    if below and os.path.isdir(path):
        for name in _names(path):
            _allow(ruleset, os.path.join(path, name), rights, below)
        return
    try:
        handle = os.open(path, os.O_PATH)
    except OSError:  # it does not exist, or is not ours to reach
        return
    if not stat.S_ISDIR(os.fstat(handle).st_mode):
        rights &= _FILE_RIGHTS
    try:
        _call("syscall", _ADD_RULE, ruleset, _PATH_BENEATH, ctypes.byref(_PathRule(rights, handle)), 0)
    finally:
        os.close(handle)


def _names(folder: str) -> list[str]:
    try:
        return [entry.name for entry in os.scandir(folder) if not entry.is_symlink()]
    except OSError:
        return []


def _set_limit(kind: int, limit: int) -> None:
    """Soft and hard limit, never above the present hard limit."""
    highest = resource.getrlimit(kind)[1]
    if highest != resource.RLIM_INFINITY:
        limit = min(limit, highest)
    resource.setrlimit(kind, (limit, limit))


def _drop_capabilities() -> None:
    """Nothing is done with the rights of root, nor with those of a user namespace."""
    for capability in range(_LAST_CAPABILITY + 1):
        _LIBC.prctl(_DROP_BOUNDING, capability, 0, 0, 0)  # fails for other users, who have none
    _LIBC.prctl(_AMBIENT, _CLEAR_ALL, 0, 0, 0)
    _call("capset", ctypes.byref((ctypes.c_uint32 * 2)(_CAPABILITY_VERSION, 0)), (ctypes.c_uint32 * 6)())


if __name__ == "__main__":
    sys.exit(main(sys.argv))
