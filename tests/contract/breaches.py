"""Attempts to leave the sandbox: each is a script, and a check on this machine whether it had an effect.

A script prints `BREACHED` or a canary if it succeeds; `{names}` are those of `BreachWorld.values`.
"""

import os
import stat
from collections.abc import Callable
from typing import Literal, NamedTuple, TypeAlias

from tests.world.breach_world import BreachWorld, find_processes

BREACHED = "BREACHED"
PROCESSES, MEMORY_MB, FILE_MB = 150, 300, 40
"""Limits of the sandboxes under test."""
Control: TypeAlias = Literal["yes", "root", "no"]
"""Whether it succeeds on the host: always, as root, or it is not tried because it would do harm."""
ROOT = os.getuid() == 0


class Breach(NamedTuple):
    name: str
    script: str
    happened: Callable[[BreachWorld, str], bool]
    control: Control = "yes"

    @property
    def is_alone(self) -> bool:
        """Whether another attempt in the same command could be affected, or mistaken for it."""
        return self in _LIMITS or (self.happened is not _printed and not self.name.startswith("write "))


def _printed(world: BreachWorld, output: str) -> bool:
    return world.canary in output or _says_so(output)


def _says_so(output: str) -> bool:
    """The shell may also print the script of a command that was killed."""
    return any(line.startswith(BREACHED) for line in output.splitlines())


def _reached(world: BreachWorld, output: str) -> bool:
    return bool(world.reached()) or _says_so(output)


def _written(path: str) -> Callable[[BreachWorld, str], bool]:
    def happened(world: BreachWorld, output: str) -> bool:
        file = path.format(**world.values())
        if not os.path.isfile(file):
            return False
        with open(file) as opened:
            return "breach" in opened.read()

    return happened


def _python(code: str) -> str:
    return f"python3 - <<'END'\n{code}\nEND\n"


def _read(name: str, path: str) -> Breach:
    return Breach(f"read {name}", f'cat "{path}"', _printed)


def _write(name: str, path: str, control: Control = "yes") -> Breach:
    return Breach(f"write {name}", f'echo breach >>"{path}"', _written(path), control)


_READS = (
    _read("an ssh key", "{home}/.ssh/id_ed25519"),
    _read("cloud credentials", "{home}/.aws/credentials"),
    _read("a browser profile", "{home}/.config/google-chrome/Default/Login Data"),
    _read("the shell history", "{home}/.bash_history"),
    _read("our .env file", "{alipes_home}/.env"),
    _read("our database", "{alipes_home}/alipes.db"),
    _read("the home of Hermes", "{home}/.hermes/.env"),
    _read("the home of OpenClaw", "{home}/.openclaw/openclaw.json"),
    _read("credentials of Claude", "{home}/.claude/.credentials.json"),
    _read("another project", "{other}/notes.txt"),
    _read("an ssh key by a relative path", "../../.ssh/id_ed25519"),
    _read("an ssh key by a link that was there", "{workdir}/link"),
    Breach("read an ssh key by a new link", "ln -sf {home}/.ssh/id_ed25519 new-link; cat new-link", _printed),
    Breach("read an ssh key by a hard link", "ln -f {home}/.ssh/id_ed25519 hard-link; cat hard-link", _printed),
    Breach("read every file below the home", "grep -rIs canary- {home} | head -50", _printed),
    Breach("read every file below the test folder", "grep -rIs {canary} {folder} | head -50", _printed),
    Breach("read the password file", 'head -c1 /etc/shadow | grep -q . && echo "BREACHED"', _printed, "root"),
)
_WRITES = (
    _write("a start file of the shell", "{home}/.bashrc"),
    _write("a key for logins", "{home}/.ssh/authorized_keys"),
    _write("the folder of the project", "{home}/work/new-file"),
    _write("another project", "{other}/notes.txt"),
    _write("another project by a link", "{workdir}/linked-folder/by-link.txt"),
    _write("our settings", "{alipes_home}/config.toml"),
    _write("a git hook", "{workdir}/.git/hooks/pre-commit"),
    _write("/etc", "/etc/{canary}", "no"),
    _write("/usr", "/usr/{canary}", "no"),
    _write("/var", "/var/{canary}", "no"),
    _write("/run", "/run/{canary}", "no"),
    _write("/tmp of the host", "/tmp/{canary}", "no"),
    Breach("rename the folder of the project", "mv {home}/work/other {home}/work/moved", lambda world, _: not
           world.other.is_dir(), "no"),
    Breach("remove the home", "rm -rf {home}/.ssh {home}/.aws {other}", lambda world, _: not
           (world.home / ".ssh" / "id_ed25519").exists() or not world.other.exists(), "no"),
)  # fmt: skip
_PROC = (
    Breach("environment of a process", "tr '\\0' '\\n' </proc/{victim}/environ", _printed),
    Breach("environment of every process", "cat /proc/[0-9]*/environ | tr '\\0' '\\n'", _printed),
    Breach("folder of a process", "cat /proc/{victim}/cwd/id_ed25519", _printed),
    Breach("root of a process", "cat /proc/{victim}/root{home}/.ssh/id_ed25519", _printed),
    Breach("root of process 1", "cat /proc/1/root{home}/.ssh/id_ed25519", _printed, "no"),
    Breach("folder of process 1", "cat /proc/1/cwd{home}/.ssh/id_ed25519", _printed, "no"),
    Breach("open files of every process", "for f in /proc/[0-9]*/fd/*; do case $(readlink $f) in *.db|*.sock)"
           ' echo "BREACHED $f";; esac; done', _printed, "no"),
    Breach("memory of a process", _python("""
maps = [line.split()[0].split("-") for line in open("/proc/{victim}/maps") if "[stack]" in line]
with open("/proc/{victim}/mem", "rb") as memory:
    memory.seek(int(maps[0][0], 16))
    print(memory.read(int(maps[0][1], 16) - int(maps[0][0], 16)))
"""), _printed),
    Breach("other processes are listed", "ls -d /proc/{victim} /proc/{test_pid} && echo BREACHED", _printed),
)  # fmt: skip
_KERNEL_FILES = (
    Breach("kernel settings", "cat /proc/sys/kernel/printk >/proc/sys/kernel/printk && echo BREACHED", _printed, "root"),
    Breach("memory of the kernel", "head -c1 /proc/kcore | grep -q . && echo BREACHED", _printed, "no"),
    Breach("sysrq", "exec 3>>/proc/sysrq-trigger && echo BREACHED", _printed, "no"),
    Breach("write /sys", "for f in /sys/kernel/mm/transparent_hugepage/enabled /sys/power/state /sys/kernel/uevent_helper"
           " /sys/fs/cgroup/cgroup.procs /sys/fs/cgroup/*/release_agent; do"
           " (exec 3>>$f) 2>/dev/null && echo BREACHED; done", _printed, "root"),
)  # fmt: skip
_CONNECT = """
import socket
with socket.socket(socket.{family}, socket.{kind}) as s:
    s.settimeout(3)
    s.connect({address})
    s.send(b"breach")
"""


def _connect(name: str, family: str, address: str, kind: str = "SOCK_STREAM", control: Control = "yes") -> Breach:
    code = _CONNECT.replace("{family}", family).replace("{kind}", kind).replace("{address}", address)
    return Breach(f"connect to {name}", _python(code), _reached, control)


def _socket(name: str, arguments: str, control: Control = "root") -> Breach:
    return Breach(f"open a {name} socket", _python(f"import socket\nsocket.socket({arguments})\nprint('BREACHED')"),
                  _printed, control)  # fmt: skip


_NETWORK = (
    Breach("connect to loopback by /dev/tcp", "exec 3<>/dev/tcp/127.0.0.1/{tcp4_port} && echo breach >&3", _reached),
    Breach("connect to this machine by /dev/tcp", "exec 3<>/dev/tcp/{own_address}/{own_tcp_port}", _reached),
    Breach("send to this machine by /dev/udp", "echo breach >/dev/udp/{own_address}/{own_udp_port}", _reached),
    _connect("loopback over IPv6", "AF_INET6", '("::1", {tcp6_port})'),
    _connect("loopback by an IPv4 address in IPv6", "AF_INET6", '("::ffff:127.0.0.1", {tcp4_port})'),
    _connect("a name server on loopback", "AF_INET", '("127.0.0.1", {udp_port})', "SOCK_DGRAM"),
    _connect("an abstract socket", "AF_UNIX", '"\\0{canary}"'),
    _connect("a socket in /run", "AF_UNIX", '"/run/{canary}.sock"', control="root"),
    _connect("D-Bus", "AF_UNIX", '__import__("os").environ["DBUS_SESSION_BUS_ADDRESS"].partition("=")[2]'),
    _connect("the ssh agent", "AF_UNIX", '__import__("os").environ["SSH_AUTH_SOCK"]'),
    _connect("the ssh agent by its path", "AF_UNIX", '"{folder}/agent.sock"'),
    Breach("resolve a name", "timeout 5 getent ahosts example.com | grep -q . && echo BREACHED", _printed, "no"),
    Breach("reach the metadata address", "timeout 3 bash -c 'exec 3<>/dev/tcp/169.254.169.254/80' && echo BREACHED",
           _printed, "no"),
    Breach("reach the Docker socket", _python("""
import socket
for path in "/run/docker.sock", "/var/run/docker.sock", "/run/podman/podman.sock", "/run/containerd/containerd.sock":
    try:
        with socket.socket(socket.AF_UNIX) as s:
            s.connect(path)
            print("BREACHED", path)
    except OSError:
        pass
"""), _printed, "no"),
)  # fmt: skip
_SOCKETS = (
    _socket("raw", "socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP"),
    _socket("packet", "socket.AF_PACKET, socket.SOCK_RAW"),
    _socket("vsock", "socket.AF_VSOCK, socket.SOCK_STREAM", "no"),
    _socket("Bluetooth", "31, socket.SOCK_RAW, 1", "no"),
    _socket("kernel crypto", "socket.AF_ALG, socket.SOCK_SEQPACKET", "no"),
)  # fmt: skip


def _syscall(name: str, call: str, control: Control = "yes", then: str = "print('BREACHED')") -> Breach:
    code = f"""
import ctypes
libc = ctypes.CDLL(None, use_errno=True)
libc.shmat.restype = ctypes.c_void_p
result = {call}
if result >= 0:
    {then}
"""
    return Breach(name, _python(code), _printed, control)


_READ_KEY = "b = ctypes.create_string_buffer(100); libc.syscall(250, 11, result, b, 100); print(b.value.decode())"
_READ_FD = "import os; print('BREACHED' if libc.syscall(438, result, 0, 0) >= 0 else '')"
_OTHER_PROCESSES = (
    _syscall("trace a process", "libc.ptrace(16, {victim}, None, None)"),
    _syscall("take a descriptor of a process", "libc.syscall(434, {victim}, 0)", then=_READ_FD),
    _syscall("trace the test itself", "libc.ptrace(16, {test_pid}, None, None)", "no"),
    _syscall("SysV shared memory", "libc.shmget({shm_key}, 4096, 0)",
             then="print(ctypes.string_at(libc.shmat(result, None, 0)).decode())"),
    _syscall("watch a hidden folder", "libc.inotify_add_watch(libc.inotify_init(), b'{home}/.ssh', 0xFFF)"),
    Breach("shared memory in /dev/shm", "cat /dev/shm/{shm_name}", _printed),
    Breach("kill a process", "kill -9 {victim}", lambda world, _: not world.is_victim_alive()),
    Breach("kill everything", "kill -9 -1", lambda world, _: not world.is_victim_alive(), "no"),
    Breach("unmount what hides the home", "umount -l {home} && cat {home}/.ssh/id_ed25519", _printed, "no"),
    Breach("type into the terminal of the user", _python(
        "import fcntl, termios\nfcntl.ioctl(open('/dev/tty'), termios.TIOCSTI, b'x')\nprint('BREACHED')"), _printed, "no"),
)  # fmt: skip
_KERNEL = (
    _syscall("the keyring", "libc.syscall(250, 10, -4, b'user', b'alipes-breach', 0)", "no", then=_READ_KEY),
    _syscall("load a BPF program", "libc.syscall(321, 0, ctypes.create_string_buffer(120), 120)", "no"),
    _syscall("open a file by its handle", "libc.open_by_handle_at(-100, None, 0)", "no"),
    _syscall("set the time zone of the kernel", "libc.syscall(164, None, ctypes.create_string_buffer(8))", "no"),
    Breach("user namespaces", "unshare -Ur true && echo BREACHED", _printed),
    Breach("mount namespaces", "unshare -m true && echo BREACHED", _printed, "root"),
    Breach("mount a file system", "mkdir -p m; mount -t tmpfs x m && echo BREACHED", _printed, "no"),
    Breach("mount over a program", "mount --bind file.txt /usr/bin/env && echo BREACHED", _printed, "no"),
    Breach("chroot", "chroot / true && echo BREACHED", _printed, "root"),
    Breach("make a device node", "mknod disk b 254 0", lambda world, _: _remove_device(world), "root"),
    Breach("read a disk", "cat /dev/vda /dev/sda /dev/nvme0n1 2>/dev/null | head -c1 | grep -q . && echo BREACHED",
           _printed, "no"),
    Breach("new privileges", "grep -q 'NoNewPrivs:.*0' /proc/self/status && echo BREACHED", _printed),
    Breach("capabilities", "grep -E 'Cap(Eff|Prm|Amb):' /proc/self/status | grep -qv ' *0000000000000000$'"
           " && echo BREACHED", _printed, "root"),
    Breach("su", "su -c 'echo BREACHED' nobody </dev/null; sudo -n echo BREACHED", _printed, "no"),
)  # fmt: skip


def _remove_device(world: BreachWorld) -> bool:
    path = world.workdir / "disk"
    if not path.exists():
        return False
    mode = path.stat().st_mode
    path.unlink()
    return stat.S_ISBLK(mode)


def _file_size(world: BreachWorld, _: str) -> bool:
    path = world.workdir / "huge"
    size = path.stat().st_size if path.exists() else 0
    path.unlink(missing_ok=True)
    return size > FILE_MB << 20


_LIMITS = (
    Breach("fork bomb", _python(f"""
import os, time
started = 0
try:
    while started < {3 * PROCESSES}:
        if os.fork() == 0:
            time.sleep(20)
            os._exit(0)
        started += 1
except OSError:
    pass
print("BREACHED" if started > {PROCESSES} else started)
"""), _printed, "no"),
    Breach("use all memory", _python(
        f"held = []\nfor _ in range({MEMORY_MB // 50 + 3}):\n    held.append(bytearray(b'x') * (50 << 20))\n"
        "print('BREACHED')"), _printed, "no"),
    Breach("write a huge file", f"truncate -s {2 * FILE_MB}M huge; head -c {FILE_MB + 2}M /dev/zero >>huge",
           _file_size, "no"),
)  # fmt: skip


def _survive(name: str, number: int, script: str) -> Breach:
    command = f"sleep 86{number}.{os.getpid()}"  # other tests may run the same attempt now
    return Breach(
        f"survive by {name}", script.replace("SLEEP", command), lambda *_: bool(find_processes(command)), "no"
    )


_SURVIVAL = (
    _survive("a background job", 401, "SLEEP &"),
    _survive("setsid", 402, "setsid SLEEP >/dev/null 2>&1 &"),
    _survive("a double fork", 403, "( ( setsid SLEEP >/dev/null 2>&1 & ) & )"),
    _survive("nohup", 404, "nohup SLEEP >/dev/null 2>&1 & disown"),
    _survive("ignored signals", 405, "trap '' TERM HUP INT PIPE; setsid SLEEP >/dev/null 2>&1 & disown -a"),
    _survive("an empty environment", 406, "env -i setsid SLEEP </dev/null >/dev/null 2>&1 &"),
    _survive("a daemon", 407, _python("""
import os
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.closerange(0, 64)
        os.execve("/bin/sleep", "SLEEP".split(), {})
    os._exit(0)
""")),
)  # fmt: skip
OUTWARD_BREACHES = (*_READS, *_WRITES, *_PROC, *_NETWORK, *_OTHER_PROCESSES, *_SURVIVAL)
"""They reach for files, sockets and processes of this machine, wherever they run."""
BREACHES = (*OUTWARD_BREACHES, *_KERNEL_FILES, *_SOCKETS, *_KERNEL, *_LIMITS)
"""Also those that reach for the kernel of the machine on which they run."""


def is_control(breach: Breach) -> bool:
    """Whether it must succeed on the host."""
    return breach.control == "yes" or (breach.control == "root" and ROOT)
