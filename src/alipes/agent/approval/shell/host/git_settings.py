"""Rules for git on a machine without a sandbox: settings that make it run programs, and credentials."""

import re
from collections.abc import Iterator

from alipes.agent.approval.risk import Risk
from alipes.agent.approval.shell.git import find_subcommand
from alipes.agent.approval.shell.lexer import UNKNOWN, ShellArguments

_RUNS = (
    r"(?i)alias\.|core\.(?:sshcommand|fsmonitor|hookspath|pager|editor|askpass|gitproxy|attributesfile|worktree)"
    r"|protocol\.|\w+\.external|url\..*insteadof|include(?:if)?\.|init\.templatedir|safe\.|credential\b|gpg\."
    r"|http\..*(?:proxy|sslverify|sslcainfo|extraheader|cookiefile)|sequence\.editor|pager\.|browser\.|man\."
    r"|interactive\.difffilter|core\.alternaterefscommand|gc\.recentobjectshook|imap\.tunnel|instaweb\.|web\.browser|log\.showsig"
    r"|(?:difftool|mergetool|guitool|lfs|tar|gpg|browser|man)\..*(?:path|cmd|command|program)$|transfer\.cred|sendemail\.|uploadpack\.|remote\..*(?:uploadpack|receivepack|proxy|vcs)|submodule\..*update"
    r"|(?:filter|merge|diff|difftool|mergetool|trailer)\..*(?:clean|smudge|process|helper|driver|cmd|textconv|command)"
)
"""Settings that make git run a program or trust another source."""
_OPTION_KEYS = r"(?i)(?:core\.worktree|protocol\.|safe\.|user\.|http\.|url\.)"
"""Settings that are everyday work when given for one command with `-c`."""
_HARMLESS_KEYS = (
    r"(?i)(?:user|color|pull|push|fetch|rebase|branch|log|rerere|advice|help|column|status|tag|format|gui|blame|stash)\."
    r"|core\.(?:autocrlf|eol|quotepath|filemode|ignorecase|longpaths|abbrev|whitespace|untrackedcache|precomposeunicode)"
    r"|init\.defaultbranch|merge\.(?:ff|conflictstyle)|diff\.(?:algorithm|colormoved\w*|renames)|commit\.(?:gpgsign|verbose)"
)
_STARTUP = Risk("startup", "changes which programs git runs or which sources it trusts")


def check_git_settings(args: ShellArguments) -> Iterator[Risk | None]:
    words = find_subcommand(args)
    name, rest = (words[0].text, ShellArguments(words[1:])) if words else ("", ShellArguments([]))
    yield Risk("hidden", "gives git settings that run programs") if name and _gives_program(args, name) else None
    yield _STARTUP if _sets_program(name, rest) else None
    joined = " ".join(word.text for word in words)
    if re.match(r"credential(?:-\S+)? (?:fill|get)|credential-\S+ get", joined):
        yield Risk("secret", "prints credentials")


def _sets_program(name: str, rest: ShellArguments) -> bool:
    """True if `git config` sets a program to run, or a URL runs a command."""
    operands = [word.text for word in rest.operands]
    if any(text.startswith("ext::") for text in operands):
        return True
    operands = operands[1:] if operands[:1] == ["set"] else operands
    if name != "config" or len(operands) < 2:
        return False
    others = rest.has("", "global", "system") and not re.match(_HARMLESS_KEYS, operands[0])
    return others or any(map(re.compile(_RUNS).match, operands[:-1]))


def _gives_program(args: ShellArguments, name: str) -> bool:
    """True if `-c`, `--config` or `--config-env` names a setting that runs a program; also `clone --template`."""
    if name in ("clone", "init") and args.has("", "template"):
        return True
    if any(re.match(r"--(?:exec-path=|access-hook|smtp-server|sendmail-cmd)", word.text) for word in args.words):
        return True
    pairs = zip(args.words, args.words[1:], strict=False)
    given = [value.text for option, value in pairs if option.text in ("-c", "--config")]
    given += [word.text.partition("=")[2] for word in args.words if re.match(r"--config(?:-env)?=", word.text)]
    texts = [text for text in given if not re.match(_OPTION_KEYS, text) and not re.match(r"(?i)alias\.", text)]
    from_variable = any(word.text.startswith("--config-env") for word in args.words)
    programs = [text.partition("=")[2] for text in texts if re.match(_RUNS, text.partition("=")[0])]
    hooks = [text for text in texts if re.match(r"(?i)core\.hookspath=(?!/dev/null|$)", text)]
    return bool(from_variable or hooks) or any(
        "/" in program.split(" ")[0] or UNKNOWN in program for program in programs
    )
