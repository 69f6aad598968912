"""Rules for git: history, uncommitted work, remotes, and the files that it writes."""

import re

from alipes.agent.approval.paths import PathChecker
from alipes.agent.approval.risk import Risk, first_risk
from alipes.agent.approval.shell.lexer import ShellArguments, ShellWord

_DISCARDS = "discards uncommitted changes"
_FORCE_PUSH = "force-pushes, which can overwrite work on the remote"
_REMOTE_DELETE = "this push can delete branches of the remote"
_RULES: dict[str, tuple[str, str, str]] = {
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
"""By subcommand: short and long options that make it dangerous, and the reason."""
_HISTORY = r"filter-branch|filter-repo|prune|replace|stash (?:drop|clear)|reflog (?:delete|expire)|submodule deinit"


def check_git(args: ShellArguments, checker: PathChecker) -> Risk | None:
    words = find_subcommand(args)
    if not words:
        return None
    name, rest = words[0].text, ShellArguments(words[1:])
    if not words[0].is_known:
        return Risk("hidden", "runs a git command that is only known at run time")
    if re.match(_HISTORY, " ".join(word.text for word in words)):
        return Risk("git", "rewrites or deletes git history", "workspace")
    return first_risk(
        (_check_options(name, rest), _check_files(name, args, rest, checker), _check_remote(name, rest, checker))
    )


def _check_options(name: str, rest: ShellArguments) -> Risk | None:
    letters, names, reason = _RULES.get(name, ("", "", ""))
    if reason and (rest.may_hide_option or rest.has(letters, *names.split())):
        return _describe_push(rest) if reason == _FORCE_PUSH else Risk("git", reason, "workspace")
    operands = [word.text for word in rest.operands]
    if name == "push" and any(text.startswith(("+", ":")) for text in operands):
        return _describe_push(rest)
    everything = name in ("checkout", "restore") and any(text in (".", "./", "*", ":/") for text in operands)
    if everything and (rest.has("W", "worktree") or not rest.has("S", "staged")):
        return Risk("git", _DISCARDS, "workspace")
    return None


def _describe_push(rest: ShellArguments) -> Risk:
    deletes = rest.has("d", "delete", "prune") or any(word.text.startswith(":") for word in rest.operands)
    if deletes:
        return Risk("git", "deletes branches or tags of the remote", "remote", why=_REMOTE_DELETE)
    return Risk("git", _FORCE_PUSH, "remote", why="a force-push can overwrite work on the remote")


def _check_files(name: str, args: ShellArguments, rest: ShellArguments, checker: PathChecker) -> Risk | None:
    written = [*rest.values("", "output", "output-directory", "separate-git-dir"), *rest.values("o", "output")]
    if name in ("diff", "format-patch", "archive", "show", "log", "bundle", "init", "clone"):
        found = first_risk(checker.check_write(word) for word in written if word.text and not word.text.startswith("-"))
        if found:
            return found
    if name == "clone" and (risk := first_risk(map(checker.check_write, rest.operands[1:2]))):
        return risk
    if name in ("init", "worktree", "clone") and (risk := first_risk(map(checker.check_unpack, _targets(name, rest)))):
        return risk
    if name == "init" and not rest.operands and (place := next(iter(args.values("C")), None)):
        return checker.check_unpack(place)
    other = [*args.values("", "work-tree")]
    if other and name in ("checkout", "restore", "reset", "stash", "read-tree", "checkout-index", "switch", "pull"):
        return first_risk(map(checker.check_unpack, other))
    if name in ("bundle", "checkout-index"):
        written = [*rest.operands[1:2], *rest.values("", "prefix")]
        return first_risk(checker.check_write(word) or checker.check_unpack(word) for word in written if word.text)
    if name in ("apply", "am") and not rest.has("", "check", "stat", "numstat", "summary"):
        folders = [*args.values("C"), *rest.values("", "directory")] or [ShellWord(".")]
        return first_risk(map(checker.check_unpack, folders))
    if name == "update-index" and any("120000" in word.text for word in rest.words):
        return Risk("hidden", "puts a link into the repository without showing where it leads")
    return None


def _targets(name: str, rest: ShellArguments) -> list[ShellWord]:
    """The directory that a command fills."""
    if name == "worktree":
        return rest.operands[1:2] if rest.operands[:1] == [ShellWord("add")] else []
    return rest.operands[1:2] if name == "clone" else rest.operands[:1]


def _check_remote(name: str, rest: ShellArguments, checker: PathChecker) -> Risk | None:
    """Pushing to a place that the project did not have before"""
    operands = [word.text for word in rest.operands]
    if name == "remote" and operands[:1] in (["add"], ["set-url"]):
        checker.new_remotes.update(operands[1:2])
    target = operands[0] if operands else next(iter(checker.new_remotes), "")
    is_new = target in checker.new_remotes or re.match(r"\w+://|\S+@\S+:", target)
    if name == "push" and (is_new or rest.has("", "all")):
        return Risk("send", "pushes to a new place, or all branches at once", "remote")
    return None


def find_subcommand(args: ShellArguments) -> list[ShellWord]:
    """The words from the subcommand on: `push` in `git -C x -c y=z push`."""
    words = list(args.words)
    while words and words[0].text.startswith("-"):
        option = words.pop(0).text
        if option in ("-C", "-c", "--git-dir", "--work-tree", "--namespace", "--exec-path") and words:
            words.pop(0)
    return words
