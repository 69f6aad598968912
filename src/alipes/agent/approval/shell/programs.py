"""What single programs do that somebody should be asked about. Each rule sees one program's arguments."""

import re
from collections.abc import Callable, Iterable
from typing import TypeAlias, TypeVar

from alipes.agent.approval.paths import Ground, Risk
from alipes.agent.approval.shell.lexer import Args, Word

Rule: TypeAlias = Callable[[Args, Ground], Risk | None]
T = TypeVar("T")


def each(names: str, thing: T) -> dict[str, T]:
    """The same thing for several names."""
    return dict.fromkeys(names.split(), thing)


ALWAYS = {
    **each("sudo doas pkexec su runuser", Risk("root", "runs a command as another user")),
    **each(
        "mkfs mke2fs mkswap wipefs fdisk sfdisk cfdisk gdisk sgdisk parted blkdiscard cryptsetup"
        " lvremove vgremove pvremove zpool badblocks hdparm dmsetup",
        Risk("disk", "changes disks or file systems"),
    ),
    **each("shred srm wipe", Risk("remove", "destroys files for good")),
    **each(
        "shutdown reboot halt poweroff telinit init killall5", Risk("power", "stops or restarts the machine")
    ),
    **each(
        "useradd userdel usermod groupdel passwd chpasswd visudo vipw",
        Risk("accounts", "changes who may use the machine"),
    ),
    **each(
        "insmod rmmod modprobe mount umount swapoff iptables ip6tables nft ufw setenforce",
        Risk("system", "changes how the machine runs"),
    ),
    **each("at batch", Risk("schedule", "schedules commands for later")),
    **each("gcore", Risk("secret", "reads the memory of another process")),
}
"""Programs whose every use is asked about."""

_PUBLISH = Risk("publish", "publishes something, which cannot be taken back")
_SERVICE = Risk("system", "stops or changes services of the machine")
_UNINSTALL = Risk("system", "removes packages from the machine")
_DESTROY = Risk("destroy", "destroys what may not come back, or sends it out")
SUBCOMMANDS: dict[str, tuple[str, Risk]] = {
    **each(
        "npm pnpm yarn bun cargo poetry uv hatch flit pdm vsce gem twine helm dart mvn",
        (r"(?:npm )?(?:un)?publish\b|push\b|upload\b|yank\b|deploy\b", _PUBLISH),
    ),
    **each(
        "docker podman",
        (
            r"(?:image )?push\b|\w* ?prune\b|volume rm\b|rm .*-v|system reset|run .*(?:-v ?/:|--priv)",
            _DESTROY,
        ),
    ),
    "gh": (r"repo delete|release (?:create|delete)|secret |api .*(?:-X|--method)[ =]?DELETE", _DESTROY),
    "systemctl": (r"stop|disable|mask|isolate|kill|poweroff|reboot|halt|kexec|suspend|enable|edit", _SERVICE),
    "service": (r"\S+ (?:stop|restart)", _SERVICE),
    **each(
        "apt apt-get aptitude dnf yum zypper apk pkg", (r"remove|purge|autoremove|erase|del\b", _UNINSTALL)
    ),
    "dpkg": (r"-r|-P|--rem|--pur", _UNINSTALL),
    "pacman": (r"-R", _UNINSTALL),
    **each(
        "terraform tofu pulumi kubectl aws gcloud az heroku flyctl doctl",
        (r"(?:.* )?(?:destroy|delete\S*|drain|rm|rb|terminate-\S+|apply .*-auto-approve)\b", _DESTROY),
    ),
    "crontab": (r"(?!-l$)", Risk("schedule", "changes the schedule of commands")),
    "redis-cli": (r"(?i).*flush(?:all|db)", _DESTROY),
    "dropdb": (r".", _DESTROY),
}
"""By program: how its arguments, joined, must not begin."""
BY_OPTION = frozenset(
    ("dpkg", "pacman", "crontab", "redis-cli", "dropdb", "gh", "terraform", "tofu", "docker", "podman")
)
"""Those of them whose options are looked at too."""

_SED_RUNS = r"(?:^|[;{}\n\d$/])\s*e(?:\s|$)|(?:^|[;{}\n\d$/])\s*s([^\w\s;{}]).*\1.*\1[gpiIM0-9]*e"
_SED_WRITES = r"(?:^|[;{}\n\d$/!gp])\s*[wW]\s+(\S+)"
_SQL_LOSES = (
    r"(?i)\b(?:drop|truncate)\s+(?:database|table|schema|user)\b|\bdelete\s+from\s+[\w.\"]+\s*(?:;|$)"
)
_LOSES = "throws away changes that are not committed"
_TAKES = "overwrites or deletes what others have"
_GIT: dict[str, tuple[str, str, str]] = {
    "push": ("fd", "force force-with-lease force-if-includes mirror delete prune", _TAKES),
    "reset": ("", "hard merge keep", _LOSES),
    "clean": ("fdxX", "force", "deletes files that git does not keep"),
    "checkout": ("f", "force", _LOSES),
    "switch": ("f", "force discard-changes", _LOSES),
    "branch": ("D", "delete", "deletes branches"),
    "tag": ("d", "delete", "deletes tags"),
    "gc": ("", "prune", "deletes what could still be restored"),
    "update-ref": ("d", "delete", "deletes references"),
    "worktree": ("f", "force", "removes working trees by force"),
    "send-pack": ("f", "force mirror", _TAKES),
}
"""By git's command: the letters and names of the options that make it dangerous."""
_GIT_HISTORY = (
    r"filter-branch|filter-repo|prune|replace|stash (?:drop|clear)|reflog (?:delete|expire)|submodule deinit"
)
_GIT_RUNS = (
    r"(?i)alias\.|core\.(?:sshcommand|fsmonitor|hookspath|pager|editor|askpass)|protocol\.ext|\w*\.external"
    r"|(?:filter|credential|merge|diff|difftool|mergetool)\..*(?:clean|smudge|process|helper|driver|cmd|textconv)"
)
"""Settings by which git runs a program."""


def git(args: Args, ground: Ground) -> Risk | None:
    words = _git_words(args)
    if not words:
        return None
    name, rest = words[0].text, Args(words[1:])
    if not words[0].sure:
        return Risk("hidden", "runs a git command that is known only when it runs")
    if _sets_program(name, rest):
        return Risk("startup", "changes what git runs by itself from now on")
    if re.match(_GIT_HISTORY, " ".join(word.text for word in words)):
        return Risk("git", "rewrites or deletes history")
    letters, names, reason = _GIT.get(name, ("", "", ""))
    if reason and (rest.uncertain or rest.has(letters, *names.split())):
        return Risk("git", reason)
    operands = [word.text for word in rest.operands]
    if name == "clone" and (risk := _first(map(ground.writing, rest.operands[1:2]))):
        return risk
    if name == "push" and any(text.startswith(("+", ":")) for text in operands):
        return Risk("git", _TAKES)
    everything = name in ("checkout", "restore") and any(text in (".", "./", "*", ":/") for text in operands)
    if everything and (rest.has("W", "worktree") or not rest.has("S", "staged")):
        return Risk("git", _LOSES)
    return None


def _sets_program(name: str, rest: Args) -> bool:
    """Does `git config` set what git is to run, or an address make it run something?"""
    told = [word.text for word in rest.operands]
    if any(text.startswith("ext::") for text in told):
        return True
    return name == "config" and any(map(re.compile(_GIT_RUNS).match, told[:-1]))


def _git_words(args: Args) -> list[Word]:
    """From the name of git's own command on: `git -C x -c y=z push` pushes."""
    words = list(args.words)
    while words and words[0].text.startswith("-"):
        taken = words.pop(0).text
        if taken in ("-C", "-c", "--git-dir", "--work-tree", "--namespace", "--exec-path") and words:
            words.pop(0)
    return words


def remove(args: Args, ground: Ground) -> Risk | None:
    if args.uncertain:
        return Risk("remove", "removes files whose names are known only when it runs")
    whole = [word for word in args.operands if word.glob and word.text.rpartition("/")[2] in ("*", ".*")]
    recursive = args.has("rR", "recursive", "dir")
    return _first(
        ground.clearing("remove", word) for word in (args.operands if recursive else whole)
    ) or _first(map(ground.writing, args.operands))


def change_mode(args: Args, ground: Ground) -> Risk | None:
    mode, *paths = args.operands or [Word("")]
    if re.search(r"[ugoa]*\+[rwx]*s|^0?[2467]\d{3}$", mode.text):
        return Risk("setuid", "makes a program run with its owner's rights")
    if args.has("R", "recursive"):
        return _first(ground.clearing("mode", path) for path in paths)
    return _first(map(ground.writing, paths))


def duplicate(args: Args, ground: Ground) -> Risk | None:
    """`dd`"""
    for word in args.words:
        if word.text.startswith("of="):
            target = Word(word.text[3:])
            if not target.sure:
                return Risk("disk", "writes raw data, and where is known only when it runs")
            return ground.writing(target)
    return None


def kill(args: Args, ground: Ground) -> Risk | None:
    words = [word.text for word in args.words]
    if {"-1", "1", "0"} & set(words[1:]) or words[-1:] == ["1"] or words == ["-1"]:
        return Risk("kill", "ends processes that it did not start")
    return None


def kill_by_name(args: Args, ground: Ground) -> Risk | None:
    """`pkill` and `killall`"""
    broad = {
        "",
        ".",
        ".*",
        "*",
        "alipes",
        "bash",
        "sh",
        "python",
        "python3",
        "sshd",
        "init",
        "systemd",
        "node",
    }
    if args.has("uUGgst", "euid", "uid", "user", "session", "terminal") or args.uncertain:
        return Risk("kill", "ends processes that it did not start")
    if any(word.text in broad for word in args.operands):
        return Risk("kill", "ends processes that it did not start")
    return None


def copy(args: Args, ground: Ground) -> Risk | None:
    """`cp`, `mv`, `ln`, `install`, `rsync`: what is written to, and secrets that would lie there too"""
    targets = [*args.values("t", "target-directory"), *args.operands[-1:]]
    if args.has("", "delete", "delete-after", "delete-before", "remove-source-files"):
        return _first(ground.clearing("remove", target) for target in targets)
    return _first(map(ground.writing, targets)) or _first(map(ground.carrying_off, args.operands[:-1]))


def link(args: Args, ground: Ground) -> Risk | None:
    ground.link()
    return copy(args, ground)


def move(args: Args, ground: Ground) -> Risk | None:
    sources = args.operands[:-1] or args.operands
    if args.operands and args.operands[-1].text.startswith("/dev/"):
        return Risk("remove", "moves a file to where it is lost")
    return copy(args, ground) or _first(ground.writing(word) or ground.uprooting(word) for word in sources)


def write(args: Args, ground: Ground) -> Risk | None:
    """`tee`, `touch`, `truncate` and others whose operands are all written to"""
    return _first(map(ground.writing, args.operands))


def edit(args: Args, ground: Ground) -> Risk | None:
    """`sed`"""
    if any(re.search(_SED_RUNS, word.text) for word in args.words):
        return Risk("code", "runs commands from inside sed")
    written = [Word(path) for word in args.words for path in re.findall(_SED_WRITES, word.text)]
    if risk := _first(map(ground.writing, written)):
        return risk
    return write(args, ground) if args.has("i", "in-place") else None


def in_place(args: Args, ground: Ground) -> Risk | None:
    """`perl`, `ruby`: with `-i` they write to the files they read"""
    return write(args, ground) if args.has("i") else None


def query(args: Args, ground: Ground) -> Risk | None:
    """`psql`, `mysql` and others"""
    if any(re.search(_SQL_LOSES, word.text) for word in args.words):
        return Risk("destroy", "deletes data from a database")
    return None


def connect(args: Args, ground: Ground) -> Risk | None:
    """`nc`, `socat`"""
    if args.has("e", "exec", "sh-exec") or any(
        re.search(r"(?i)^(?:exec|system):", word.text) for word in args.words
    ):
        return Risk("network", "lets somebody else run commands here")
    return None


def download(args: Args, ground: Ground) -> Risk | None:
    """`curl`, `wget`"""
    return _first(map(ground.writing, args.values("oOP", "output", "output-document", "directory-prefix")))


def unpack(args: Args, ground: Ground) -> Risk | None:
    """`tar`, `unzip`, `cpio`, `zip`"""
    return _first(
        ground.writing(Word(f"{folder.text}/x")) for folder in args.values("Cd", "directory") if folder.text
    ) or _first(map(ground.carrying_off, args.operands))


def output(args: Args, ground: Ground) -> Risk | None:
    """`sort`, `gpg`, `openssl` and others that write where an option says"""
    return _first(map(ground.writing, args.values("of", "output", "out", "prefix")))


def second(args: Args, ground: Ground) -> Risk | None:
    """`uniq`, `xxd`: their second operand is written to"""
    return _first(map(ground.writing, args.operands[1:2]))


def processes(args: Args, ground: Ground) -> Risk | None:
    """`ps`: with `e` and no dash it shows what others have in their environment"""
    if any(re.fullmatch(r"[a-zA-Z]*e[a-zA-Z]*", word.text) for word in args.operands[:1]):
        return Risk("secret", "shows the environment of processes")
    return None


def debug(args: Args, ground: Ground) -> Risk | None:
    """`gdb`, `strace` and others that look into a process"""
    if args.has("", "pid", "attach") or any(word.text.startswith("-p") for word in args.options):
        return Risk("secret", "looks into another process")
    return None


def find(args: Args, ground: Ground) -> Risk | None:
    names = {word.text for word in args.options}
    paths = args.words[: next((at for at, word in enumerate(args.words) if word.text.startswith("-")), 0)]
    pairs = zip(args.words, args.words[1:], strict=False)
    if risk := _first(ground.writing(file) for word, file in pairs if re.match("-f(?:print|ls)", word.text)):
        return risk
    if names & {"-exec", "-execdir", "-ok", "-okdir"} and (risk := _first(map(ground.carrying_off, paths))):
        return risk
    if "-delete" not in names:
        return None
    if names & {"-name", "-iname", "-path", "-regex", "-empty", "-newer", "-mtime", "-mmin"}:
        paths = [Word(f"{path.text}/x") for path in paths]  # a part of what is below, not all of it
    return _first(ground.clearing("remove", path) for path in (paths or [Word(".")]))


def _first(risks: Iterable[Risk | None]) -> Risk | None:
    return next((risk for risk in risks if risk), None)


RULES: dict[str, Rule] = {
    "git": git,
    **each("rm rmdir unlink trash", remove),
    **each("chmod chown chgrp chattr setfacl", change_mode),
    "dd": duplicate,
    "kill": kill,
    **each("pkill killall skill", kill_by_name),
    **each("cp install rsync scp", copy),
    "ln": link,
    "mv": move,
    **each("tee touch truncate mkdir mkfifo mknod sponge fallocate", write),
    **each("sed gsed", edit),
    **each("perl ruby", in_place),
    **each("ed ex vi vim nvim nano", write),
    **each("curl wget", download),
    **each("tar bsdtar unzip cpio zip 7z", unpack),
    **each("sort shuf gpg openssl csplit", output),
    **each("uniq xxd", second),
    "ps": processes,
    **each("strace ltrace gdb lldb", debug),
    "find": find,
    **each("psql mysql mariadb sqlite3 duckdb", query),
    **each("nc ncat netcat socat", connect),
    "rimraf": lambda args, ground: _first(ground.clearing("remove", word) for word in args.operands),
}
