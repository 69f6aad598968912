"""Rules for single programs that change files: each checks the arguments of one program."""

import os
import re
from collections.abc import Callable
from fnmatch import fnmatch
from functools import partial
from typing import TypeAlias

from alipes.agent.approval.paths import PathChecker
from alipes.agent.approval.risk import Risk, first_risk
from alipes.agent.approval.shell.lexer import ShellArguments, ShellWord
from alipes.agent.approval.shell.subcommands import for_each

Rule: TypeAlias = Callable[[ShellArguments, PathChecker], Risk | None]
_SED_RUNS = (
    r"(?:^|[;{}\n\d$/])\s{0,9}e(?:\s|$)|(?:^|[;{}\n\d$/])\s{0,9}s([^\w\s;{}]).{0,200}\1.{0,200}\1[gpiIM0-9]{0,9}e"
    r"|\\(.).{0,200}\2\s{0,9}e(?:\s|$)"
)
_SED_READS = r"(?:^|[;{}\n\d$/])\s{0,9}[rR]\s{0,9}(\S{1,300})"
_SED_WRITES = r"(?:^|[;{}\n\d$/!gp])\s{0,9}[wW]\s{0,9}(\S{1,300})"
_SETS_ID = Risk("setuid", "sets the setuid or setgid bit")
_SENDS_FILES = Risk("send", "sends files to another machine")
_SED_CODE = Risk("code", "runs commands from a sed script")
_SECRET_NAMES = r"id_|\.pem|\.env|\.ssh|\.aws|credential|\.key|netrc|kdbx|cookies|logins"


def check_remove(args: ShellArguments, checker: PathChecker) -> Risk | None:
    if args.may_hide_option:
        return Risk("remove", "deletes files whose names are only known at run time", "workspace", unseen=True)
    whole = [word for word in args.operands if word.has_glob and word.text.rpartition("/")[2] in ("*", ".*")]
    cleared = args.operands if args.has("rR", "recursive", "dir") else whole
    whole_folders = {word: checker.check_clear("remove", word) for word in cleared}
    return first_risk(
        whole_folders.get(word) or checker.check_write(word) or checker.check_taken(word) for word in args.operands
    )


def check_chmod(args: ShellArguments, checker: PathChecker) -> Risk | None:
    mode, *paths = args.operands or [ShellWord("")]
    if any(re.fullmatch(r"-[rwxXst]{1,5}", word.text) for word in args.options):  # a mode, as in `chmod -x file`
        paths = args.operands
    sets_id = re.search(r"[ugoa]{0,4}\+[rwx]{0,3}s|^0?[2467]\d{3}$", mode.text)
    changed = partial(checker.check_clear, "mode") if args.has("R", "recursive") else checker.check_write
    return first_risk((_SETS_ID if sets_id else None, *map(changed, paths)))


def check_dd(args: ShellArguments, checker: PathChecker) -> Risk | None:
    target = next((ShellWord(word.text[3:]) for word in args.words if word.text.startswith("of=")), None)
    return None if target is None else checker.check_write(target)


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
    found: list[Risk | None] = []
    for target in targets:
        found += [checker.check_into(target, source) for source in sources]
        found += [checker.check_write(target), checker.check_unpack(target) if merges else None]
    return first_risk((*found, *map(checker.check_copy, sources)))


def check_transfer(args: ShellArguments, checker: PathChecker) -> Risk | None:
    """`scp`, `rsync`: to another machine"""
    target = args.operands[-1].text if len(args.operands) > 1 else ""
    if re.match(r"[\w.@-]+:(?!/\w*/\w*:)", target) or "://" in target:
        taken = args.operands[:-1] if args.has("", "remove-source-files") else []
        return first_risk((_SENDS_FILES, *(checker.check_clear("remove", word) for word in taken)))
    spread = [word for word in args.operands[:-1] if word.text.endswith("/")]
    into = (checker.check_unpack(word) for word in args.operands[-1:] if spread)
    return first_risk((*into, check_copy(args, checker)))


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
    taken = (first_risk((checker.check_write(word), checker.check_taken(word, "moves"))) for word in sources)
    return first_risk((check_copy(args, checker), *taken))


def check_write(args: ShellArguments, checker: PathChecker) -> Risk | None:
    """`tee`, `truncate` and others that write all their operands"""
    return first_risk(map(checker.check_write, args.operands))


def check_create(args: ShellArguments, checker: PathChecker) -> Risk | None:
    """`mkdir`, `touch`: they create, and change nothing that is there"""
    return first_risk(checker.check_write(word, may_be_unknown=True) for word in args.operands)


def check_sed(args: ShellArguments, checker: PathChecker) -> Risk | None:
    runs = any(re.search(_SED_RUNS, word.text[:4000]) for word in args.words)
    written = [ShellWord(path) for word in args.words for path in re.findall(_SED_WRITES, word.text[:4000])]
    read = [ShellWord(path) for word in args.words for path in re.findall(_SED_READS, word.text[:4000])]
    shown = (checker.check_read("sed", word) for word in read)
    in_place = any(re.match(r"-\w*i|--in-place", word.text) for word in args.options)
    script = args.operands if args.has("ef", "expression", "file") else args.operands[1:]
    changed = map(checker.check_write, [*written, *(script if in_place else ())])
    return first_risk((_SED_CODE if runs else None, *changed, *shown))


def check_in_place(args: ShellArguments, checker: PathChecker) -> Risk | None:
    """`perl`, `ruby`: with `-i` they edit files in place"""
    return check_write(args, checker) if args.has("i") else None


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
        taken = args.operands if args.has("", "remove-files") else []
        inside = [ShellWord(os.path.join(folder.text, word.text)) for folder in folders for word in args.operands]
        bundled = args.words[1:2] if not args.words[0].text.startswith("-") and "f" in args.words[0].text else []
        written = [*args.values("f", "file"), *bundled]
        made = (checker.check_write(word, may_be_unknown=True) for word in written if word.text)
        return first_risk(
            (*map(checker.check_taken, taken), *map(checker.check_copy, [*args.operands, *inside]), *made)
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
    taken = args.operands[1:] if args.has("m", "move") else []
    made = (checker.check_write(word, may_be_unknown=True) for word in args.operands[:1])
    return first_risk((*map(checker.check_taken, taken), *map(checker.check_copy, args.operands), *made))


def check_patch(args: ShellArguments, checker: PathChecker) -> Risk | None:
    folders = [word for word in args.values("d", "directory") if word.text]
    return first_risk((*map(checker.check_unpack, folders or [ShellWord(".")]), check_write(args, checker)))


def check_output_option(args: ShellArguments, checker: PathChecker) -> Risk | None:
    return first_risk(checker.check_write(word) for word in args.values("of", "output", "out", "prefix") if word.text)


def check_split(args: ShellArguments, checker: PathChecker) -> Risk | None:
    """`split`: the second operand starts the names of the files it writes"""
    return first_risk(checker.check_unpack(ShellWord(os.path.dirname(word.text) or ".")) for word in args.operands[1:])


def check_second_operand(args: ShellArguments, checker: PathChecker) -> Risk | None:
    """`uniq`, `xxd`: the second operand is the output file"""
    return first_risk(map(checker.check_write, args.operands[1:2]))


def check_find(args: ShellArguments, checker: PathChecker) -> Risk | None:
    names = {word.text for word in args.options}
    paths = args.words[: next((at for at, word in enumerate(args.words) if word.text.startswith("-")), len(args.words))]
    pairs = list(zip(args.words, args.words[1:], strict=False))
    found = [checker.check_write(file) for word, file in pairs if re.match("-f(?:print|ls)", word.text)]
    wanted = [value.text for word, value in pairs if re.match(r"-i?(?:name|path|wholename|regex)$", word.text)]
    if any(text.startswith(".") and fnmatch(".env", text) for text in wanted) and "-delete" not in names:
        found.append(Risk("secret", "finds and may read .env files"))
    runs = names & {"-exec", "-execdir", "-ok", "-okdir"}
    seeks = any(re.search(_SECRET_NAMES, text) for text in wanted)
    if runs or seeks:
        found += map(checker.check_copy, paths)
    if "-delete" not in names:
        return first_risk(found)
    if names & {"-name", "-iname", "-path", "-regex", "-empty", "-newer", "-mtime", "-mmin"}:
        paths = [ShellWord(f"{path.text}/x") for path in paths]  # only some of the files below
    return first_risk((*found, *(checker.check_clear("remove", path) for path in (paths or [ShellWord(".")]))))


def check_download(args: ShellArguments, checker: PathChecker) -> Risk | None:
    """`curl`, `wget`: the file that they write"""
    written = args.values("oO", "output", "output-document")
    return first_risk(checker.check_write(word) for word in written if word.text and "://" not in word.text)


FILE_RULES: dict[str, Rule] = {
    **for_each("rm rmdir unlink trash", check_remove),
    **for_each("chmod chown chgrp chattr setfacl", check_chmod),
    "dd": check_dd,
    **for_each("cp install", check_copy),
    **for_each("scp rsync", check_transfer),
    "ln": check_link,
    "mv": check_move,
    **for_each("tee truncate mknod sponge", check_write),
    **for_each("mkdir touch mkfifo", check_create),
    **for_each("sed gsed", check_sed),
    **for_each("perl ruby", check_in_place),
    **for_each("curl wget", check_download),
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
    "find": check_find,
    "rimraf": lambda args, checker: first_risk(checker.check_clear("remove", word) for word in args.operands),
}
"""By program, what it changes."""
