"""System call filter of sandboxed commands: a classic BPF program that the starter installs.

It is a list of what is refused: mounts, namespaces, kernel modules, keyrings, BPF, clocks, io_uring, raw and exotic
sockets, input into a terminal (TIOCSTI). Everything else stays allowed, so that new programs keep working.
"""

import errno
import platform
import struct
from typing import NamedTuple

_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _AND, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x54, 0x06
_ALLOW, _KILL_PROCESS, _ERRNO = 0x7FFF0000, 0x80000000, 0x00050000
_NUMBER, _ARCHITECTURE = 0, 4
"""Offsets in `struct seccomp_data`; the arguments follow as 64-bit numbers from offset 16."""
_X32 = 0x40000000

_ARCHITECTURES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
_CALLS = {
    # name: (x86_64, aarch64); -1 if there is no such call
    "mount": (165, 40),
    "umount2": (166, 39),
    "pivot_root": (155, 41),
    "open_tree": (428, 428),
    "move_mount": (429, 429),
    "fsopen": (430, 430),
    "fsconfig": (431, 431),
    "fsmount": (432, 432),
    "fspick": (433, 433),
    "mount_setattr": (442, 442),
    "open_tree_attr": (467, 467),
    "chroot": (161, 51),
    "setns": (308, 268),
    "unshare": (272, 97),
    "clone": (56, 220),
    "clone3": (435, 435),
    "keyctl": (250, 219),
    "add_key": (248, 217),
    "request_key": (249, 218),
    "bpf": (321, 280),
    "perf_event_open": (298, 241),
    "io_uring_setup": (425, 425),
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
    "userfaultfd": (323, 282),
    "fanotify_init": (300, 262),
    "kexec_load": (246, 104),
    "kexec_file_load": (320, 294),
    "init_module": (175, 105),
    "finit_module": (313, 273),
    "delete_module": (176, 106),
    "swapon": (167, 224),
    "swapoff": (168, 225),
    "reboot": (169, 142),
    "acct": (163, 89),
    "quotactl": (179, 60),
    "quotactl_fd": (443, 443),
    "open_by_handle_at": (304, 265),
    "settimeofday": (164, 170),
    "clock_settime": (227, 112),
    "clock_adjtime": (305, 266),
    "adjtimex": (159, 171),
    "sethostname": (170, 161),
    "setdomainname": (171, 162),
    "syslog": (103, 116),
    "lookup_dcookie": (212, 18),
    "nfsservctl": (180, 42),
    "vhangup": (153, 58),
    "iopl": (172, -1),
    "ioperm": (173, -1),
    "modify_ldt": (154, -1),
    "personality": (135, 92),
    "ioctl": (16, 29),
    "socket": (41, 198),
    "socketpair": (53, 199),
    "setrlimit": (160, 164),
    "prlimit64": (302, 261),
    "truncate": (76, 45),
    "shmget": (29, 194),
    "shmat": (30, 196),
    "msgget": (68, 186),
    "semget": (64, 190),
    "mq_open": (240, 180),
    "inotify_add_watch": (254, 27),
}
_MISSING = ("clone3", "io_uring_setup", "io_uring_enter", "io_uring_register")
"""Answered as by an old kernel, so that programs use the older call: what they do is in memory, out of our sight."""
_SHARED = ("shmget", "shmat", "msgget", "semget", "mq_open", "inotify_add_watch")
"""Refused without namespaces, because they reach beyond the command."""

_NAMESPACES = 0x7E020000
_TIME_NAMESPACE = 0x80  # part of the exit signal in `clone`
_PERSONALITIES = (0, 8, 0x20000, 0x20008, 0x40000, 0xFFFFFFFF)
"""Linux and its 32-bit and old-version names, without address randomisation (debuggers), and the query."""
_TIOCSTI, _TIOCLINUX = 0x5412, 0x541C
_RLIMIT_RTTIME = 15
_UNIX, _INET, _INET6, _NETLINK = 1, 2, 10, 16
_STREAM, _DATAGRAM, _PACKET, _TYPE_MASK = 1, 2, 5, 0xF
_INET_PROTOCOLS = (0, 1, 6, 17, 58)
"""Default, ICMP echo, TCP, UDP, ICMPv6 echo."""


class _Step(NamedTuple):
    """One `struct sock_filter`."""

    code: int
    value: int
    if_true: int = 0
    if_false: int = 0


def build_filter(
    *,
    inet: bool = True,
    user_namespaces: bool = False,
    namespaces: bool = True,
    truncate: bool = True,
    machine: str = platform.machine(),
) -> bytes:
    """The filter as an array of `struct sock_filter`.

    `inet`: allow IPv4 and IPv6 sockets (TCP, UDP, echo). `user_namespaces`: allow new namespaces and chroot, which
    browsers need. `namespaces`: the command has mount, pid and IPC namespaces of its own; otherwise Unix sockets other
    than pairs, shared memory, watches and limits of other processes are refused. `truncate`: allow it by path. Raises
    OSError on other machines than x86_64 and aarch64.
    """
    if machine not in _ARCHITECTURES:
        raise OSError(errno.ENOTSUP, f"no system call filter for the processor {machine}")
    column = list(_ARCHITECTURES).index(machine)
    program = [
        _Step(_LOAD, _ARCHITECTURE),
        _Step(_EQUAL, _ARCHITECTURES[machine], 1),
        _Step(_RETURN, _KILL_PROCESS),
        _Step(_LOAD, _NUMBER),
    ]
    if machine == "x86_64":
        program += [_Step(_AT_LEAST, _X32, 0, 1), _refuse(errno.ENOSYS)]
    checks = {
        **{name: [_refuse(errno.ENOSYS if name in _MISSING else errno.EPERM)] for name in _CALLS},
        **_argument_checks(),
        "socket": _socket_check(inet=inet, unix=namespaces),
        "socketpair": _socket_pair_check(datagrams=namespaces),
        "prlimit64": _limits_check(namespaces),
    }
    allowed = {
        *(("clone", "unshare", "chroot") if user_namespaces else ()),
        *(_SHARED if namespaces else ()),
        *(("truncate",) if truncate else ()),
    }
    for name, numbers in _CALLS.items():
        if numbers[column] >= 0 and name not in allowed:
            program += [_Step(_EQUAL, numbers[column], 0, len(checks[name])), *checks[name]]
    program.append(_allow())
    return b"".join(struct.pack("<HBBI", step.code, step.if_true, step.if_false, step.value) for step in program)


def _argument_checks() -> dict[str, list[_Step]]:
    """Per call the steps that decide by its arguments; each list ends the program."""
    return {
        "clone": [_argument(0), *_refuse_bits(_NAMESPACES), _allow()],
        "unshare": [_argument(0), *_refuse_bits(_NAMESPACES | _TIME_NAMESPACE), _allow()],
        "personality": [_argument(0), *_allow_values(_PERSONALITIES), _refuse(errno.EPERM)],
        "ioctl": [*_refuse_value(1, _TIOCSTI, errno.EPERM), *_refuse_value(1, _TIOCLINUX, errno.EPERM), _allow()],
        # The soft limit on realtime CPU time marks the processes of a scope (see process_tree.py): a change is
        # answered with success and not made.
        "setrlimit": [*_refuse_value(0, _RLIMIT_RTTIME, 0), _allow()],
    }


def _socket_check(*, inet: bool, unix: bool) -> list[_Step]:
    internet = [_refuse(errno.EACCES)]
    if inet:
        internet = [
            _argument(1),
            _Step(_AND, _TYPE_MASK),
            _Step(_EQUAL, _STREAM, 2),
            _Step(_EQUAL, _DATAGRAM, 1),
            _refuse(errno.EPERM),
            _argument(2),
            *_allow_values(_INET_PROTOCOLS),
            _refuse(errno.EPROTONOSUPPORT),
        ]
    netlink = [_argument(2), *_allow_values((0,)), _refuse(errno.EPROTONOSUPPORT)]
    return [
        _argument(0),
        _Step(_EQUAL, _UNIX, 0, 1),
        _allow() if unix else _refuse(errno.EACCES),
        _Step(_EQUAL, _NETLINK, 0, len(netlink)),
        *netlink,
        _Step(_EQUAL, _INET, 1),
        _Step(_EQUAL, _INET6, 0, len(internet)),
        *internet,
        _refuse(errno.EAFNOSUPPORT),
    ]


def _socket_pair_check(*, datagrams: bool) -> list[_Step]:
    """A datagram socket of a pair can still send to any address, a stream cannot."""
    kinds = (_STREAM, _DATAGRAM, _PACKET) if datagrams else (_STREAM, _PACKET)
    return [
        _argument(0),
        _Step(_EQUAL, _UNIX, 1),
        _refuse(errno.EAFNOSUPPORT),
        _argument(1),
        _Step(_AND, _TYPE_MASK),
        *_allow_values(kinds),
        _refuse(errno.EPERM),
    ]


def _limits_check(namespaces: bool) -> list[_Step]:
    only_read = [_argument(2), _Step(_EQUAL, 0, 0, 3), _argument(2, high=True), *_allow_values((0,))]
    others = [] if namespaces else [_argument(0), _Step(_EQUAL, 0, 1), _refuse(errno.EPERM)]
    return [*only_read, *others, *_refuse_value(1, _RLIMIT_RTTIME, 0), _allow()]


def _argument(index: int, *, high: bool = False) -> _Step:
    """Load the low half of an argument: `int` arguments have no other, whatever the register holds."""
    return _Step(_LOAD, 16 + 8 * index + (4 if high else 0))


def _allow() -> _Step:
    return _Step(_RETURN, _ALLOW)


def _refuse(error: int) -> _Step:
    return _Step(_RETURN, _ERRNO | error)


def _allow_values(values: tuple[int, ...]) -> list[_Step]:
    return [step for value in values for step in (_Step(_EQUAL, value, 0, 1), _allow())]


def _refuse_value(argument: int, value: int, error: int) -> list[_Step]:
    return [_argument(argument), _Step(_EQUAL, value, 0, 1), _refuse(error)]


def _refuse_bits(bits: int) -> list[_Step]:
    return [_Step(_ANY_BIT, bits, 0, 1), _refuse(errno.EPERM)]
