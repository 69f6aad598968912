"""The filter is run by a small BPF interpreter for both processors, and by the kernel for real programs."""

import errno
import json
import os
import platform
import shutil
import struct
import subprocess
import sys
from pathlib import Path

import pytest

from alipes.runtime.sandbox import seccomp
from alipes.runtime.sandbox.seccomp import build_filter

MACHINES = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}
CHECKED = ("unshare", "clone", "personality", "ioctl", "socket", "socketpair", "setrlimit", "prlimit64", "truncate")
ALLOWED = "allowed"
KILLED = "killed"
REFUSED = [
    *("mount", "umount2", "pivot_root", "open_tree", "move_mount", "fsopen", "fsconfig", "fsmount", "fspick"),
    *("mount_setattr", "open_tree_attr", "chroot", "setns", "keyctl", "add_key", "request_key", "bpf"),
    *("perf_event_open", "userfaultfd", "fanotify_init", "kexec_load", "kexec_file_load", "init_module"),
    *("finit_module", "delete_module", "swapon", "swapoff", "reboot", "acct", "quotactl", "quotactl_fd"),
    *("open_by_handle_at", "settimeofday", "clock_settime", "clock_adjtime", "adjtimex", "sethostname"),
    *("setdomainname", "syslog", "lookup_dcookie", "nfsservctl", "vhangup", "iopl", "ioperm", "modify_ldt"),
]
SYSCALL_PROBE = """
import ctypes, json, os, resource, socket, sys
libc = ctypes.CDLL(None, use_errno=True)
class Program(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("steps", ctypes.c_char_p)]
steps = bytes.fromhex(sys.argv[1])
assert libc.prctl(38, 1, 0, 0, 0) == 0
assert libc.prctl(22, 2, ctypes.byref(Program(len(steps) // 8, steps)), 0, 0) == 0, ctypes.get_errno()
results = []
for number, *arguments in json.loads(sys.argv[2]):
    ctypes.set_errno(0)
    libc.syscall(ctypes.c_long(number), *[ctypes.c_long(argument) for argument in arguments])
    results.append(ctypes.get_errno())
print(json.dumps(results))
"""
here = pytest.mark.skipif(platform.machine() not in MACHINES or sys.platform != "linux", reason="no filter here")
in_bubblewrap = pytest.mark.skipif(shutil.which("bwrap") is None, reason="bubblewrap is not installed")


@pytest.fixture(params=MACHINES)
def machine(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def run_filter(program: bytes, number: int, arguments: tuple[int, ...] = (), *, architecture: int) -> str:
    """What the filter answers to one system call: `allowed`, `killed` or the name of the error."""
    words = [word & (2**64 - 1) for word in (*arguments, *[0] * (6 - len(arguments)))]
    data = struct.pack("<IIQ6Q", number, architecture, 0, *words)
    at = accumulator = 0
    while True:
        code, if_true, if_false, value = struct.unpack_from("<HBBI", program, at * 8)
        at += 1
        if code == 0x20:
            (accumulator,) = struct.unpack_from("<I", data, value)
        elif code == 0x54:
            accumulator &= value
        elif code == 0x06:
            return describe_verdict(value)
        else:
            test = {0x15: accumulator == value, 0x35: accumulator >= value, 0x45: accumulator & value != 0}[code]
            at += if_true if test else if_false


def describe_verdict(value: int) -> str:
    if value == 0x7FFF0000:
        return ALLOWED
    if value == 0x80000000:
        return KILLED
    assert value & 0xFFFF0000 == 0x50000
    return errno.errorcode[value & 0xFFFF] if value & 0xFFFF else "ignored"


def judge(call: str, *arguments: int, machine: str, **options: bool) -> str:
    column, architecture = MACHINES[machine]
    number = seccomp._CALLS[call][column]
    if number < 0:
        pytest.skip(f"{machine} has no {call}")
    return run_filter(build_filter(machine=machine, **options), number, arguments, architecture=architecture)


def run_calls(*calls: tuple[int, ...], **options: bool) -> list[str]:
    """Make the system calls under the filter in a real process; the errors by name, empty for none."""
    argv = [sys.executable, "-I", "-c", SYSCALL_PROBE, build_filter(**options).hex(), json.dumps(calls)]
    done = subprocess.run(argv, capture_output=True, text=True, check=True)
    return [errno.errorcode.get(code, "") for code in json.loads(done.stdout)]


def number_of(call: str) -> int:
    return seccomp._CALLS[call][MACHINES[platform.machine()][0]]


@pytest.mark.parametrize("call", REFUSED)
def test_call_is_refused(call, machine):
    assert judge(call, machine=machine) == "EPERM"


@pytest.mark.parametrize("call", ["clone3", "io_uring_setup", "io_uring_enter", "io_uring_register"])
def test_call_whose_arguments_are_in_memory_is_answered_as_missing(call, machine):
    assert judge(call, machine=machine) == "ENOSYS"


def test_every_call_of_the_table_is_decided():
    assert set(seccomp._CALLS) == {*REFUSED, *CHECKED, *seccomp._MISSING, *seccomp._SHARED}


@pytest.mark.parametrize("name", ["read", "write", "openat", "execve", "ptrace", "process_vm_readv", "futex", "kill"])
def test_ordinary_call_is_allowed(name, machine):
    numbers = {
        "read": (0, 63), "write": (1, 64), "openat": (257, 56), "execve": (59, 221), "ptrace": (101, 117),
        "process_vm_readv": (310, 270), "futex": (202, 98), "kill": (62, 129),
    }  # fmt: skip
    column, architecture = MACHINES[machine]
    program = build_filter(machine=machine)
    assert run_filter(program, numbers[name][column], architecture=architecture) == ALLOWED


def test_call_of_another_processor_kills(machine):
    assert run_filter(build_filter(machine=machine), 0, architecture=0x40000003) == KILLED


def test_x32_calls_do_not_exist():
    program = build_filter(machine="x86_64")
    assert run_filter(program, 0x40000000 + 41, (17, 3, 0), architecture=0xC000003E) == "ENOSYS"


def test_other_processors_raise_os_error():
    with pytest.raises(OSError, match="riscv64"):
        build_filter(machine="riscv64")


@pytest.mark.parametrize("flag", [0x20000, 0x02000000, 0x04000000, 0x08000000, 0x10000000, 0x20000000, 0x40000000])
def test_new_namespace_is_refused(flag, machine):
    assert judge("clone", flag | 17, machine=machine) == judge("unshare", flag, machine=machine) == "EPERM"


def test_new_time_namespace_is_refused(machine):
    assert judge("unshare", 0x80, machine=machine) == "EPERM"


def test_fork_and_threads_are_allowed(machine):
    assert judge("clone", 0x01200011, machine=machine) == judge("clone", 0x003D0F00, machine=machine) == ALLOWED


@pytest.mark.parametrize("call", ["clone", "unshare", "chroot"])
def test_user_namespaces_are_allowed_if_granted(call, machine):
    assert judge(call, 0x10000000, machine=machine, user_namespaces=True) == ALLOWED


def test_mount_is_refused_in_granted_user_namespaces(machine):
    assert judge("mount", machine=machine, user_namespaces=True) == "EPERM"


@pytest.mark.parametrize("request_code", [0x5412, 0x541C, 0x5412 | 0x100000000])
def test_input_into_a_terminal_is_refused(request_code, machine):
    assert judge("ioctl", 0, request_code, machine=machine) == "EPERM"


def test_other_terminal_requests_are_allowed(machine):
    assert judge("ioctl", 0, 0x5401, machine=machine) == ALLOWED


@pytest.mark.parametrize("family", [3, 4, 9, 17, 21, 29, 30, 31, 36, 38, 40, 44, 45])
def test_exotic_socket_family_is_refused(family, machine):
    assert judge("socket", family, 2, 0, machine=machine) == "EAFNOSUPPORT"


@pytest.mark.parametrize("family", [2, 10])
@pytest.mark.parametrize("kind", [3, 10, 3 | 0x80000, 5, 6])
def test_raw_socket_is_refused(family, kind, machine):
    assert judge("socket", family, kind, 6, machine=machine) == "EPERM"


@pytest.mark.parametrize("family", [2, 10])
@pytest.mark.parametrize(("kind", "protocol"), [(1, 0), (2, 17), (1 | 0x80000 | 0x800, 6)])
def test_tcp_and_udp_are_allowed(family, kind, protocol, machine):
    assert judge("socket", family, kind, protocol, machine=machine) == ALLOWED


@pytest.mark.parametrize("protocol", [132, 136, 33, 262])
def test_other_internet_protocols_are_refused(protocol, machine):
    assert judge("socket", 2, 1, protocol, machine=machine) == "EPROTONOSUPPORT"


@pytest.mark.parametrize("family", [2, 10])
def test_internet_sockets_are_refused_without_network(family, machine):
    assert judge("socket", family, 1, 0, machine=machine, inet=False) == "EACCES"


@pytest.mark.parametrize("inet", [True, False])
def test_unix_sockets_are_allowed(inet, machine):
    assert judge("socket", 1, 1, 0, machine=machine, inet=inet) == ALLOWED
    assert judge("socketpair", 1, 1, 0, machine=machine, inet=inet) == ALLOWED


def test_unix_sockets_are_refused_without_namespaces(machine):
    assert judge("socket", 1, 1, 0, machine=machine, namespaces=False) == "EACCES"


@pytest.mark.parametrize(("kind", "verdict"), [(1 | 0x80000, ALLOWED), (5, ALLOWED), (2, "EPERM"), (3, "EPERM")])
def test_only_connected_pairs_are_allowed_without_namespaces(kind, verdict, machine):
    assert judge("socketpair", 1, kind, 0, machine=machine, namespaces=False) == verdict


@pytest.mark.parametrize("call", seccomp._SHARED)
def test_shared_memory_and_watches_are_refused_without_namespaces(call, machine):
    assert judge(call, machine=machine) == ALLOWED
    assert judge(call, machine=machine, namespaces=False) == "EPERM"


def test_truncating_by_path_can_be_refused(machine):
    assert judge("truncate", machine=machine) == ALLOWED
    assert judge("truncate", machine=machine, truncate=False) == "EPERM"


def test_netlink_is_limited_to_routes(machine):
    assert judge("socket", 16, 3, 0, machine=machine) == ALLOWED
    assert judge("socket", 16, 3, 12, machine=machine) == "EPROTONOSUPPORT"


def test_high_half_of_an_integer_argument_does_not_hide_it(machine):
    assert judge("socket", (1 << 32) | 17, 3, 0, machine=machine) == "EAFNOSUPPORT"


@pytest.mark.parametrize("value", [0, 0x40000, 0xFFFFFFFF])
def test_personality_of_debuggers_is_allowed(value, machine):
    assert judge("personality", value, machine=machine) == ALLOWED


def test_executable_data_by_personality_is_refused(machine):
    assert judge("personality", 0x0400000, machine=machine) == "EPERM"


@pytest.mark.parametrize("pointer", [1, 1 << 32])
def test_mark_of_a_process_cannot_be_changed(pointer, machine):
    assert judge("setrlimit", 15, pointer, machine=machine) == "ignored"
    assert judge("prlimit64", 0, 15, pointer, machine=machine) == "ignored"


def test_other_limits_can_be_set_and_the_mark_can_be_read(machine):
    assert judge("setrlimit", 7, 1, machine=machine) == judge("prlimit64", 0, 7, 1, machine=machine) == ALLOWED
    assert judge("prlimit64", 0, 15, 0, machine=machine) == ALLOWED


def test_limits_of_other_processes_are_refused_without_namespaces(machine):
    assert judge("prlimit64", 4711, 7, 1, machine=machine, namespaces=False) == "EPERM"
    assert judge("prlimit64", 4711, 7, 0, machine=machine, namespaces=False) == ALLOWED
    assert judge("prlimit64", 0, 7, 1, machine=machine, namespaces=False) == ALLOWED
    assert judge("prlimit64", 4711, 7, 1, machine=machine) == ALLOWED


@here
def test_kernel_refuses_every_listed_call():
    calls = [name for name in REFUSED if number_of(name) >= 0]
    assert run_calls(*[(number_of(name), -1, -1, -1, -1, -1, -1) for name in calls]) == ["EPERM"] * len(calls)


@here
def test_kernel_refuses_namespaces_and_sockets():
    assert run_calls(
        (number_of("unshare"), 0x10000000),
        (number_of("clone3"), 0, 0),
        (number_of("socket"), 17, 3, 0),
        (number_of("socket"), 2, 3, 1),
        (number_of("socket"), 40, 1, 0),
        (number_of("socket"), 2, 1, 0),
        (number_of("ioctl"), 0, 0x5412, 0),
    ) == ["EPERM", "ENOSYS", "EAFNOSUPPORT", "EPERM", "EAFNOSUPPORT", "", "EPERM"]


@here
def test_kernel_refuses_internet_sockets_without_network():
    assert run_calls((number_of("socket"), 2, 1, 0), (number_of("socket"), 1, 1, 0), inet=False) == ["EACCES", ""]


EVERYDAY = {
    "bash": "x=$(echo a | tr a b); test $x = b; diff <(echo 1) <(echo 1); (sleep 0 & wait)",
    "git": "git init -q r && cd r && git -c user.name=a -c user.email=a@b commit -q --allow-empty -m x && git log",
    "gcc": "echo 'int main(void){return 0;}' > a.c && gcc -pthread -o a a.c && ./a",
    "python3": "python3 -c 'import subprocess,threading,multiprocessing as m; t=threading.Thread(target=print);"
    't.start(); t.join(); subprocess.run(["true"],check=True); m.Pool(2).map(abs,[1])\'',
    "node": 'node -e \'new (require("worker_threads").Worker)("0",{eval:true});'
    'require("fs").promises.readFile("/etc/hostname")\'',
    "rustc": "echo 'fn main(){std::thread::spawn(||1).join().unwrap();}' > a.rs && rustc a.rs && ./a",
    "cargo": "cargo init -q --vcs none --name a c && cd c && cargo run -q",
    "java": "java -Xshare:auto -version",
    "sqlite3": "sqlite3 a.db 'pragma journal_mode=wal; create table t(x); insert into t values(1); select x from t'",
    "tar": "echo x > f && tar czf a.tgz f && tar xzf a.tgz && cp -a f g && chmod u+s g && touch -d yesterday g",
    "make": "printf 'all: a b\\na b:\\n\\ttouch $@\\n' > Makefile && make -j4",
    "gdb": "gdb -q -batch -ex run -ex 'info inferiors' --args /bin/true 2>&1 | grep -q 'exited normally'",
    "strace": "strace -f -o log sh -c 'true; true' && grep -q execve log",
    "setarch": "setarch -R true",
    "curl": "curl -s file:///etc/hostname",
    "prlimit": "prlimit --nofile=100 true",
    "ps": "ps ax",
    "ssh-keygen": "ssh-keygen -q -t ed25519 -N '' -f k",
    "flock": "flock f true",
    "script": "script -qc 'stty size' log",
    "timeout": "timeout 5 true",
    "nice": "nice -n 5 true",
    "setsid": "setsid -w true",
}


@here
@in_bubblewrap
@pytest.mark.parametrize("program", EVERYDAY)
def test_everyday_program_works_under_the_filter(program, tmp_path):
    if not is_installed(program):
        pytest.skip(f"{program} is not installed")
    filter_file, work = tmp_path / "filter", tmp_path / "work"
    filter_file.write_bytes(build_filter())
    work.mkdir()
    assert run_in_bubblewrap(EVERYDAY[program], filter_file, work) == 0


def is_installed(program: str) -> bool:
    if program in ("rustc", "cargo"):  # a stub of rustup is no compiler
        return shutil.which(program) is not None and subprocess.run([program, "--version"]).returncode == 0
    return shutil.which(program) is not None


def run_in_bubblewrap(line: str, filter_file: Path, work: Path) -> int:
    handle = os.open(filter_file, os.O_RDONLY)
    try:
        argv = ["bwrap", "--dev-bind", "/", "/", "--unshare-pid", "--unshare-ipc", "--proc", "/proc", "--chdir", work]
        argv += ["--seccomp", str(handle), "bash", "-euo", "pipefail", "-c", line]
        return subprocess.run(argv, pass_fds=(handle,), stdin=subprocess.DEVNULL).returncode
    finally:
        os.close(handle)
