"""Risks of the paths that a command reads, writes or deletes. It looks at names and links only."""

import os
import re
from collections.abc import Iterable, Iterator

from alipes.agent.approval.directories import WorkingDirectories, known_prefix, names_own_process
from alipes.agent.approval.risk import Risk, Scope
from alipes.agent.approval.shell.lexer import UNKNOWN, ShellWord
from alipes.config.protected_paths import is_startup_in_home, is_trusted_in_project, secret_folders_in_home
from alipes.runtime.sandbox.policy import is_inside
from alipes.runtime.sandbox.project import project_root
from alipes.tools.common import Places

_SYSTEM = (
    r"/(?:etc|boot|dev|usr|bin|sbin|lib|lib32|lib64|sys|proc|var/lib|var/spool|opt|root|run|Library|System)(?:/|\Z)"
)
_DISK = r"/dev/(?:[shv]d[a-z]|xvd|nvme|mmcblk|disk|r?disk\d|dm-|mapper/|md\d|nbd|mem$|kmem$|port$)"
_HARMLESS = r"/dev/(?:null|zero|full|tty|std(?:in|out|err)|fd/\d+|pts/\d+|shm/.*)$|/proc/[^/]+/fd/\d+$"
_MATCH_ALL = {"*", ".*", "**", "?*", ".[!.]*", ".??*"}
_SECRET_TEXT = (
    r"/proc/[^/\s]{1,40}/(?:task/[^/\s]{1,40}/)?(?:environ|mem\b)|/proc/\0/(?:fd|root|cwd)"
    r"|\.ssh/id_(?!\w+\.pub\b)|\.aws/credentials|\.netrc\b|\.git-credentials|\.gnupg/|/etc/g?shadow"
)
_RUN_LATER = "is run or trusted by other programs"
_LOGIN = (
    r"\.(?:bash|profile|z(?:sh|profile|log)|kshrc|login|logout|xprofile|xinitrc|xsession)"
    r"|\.config/(?:fish|autostart|systemd)"
)
_TRUSTED_BY = (
    (r"/\.git/|/\.(?:githooks|husky|lefthook)|/lefthook|/\.pre-commit", "is run or trusted by git"),
    (
        r"/\.(?:git(?:hub|lab|ea)|forgejo|circleci|travis|woodpecker|buildkite|drone|cirrus|azure|teamcity|semaphore)",
        "runs in CI",
    ),
    (r"/(?:Jenkinsfile|(?:azure|bitbucket)-pipelines|\.?appveyor|cloudbuild|buildspec)", "runs in CI"),
    (r"/\.(?:vscode|idea|exrc|nvim|vimrc|lvimrc|dir-locals)|\.code-workspace", "is run or trusted by your editor"),
    (r"/\.envrc|/\.?mise\.toml", "runs when you enter the folder"),
)
"""Who runs or trusts a file of a project, by its path."""
_NAME_ONLY_COMMANDS = frozenset(
    ("ls", "stat", "test", "[", "cd", "pushd", "echo", "du", "pwd", "realpath", "readlink", "dirname", "basename")
).union(("tree", "mkdir", "touch", "printf", "which"))
"""Commands that show nothing of a file but its name and attributes."""


_UNKNOWN_TARGET = Risk("write", "writes to a file or directory that is only known at run time", unseen=True)


class PathChecker:
    """Checks paths in the commands of one shell text."""

    def __init__(self, places: Places, workdir: str, start: str = "") -> None:
        """`workdir` is where the conversation works; `start` is where the commands begin, if elsewhere."""
        workdir = os.path.realpath(workdir or os.getcwd())
        self.project = project_root(workdir, places.home, places.root)
        """What commands may change: the work tree around it."""
        self.has_links = False
        """A link was created: from then on paths may lead anywhere."""
        self.new_remotes: set[str] = set()
        """Git remotes that the text added."""
        self._places = places
        self._alipes_home, self.home = os.path.realpath(places.alipes_home), os.path.realpath(places.home)
        self._alipes_root = os.path.realpath(places.root)
        """The directory with the homes of all profiles."""
        self._own_folders = places.own_folders
        self.directories = WorkingDirectories(start or workdir, self.home)
        self._unknown_variables: set[str] = set()
        self._own_secret_text = (
            re.escape(os.path.basename(self._alipes_root))
            + r"/+(?:profiles/+[\w-]{1,80}/+)?(?:\.env|[\w.-]{0,80}\.db|run/)"
        )
        secret = (os.path.join(self.home, folder) for folder in secret_folders_in_home())
        self._secret_places = [
            place for place in (*self._own_folders, *secret) if not is_inside(self.project, place)
        ]  # a project inside one of them is not secret

    def copy(self) -> "PathChecker":
        """For a script, which changes nothing of the shell that runs it."""
        other = PathChecker(self._places, self.project)
        other.directories.possible = set(self.directories.possible)
        return other

    def known_variables(self) -> dict[str, str]:
        """Values of variables that hold paths."""
        folders = self.directories.possible
        known = {
            "HOME": self._places.home,
            "PWD": (next(iter(folders)) if len(folders) == 1 else None) or UNKNOWN,
            "ALIPES_HOME": self._places.alipes_home,
            "TMPDIR": "/tmp",
        }
        return {**known, **dict.fromkeys(self._unknown_variables, UNKNOWN)}

    def forget_variable(self, name: str) -> None:
        """A command assigns this variable: commands inside later ones may see another value."""
        self._unknown_variables.add(name)
        if name == "CDPATH":
            self.directories.is_predictable = False

    def check_clear(self, rule: str, word: ShellWord) -> Risk | None:
        """Risk of deleting or changing everything below a path."""
        text = word.text
        if word.has_glob and text.rpartition("/")[2] in _MATCH_ALL:
            text = text.rpartition("/")[0] or ("/" if text.startswith("/") else ".")
        paths = self.directories.resolve(ShellWord(text))
        unknown = "deletes or changes whole directories that are only known at run time"
        if not paths or None in paths:
            return Risk(rule, unknown, self._scope_of_unknown(text), unseen=True)
        expanded = self.directories.expand(ShellWord(text, word.has_glob and text == word.text))
        risks = [self._clear_risk(rule, path, text) for path in expanded if not self._is_free_area(path)]
        links = [Risk(rule, unknown, unseen=True)] if self.has_links else []
        return max([*risks, *links], key=lambda risk: (risk.floor, risk.scope == "workspace"), default=None)

    def _scope_of_unknown(self, text: str) -> Scope:
        """Whether a path of which a part is not known may be the project, a folder around it, or its repository."""
        start = os.path.dirname(text.partition(UNKNOWN)[0]) if UNKNOWN in text else text
        path = os.path.normpath(os.path.join(self.project, start))
        return "workspace" if is_inside(self.project, path) or is_inside(path, f"{self.project}/.git") else "machine"

    def _clear_risk(self, rule: str, path: str, text: str) -> Risk:
        forbidden = any(is_inside(place, path) for place in (*self._own_folders, self._alipes_home, self.home))
        floor = rule == "remove" and forbidden and self.directories.is_likely(path, text)
        in_project = is_inside(self.project, path) or is_inside(path, self.project)
        scope: Scope = "workspace" if in_project else "machine"
        return Risk(rule, f"deletes or changes everything in {path}", scope, floor)

    def check_taken(self, word: ShellWord, verb: str = "deletes") -> Risk | None:
        """Risk of deleting one file, or of moving something away."""
        if not word.is_known and not self._is_project_name(word):
            return Risk("remove", f"{verb} files whose names are only known at run time", unseen=True)
        paths = self.directories.resolve(word)
        if None in paths:
            return Risk("remove", f"{verb} files in a directory that is only known at run time", unseen=True)
        for path in filter(None, paths):
            if any(is_inside(place, path) for place in (*self._own_folders, self._alipes_home, self.home)):
                return Risk("remove", f"{verb} {path}", floor=self.directories.is_likely(path, word.text))
            if path == self.project or path == os.path.join(self.project, ".git"):
                return Risk("remove", f"{verb} {path}", "workspace")
            if not is_inside(path, self.project) and not self._is_scratch(path):
                return Risk("remove", f"{verb} {path}, which is outside the project")
        return None

    def check_write(self, word: ShellWord, *, may_be_unknown: bool = False) -> Risk | None:
        """Risk of creating, changing or deleting one file."""
        if re.match(_HARMLESS, word.text):
            return None
        if not word.is_known:
            is_safe = may_be_unknown or self._is_project_name(word)
            return None if is_safe else _UNKNOWN_TARGET
        paths: Iterable[str] = self.directories.expand(word)
        if names_own_process(word.text):
            return _UNKNOWN_TARGET
        if None in self.directories.resolve(word):
            paths = [
                *paths,
                *(os.path.realpath(os.path.join(each, word.text)) for each in _likely_folders(self.home, self.project)),
            ]
        return next((risk for path in paths if (risk := self._check_write(path))), None)

    def check_into(self, folder: ShellWord, source: ShellWord) -> Risk | None:
        """Risk of putting the file `source` into a folder; a file of the target's name if it is no folder."""
        if not folder.is_known:
            return self.check_write(folder)
        name = source.text.rstrip("/").rpartition("/")[2]
        places = self.directories.expand(folder)
        if name in ("", ".", "..") or UNKNOWN in name or (source.has_glob and name.startswith((".", "*", "?", "["))):
            spread = name in ("", ".") or name.startswith(".") or not source.has_glob
            risk = self.check_unpack(folder) if spread else None
            if risk or UNKNOWN in name:
                return risk or self.check_write(folder)
        inside = (ShellWord(os.path.join(path, name)) for path in places if not os.path.isfile(path))
        return self.check_write(folder) or next((risk for path in inside if (risk := self.check_write(path))), None)

    def check_unpack(self, folder: ShellWord) -> Risk | None:
        """Risk of putting files with unseen names below a folder."""
        if not folder.is_known:
            return _UNKNOWN_TARGET
        startup_parents = [os.path.join(self.home, each) for each in (".config", ".local", ".local/share")]
        for path in self.directories.resolve(folder):
            if path is None:
                return _UNKNOWN_TARGET
            if is_inside(path, self.project) and ".git" in os.path.relpath(path, self.project).split("/"):
                reason = f"puts files into {path}, where git runs or trusts some of them"
                return Risk("trusted", reason, "workspace", paths=(path,))
            if self._is_scratch(path) or (is_inside(path, self.project) and path != self.home):
                continue
            around = any(is_inside(place, path) for place in (self.home, self._alipes_home, *self._own_folders))
            if around or path in startup_parents:
                return Risk("startup", f"puts files into {path}, where other programs run or trust some of them")
            if risk := self._check_write(os.path.join(path, "x")):
                return risk
        return None

    def _check_write(self, path: str) -> Risk | None:
        if re.match(_HARMLESS, path):
            return None
        if re.match(_DISK, path):
            return Risk("disk", f"writes raw data to {path}", floor=True)
        own = any(is_inside(path, folder) for folder in self._own_folders)
        if own and not is_inside(path, os.path.join(self._alipes_home, "spill")):
            inside = os.path.relpath(path, self._alipes_home)
            floor = self._places.secrecy(path) == "ours" or inside.startswith(("config.toml", "approvals"))
            return Risk("own", f"changes {path}, which belongs to alipes", floor=floor)
        in_project = is_inside(path, self.project)
        if is_inside(path, self.home) and not (
            in_project
            and is_inside(self.project, self.home)
            and is_startup_in_home(os.path.relpath(self.project, self.home))
        ):
            inside = os.path.relpath(path, self.home)
            if is_startup_in_home(inside):
                why = "this file runs when you log in" if re.match(_LOGIN, inside) else f"this file {_RUN_LATER}"
                return Risk("startup", f"changes {path}, which other programs run or trust", why=why)
        relative = os.path.relpath(path, self.project) if in_project else path.lstrip("/")
        if not (self._is_scratch(path) and not in_project) and is_trusted_in_project(relative):
            why = next((text for pattern, text in _TRUSTED_BY if re.search(pattern, f"/{relative}")), _RUN_LATER)
            reason = f"changes {path}, which is run or trusted later"
            return Risk("trusted", reason, "workspace", paths=(path,), why=f"this file {why}")
        part_of_system = os.path.dirname(path) == "/" or re.match(_SYSTEM, path)
        if part_of_system and not self._is_free_area(path) and not is_inside(path, self.home):
            return Risk("system", f"changes {path}, a system file")
        if not in_project and not self._is_scratch(path) and os.path.isfile(path):
            return Risk("write", f"changes {path}, which is outside the project")
        return None

    def names_protected_file(self, word: ShellWord) -> Risk | None:
        """Risk that a program which is not known to only read changes a file that others run or trust."""
        for path in self._named_files(word):
            risk = self._check_write(path)
            if risk and risk.rule in ("startup", "own", "disk"):
                return risk
        return None

    def check_read(self, name: str, word: ShellWord) -> Risk | None:
        """Risk that the command `name` shows a secret through this word."""
        if name in _NAME_ONLY_COMMANDS:
            return None
        named = [path for path in self._named_files(word) if self._places.secrecy(path) or path in self._secret_places]
        risks = [
            Risk("secret", f"reads {path}, which holds secrets", floor=self._is_ours(path, word)) for path in named
        ]
        if risks:
            return max(risks, key=lambda risk: risk.floor)
        text = f"{word.text[-4096:]}\n{os.path.normpath(word.text[-4096:])}"
        if re.search(_SECRET_TEXT, text) or re.search(self._own_secret_text, text):
            return Risk("secret", "reads a file with secrets", floor=f"/proc/{os.getpid()}/" in text)
        return None if word.is_known else self._check_unknown_read(word)

    def _is_ours(self, path: str, word: ShellWord) -> bool:
        """True if a word certainly names a secret of alipes."""
        foreign = path.startswith("/proc/") and not path.startswith(f"/proc/{os.getpid()}/")
        likely = any(self.directories.is_likely(path, text) for text in _split_names(word.text))
        return likely and not foreign and self._places.secrecy(path) == "ours"

    def _check_unknown_read(self, word: ShellWord) -> Risk | None:
        prefix, _ = known_prefix(word)
        if not prefix.rpartition("/")[0] and "/" not in prefix:
            return None
        folder, _, start = prefix.rpartition("/")
        for path in self.directories.resolve(ShellWord(folder or "/")):
            whole = os.path.join(path or "", start)
            if path and any(place.startswith(whole) or is_inside(path, place) for place in self._secret_places):
                reason = "may read a file with secrets: its name is only known at run time"
                return Risk("secret", reason, unseen=True)
        return None

    def check_opened_read(self, real: str) -> Risk | None:
        """Risk of showing the opened file that is at this real path."""
        secrecy = self._places.secrecy(real)
        if secrecy or real in self._secret_places:
            foreign = real.startswith("/proc/") and not real.startswith(f"/proc/{os.getpid()}/")
            floor = secrecy == "ours" and not foreign
            return Risk("secret", f"reads {real}, which holds secrets", floor=floor, why="this file holds secrets")
        if re.search(_SECRET_TEXT, real) or re.search(self._own_secret_text, real):
            return Risk("secret", "reads a file with secrets", floor=f"/proc/{os.getpid()}/" in real)
        return None

    def check_opened_write(self, real: str) -> Risk | None:
        """Risk of creating, changing or deleting the file at this real path of an opened folder."""
        return self._check_write(real)

    def check_copy(self, word: ShellWord) -> Risk | None:
        """Risk of copying or searching a directory that contains secrets."""
        for path in self.directories.resolve(word):
            if path and path != self.project and any(is_inside(place, path) for place in self._secret_places):
                return Risk("secret", f"reads {path} with the secrets in it")
        return None

    def check_cwd(self, name: str) -> Risk | None:
        """Risk of working in a directory with secrets."""
        here = [path for path in self.directories.possible if path]
        if name not in _NAME_ONLY_COMMANDS and any(
            is_inside(path, each) for path in here for each in self._secret_places
        ):
            return Risk("secret", "works in a directory with secrets")
        return None

    def _named_files(self, word: ShellWord) -> Iterator[str]:
        """Paths that a word may name, also as in `if=x`, `@x` or `x:y`."""
        if not word.is_known or len(word.text) > 4096:
            return
        attached = {word.text[2:]} if re.match(r"-\w[~./]", word.text) else set()  # as in -o/path
        for text in _split_names(word.text) | attached:
            if text and not text.startswith("-"):
                part = ShellWord(text, word.has_glob)
                yield from self.directories.expand(part)
                if None in self.directories.resolve(part) and not text.startswith("/"):
                    inside = (os.path.realpath(os.path.join(place, text)) for place in self._secret_places)
                    yield from filter(os.path.lexists, inside)

    def _is_project_name(self, word: ShellWord) -> bool:
        """True if a word names something in the project, although a part of its name is not known."""
        prefix, starts_segment = known_prefix(word)
        folders = self.directories.resolve(ShellWord(prefix.rpartition("/")[0] or ("/" if "/" in prefix else ".")))
        free = all(path and (is_inside(path, self.project) or self._is_scratch(path)) for path in folders)
        return free and not starts_segment and not prefix.rpartition("/")[2].startswith(".")

    def _is_scratch(self, path: str) -> bool:
        return any(is_inside(path, folder) and path != folder for folder in self._places.scratch)

    def _is_free_area(self, path: str) -> bool:
        """True if everything below `path` may be deleted: in the project and in temporary directories."""
        around = any(is_inside(place, path) for place in (self._alipes_home, self.project, *self._own_folders))
        if around or any(is_inside(path, folder) for folder in self._own_folders):
            return False
        if self._is_scratch(path):
            return True
        if not is_inside(path, self.project):
            return False
        if is_inside(self.home, self.project):  # the project is the home directory or above it
            inside = os.path.relpath(path, self.home)
            return "/" in inside and not inside.startswith(".")
        return ".git" not in os.path.relpath(path, self.project).split("/")


def _likely_folders(home: str, workdir: str) -> tuple[str, ...]:
    """Folders in which a relative path could do harm, for when the working directory is not known."""
    inside = ("", ".ssh", ".config", ".config/git", ".config/systemd/user", ".local/bin", "bin")
    return (*(os.path.join(home, each) for each in inside), workdir, "/etc", "/")


def _split_names(text: str) -> set[str]:
    """A word, and its parts as in `if=x`, `@x` or `x:y`."""
    return {text, *re.split(r"[=@:,<]", text)}
