"""Rules for single programs of which a sandbox contains everything, and the rules for all programs."""

import os
import re
from contextlib import suppress
from fnmatch import fnmatch
from functools import cache
from urllib.parse import unquote

from alipes.agent.approval.paths import PathChecker
from alipes.agent.approval.risk import Risk, first_risk
from alipes.agent.approval.shell.host.subcommands import METADATA_HOST, OWN_API
from alipes.agent.approval.shell.lexer import UNKNOWN, ShellArguments, ShellWord
from alipes.agent.approval.shell.parser import matches_own_name
from alipes.agent.approval.shell.programs import FILE_RULES, Rule, check_write
from alipes.agent.approval.shell.subcommands import for_each

_KILL = Risk("kill", "kills processes that it did not start")
_SQL_DELETES = (
    r"(?i)\b(?:drop|truncate)\s{1,9}(?:database|table|schema|user)\b"
    r"|\bdelete\s{1,9}from\s{1,9}[\w.\"]{1,80}\s{0,9}(?:;|$)"
)
_SQL_FILES = (
    r"(?i)\b(?:writefile|readfile|load_extension|edit|pg_read_file|lo_export|load_file)\s{0,9}\(|into\s{1,9}(?:out|dump)file"
    r"|\bto\s{1,9}program\b|(?:^|\n)\s{0,9}\.(?:output|once|save|backup|read|load|open|import|excel)\b"
)
_VIM_CODE = (
    r"^:?\s{0,9}(?:[\w!]{1,20}\s{1,9}){0,2}exe(?:c|cu|cut|cute)?\s|\b(?:delete|rename|readfile|writefile|system|systemlist|job_start|term_start|libcall|eval|luaeval|py3?eval|jobstart)\s{0,9}\("
    r"|\((?:delete-(?:directory|file)|write-(?:region|file)|(?:async-)?shell-command|call-process|start-process)"
    r"|\bset?\s{1,9}(?:mp|makeprg|gp|grepprg|ep|equalprg|fp|formatprg|kp|keywordprg|sh|shell|csprg|ccv|charconvert)\w{0,9}="
    r"|\((?:rename|copy|load)-file|^:?\s{0,9}(?:so|source|ru|runtime|lua|luafile|py|py3|python3?|perl|ruby|tcl|mksession)\b"
)
_VIM_WRITES = r"(?:^|[|%\d$,:])\s{0,9}:?(?:w|wq|write|sav|saveas|up|update)!?\s{1,9}(?:>>\s{0,9})?(\S{1,300})"
_VIM_EDITS = r"(?:^|[|:])\s{0,9}(?:e|edit|sp|split|vs|vsp|vsplit|tabe|tabedit|new|vi|visual)!?\s{1,9}([~./$]\S{0,300})"
_LOCAL_URL = r"(?:\w+://)?(?:localhost|127\.\d+\.\d+\.\d+|\[::1\]|0\.0\.0\.0|host\.docker\.internal)(?::\d+)?(?:/|$)"
_UPLOADS = r"(?:-d|--data(?:-binary|-raw|-ascii|-urlencode)?|-F|--form|-T|--upload-file)(?:=|$)|--post-file|--body-file"


def check_disk(args: ShellArguments, checker: PathChecker) -> Risk | None:
    """`mkfs`, `fdisk` and others"""
    if args.has("l", "list") and not args.operands:
        return None
    on_device = any(word.text.startswith("/dev/") and not word.text.startswith("/dev/loop") for word in args.operands)
    return Risk("disk", "changes disks or file systems", floor=on_device and not args.has("ln", "list", "no-act"))


@cache
def own_process_ids() -> frozenset[str]:
    """This process and those above it."""
    found, pid = set[str](), os.getpid()
    with suppress(OSError, ValueError, IndexError):
        while pid > 0:
            found.add(str(pid))
            with open(f"/proc/{pid}/stat") as stat:
                pid = int(stat.read().rpartition(")")[2].split()[1])
    return frozenset(found)


def check_kill(args: ShellArguments, checker: PathChecker) -> Risk | None:
    words = [word.text for word in args.words]
    if {"-1", "1", "0"} & set(words[1:]) or words[-1:] == ["1"] or words == ["-1"]:
        return _KILL
    if any(UNKNOWN in text for text in words) or own_process_ids() & {text.lstrip("-") for text in words}:
        return Risk("kill", "may stop alipes itself or a process that it did not start")
    return None


def check_pkill(args: ShellArguments, checker: PathChecker) -> Risk | None:
    by_owner = args.has("uUGgst", "euid", "uid", "user", "session", "terminal")
    if by_owner or args.may_hide_option or any(matches_own_name(word.text) for word in args.operands):
        return _KILL
    return None


def check_alipes(args: ShellArguments, checker: PathChecker) -> Risk | None:
    """alipes itself: only its version, help and `doctor` reveal and change nothing"""
    name = args.operands[0].text if args.operands else ""
    if args.has("h", "help", "version") or (name in ("doctor", "help") and not args.has("", "fix")):
        return None
    return Risk("own", "runs alipes, which could change its settings or act without asking")


def check_allocate(args: ShellArguments, checker: PathChecker) -> Risk | None:
    if any(re.fullmatch(r"(?i)\d{2,}g\w*|\d+t\w*|\d{11,}", word.text) for word in args.values("l", "length")):
        return Risk("system", "fills the disk")
    return check_write(args, checker)


def check_editor(args: ShellArguments, checker: PathChecker) -> Risk | None:
    """`vim` and others: the files they edit, and their commands"""
    commands = [word.text for word in args.values("c", "cmd", "eval", "execute")] + [
        word.text.lstrip("+") for word in args.operands
    ]
    return first_risk(check_editor_command(text, checker) for text in commands) or check_write(args, checker)


def check_editor_command(text: str, checker: PathChecker) -> Risk | None:
    """A command of `vim`, `ex` or `ed`"""
    if re.search(_VIM_CODE, text[:4000]):
        return Risk("code", "runs code of an editor that may start programs or delete files")
    written = [path for path in re.findall(_VIM_WRITES, text[:4000]) if not path.startswith("!")]
    written += re.findall(_VIM_EDITS, text[:4000])
    home = checker.known_variables()["HOME"]
    return first_risk(checker.check_write(ShellWord(re.sub(r"^(?:~|\$HOME)(?=/|$)", home, path))) for path in written)


def check_sql(args: ShellArguments, checker: PathChecker) -> Risk | None:
    if args.has("", "init"):
        return Risk("hidden", "runs SQL from a file", unseen=True)
    quoted = (ShellWord(text) for word in args.words for text in re.findall(r"['\"]([^'\"]{1,300})['\"]", word.text))
    return first_risk(check_statement(word.text) for word in args.words) or first_risk(
        map(checker.names_protected_file, quoted)
    )


def check_statement(text: str) -> Risk | None:
    """A statement of SQL, or a command of its shell"""
    if re.search(_SQL_DELETES, text[:20_000]):
        return Risk("destroy", "deletes data from a database")
    return Risk("code", "reads or writes files from SQL") if re.search(_SQL_FILES, text[:20_000]) else None


def check_netcat(args: ShellArguments, checker: PathChecker) -> Risk | None:
    runs = args.has("ec", "exec", "sh-exec")
    if runs or any(re.search(r"(?i)^(?:exec|system):", word.text) for word in args.words):
        return Risk("network", "lets another machine run commands here")
    if args.has("l", "listen") and not args.has("z"):
        return Risk("network", "makes something on this machine reachable for others")
    return None


def check_request(args: ShellArguments, checker: PathChecker) -> Risk | None:
    texts = [word.text for word in args.words]
    if any(re.search(METADATA_HOST, text) for text in texts):
        return Risk("secret", "reads credentials of a cloud machine")
    if any(re.search(OWN_API, text) for text in texts):
        return Risk("own", "calls the HTTP interface of alipes")
    if any(re.search(r"(?i)\bflushall\b", text) for text in texts):
        return Risk("destroy", "deletes data from a database")
    local = any(re.match(_LOCAL_URL, word.text) for word in args.operands)
    put = any(re.fullmatch(r"[\w-]{0,40}=?@\S+", word.text) for word in args.operands[1:])  # httpie
    if not local and (put or _uploads_file(args)):
        return Risk("send", "sends a file to another machine")
    return None


def check_curl(args: ShellArguments, checker: PathChecker) -> Risk | None:
    written = args.values(
        "oDc", "output", "dump-header", "cookie-jar", "trace", "trace-ascii", "stderr", "hsts", "libcurl"
    )
    written += [ShellWord(path) for word in args.words for path in re.findall(r"%output\{(?:>>)?([^}]+)\}", word.text)]
    folders = args.values("", "output-dir") or ([ShellWord(".")] if args.has("O", "remote-name") else [])
    put = (checker.check_into(folder, url) for folder in folders for url in args.operands if "/" in url.text)
    local = [unquote(word.text[7:]) for word in args.operands if re.match(r"(?i)file://", word.text)]
    read = (checker.check_read("curl", ShellWord(path, has_glob=True)) for path in local)
    risk = check_request(args, checker) or first_risk(checker.check_write(word) for word in written if word.text)
    return risk or first_risk(put) or first_risk(read)


def check_wget(args: ShellArguments, checker: PathChecker) -> Risk | None:
    written = args.values("Ooa", "output-document", "output-file")
    folders = [word for word in args.values("P", "directory-prefix") if word.text] or [ShellWord(".")]
    put = (checker.check_into(folder, url) for folder in folders for url in args.operands if "/" in url.text)
    risk = check_request(args, checker) or first_risk(checker.check_write(word) for word in written if word.text)
    return risk or first_risk(put)


def check_php(args: ShellArguments, checker: PathChecker) -> Risk | None:
    return first_risk(map(checker.check_copy, args.values("t"))) if args.has("S") else None


def _uploads_file(args: ShellArguments) -> bool:
    pairs = zip(args.words, [*args.words[1:], ShellWord("")], strict=True)
    for word, value in pairs:
        if not re.match(_UPLOADS, word.text) and not re.match(r"-[dFT]\S", word.text):
            continue
        given = word.text.partition("=")[2] or (word.text[2:] if re.match(r"-[dFT]\S", word.text) else value.text)
        if re.match(r"-T|--upload-file|--post-file|--body-file", word.text) or re.search(
            r"(?:^|=|^\w{1,40})[@<]", given
        ):
            return True
    return False


def check_ps(args: ShellArguments, checker: PathChecker) -> Risk | None:
    """`ps`: `e` without a dash shows the environment of processes"""
    before = ""
    for word in args.words:
        is_value = re.fullmatch(r"-\w*[opCuUtgGqk]|--\w+", before) is not None
        if not is_value and re.fullmatch(r"[aewxufjlsvXcSTmLhHnr]{0,12}e[aewxufjlsvXcSTmLhHnr]{0,12}", word.text):
            return Risk("secret", "shows the environment of processes")
        before = word.text
    return None


def check_debugger(args: ShellArguments, checker: PathChecker) -> Risk | None:
    """`gdb`, `strace` and others that attach to a process"""
    if args.has("", "pid", "attach") or any(word.text.startswith("-p") for word in args.options):
        return Risk("secret", "attaches to another process")
    return None


def check_search(args: ShellArguments, checker: PathChecker) -> Risk | None:
    """`grep -r`, `rg`: searching folders that contain secrets"""
    patterns = 0 if args.has("ef", "regexp", "file") else 1
    return first_risk(map(checker.check_copy, args.operands[patterns:] or [ShellWord(".")]))


def check_grep(args: ShellArguments, checker: PathChecker) -> Risk | None:
    wanted = [word.text for word in args.values("", "include")]
    if any(text.startswith(".") and fnmatch(".env", text) for text in wanted):
        return Risk("secret", "searches .env files")
    recurses = args.has("rR", "recursive", "dereference-recursive") or ShellWord("recurse") in args.words
    recurses = recurses or any(re.match(r"-\w*dr|--dir\w*=r", word.text) for word in args.options)
    return check_search(args, checker) if recurses else None


def check_serve(args: ShellArguments, checker: PathChecker) -> Risk | None:
    """`http.server` and others that show a folder to the network"""
    shown = [word for word in args.values("dt", "directory", "root", "path") if word.text]
    return first_risk(map(checker.check_copy, [*shown, *args.operands] if shown or args.operands else [ShellWord(".")]))


def check_container(args: ShellArguments, checker: PathChecker) -> Risk | None:
    """`docker run`: what it gets of this machine"""
    if not any(word.text in ("run", "create") for word in args.operands[:2]):
        return None
    if args.has("", "privileged", "cap-add", "device", "security-opt"):
        return Risk("root", "starts a container with rights over this machine")
    if any(word.text in ("host", "=host") for word in args.values("", "pid", "ipc", "uts", "userns")):
        return Risk("root", "starts a container with rights over this machine")
    for word in args.values("v", "volume", "mount"):
        source = re.sub(r"^.*?(?:source|src)=([^,]{0,300}).*$", r"\1", word.text).partition(":")[0]
        shared = ShellWord(source)
        if source.startswith(("/", "~", "..", UNKNOWN)) and checker.check_clear("mount", shared):
            inside = shared.is_known and any(path == checker.project for path in checker.directories.resolve(shared))
            if not inside:
                return Risk("root", f"gives a container the directory {source.replace(UNKNOWN, '…')}")
    return None


RULES: dict[str, Rule] = {
    **FILE_RULES,
    "alipes": check_alipes,
    **for_each(
        "mkfs mke2fs mkswap wipefs fdisk sfdisk cfdisk gdisk sgdisk parted blkdiscard cryptsetup"
        " lvremove vgremove pvremove zpool badblocks hdparm dmsetup",
        check_disk,
    ),
    "kill": check_kill,
    **for_each("pkill killall skill", check_pkill),
    "fallocate": check_allocate,
    **for_each("ed ex vi vim nvim nano view emacs", check_editor),
    "curl": check_curl,
    "wget": check_wget,
    **for_each("http https xh", check_request),
    "php": check_php,
    "ps": check_ps,
    **for_each("strace ltrace gdb lldb", check_debugger),
    **for_each("grep egrep fgrep zgrep", check_grep),
    **for_each("rg ag ack ugrep", check_search),
    **for_each("http.server serve http-server httpd", check_serve),
    **for_each("docker podman nerdctl", check_container),
    **for_each("psql mysql mariadb sqlite3 duckdb", check_sql),
    **for_each("nc ncat netcat socat", check_netcat),
}
"""By program, its rule on a machine without a sandbox."""
