"""The person's own skills on disk, with every version they had.

skills/NAME/SKILL.md ...             in use; may be edited by hand
       .versions/NAME/000003.json     what changed, who changed it, and the files
       .versions/objects/ab/abcd...   contents of files, by their sha256
       .before/NAME, .new/...         during a change
       .pins.json                     the files of installed skills, and of accepted ones of projects
Changes are atomic, also if the process is killed, and made by one process at a time. What a person edited by hand
becomes a version of its own before something else is written. Everything here blocks: call it in a thread.
"""

import hashlib
import os
import secrets
import shutil
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from fcntl import LOCK_EX, flock
from pathlib import Path, PurePosixPath
from typing import Literal, TypeAlias

import msgspec
from msgspec import Struct

from alipes.config.paths import make_private
from alipes.features.skills.skill import SKILL_FILE, find_name_problem, parse_skill
from alipes.kernel.errors import ConfigError
from alipes.kernel.formatting import did_you_mean
from alipes.kernel.lazy import lazy_pattern
from alipes.plugins import pins
from alipes.plugins.pins import TOOL_OUTPUT, FileChanges

MAX_FILES = 2000
MAX_BYTES = 50_000_000
MAX_VERSIONS = 100
"""Versions of a skill that are kept."""
_VERSION = lazy_pattern(r"(\d{6})\.json")
ChangeAuthor: TypeAlias = Literal["person", "model", "install", "learning", "hand"]
"""`learning`: proposed by the agent and accepted. `hand`: edited on disk, found later."""


class SkillFile(Struct, frozen=True):
    data: bytes
    executable: bool = False


SkillFiles: TypeAlias = Mapping[str, SkillFile]
"""By their path in the folder of the skill."""


class SkillChange(Struct, frozen=True, omit_defaults=True):
    """Who changes a skill, and why."""

    author: ChangeAuthor
    reason: str = ""
    session: str = ""
    """The conversation that it comes from."""
    turn: str = ""
    source: dict[str, str] = {}
    """Where it was installed from: `kind`, `place`, `ref`, `folder`, `exact`."""


class SkillVersion(Struct, frozen=True, omit_defaults=True):
    """One version of a skill."""

    number: int
    when: float
    change: SkillChange
    sha256: str
    """Of all files; empty if the skill was removed."""
    files: dict[str, tuple[str, bool]] = {}
    """By path: the sha256 of the content, and whether it can be executed."""

    @property
    def removed(self) -> bool:
        return not self.files


class SkillVersions:
    """The stored versions of all skills."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def history(self, name: str) -> tuple[SkillVersion, ...]:
        """All versions, the oldest first; empty if it was never changed by alipes."""
        try:
            files = sorted(file for file in os.listdir(self._folder / name) if _VERSION.fullmatch(file))
        except OSError:
            return ()
        found = []
        for file in files:
            try:
                data = (self._folder / name / file).read_bytes()
                found.append(msgspec.json.decode(data, type=SkillVersion))
            except (OSError, msgspec.MsgspecError):
                continue
        return tuple(found)

    def names(self) -> tuple[str, ...]:
        """Skills with a history, also removed ones."""
        try:
            return tuple(sorted(each for each in os.listdir(self._folder) if each != "objects"))
        except OSError:
            return ()

    def find(self, name: str, number: int) -> SkillVersion:
        versions = self.history(name)
        found = next((each for each in versions if each.number == number), None)
        if found is None:
            known = f"`alipes skills history {name}` lists them" if versions else "none is stored"
            raise ConfigError(f"The skill {name} has no version {number}: {known}.")
        return found

    def read(self, name: str, number: int) -> dict[str, SkillFile]:
        """The files of a version."""
        listed = self.find(name, number).files
        return {path: SkillFile(self._read_object(sha), executable) for path, (sha, executable) in listed.items()}

    def source(self, name: str) -> dict[str, str]:
        """Where the skill was installed from; empty if it was not."""
        for version in reversed(self.history(name)):
            if version.removed:
                break
            if version.change.source:
                return version.change.source
        return {}

    def save(self, name: str, files: SkillFiles, change: SkillChange) -> SkillVersion:
        """Store the next version; the oldest beyond the limit are removed. Raises OSError."""
        versions = self.history(name)
        listed = {path: (self._add_object(file.data), file.executable) for path, file in sorted(files.items())}
        number = versions[-1].number + 1 if versions else 1
        version = SkillVersion(number, time.time(), change, hash_files(files), listed)
        place = self._folder / name
        place.mkdir(mode=0o700, parents=True, exist_ok=True)
        _write_synced(place / f"{number:06}.json", msgspec.json.encode(version))
        for old in versions[: max(0, len(versions) + 1 - MAX_VERSIONS)]:
            (place / f"{old.number:06}.json").unlink(missing_ok=True)
        return version

    def _read_object(self, sha: str) -> bytes:
        try:
            return (self._folder / "objects" / sha[:2] / sha).read_bytes()
        except OSError as error:
            raise ConfigError(f"A file of this version is missing from {self._folder}: {error.strerror}.") from error

    def _add_object(self, data: bytes) -> str:
        sha = hashlib.sha256(data).hexdigest()
        file = self._folder / "objects" / sha[:2] / sha
        if not file.exists():
            file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            _write_synced(file, data)
        return sha


class AcceptedSkills:
    """The files that a person accepted: of installed skills, and of skills of projects."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def read(self) -> dict[str, pins.PluginPin]:
        """By the path of the folder, without links."""
        return pins.read_pin_file(self._file) or {}

    def find_changes(self, folder: str, known: Mapping[str, pins.PluginPin] | None = None) -> FileChanges | None:
        """How the files of a skill differ from the accepted ones; None if it was never accepted."""
        old = (self.read() if known is None else known).get(folder)
        if old is None:
            return None
        return pins.compare_pins(old, pins.pin_folder(old.name, Path(folder), old), own_data=())

    def accept(self, name: str, folder: Path) -> None:
        """Accept the present files of a skill."""
        known = self.read()
        real = Path(os.path.realpath(folder))
        new = {**known, str(real): pins.pin_folder(name, real)} if real.is_dir() else known
        with report_disk_errors(f"Cannot accept {name}"):
            pins.write_pin_file(self._file, new)  # leaves out folders that are gone


class SkillStore:
    """Changes the skills of a home. Raises ConfigError with a sentence."""

    def __init__(self, folder: Path) -> None:
        """`folder`: `Paths.skills` of the home."""
        self.folder = folder
        self.versions = SkillVersions(self.folder / ".versions")
        self.accepted = AcceptedSkills(self.folder / ".pins.json")

    def exists(self, name: str) -> bool:
        return bool(name) and (self.folder / name / SKILL_FILE).is_file()

    def read(self, name: str) -> dict[str, SkillFile]:
        """The present files; none if there is no such skill."""
        return read_folder(self.folder / name) if (self.folder / name).is_dir() else {}

    def create(self, name: str, files: SkillFiles, change: SkillChange) -> SkillVersion:
        """Add a skill. Raises ConfigError if there is one of that name already."""
        with self._locked():
            if os.path.lexists(self.folder / name):
                raise ConfigError(f"The skill {name} already exists: change it, or choose another name.")
            return self._write(name, files, change)

    def write(self, name: str, files: SkillFiles, change: SkillChange) -> SkillVersion:
        """Replace all files of a skill, or add it."""
        with self._locked():
            return self._write(name, files, change)

    def change(self, name: str, files: Mapping[str, SkillFile | None], change: SkillChange) -> SkillVersion:
        """Replace some files of a skill; None removes one."""
        with self._locked():
            self._require(name)
            return self._write(name, merge_files(self.read(name), files), change)

    def remove(self, name: str, change: SkillChange) -> SkillVersion:
        """Remove a skill; its versions are kept."""
        with self._locked():
            self._require(name)
            return self._write(name, {}, change)

    def roll_back(self, name: str, number: int, change: SkillChange) -> SkillVersion:
        """Make an earlier version the present one again, as a new version. 0: the one before the last change."""
        with self._locked():
            self._save_hand_edits(name)
            versions = self.versions.history(name)
            if not number:
                if len(versions) < 2:
                    raise ConfigError(f"There is no earlier version of the skill {name}.")
                number = versions[-2].number
            return self._write(name, self.versions.read(name, number), change)

    def accept(self, name: str, folder: str) -> None:
        """The person accepts the present files of a skill: an installed one, or one of a project."""
        with self._locked():
            self.accepted.accept(name, Path(folder))

    def recover(self) -> None:
        """Put back what a killed process left aside."""
        if (self.folder / ".before").is_dir() or (self.folder / ".new").is_dir():
            with self._locked():
                pass

    def _require(self, name: str) -> None:
        if not name or not (self.folder / name).is_dir():
            near = did_you_mean(name, [each for each in self.versions.names() if self.exists(each)])
            raise ConfigError(f"There is no skill {name} in {self.folder}.{near}")

    def _write(self, name: str, files: SkillFiles, change: SkillChange) -> SkillVersion:
        if problem := find_name_problem(name):
            raise ConfigError(problem)
        if files:
            check_files(name, files)
        self._save_hand_edits(name)
        with report_disk_errors(f"Cannot write the skill {name}"):
            version = self.versions.save(name, files, change)
            self._exchange(name, files)
        place = self.folder / name
        if change.source or os.path.realpath(place) in self.accepted.read():
            self.accepted.accept(name, place)
        return version

    def _save_hand_edits(self, name: str) -> None:
        """Keep what is on disk as a version, if it is not one."""
        present = self.read(name)
        versions = self.versions.history(name)
        if present and hash_files(present) != (versions[-1].sha256 if versions else ""):
            reason = "edited by hand" if versions else "as it was found"
            with report_disk_errors(f"Cannot keep the present version of {name}"):
                self.versions.save(name, present, SkillChange("hand", reason))

    def _exchange(self, name: str, files: SkillFiles) -> None:
        """Replace the folder; the old one is kept aside until the new one is in its place."""
        place, before = self.folder / name, self.folder / ".before" / name
        staged = self.folder / ".new" / secrets.token_hex(4)
        if files:
            write_folder(staged, files)
        if os.path.lexists(place):
            before.parent.mkdir(mode=0o700, exist_ok=True)
            _delete(before)
            place.rename(before)
        if files:
            staged.rename(place)
        shutil.rmtree(staged.parent, ignore_errors=True)
        _delete(before)
        with suppress(OSError):
            before.parent.rmdir()

    def _recover(self) -> None:
        shutil.rmtree(self.folder / ".new", ignore_errors=True)
        aside = self.folder / ".before"
        for before in list(aside.iterdir()) if aside.is_dir() else ():
            versions = self.versions.history(before.name)
            if not os.path.lexists(self.folder / before.name) and not (versions and versions[-1].removed):
                before.rename(self.folder / before.name)
            else:
                _delete(before)
        shutil.rmtree(aside, ignore_errors=True)

    @contextmanager
    def _locked(self) -> Iterator[None]:
        make_private(self.folder)
        with report_disk_errors(f"Cannot lock {self.folder}"):
            lock = os.open(self.folder / ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            flock(lock, LOCK_EX)
            with report_disk_errors("Cannot clean up an interrupted change"):
                self._recover()
            yield
        finally:
            os.close(lock)


def check_files(name: str, files: SkillFiles) -> None:
    """Raise ConfigError if the files are not a skill of that name, too many, or outside of its folder."""
    if SKILL_FILE not in files:
        raise ConfigError(f"The skill {name} has no {SKILL_FILE}.")
    if len(files) > MAX_FILES or sum(len(file.data) for file in files.values()) > MAX_BYTES:
        raise ConfigError(f"The skill {name} is too large: at most {MAX_FILES:,} files and {MAX_BYTES // 10**6} MB.")
    for path in files:
        check_path(path)
    try:
        parse_skill(files[SKILL_FILE].data.decode("utf-8", "replace"), name)
    except ValueError as error:
        raise ConfigError(f"The skill {name} cannot be used: {error}") from error


def check_path(path: str) -> str:
    """The path of a file inside a skill. Raises ConfigError for one that leads out of it."""
    parts = PurePosixPath(path).parts
    wrong = not parts or path.startswith("/") or ".." in parts or "\0" in path or len(path) > 300
    if wrong or TOOL_OUTPUT.intersection(parts) or parts[0].startswith(".versions"):
        raise ConfigError(f"{path[:80]!r} is not a file of a skill: use a path inside its folder.")
    return "/".join(parts)


def merge_files(files: SkillFiles, changes: Mapping[str, SkillFile | None]) -> dict[str, SkillFile]:
    """`files` with some replaced; None removes one."""
    merged = {**files, **changes}
    return {path: file for path, file in merged.items() if file is not None}


def read_folder(folder: Path) -> dict[str, SkillFile]:
    """The files of a skill, without caches; links must stay inside. Raises ConfigError."""
    found: dict[str, SkillFile] = {}
    root, total = os.path.realpath(folder), 0
    for here, folders, names in os.walk(root):
        folders[:] = sorted(set(folders) - TOOL_OUTPUT)
        for name in sorted(names):
            path = os.path.join(here, name)
            real = os.path.realpath(path)
            if not os.path.isfile(real) or name.endswith(".pyc"):
                continue
            if os.path.commonpath((root, real)) != root:
                raise ConfigError(f"{path} is a link that leads out of the skill: not allowed.")
            total += os.path.getsize(real)
            if len(found) >= MAX_FILES or total > MAX_BYTES:
                raise ConfigError(f"{folder} is too large: at most {MAX_FILES:,} files and {MAX_BYTES // 10**6} MB.")
            with report_disk_errors("Cannot read the skill"):
                executable = bool(os.stat(real).st_mode & 0o100)
                found[os.path.relpath(path, root)] = SkillFile(Path(real).read_bytes(), executable)
    return found


def write_folder(folder: Path, files: SkillFiles) -> None:
    for path, file in files.items():
        target = folder / path
        target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with open(
            os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o700 if file.executable else 0o600), "wb"
        ) as at:
            at.write(file.data)
            at.flush()
            os.fsync(at.fileno())


def hash_files(files: SkillFiles) -> str:
    """A sha256 over paths, contents and execute permissions; empty for no files."""
    total = hashlib.sha256()
    for path, file in sorted(files.items()):
        digest = hashlib.sha256(file.data).hexdigest()
        total.update(
            f"{digest} {'x' if file.executable else '-'} {len(path)} {path}\n".encode(errors="surrogateescape")
        )
    return total.hexdigest() if files else ""


def diff_files(old: SkillFiles, new: SkillFiles) -> str:
    """A unified diff; of binary files only their names."""
    from difflib import unified_diff  # noqa: PLC0415

    lines: list[str] = []
    for path in sorted({*old, *new}):
        before, after = old.get(path), new.get(path)
        if before == after:
            continue
        texts = [_text_lines(file) for file in (before, after)]
        names = ("/dev/null" if before is None else f"a/{path}", "/dev/null" if after is None else f"b/{path}")
        if texts[0] is None or texts[1] is None:
            lines.append(f"Binary files {names[0]} and {names[1]} differ")
            continue
        lines += unified_diff(texts[0], texts[1], *names, lineterm="")
        if before is not None and after is not None and before.executable != after.executable:
            lines.append(f"{path} is now {'' if after.executable else 'not '}executable")
    return "\n".join(lines)


def _text_lines(file: SkillFile | None) -> list[str] | None:
    if file is None:
        return []
    try:
        return file.data.decode().splitlines()
    except UnicodeDecodeError:
        return None


def _write_synced(path: Path, data: bytes) -> None:
    new = path.with_name(f".{path.name}.{os.getpid()}")
    with open(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600), "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    new.replace(path)


def _delete(path: Path) -> None:
    if path.is_symlink():
        path.unlink()
    else:
        shutil.rmtree(path, ignore_errors=True)


@contextmanager
def report_disk_errors(what: str) -> Iterator[None]:
    """Turn OSError into ConfigError."""
    try:
        yield
    except OSError as error:
        raise ConfigError(f"{what}: {error.filename or ''} {error.strerror or error}.") from error
