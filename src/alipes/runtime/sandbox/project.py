"""The project of a working directory: the git work tree that contains it, or the directory itself.

Commands, file tools and approvals mean the same by "the project", so that git never sees a hidden file as deleted.
"""

import os
import stat
from collections.abc import Iterator

from msgspec import Struct

from alipes.runtime.sandbox.policy import is_inside, real_path
from alipes.runtime.sandbox.repositories import read_name, read_settings


class Project(Struct, frozen=True):
    """What belongs to a working directory. All paths are real."""

    root: str
    """The top of the git work tree; the working directory if there is none, or if the top cannot be shown."""
    git: str = ""
    """The git directory outside of `root` that it shares with other work trees; empty if there is none."""
    refused: str = ""
    """The `.git` that commands cannot use; empty if there is none."""
    reason: str = ""
    """Why they cannot."""


def project_root(workdir: str, home: str, alipes_root: str) -> str:
    """The directory that commands and file tools may change. `alipes_root`: the directory with all homes of alipes."""
    return find_project(workdir, home, alipes_root).root


def find_project(workdir: str, home: str, alipes_root: str) -> Project:
    """The project of a working directory; the current directory if it is empty."""
    workdir = real_path(workdir or os.getcwd())
    top = _find_top(workdir)
    if not top:
        return Project(workdir)
    mark = os.path.join(top, ".git")
    places = (real_path(home), "your home"), (real_path(alipes_root), "the home of alipes")
    for place, name in places:
        if is_inside(place, top):
            what = "is" if place == top else "contains"
            return Project(workdir, refused=mark, reason=f"its work tree {top} {what} {name}")
    if top != workdir and not _is_of_same_owner(top, mark, workdir):
        return Project(workdir, refused=mark, reason=f"its work tree {top} belongs to another user")
    git = _named_git_directory(mark)
    if not git or is_inside(git, top):
        return Project(top)
    if not _names_work_tree(git, top):
        return Project(top, refused=mark, reason=f"{mark} names {git}, whose core.worktree is not {top}")
    return Project(top, _common_directory(git))


def _find_top(workdir: str) -> str:
    """The work tree that git finds; empty if there is none."""
    for folder in folders_up(workdir):
        if os.path.isfile(f"{folder}/.git") or os.path.lexists(f"{folder}/.git/HEAD"):
            return folder
    return ""


def folders_up(path: str) -> Iterator[str]:
    """The folder and those around it, as plain strings: this runs for every turn."""
    yield path
    while (above := os.path.dirname(path)) != path:
        yield above
        path = above


def _is_of_same_owner(top: str, mark: str, workdir: str) -> bool:
    """False if the top of the work tree is nothing that the owner of the working directory made."""
    try:
        facts = os.stat(top)
        owners = {facts.st_uid, os.lstat(mark).st_uid}
        return owners <= {os.getuid(), os.stat(workdir).st_uid} and not facts.st_mode & stat.S_IWOTH
    except OSError:
        return False


def find_git_directories(mark: str) -> tuple[str, str]:
    """The git directory that a `.git` is or names, and the one that it shares objects with; empty if there is none."""
    git = _named_git_directory(mark)
    return git, _common_directory(git) if git else ""


def _named_git_directory(mark: str) -> str:
    if os.path.isdir(mark):
        return real_path(mark)
    named = read_name(mark, "gitdir: ")
    return real_path(os.path.join(os.path.dirname(mark), named)) if named else ""


def _names_work_tree(git: str, top: str) -> bool:
    """True if a git directory says itself that this is its work tree: anybody can name a git directory."""
    if pointer := read_name(os.path.join(git, "gitdir"), ""):
        named = real_path(os.path.join(git, pointer)) == os.path.join(top, ".git")
        return named and is_inside(git, _common_directory(git))
    worktree = dict(read_settings(os.path.join(git, "config"))).get("core.worktree")
    return worktree is not None and real_path(os.path.join(git, worktree)) == top


def _common_directory(git: str) -> str:
    return real_path(os.path.join(git, read_name(os.path.join(git, "commondir"), "") or "."))
