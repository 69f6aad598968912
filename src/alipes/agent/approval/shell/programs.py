"""Rules for single programs: each checks the arguments of one program."""

import os
import re
from collections.abc import Callable
from contextlib import suppress
from fnmatch import fnmatch
from functools import cache
from typing import TypeAlias
from urllib.parse import unquote

from alipes.agent.approval.paths import PathChecker, Risk, first_risk
from alipes.agent.approval.shell.lexer import UNKNOWN, ShellArguments, ShellWord
from alipes.agent.approval.shell.parser import matches_own_name
from alipes.agent.approval.shell.subcommands import METADATA_HOST, OWN_API, for_each

Rule: TypeAlias = Callable[[ShellArguments, PathChecker], Risk | None]
_KILL = Risk("kill", "kills processes that it did not start")
_SED_RUNS = (
    r"(?:^|[;{}\n\d$/])\s{0,9}e(?:\s|$)|(?:^|[;{}\n\d$/])\s{0,9}s([^\w\s;{}]).{0,200}\1.{0,200}\1[gpiIM0-9]{0,9}e"
    r"|\\(.).{0,200}\2\s{0,9}e(?:\s|$)"
)
_SED_READS = r"(?:^|[;{}\n\d$/])\s{0,9}[rR]\s{0,9}(\S{1,300})"
_SED_WRITES = r"(?:^|[;{}\n\d$/!gp])\s{0,9}[wW]\s{0,9}(\S{1,300})"
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
_SECRET_NAMES = r"id_|\.pem|\.env|\.ssh|\.aws|credential|\.key|netrc|kdbx|cookies|logins"
_LOCAL_URL = r"(?:\w+://)?(?:localhost|127\.\d+\.\d+\.\d+|\[::1\]|0\.0\.0\.0|host\.docker\.internal)(?::\d+)?(?:/|$)"
_UPLOADS = r"(?:-d|--data(?:-binary|-raw|-ascii|-urlencode)?|-F|--form|-T|--upload-file)(?:=|$)|--post-file|--body-file"


def check_remove(args: ShellArguments, checker: PathChecker) -> Risk | None:
    if args.may_hide_option:
        return Risk("remove", "deletes files whose names are only known at run time", "workspace", unseen=True)
    whole = [word for word in args.operands if word.has_glob and word.text.rpartition("/")[2] in ("*", ".*")]
    cleared = args.operands if args.has("rR", "recursive", "dir") else whole
    risk = first_risk(checker.check_clear("remove", word) for word in cleared)
    return risk or first_risk(checker.check_write(word) or checker.check_taken(word) for word in args.operands)


def check_chmod(args: ShellArguments, checker: PathChecker) -> Risk | None:
    mode, *paths = args.operands or [ShellWord("")]
    if any(re.fullmatch(r"-[rwxXst]{1,5}", word.text) for word in args.options):  # a mode, as in `chmod -x file`
        paths = args.operands
    if re.search(r"[ugoa]{0,4}\+[rwx]{0,3}s|^0?[2467]\d{3}$", mode.text):
        return Risk("setuid", "sets the setuid or setgid bit")
    if args.has("R", "recursive"):
        return first_risk(checker.check_clear("mode", path) for path in paths)
    return first_risk(map(checker.check_write, paths))


def check_disk(args: ShellArguments, checker: PathChecker) -> Risk | None:
    """`mkfs`, `fdisk` and others"""
    if args.has("l", "list") and not args.operands:
        return None
    on_device = any(word.text.startswith("/dev/") and not word.text.startswith("/dev/loop") for word in args.operands)
    return Risk("disk", "changes disks or file systems", floor=on_device and not args.has("ln", "list", "no-act"))


def check_dd(args: ShellArguments, checker: PathChecker) -> Risk | None:
    target = next((ShellWord(word.text[3:]) for word in args.words if word.text.startswith("of=")), None)
    return None if target is None else checker.check_write(target)


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


def _copy_target(args: ShellArguments) -> tuple[list[ShellWord], list[ShellWord]]:
    """The sources and the target of `cp`, `mv`, `install` and `ln`."""
    attached = [ShellWord(word.text[2:]) for word in args.options if re.match(r"-t.", word.text)]
    folders = attached or [word for word in args.values("t", "target-directory") if word.text]
    if folders:
        return [word for word in args.operands if word not in folders], folders[:1]
    return args.operands[:-1], args.operands[-1:]


def check_copy(args: ShellArguments, checker: PathChecker) -> Risk | None:
    """`cp`, `install`, `rsync`: the target, and secrets in the sources"""
    sources, targets = _copy_target(args)
    if args.has("", "delete", "delete-after", "delete-before"):
        return first_risk(checker.check_clear("remove", target) for target in targets)
    if args.has("", "remove-source-files"):
        return first_risk(checker.check_clear("remove", source) for source in sources)
    merges = args.has("T", "no-target-directory") and args.has("raR", "recursive", "archive")
    for target in targets:
        risk = first_risk(checker.check_into(target, source) for source in sources)
        if risk := risk or checker.check_write(target) or (checker.check_unpack(target) if merges else None):
            return risk
    return first_risk(map(checker.check_copy, sources))


def check_transfer(args: ShellArguments, checker: PathChecker) -> Risk | None:
    """`scp`, `rsync`: to another machine"""
    target = args.operands[-1].text if len(args.operands) > 1 else ""
    if re.match(r"[\w.@-]+:(?!/\w*/\w*:)", target) or "://" in target:
        return Risk("send", "sends files to another machine")
    spread = [word for word in args.operands[:-1] if word.text.endswith("/")]
    into = (checker.check_unpack(word) for word in args.operands[-1:] if spread)
    return first_risk(into) or check_copy(args, checker)


def check_link(args: ShellArguments, checker: PathChecker) -> Risk | None:
    """`ln`: what it links to, also for a relative path in another folder, and the link itself"""
    checker.has_links = True
    risk = check_copy(args, checker)
    sources, targets = _copy_target(args)
    if len(args.operands) == 1:
        sources, targets = args.operands, [ShellWord(".")]
    for source, target in ((source, target) for source in sources for target in targets):
        if not source.is_known:
            return risk or Risk("hidden", "makes a link to a place that is only known at run time", unseen=True)
        name = source.text.rstrip("/").rpartition("/")[2]
        for link in (path for path in checker.directories.resolve(target) if path):
            places = [link, os.path.join(link, name)] if name not in ("", ".", "..") else [link]
            for place in places:
                led = os.path.realpath(os.path.join(os.path.dirname(place), source.text))
                risk = risk or checker.check_read("ln", ShellWord(led)) or checker.check_copy(ShellWord(led))
                for path in (led, *filter(None, checker.directories.resolve(source))):
                    checker.directories.note_link(place, path)
    return risk


def check_move(args: ShellArguments, checker: PathChecker) -> Risk | None:
    sources, targets = _copy_target(args)
    if any(word.text.startswith("/dev/") for word in targets):
        return Risk("remove", "moves a file to a device, where it is lost")
    taken = (checker.check_write(word) or checker.check_taken(word, "moves") for word in sources)
    return check_copy(args, checker) or first_risk(taken)


def check_write(args: ShellArguments, checker: PathChecker) -> Risk | None:
    """`tee`, `truncate` and others that write all their operands"""
    return first_risk(map(checker.check_write, args.operands))


def check_create(args: ShellArguments, checker: PathChecker) -> Risk | None:
    """`mkdir`, `touch`: they create, and change nothing that is there"""
    return first_risk(checker.check_write(word, may_be_unknown=True) for word in args.operands)


def check_allocate(args: ShellArguments, checker: PathChecker) -> Risk | None:
    if any(re.fullmatch(r"(?i)\d{2,}g\w*|\d+t\w*|\d{11,}", word.text) for word in args.values("l", "length")):
        return Risk("system", "fills the disk")
    return check_write(args, checker)


def check_sed(args: ShellArguments, checker: PathChecker) -> Risk | None:
    if any(re.search(_SED_RUNS, word.text[:4000]) for word in args.words):
        return Risk("code", "runs commands from a sed script")
    written = [ShellWord(path) for word in args.words for path in re.findall(_SED_WRITES, word.text[:4000])]
    read = [ShellWord(path) for word in args.words for path in re.findall(_SED_READS, word.text[:4000])]
    found = first_risk(checker.check_read("sed", word) for word in read)
    if risk := first_risk(map(checker.check_write, written)) or found:
        return risk
    in_place = any(re.match(r"-\w*i|--in-place", word.text) for word in args.options)
    script = args.operands if args.has("ef", "expression", "file") else args.operands[1:]
    return first_risk(map(checker.check_write, script)) if in_place else None


def check_in_place(args: ShellArguments, checker: PathChecker) -> Risk | None:
    """`perl`, `ruby`: with `-i` they edit files in place"""
    return check_write(args, checker) if args.has("i") else None


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


def check_archive(args: ShellArguments, checker: PathChecker) -> Risk | None:
    bundles = "\n".join(word.text for word in [*args.words[:1], *args.options])
    letters = "".join(re.findall(r"(?m)^-?([a-eg-zABD-Z]{1,12})", bundles))
    packs = args.has("", "create", "append") or ("x" not in letters and bool(set("cru") & set(letters)))
    lists = args.has("", "list") or ("x" not in letters and "t" in letters)
    folders = [word for word in args.values("CD", "directory", "one-top-level") if word.text]
    if args.words and re.fullmatch(r"[A-Za-z]{2,12}", args.words[0].text):  # as in `tar xfC file folder`
        given = zip([letter for letter in args.words[0].text if letter in "fbCTXKNVHLgI"], args.words[1:], strict=False)
        folders += [word for letter, word in given if letter == "C"]
    if packs:
        if args.has("", "remove-files") and (taken := first_risk(checker.check_taken(word) for word in args.operands)):
            return taken
        inside = [ShellWord(os.path.join(folder.text, word.text)) for folder in folders for word in args.operands]
        bundled = args.words[1:2] if not args.words[0].text.startswith("-") and "f" in args.words[0].text else []
        written = [*args.values("f", "file"), *bundled]
        return first_risk(map(checker.check_copy, [*args.operands, *inside])) or first_risk(
            checker.check_write(word, may_be_unknown=True) for word in written if word.text
        )
    renames = any(re.match(r"--(?:abs|transf|xfo)", word.text) for word in args.options)
    if not lists and ("P" in letters or renames):
        return Risk("write", "unpacks files to names that are only known at run time", unseen=True)
    return None if lists else first_risk(map(checker.check_unpack, folders or [ShellWord(".")]))


def check_unzip(args: ShellArguments, checker: PathChecker) -> Risk | None:
    if any(re.fullmatch(r"-[a-zA-Z]{0,3}[lptvZ][a-zA-Z]{0,3}", word.text) for word in args.options):
        return None
    folders = [word for word in args.values("d", "target") if word.text]
    return first_risk(map(checker.check_unpack, folders or [ShellWord(".")]))


def check_7z(args: ShellArguments, checker: PathChecker) -> Risk | None:
    if args.has("", "sdel"):
        return first_risk(checker.check_taken(word) for word in args.operands[2:])
    if not args.operands or args.operands[0].text not in ("x", "e"):
        return None
    folders = [ShellWord(word.text[2:]) for word in args.words if re.match(r"-o\S", word.text)]
    return first_risk(map(checker.check_unpack, folders or [ShellWord(".")]))


def check_compress(args: ShellArguments, checker: PathChecker) -> Risk | None:
    """`gzip`, `xz`: they replace a file by another one"""
    keeps = args.has("kcltd", "keep", "stdout", "list", "test", "to-stdout")
    return None if keeps else first_risk(checker.check_taken(word, "replaces") for word in args.operands)


def check_rename(args: ShellArguments, checker: PathChecker) -> Risk | None:
    return first_risk(checker.check_taken(word, "renames") for word in args.operands[1:])


def check_awk(args: ShellArguments, checker: PathChecker) -> Risk | None:
    return check_write(args, checker) if ShellWord("inplace") in args.words else None


def check_zip(args: ShellArguments, checker: PathChecker) -> Risk | None:
    if args.has("m", "move") and (taken := first_risk(checker.check_taken(word) for word in args.operands[1:])):
        return taken
    return first_risk(map(checker.check_copy, args.operands)) or first_risk(
        checker.check_write(word, may_be_unknown=True) for word in args.operands[:1]
    )


def check_patch(args: ShellArguments, checker: PathChecker) -> Risk | None:
    folders = [word for word in args.values("d", "directory") if word.text]
    return first_risk(map(checker.check_unpack, folders or [ShellWord(".")])) or check_write(args, checker)


def check_output_option(args: ShellArguments, checker: PathChecker) -> Risk | None:
    return first_risk(checker.check_write(word) for word in args.values("of", "output", "out", "prefix") if word.text)


def check_split(args: ShellArguments, checker: PathChecker) -> Risk | None:
    """`split`: the second operand starts the names of the files it writes"""
    return first_risk(checker.check_unpack(ShellWord(os.path.dirname(word.text) or ".")) for word in args.operands[1:])


def check_second_operand(args: ShellArguments, checker: PathChecker) -> Risk | None:
    """`uniq`, `xxd`: the second operand is the output file"""
    return first_risk(map(checker.check_write, args.operands[1:2]))


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


def check_find(args: ShellArguments, checker: PathChecker) -> Risk | None:
    names = {word.text for word in args.options}
    paths = args.words[: next((at for at, word in enumerate(args.words) if word.text.startswith("-")), len(args.words))]
    pairs = list(zip(args.words, args.words[1:], strict=False))
    if risk := first_risk(checker.check_write(file) for word, file in pairs if re.match("-f(?:print|ls)", word.text)):
        return risk
    wanted = [value.text for word, value in pairs if re.match(r"-i?(?:name|path|wholename|regex)$", word.text)]
    if any(text.startswith(".") and fnmatch(".env", text) for text in wanted) and "-delete" not in names:
        return Risk("secret", "finds and may read .env files")
    runs = names & {"-exec", "-execdir", "-ok", "-okdir"}
    seeks = any(re.search(_SECRET_NAMES, text) for text in wanted)
    if (runs or seeks) and (risk := first_risk(map(checker.check_copy, paths))):
        return risk
    if "-delete" not in names:
        return None
    if names & {"-name", "-iname", "-path", "-regex", "-empty", "-newer", "-mtime", "-mmin"}:
        paths = [ShellWord(f"{path.text}/x") for path in paths]  # only some of the files below
    return first_risk(checker.check_clear("remove", path) for path in (paths or [ShellWord(".")]))


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
            inside = shared.is_known and any(path == checker.workdir for path in checker.directories.resolve(shared))
            if not inside:
                return Risk("root", f"gives a container the directory {source.replace(UNKNOWN, '…')}")
    return None


RULES: dict[str, Rule] = {
    "alipes": check_alipes,
    **for_each("rm rmdir unlink trash", check_remove),
    **for_each("chmod chown chgrp chattr setfacl", check_chmod),
    **for_each(
        "mkfs mke2fs mkswap wipefs fdisk sfdisk cfdisk gdisk sgdisk parted blkdiscard cryptsetup"
        " lvremove vgremove pvremove zpool badblocks hdparm dmsetup",
        check_disk,
    ),
    "dd": check_dd,
    "kill": check_kill,
    **for_each("pkill killall skill", check_pkill),
    **for_each("cp install", check_copy),
    **for_each("scp rsync", check_transfer),
    "ln": check_link,
    "mv": check_move,
    **for_each("tee truncate mknod sponge", check_write),
    **for_each("mkdir touch mkfifo", check_create),
    "fallocate": check_allocate,
    **for_each("sed gsed", check_sed),
    **for_each("perl ruby", check_in_place),
    **for_each("ed ex vi vim nvim nano view emacs", check_editor),
    "curl": check_curl,
    "wget": check_wget,
    **for_each("http https xh", check_request),
    "php": check_php,
    **for_each("tar bsdtar gtar cpio", check_archive),
    **for_each("unzip unrar unar", check_unzip),
    **for_each("7z 7za 7zz", check_7z),
    **for_each("rename prename mmv", check_rename),
    **for_each("awk gawk", check_awk),
    "zip": check_zip,
    "split": check_split,
    **for_each("gzip bzip2 xz lzma lz4 compress brotli", check_compress),
    "zstd": lambda args, checker: check_compress(args, checker) if args.has("", "rm") else None,
    "patch": check_patch,
    **for_each("sort shuf gpg openssl csplit", check_output_option),
    **for_each("uniq xxd", check_second_operand),
    "ps": check_ps,
    **for_each("strace ltrace gdb lldb", check_debugger),
    "find": check_find,
    **for_each("grep egrep fgrep zgrep", check_grep),
    **for_each("rg ag ack ugrep", check_search),
    **for_each("http.server serve http-server httpd", check_serve),
    **for_each("docker podman nerdctl", check_container),
    **for_each("psql mysql mariadb sqlite3 duckdb", check_sql),
    **for_each("nc ncat netcat socat", check_netcat),
    "rimraf": lambda args, checker: first_risk(checker.check_clear("remove", word) for word in args.operands),
}
