"""Risks of the arguments, input and output of any program."""

import re
from collections.abc import Iterable, Iterator

from alipes.agent.approval.paths import PathChecker
from alipes.agent.approval.risk import Risk
from alipes.agent.approval.shell.host.programs import RULES
from alipes.agent.approval.shell.lexer import DECODED, UNKNOWN, ShellArguments, ShellWord
from alipes.agent.approval.shell.nested import TEXT_ONLY_PROGRAMS
from alipes.agent.approval.shell.parser import ShellCommand
from alipes.agent.approval.shell.subcommands import for_each
from alipes.config.protected_paths import is_secret_in_project

_READERS = for_each(
    "less more bat diff cmp colordiff comm md5sum sha1sum sha256sum b2sum cksum nl od strings hexdump column paste join"
    " fold fmt rev tac awk gawk mawk source . eval alias for select cd pushd git ssh ssh-add ssh-keygen sh bash dash"
    " zsh ksh fish python python3 perl ruby node deno bun php lua env export declare exec command nohup timeout"
    " xargs man tree df ncdu code cargo npm npx find xxd base64 gzip findmnt realpath readlink basename dirname hash"
    " which kubectl docker podman tmux screen shellcheck trap make watch builtin sftp sudo true false : set unset"
    " shopt exit return",
    True,
) | {**TEXT_ONLY_PROGRAMS}
"""Programs that only read the files that they are given, or that have rules of their own."""
_ALSO_WRITE = for_each(
    "curl wget sqlite3 duckdb psql mysql mariadb sort shuf gpg openssl csplit split uniq xxd strace ltrace time script"
    " gzip bzip2 xz zstd lz4 compress brotli 7z 7za 7zz zip tee pip pip3",
    True,
)
"""Programs with rules of their own, or that mostly read, in which any argument may name a file to write."""
_WRITERS = for_each("touch mkdir rm rmdir unlink truncate chmod chown chgrp mkfifo tee trash", True)
"""Programs that do not show what is in the files they are given."""
_PATTERN_PROGRAMS = for_each("grep egrep fgrep zgrep rg ag ack sed gsed awk gawk jq yq perl ugrep", True)
"""Programs whose first operand is a pattern or a script."""
_KEY_PROGRAMS = for_each("ssh scp sftp rsync autossh mosh ssh-copy-id sshfs git", True)
"""Programs that use a key, given with `-i`, without showing it."""
_GIT_NAMES = for_each("add rm mv check-ignore ls-files status commit update-index restore checkout stash", True)
"""Subcommands of git that do not show what is in a file."""
_MESSAGE_PROGRAMS = for_each("git hg svn jj bzr fossil gh glab tea mail notify-send wall logger alembic", True)
"""Programs with `-m` for a message."""
_FILE_READERS = for_each(
    "cat tac head tail less more bat nl od xxd hexdump strings base64 base32 grep egrep fgrep sed awk cut paste sort"
    " uniq rev fold fmt diff cmp cp mv ln source . dd tar zip gzip",
    True,
)
"""Programs whose arguments are names of files."""
_FEEDS = for_each("nc ncat netcat socat sftp ftp telnet", True)


def check_arguments(name: str, args: ShellArguments, paths: PathChecker, *, is_language: bool) -> Iterable[Risk | None]:
    """Secrets that the arguments name, and files that others trust."""
    read = list(_read_words(name, args))
    if name in _FILE_READERS and any(DECODED in word.text for word in args.words):
        yield Risk("hidden", "reads a file whose name it decodes at run time", unseen=True)
    yield from (paths.check_read(name, word) for word in read)
    if name in _ALSO_WRITE:
        yield from (paths.names_protected_file(word) for word in args.words)
    if name in RULES or name in _READERS or name.endswith("ssh") or is_language:
        if is_language and (name.endswith("awk") or args.has("ce", "eval", "print")):
            yield from (paths.names_protected_file(word) for word in args.words)
        return
    yield from (paths.names_protected_file(word) for word in args.words)
    yield from (paths.check_copy(word) for word in args.operands if word.text not in ("/", "."))


def _read_words(name: str, args: ShellArguments) -> Iterator[ShellWord]:
    """The words that may name files whose content is shown."""
    if name in _WRITERS:
        return
    words = list(args.words)
    takes_folder = args.has("t", "target-directory") and name != "rsync"
    if name in ("cp", "mv", "install", "ln", "rsync", "scp") and args.operands and not takes_folder:
        words.remove(args.operands[-1])
    if name in _PATTERN_PROGRAMS and args.operands and not args.has("ef", "regexp", "file", "expression"):
        scripts = [word for word in args.operands if re.search(r"[{(]", word.text)] if name.endswith("awk") else []
        words.remove((scripts or args.operands)[0])
    before = ""
    for word in words:
        is_key = (name in _KEY_PROGRAMS or name.endswith("ssh")) and (
            before == "-i" or re.match(r"-i\S|IdentityFile", word.text)
        )
        is_message = name in _MESSAGE_PROGRAMS and re.match(r"-\w{0,5}m$|--(?:message|title|body|subject)", before)
        is_used = name in ("source", ".", "dotenv") or (name == "git" and words[0].text in _GIT_NAMES)
        is_env_file = is_used or before == "--env-file" or word.text.startswith("--env-file=")
        if not is_key and not is_message and not (is_env_file and _is_project_env(word)):
            yield word
        before = word.text


def _is_project_env(word: ShellWord) -> bool:
    """True for `.env` of the project: its values are used, not shown."""
    value = word.text.partition("=")[2] or word.text
    return not value.startswith(("/", "~", "..")) and is_secret_in_project(value) and UNKNOWN not in value


def check_streams(name: str, args: ShellArguments, command: ShellCommand) -> Risk | None:
    """Input that is sent to others, and output without an end."""
    is_fed = bool(command.upstream or command.stdin or any("<" in each.operator for each in command.redirects))
    if name in _FEEDS and (is_fed or args.has("b", "batch")) and not args.has("z"):
        return Risk("send", "sends data to another machine")
    if name in ("http", "https", "xh") and is_fed and not any("localhost" in word.text for word in args.operands):
        return Risk("send", "sends data to another machine")
    written = [each.target for each in command.redirects if ">" in each.operator and each.operator != ">&"]
    to_file = any(not target.text.startswith("/dev/") for target in written)
    endless = name == "yes" or (
        name == "cat" and any(word.text in ("/dev/zero", "/dev/urandom") for word in args.words)
    )
    if endless and to_file:
        return Risk("system", "fills the disk")
    if name in ("make", "gmake") and command.upstream and _reads_makefile(args):
        return Risk("hidden", "runs a makefile that is only known at run time", unseen=True)
    return None


def _reads_makefile(args: ShellArguments) -> bool:
    return any(word.text in ("-", "/dev/stdin") for word in args.values("f", "file", "makefile"))
