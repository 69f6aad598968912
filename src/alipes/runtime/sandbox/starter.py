"""The starter: a program beside alipes that makes what sandboxed commands run in, and starts the commands.

It imports nothing of alipes, because it runs alone: CHANNEL [GROUP...]. It joins the control groups once, since the
kernel takes ten milliseconds for that; what it starts is in them from the beginning. One command at a time runs from a
starter, so that limits are those of one command.

CHANNEL is a SOCK_SEQPACKET pair. A message is a dict in marshal format (no import needed), with descriptors:

    make        `network`: a user and a network namespace, and a socket that listens on `port` in it
                `root`: a mount namespace whose root is made of `system` and `staged`; then as `view`
                `view`: puts `places` into a mount namespace, the last of the descriptors
                `spare`: a process that is restricted, and waits for a command on a channel of its own
    handles     how many descriptors there are
    namespaces  how many of the first ones are namespaces to enter, in this order

Everything is opened without following links, and mounted by its descriptor: commands that run at the same time can
change what a name in the project leads to. A spare is made with CLONE_PARENT, so it is a child of alipes itself.
"""

from __future__ import annotations

import _socket
import ctypes
import errno
import fcntl
import marshal
import os
import resource
import stat
import struct
import sys

TYPE_CHECKING = False  # `typing` takes as long to import as everything else
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any

STAGE = "/run/.alipes"
"""Where the root has the sources of places, by number, until they are placed."""
DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty")
CANNOT_RUN, NOT_FOUND = 126, 127
NAMED = os.O_CLOEXEC | getattr(os, "O_PATH", 0)
_LIBC = ctypes.PyDLL(None, use_errno=True)  # keeps the lock of the interpreter: there is one thread
_CALLS = {"x86_64": (56, 155), "aarch64": (220, 41)}
_CLONE, _PIVOT_ROOT = _CALLS.get(os.uname().machine, (-1, -1))
_OPEN_TREE, _MOVE_MOUNT, _FSOPEN, _FSCONFIG, _FSMOUNT, _MOUNT_SETATTR = 428, 429, 430, 431, 432, 442
_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_PARENT, _NEWNS, _NEWCGROUP, _NEWUTS, _NEWIPC = 0x8000, 0x20000, 0x2000000, 0x4000000, 0x8000000
_NEWUSER, _NEWPID, _NEWNET, _SIGCHLD = 0x10000000, 0x20000000, 0x40000000, 17
_READ_ONLY, _NO_SUID, _NO_DEVICES, _NO_PROGRAMS, _REMOUNT, _BIND, _RECURSIVE, _PRIVATE = (
    1,
    2,
    4,
    8,
    32,
    4096,
    16384,
    1 << 18,
)
_HERE, _ALL, _EMPTY_PATH, _CLONE_TREE, _FROM_EMPTY, _TO_EMPTY, _DETACH = -100, 0x8000, 0x1000, 1, 4, 0x40, 2
_PATH_BENEATH, _FILE_RIGHTS = 1, 0xC007
"""Rights that a Landlock rule for a file may have: execute, write, read, truncate, ioctl."""
_LAST_CAPABILITY, _CAPABILITY_VERSION = 63, 0x20080522
_SIOCSIFFLAGS, _UP_AND_RUNNING, _TIOCSCTTY = 0x8914, 0x41, 0x540E
_MAX_DESCRIPTORS = 1 << 20


class _RulesetAttributes(ctypes.Structure):
    _fields_ = (("files", ctypes.c_uint64), ("network", ctypes.c_uint64), ("scopes", ctypes.c_uint64))


class _PathRule(ctypes.Structure):
    _pack_ = 1
    _fields_ = (("rights", ctypes.c_uint64), ("parent", ctypes.c_int32))


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("steps", ctypes.c_char_p))


def main(handle: int, groups: Sequence[str]) -> None:
    for number in (2, 13, 25):  # SIGINT, SIGPIPE, SIGXFSZ: Python changed them, and commands would inherit it
        _LIBC.signal(number, None)
    for group in groups:
        with open(group, "wb", buffering=0) as file:
            file.write(b"0")
    channel = _socket.socket(fileno=handle)
    while True:
        try:
            text, handles = receive(channel)
        except OSError:
            text, handles = b"", ()
        if not text:
            os._exit(0)
        wanted = marshal.loads(text)
        try:
            if wanted["make"] == "spare":
                _answer_spare(channel, wanted, handles)
            else:
                _answer(channel, wanted, handles)
        except OSError:  # alipes is gone
            os._exit(0)
        for each in handles:
            os.close(each)


def send(channel: _socket.socket, text: bytes, handles: Sequence[int] = ()) -> None:
    """One message with descriptors."""
    rights = [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, struct.pack(f"{len(handles)}i", *handles))] if handles else []
    channel.sendmsg([text], rights)


def receive(channel: _socket.socket) -> tuple[bytes, tuple[int, ...]]:
    """One message with its descriptors; empty if the other side is closed."""
    text, rights, _, _ = channel.recvmsg(1 << 18, _socket.CMSG_SPACE(64 * 4), _socket.MSG_CMSG_CLOEXEC)
    packed = b"".join(data for _, kind, data in rights if kind == _socket.SCM_RIGHTS)
    return text, struct.unpack(f"{len(packed) // 4}i", packed[: len(packed) // 4 * 4])


def _answer(channel: _socket.socket, wanted: Mapping[str, Any], handles: Sequence[int]) -> None:
    """Make it in a process of its own, which answers: `ok` and descriptors, or why it failed."""
    child = os.fork()
    if not child:
        makers: Mapping[str, Callable[[Mapping[str, Any], Sequence[int]], list[int]]] = {
            "network": _make_network,
            "root": _make_root,
            "view": _place_all,
        }
        try:
            _check_handles(wanted, handles)
            found = makers[wanted["make"]](wanted, handles)
            send(channel, b"ok", found)
        except OSError as error:
            send(channel, describe(error))
        os._exit(0)
    if os.waitpid(child, 0)[1]:
        send(channel, b"it ended")


def _check_handles(wanted: Mapping[str, Any], handles: Sequence[int]) -> None:
    """The kernel leaves out descriptors when there are too many: nothing may be made without them."""
    if len(handles) != wanted["handles"]:
        raise OSError(errno.EMFILE, "too many open files")


def describe(error: BaseException) -> bytes:
    if isinstance(error, OSError) and error.strerror:
        text = f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    else:
        text = repr(error)
    return text.encode(errors="replace")[:4000] or b"?"


def _answer_spare(channel: _socket.socket, wanted: Mapping[str, Any], handles: Sequence[int]) -> None:
    """Answers the spare's process id and channel. On that it says `first` and another process id if that is the one to
    watch, then `ready`, or why it failed."""
    ours, theirs = _socket_pair()
    spare = _clone(_PARENT)
    if not spare:
        channel.close()
        ours.close()
        try:
            _become_spare(theirs, wanted, handles)
        except OSError as error:
            send(theirs, describe(error))
        os._exit(CANNOT_RUN)
    theirs.close()
    send(channel, b"%d" % spare, (ours.fileno(),))
    ours.close()


def _socket_pair() -> tuple[_socket.socket, _socket.socket]:
    return _socket.socketpair(_socket.AF_UNIX, _socket.SOCK_SEQPACKET | _socket.SOCK_CLOEXEC)


def _become_spare(channel: _socket.socket, wanted: Mapping[str, Any], handles: Sequence[int]) -> None:
    _check_handles(wanted, handles)
    namespaces = wanted["namespaces"]
    _set_mark(wanted["mark"])  # before the filter, which forbids it
    _enter(handles[:namespaces])
    _call("prctl", 38, 1, 0, 0, 0)  # PR_SET_NO_NEW_PRIVS
    if namespaces:
        _call("unshare", _NEWPID | _NEWNS | _NEWIPC | _NEWCGROUP)
        first = _clone(_PARENT)
        if first:
            send(channel, b"first %d" % first)
            os._exit(0)
        _mount_own(wanted)
    ruleset = handles[namespaces] if len(handles) > namespaces else -1
    if wanted["landlock"]:
        ruleset = create_ruleset(wanted["landlock"])
        for path, rights in wanted["rules"]:
            _allow_path(ruleset, path, rights)
    if ruleset >= 0:
        _call("syscall", _RESTRICT_SELF, ruleset, 0)
    _drop_capabilities()
    _LIBC.prctl(15, b"sandbox", 0, 0, 0)  # PR_SET_NAME
    _LIBC.prctl(4, 0, 0, 0, 0)  # PR_SET_DUMPABLE: nobody inside can read or trace it
    _LIBC.prctl(1, 9, 0, 0, 0)  # PR_SET_PDEATHSIG, after the rights changed, which clears it
    steps = wanted["seccomp"]
    _call("prctl", 22, 2, ctypes.byref(_Program(len(steps) // 8, steps)), 0, 0)  # PR_SET_SECCOMP
    send(channel, b"ready")
    text, streams = receive(channel)
    if text:
        _run(streams, pid_namespace=bool(namespaces))
    os._exit(0)


def _run(handles: Sequence[int], *, pid_namespace: bool) -> None:
    """Become the command, or as first process of a pid namespace start it and end with it."""
    size = os.fstat(handles[0]).st_size
    request = marshal.loads(os.pread(handles[0], size, 0))
    for number in range(3):
        os.dup2(handles[number + 1], number)
    os.closerange(3, _MAX_DESCRIPTORS)
    for kind, limit in request["limits"]:
        highest = resource.getrlimit(kind)[1]
        value = limit if highest == resource.RLIM_INFINITY else min(limit, highest)
        resource.setrlimit(kind, (value, value))
    try:
        os.chdir(request["cwd"])
        _wait_and_exit(_start(request, pid_namespace=pid_namespace))
    except OSError as error:
        subject = request["argv"][0] if error.filename is None else error.filename
        os.write(2, f"{subject}: {error.strerror}\n".encode(errors="surrogateescape"))
        os._exit(NOT_FOUND if isinstance(error, FileNotFoundError) else CANNOT_RUN)


def _start(request: Mapping[str, Any], *, pid_namespace: bool) -> int:
    argv, env = request["argv"], request["env"]
    program = _find_program(argv[0], env)
    if pid_namespace and not request["terminal"]:
        try:  # it shares our memory until it runs the program: no page is copied
            return os.posix_spawn(program, argv, env, setsid=True)
        except OSError as error:
            raise OSError(error.errno, error.strerror, argv[0]) from None
    command = os.fork() if pid_namespace else 0
    if not command:
        try:
            os.setsid()
            if request["terminal"]:
                _LIBC.ioctl(0, _TIOCSCTTY, 0)
            os.execve(program, argv, env)
        except OSError as error:
            os.write(2, f"{argv[0]}: {error.strerror}\n".encode(errors="surrogateescape"))
            os._exit(NOT_FOUND if isinstance(error, FileNotFoundError) else CANNOT_RUN)
    return command


def _wait_and_exit(command: int) -> None:
    nothing = os.open("/dev/null", os.O_RDWR)
    for stream in range(3):
        os.dup2(nothing, stream)
    ended, status = 0, 0
    while ended != command:
        ended, status = os.wait()
    code = os.waitstatus_to_exitcode(status)
    os._exit(code if code >= 0 else 128 - code)


def _find_program(name: str, env: Mapping[str, str]) -> str:
    if "/" not in name:
        for folder in env.get("PATH", os.defpath).split(":"):
            path = f"{folder}/{name}"
            if os.access(path, os.X_OK) and not os.path.isdir(path):
                return path
    return name


def _make_network(wanted: Mapping[str, Any], handles: Sequence[int]) -> list[int]:
    """A user and a network namespace in which only loopback exists, and a listening socket in it."""
    user, group = os.getuid(), os.getgid()
    _call("unshare", _NEWUSER | _NEWNET)
    for name, text in (("setgroups", "deny"), ("uid_map", f"{user} {user} 1"), ("gid_map", f"{group} {group} 1")):
        with open(f"/proc/self/{name}", "w") as file:
            file.write(text)
    control = _socket.socket(_socket.AF_INET, _socket.SOCK_DGRAM)
    fcntl.ioctl(control.fileno(), _SIOCSIFFLAGS, struct.pack("16sH14s", b"lo", _UP_AND_RUNNING, b""))
    listener = _socket.socket(_socket.AF_INET, _socket.SOCK_STREAM)
    listener.bind(("127.0.0.1", wanted["port"]))
    listener.listen(128)
    return [*(os.open(f"/proc/self/ns/{name}", os.O_RDONLY) for name in ("user", "net")), listener.detach()]


def _make_root(wanted: Mapping[str, Any], handles: Sequence[int]) -> list[int]:
    """The work of bubblewrap where it is not installed; answers the mount and the host name namespace."""
    _enter(handles)
    _call("unshare", _NEWNS | _NEWUTS)
    _call("sethostname", b"sandbox", 7)
    _mount("none", "/", _RECURSIVE | _PRIVATE)
    system = [*wanted["system"], ("bind", "/proc", "/proc"), *(("bind", path, path) for path in DEVICES)]
    staged = [("bind", path, f"{STAGE}/{at}") for at, path in enumerate(wanted["staged"])]
    trees = [
        (kind, source, target, -1 if kind == "link" else _copy_tree(open_path(source), read_only=kind == "readonly"))
        for kind, source, target in [*system, *staged]
    ]
    top = "/tmp"
    _mount("tmpfs", top, _NO_SUID | _NO_DEVICES, "mode=0755")
    for name in ("tmp", "run", "var/tmp", "dev/pts", "dev/shm"):
        os.makedirs(f"{top}/{name}")
    for name, target in (("fd", "/proc/self/fd"), ("stdin", "fd/0"), ("stdout", "fd/1"), ("stderr", "fd/2")):
        os.symlink(target, f"{top}/dev/{name}")
    os.symlink("pts/ptmx", f"{top}/dev/ptmx")
    for kind, source, target, tree in trees:
        if kind == "link":
            os.symlink(source, top + target)
            continue
        place = _open_or_create(top + target, folder=stat.S_ISDIR(os.fstat(tree).st_mode))
        _move(tree, place)
    os.chdir(top)
    _call("syscall", _PIVOT_ROOT, b".", b".")
    _call("umount2", b".", _DETACH)
    os.chdir("/")
    _place(wanted)
    return [os.open(f"/proc/self/ns/{name}", os.O_RDONLY) for name in ("mnt", "uts")]


def _place_all(wanted: Mapping[str, Any], handles: Sequence[int]) -> list[int]:
    _enter(handles)
    _place(wanted)
    return []


def _place(wanted: Mapping[str, Any]) -> None:
    """Mount the places in their order, each at the descriptor of its target; then nothing of ours is writable."""
    empty = []
    for kind, number, target in wanted["places"]:
        try:
            _place_one(kind, f"{STAGE}/{number}", target)
            empty += [target] if kind in ("hide", "cover") else []
        except OSError as error:
            if kind in ("file", "hide") and error.errno in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.EROFS):
                continue  # there is nothing to hide; or a file to show has no place
            raise OSError(error.errno, error.strerror, target) from None
    for number in range(wanted["count"]):
        _call("umount2", f"{STAGE}/{number}".encode(), _DETACH)
    for target in empty:
        _set_read_only(open_path(target), 0)
    _set_read_only(open_path("/"), 0)
    if os.stat("/dev").st_dev != os.stat("/").st_dev:
        _set_read_only(open_path("/dev"), 0)


def _place_one(kind: str, staged: str, target: str) -> None:
    if kind in ("bind", "readonly", "file"):
        source = open_path(staged)
        place = _open_or_create(target, folder=stat.S_ISDIR(os.fstat(source).st_mode))
        tree = _copy_tree(source, read_only=kind != "bind")
    else:
        place = open_path(target)
        if kind not in ("hide", "cover"):
            tree = _copy_tree(place, read_only=kind == "protect")
        elif stat.S_ISDIR(os.fstat(place).st_mode):
            tree = _make_empty()
        else:
            tree = _copy_tree(open_path(staged), read_only=True)
    _move(tree, place)
    os.close(place)


def open_path(path: str) -> int:
    """Open an absolute path to look at it. Raises OSError, ELOOP for any link in it."""
    folder = os.open("/", NAMED)
    for name in filter(None, path.split("/")):
        try:
            folder, outer = open_name(folder, name), folder
        except OSError as error:
            os.close(folder)
            raise OSError(error.errno, error.strerror, path) from None
        os.close(outer)
    return folder


def open_name(folder: int, name: str) -> int:
    """Open a name of an opened folder to look at it. Raises OSError, ELOOP for a link."""
    handle = os.open(name, NAMED | os.O_NOFOLLOW, dir_fd=folder)
    if stat.S_ISLNK(os.fstat(handle).st_mode):
        os.close(handle)
        raise OSError(errno.ELOOP, "it is a link, or has changed meanwhile", name)
    return handle


def _open_or_create(path: str, *, folder: bool) -> int:
    """Open a place to mount on. What is missing is created, below folders that are no links."""
    handle, names = os.open("/", NAMED), [name for name in path.split("/") if name]
    for at, name in enumerate(names):
        try:
            inner = open_name(handle, name)
        except FileNotFoundError:
            if folder or at < len(names) - 1:
                os.mkdir(name, 0o755, dir_fd=handle)
            else:
                os.close(os.open(name, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_NOFOLLOW, 0o600, dir_fd=handle))
            inner = open_name(handle, name)
        os.close(handle)
        handle = inner
    return handle


def _copy_tree(source: int, *, read_only: bool) -> int:
    tree = _call("syscall", _OPEN_TREE, source, b"", _CLONE_TREE | _ALL | _EMPTY_PATH)
    if read_only:
        _set_read_only(tree, _ALL)
    return tree


def _set_read_only(handle: int, flags: int) -> None:
    attributes = (ctypes.c_uint64 * 4)(_READ_ONLY)
    _call("syscall", _MOUNT_SETATTR, handle, b"", flags | _EMPTY_PATH, ctypes.byref(attributes), 32)


def _move(tree: int, place: int) -> None:
    _call("syscall", _MOVE_MOUNT, tree, b"", place, b"", _FROM_EMPTY | _TO_EMPTY)
    os.close(tree)


def _make_empty() -> int:
    """An empty folder, not yet mounted. It is made read-only after what is shown in it has its place."""
    context = _call("syscall", _FSOPEN, b"tmpfs", 1)
    _call("syscall", _FSCONFIG, context, 1, b"mode", b"0755", 0)
    _call("syscall", _FSCONFIG, context, 6, None, None, 0)
    tree = _call("syscall", _FSMOUNT, context, 1, _NO_SUID | _NO_DEVICES)
    os.close(context)
    return tree


def _mount_own(wanted: Mapping[str, Any]) -> None:
    """What each command has for itself. First proc: the kernel demands that the old one is fully visible."""
    _mount("none", "/", _RECURSIVE | _PRIVATE)  # a disk that is mounted on the machine later does not appear
    _mount("proc", "/proc", _NO_SUID | _NO_DEVICES | _NO_PROGRAMS)
    for path in wanted["kernel"]:
        tree = _copy_tree(open_path(path), read_only=True)
        _move(tree, open_path(path))
    kept = [(path, _copy_tree(open_path(path), read_only=False)) for path in wanted["again"]]
    for folder, mode in (("/run", "0755"), ("/var/tmp", "1777"), ("/dev/shm", "1777")):
        _mount("tmpfs", folder, _NO_SUID | _NO_DEVICES, f"mode={mode}")
    _mount("devpts", "/dev/pts", _NO_SUID | _NO_PROGRAMS, "newinstance,ptmxmode=0666,mode=0620")
    for path, tree in kept:
        _move(tree, _open_or_create(path, folder=stat.S_ISDIR(os.fstat(tree).st_mode)))


def _mount(source: str, target: str, flags: int, options: str = "") -> None:
    """Mount a file system of this kind. Only for targets that commands cannot change."""
    kind, place = source.encode(), target.encode()
    if _LIBC.mount(kind, place, kind, ctypes.c_ulong(flags), options.encode()) < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code), target)


def landlock_version() -> int:
    """The ABI version of Landlock in this kernel; 0 if there is none."""
    if sys.platform != "linux":
        return 0
    return max(0, int(_LIBC.syscall(_CREATE_RULESET, None, ctypes.c_size_t(0), 1)))


def create_ruleset(handled: Sequence[int]) -> int:
    """A Landlock ruleset for file rights, network rights and scopes."""
    attributes = _RulesetAttributes(*handled)
    # an older kernel does not know the last fields, and refuses a longer struct unless they are zero
    return _call("syscall", _CREATE_RULESET, ctypes.byref(attributes), ctypes.sizeof(attributes), 0)


def add_rule(ruleset: int, handle: int, rights: int) -> None:
    """Allow what is opened as `handle`, and everything below."""
    if not stat.S_ISDIR(os.fstat(handle).st_mode):
        rights &= _FILE_RIGHTS
    _call("syscall", _ADD_RULE, ruleset, _PATH_BENEATH, ctypes.byref(_PathRule(rights, handle)), 0)


def _allow_path(ruleset: int, path: str, rights: int) -> None:
    try:
        handle = open_path(path)
    except OSError:  # it does not exist here
        return
    add_rule(ruleset, handle, rights)
    os.close(handle)


def _enter(namespaces: Sequence[int]) -> None:
    for handle in namespaces:
        _call("setns", handle, 0)


def _set_mark(mark: int) -> None:
    try:
        resource.setrlimit(resource.RLIMIT_RTTIME, (mark, resource.getrlimit(resource.RLIMIT_RTTIME)[1]))
    except (OSError, ValueError):  # a lower limit is in force; the environment is marked as well
        return


def _clone(flags: int) -> int:
    """fork() with flags: `os.fork` cannot make siblings."""
    return _call("syscall", _CLONE, flags | _SIGCHLD, 0, 0, 0, 0)


def _call(name: str, *arguments: object) -> int:
    """Call a function of libc; raises OSError if it fails."""
    converted = [ctypes.c_long(value) if isinstance(value, int) else value for value in arguments]
    result = int(getattr(_LIBC, name)(*converted))
    if result < 0:
        code = ctypes.get_errno()
        call = f"call {arguments[0]}" if name == "syscall" else name
        raise OSError(code, f"{call}: {os.strerror(code)}")
    return result


def _drop_capabilities() -> None:
    """Nothing is done with the rights of root, nor with those of a user namespace."""
    for capability in range(_LAST_CAPABILITY + 1):
        _LIBC.prctl(24, capability, 0, 0, 0)  # PR_CAPBSET_DROP fails for other users, who have none
    _LIBC.prctl(47, 4, 0, 0, 0)  # PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL
    _call("capset", ctypes.byref((ctypes.c_uint32 * 2)(_CAPABILITY_VERSION, 0)), (ctypes.c_uint32 * 6)())


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2:])
