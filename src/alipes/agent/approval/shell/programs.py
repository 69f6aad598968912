"""Rules for single programs: each checks the arguments of one program."""

import re
from collections.abc import Callable, Iterable
from typing import TypeAlias, TypeVar

from alipes.agent.approval.paths import PathChecker, Risk
from alipes.agent.approval.shell.lexer import ShellArguments, ShellWord

Rule: TypeAlias = Callable[[ShellArguments, PathChecker], Risk | None]
T = TypeVar("T")
_PUBLISH = Risk("publish", "publishes a package or deployment, which cannot be undone")
_SERVICE = Risk("system", "stops or changes system services")
_UNINSTALL = Risk("system", "uninstalls packages")
_KILL = Risk("kill", "kills processes that it did not start")
_DESTROY = Risk("destroy", "deletes or publishes data that may not be recoverable")
CHECK_OPTIONS = frozenset(
    ("dpkg", "pacman", "crontab", "redis-cli", "dropdb", "gh", "terraform", "tofu", "docker", "podman")
)
"""Programs of `SUBCOMMANDS` whose options are checked too."""
_SED_RUNS = r"(?:^|[;{}\n\d$/])\s*e(?:\s|$)|(?:^|[;{}\n\d$/])\s*s([^\w\s;{}]).*\1.*\1[gpiIM0-9]*e"
_SED_WRITES = r"(?:^|[;{}\n\d$/!gp])\s*[wW]\s+(\S+)"
_SQL_DELETES = r"(?i)\b(?:drop|truncate)\s+(?:database|table|schema|user)\b|\bdelete\s+from\s+[\w.\"]+\s*(?:;|$)"
_DISCARDS = "discards uncommitted changes"
_FORCE_PUSH = "force-pushes or deletes, which can overwrite work on the remote"
_GIT: dict[str, tuple[str, str, str]] = {
    "push": ("fd", "force force-with-lease force-if-includes mirror delete prune", _FORCE_PUSH),
    "reset": ("", "hard merge keep", _DISCARDS),
    "clean": ("fdxX", "force", "deletes untracked files"),
    "checkout": ("f", "force", _DISCARDS),
    "switch": ("f", "force discard-changes", _DISCARDS),
    "branch": ("D", "delete", "deletes branches"),
    "tag": ("d", "delete", "deletes tags"),
    "gc": ("", "prune", "deletes unreachable objects that could still be restored"),
    "update-ref": ("d", "delete", "deletes references"),
    "worktree": ("f", "force", "force-removes working trees"),
    "send-pack": ("f", "force mirror", _FORCE_PUSH),
}
"""By git subcommand: short and long options that make it dangerous, and the reason."""
_GIT_HISTORY = r"filter-branch|filter-repo|prune|replace|stash (?:drop|clear)|reflog (?:delete|expire)|submodule deinit"
_GIT_RUNS = (
    r"(?i)alias\.|core\.(?:sshcommand|fsmonitor|hookspath|pager|editor|askpass)|protocol\.ext|\w*\.external"
    r"|(?:filter|credential|merge|diff|difftool|mergetool)\..*(?:clean|smudge|process|helper|driver|cmd|textconv)"
)
"""Settings that make git run a program."""


def first_risk(risks: Iterable[Risk | None]) -> Risk | None:
    return next((risk for risk in risks if risk), None)


def for_each(names: str, thing: T) -> dict[str, T]:
    """The same value for several space-separated names."""
    return dict.fromkeys(names.split(), thing)


ALWAYS_ASK = {
    **{name: Risk("root", f"uses {name} (runs as root)") for name in ("sudo", "doas", "pkexec", "su", "runuser")},
    **for_each(
        "mkfs mke2fs mkswap wipefs fdisk sfdisk cfdisk gdisk sgdisk parted blkdiscard cryptsetup"
        " lvremove vgremove pvremove zpool badblocks hdparm dmsetup",
        Risk("disk", "changes disks or file systems"),
    ),
    **for_each("shred srm wipe", Risk("remove", "permanently destroys files")),
    **for_each(
        "shutdown reboot halt poweroff telinit init killall5", Risk("power", "shuts down or restarts the machine")
    ),
    **for_each(
        "useradd userdel usermod groupdel passwd chpasswd visudo vipw", Risk("accounts", "changes user accounts")
    ),
    **for_each(
        "insmod rmmod modprobe mount umount swapoff iptables ip6tables nft ufw setenforce",
        Risk("system", "changes the kernel, mounts or the firewall"),
    ),
    **for_each("at batch", Risk("schedule", "schedules commands")),
    **for_each("gcore", Risk("secret", "reads the memory of another process")),
}
"""Programs that always need approval."""

SUBCOMMANDS: dict[str, tuple[str, Risk]] = {
    **for_each(
        "npm pnpm yarn bun cargo poetry uv hatch flit pdm vsce gem twine helm dart mvn",
        (r"(?:npm )?(?:un)?publish\b|push\b|upload\b|yank\b|deploy\b", _PUBLISH),
    ),
    **for_each(
        "docker podman",
        (r"(?:image )?push\b|\w* ?prune\b|volume rm\b|rm .*-v|system reset|run .*(?:-v ?/:|--priv)", _DESTROY),
    ),
    "gh": (r"repo delete|release (?:create|delete)|secret |api .*(?:-X|--method)[ =]?DELETE", _DESTROY),
    "systemctl": (r"stop|disable|mask|isolate|kill|poweroff|reboot|halt|kexec|suspend|enable|edit", _SERVICE),
    "service": (r"\S+ (?:stop|restart)", _SERVICE),
    **for_each("apt apt-get aptitude dnf yum zypper apk pkg", (r"remove|purge|autoremove|erase|del\b", _UNINSTALL)),
    "dpkg": (r"-r|-P|--rem|--pur", _UNINSTALL),
    "pacman": (r"-R", _UNINSTALL),
    **for_each(
        "terraform tofu pulumi kubectl aws gcloud az heroku flyctl doctl",
        (r"(?:.* )?(?:destroy|delete\S*|drain|rm|rb|terminate-\S+|apply .*-auto-approve)\b", _DESTROY),
    ),
    "crontab": (r"(?!-l$)", Risk("schedule", "changes scheduled commands (crontab)")),
    "redis-cli": (r"(?i).*flush(?:all|db)", _DESTROY),
    "dropdb": (r".", _DESTROY),
}
"""By program: pattern for the start of its joined arguments that needs approval."""


def check_git(args: ShellArguments, checker: PathChecker) -> Risk | None:
    words = _git_subcommand(args)
    if not words:
        return None
    name, rest = words[0].text, ShellArguments(words[1:])
    if not words[0].is_known:
        return Risk("hidden", "runs a git command that is only known at run time")
    if _sets_git_program(name, rest):
        return Risk("startup", "changes which programs git runs")
    if re.match(_GIT_HISTORY, " ".join(word.text for word in words)):
        return Risk("git", "rewrites or deletes git history")
    letters, names, reason = _GIT.get(name, ("", "", ""))
    if reason and (rest.may_hide_option or rest.has(letters, *names.split())):
        return Risk("git", reason)
    operands = [word.text for word in rest.operands]
    if name == "clone" and (risk := first_risk(map(checker.check_write, rest.operands[1:2]))):
        return risk
    if name == "push" and any(text.startswith(("+", ":")) for text in operands):
        return Risk("git", _FORCE_PUSH)
    everything = name in ("checkout", "restore") and any(text in (".", "./", "*", ":/") for text in operands)
    if everything and (rest.has("W", "worktree") or not rest.has("S", "staged")):
        return Risk("git", _DISCARDS)
    return None


def _sets_git_program(name: str, rest: ShellArguments) -> bool:
    """True if `git config` sets a program to run, or a URL runs a command."""
    operands = [word.text for word in rest.operands]
    if any(text.startswith("ext::") for text in operands):
        return True
    return name == "config" and any(map(re.compile(_GIT_RUNS).match, operands[:-1]))


def _git_subcommand(args: ShellArguments) -> list[ShellWord]:
    """The words from the subcommand on: `push` in `git -C x -c y=z push`."""
    words = list(args.words)
    while words and words[0].text.startswith("-"):
        option = words.pop(0).text
        if option in ("-C", "-c", "--git-dir", "--work-tree", "--namespace", "--exec-path") and words:
            words.pop(0)
    return words


def check_remove(args: ShellArguments, checker: PathChecker) -> Risk | None:
    if args.may_hide_option:
        return Risk("remove", "deletes files whose names are only known at run time")
    whole = [word for word in args.operands if word.has_glob and word.text.rpartition("/")[2] in ("*", ".*")]
    cleared = args.operands if args.has("rR", "recursive", "dir") else whole
    risk = first_risk(checker.check_clear("remove", word) for word in cleared)
    return risk or first_risk(map(checker.check_write, args.operands))


def check_chmod(args: ShellArguments, checker: PathChecker) -> Risk | None:
    mode, *paths = args.operands or [ShellWord("")]
    if re.search(r"[ugoa]*\+[rwx]*s|^0?[2467]\d{3}$", mode.text):
        return Risk("setuid", "sets the setuid or setgid bit")
    if args.has("R", "recursive"):
        return first_risk(checker.check_clear("mode", path) for path in paths)
    return first_risk(map(checker.check_write, paths))


def check_dd(args: ShellArguments, checker: PathChecker) -> Risk | None:
    for word in args.words:
        if word.text.startswith("of="):
            target = ShellWord(word.text[3:])
            if not target.is_known:
                return Risk("disk", "writes raw data to a target that is only known at run time")
            return checker.check_write(target)
    return None


def check_kill(args: ShellArguments, checker: PathChecker) -> Risk | None:
    words = [word.text for word in args.words]
    if {"-1", "1", "0"} & set(words[1:]) or words[-1:] == ["1"] or words == ["-1"]:
        return _KILL
    return None


def check_pkill(args: ShellArguments, checker: PathChecker) -> Risk | None:
    broad = {"", ".", ".*", "*", "alipes", "bash", "sh", "python", "python3", "sshd", "init", "systemd", "node"}
    by_owner = args.has("uUGgst", "euid", "uid", "user", "session", "terminal")
    if by_owner or args.may_hide_option or any(word.text in broad for word in args.operands):
        return _KILL
    return None


def check_copy(args: ShellArguments, checker: PathChecker) -> Risk | None:
    """`cp`, `mv`, `ln`, `install`, `rsync`: the target, and secrets in the sources"""
    targets = [*args.values("t", "target-directory"), *args.operands[-1:]]
    if args.has("", "delete", "delete-after", "delete-before", "remove-source-files"):
        return first_risk(checker.check_clear("remove", target) for target in targets)
    return first_risk(map(checker.check_write, targets)) or first_risk(map(checker.check_copy, args.operands[:-1]))


def check_link(args: ShellArguments, checker: PathChecker) -> Risk | None:
    checker.has_links = True
    return check_copy(args, checker)


def check_move(args: ShellArguments, checker: PathChecker) -> Risk | None:
    sources = args.operands[:-1] or args.operands
    if args.operands and args.operands[-1].text.startswith("/dev/"):
        return Risk("remove", "moves a file to a device, where it is lost")
    return check_copy(args, checker) or first_risk(
        checker.check_write(word) or checker.check_move(word) for word in sources
    )


def check_write(args: ShellArguments, checker: PathChecker) -> Risk | None:
    """`tee`, `touch`, `truncate` and others that write all their operands"""
    return first_risk(map(checker.check_write, args.operands))


def check_sed(args: ShellArguments, checker: PathChecker) -> Risk | None:
    if any(re.search(_SED_RUNS, word.text) for word in args.words):
        return Risk("code", "runs commands from a sed script")
    written = [ShellWord(path) for word in args.words for path in re.findall(_SED_WRITES, word.text)]
    if risk := first_risk(map(checker.check_write, written)):
        return risk
    return check_write(args, checker) if args.has("i", "in-place") else None


def check_in_place(args: ShellArguments, checker: PathChecker) -> Risk | None:
    """`perl`, `ruby`: with `-i` they edit files in place"""
    return check_write(args, checker) if args.has("i") else None


def check_sql(args: ShellArguments, checker: PathChecker) -> Risk | None:
    if any(re.search(_SQL_DELETES, word.text) for word in args.words):
        return Risk("destroy", "deletes data from a database")
    return None


def check_netcat(args: ShellArguments, checker: PathChecker) -> Risk | None:
    if args.has("e", "exec", "sh-exec") or any(re.search(r"(?i)^(?:exec|system):", word.text) for word in args.words):
        return Risk("network", "lets another machine run commands here")
    return None


def check_download(args: ShellArguments, checker: PathChecker) -> Risk | None:
    return first_risk(map(checker.check_write, args.values("oOP", "output", "output-document", "directory-prefix")))


def check_archive(args: ShellArguments, checker: PathChecker) -> Risk | None:
    return first_risk(
        checker.check_write(ShellWord(f"{folder.text}/x")) for folder in args.values("Cd", "directory") if folder.text
    ) or first_risk(map(checker.check_copy, args.operands))


def check_output_option(args: ShellArguments, checker: PathChecker) -> Risk | None:
    return first_risk(map(checker.check_write, args.values("of", "output", "out", "prefix")))


def check_second_operand(args: ShellArguments, checker: PathChecker) -> Risk | None:
    """`uniq`, `xxd`: the second operand is the output file"""
    return first_risk(map(checker.check_write, args.operands[1:2]))


def check_ps(args: ShellArguments, checker: PathChecker) -> Risk | None:
    """`ps`: `e` without a dash shows the environment of processes"""
    if any(re.fullmatch(r"[a-zA-Z]*e[a-zA-Z]*", word.text) for word in args.operands[:1]):
        return Risk("secret", "shows the environment of processes")
    return None


def check_debugger(args: ShellArguments, checker: PathChecker) -> Risk | None:
    """`gdb`, `strace` and others that attach to a process"""
    if args.has("", "pid", "attach") or any(word.text.startswith("-p") for word in args.options):
        return Risk("secret", "attaches to another process")
    return None


def check_find(args: ShellArguments, checker: PathChecker) -> Risk | None:
    names = {word.text for word in args.options}
    paths = args.words[: next((at for at, word in enumerate(args.words) if word.text.startswith("-")), 0)]
    pairs = zip(args.words, args.words[1:], strict=False)
    if risk := first_risk(checker.check_write(file) for word, file in pairs if re.match("-f(?:print|ls)", word.text)):
        return risk
    if names & {"-exec", "-execdir", "-ok", "-okdir"} and (risk := first_risk(map(checker.check_copy, paths))):
        return risk
    if "-delete" not in names:
        return None
    if names & {"-name", "-iname", "-path", "-regex", "-empty", "-newer", "-mtime", "-mmin"}:
        paths = [ShellWord(f"{path.text}/x") for path in paths]  # only some of the files below
    return first_risk(checker.check_clear("remove", path) for path in (paths or [ShellWord(".")]))


RULES: dict[str, Rule] = {
    "git": check_git,
    **for_each("rm rmdir unlink trash", check_remove),
    **for_each("chmod chown chgrp chattr setfacl", check_chmod),
    "dd": check_dd,
    "kill": check_kill,
    **for_each("pkill killall skill", check_pkill),
    **for_each("cp install rsync scp", check_copy),
    "ln": check_link,
    "mv": check_move,
    **for_each("tee touch truncate mkdir mkfifo mknod sponge fallocate", check_write),
    **for_each("sed gsed", check_sed),
    **for_each("perl ruby", check_in_place),
    **for_each("ed ex vi vim nvim nano", check_write),
    **for_each("curl wget", check_download),
    **for_each("tar bsdtar unzip cpio zip 7z", check_archive),
    **for_each("sort shuf gpg openssl csplit", check_output_option),
    **for_each("uniq xxd", check_second_operand),
    "ps": check_ps,
    **for_each("strace ltrace gdb lldb", check_debugger),
    "find": check_find,
    **for_each("psql mysql mariadb sqlite3 duckdb", check_sql),
    **for_each("nc ncat netcat socat", check_netcat),
    "rimraf": lambda args, checker: first_risk(checker.check_clear("remove", word) for word in args.operands),
}
