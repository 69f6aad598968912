"""The home: its files and directories, its profiles, and the environment of the profile that a task works for.

The default profile is the home itself. Any other is a complete home of its own, in `profiles/NAME` of the default one.
"""

import os
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path

from alipes.kernel.errors import ConfigError
from alipes.kernel.lazy import lazy_pattern

PROFILES = "profiles"
PROFILES_MARK = ".alipes-profiles"
"""A file beside the profiles: it tells them from any other folder that is called `profiles`."""
DEFAULT_PROFILE = "default"
MODEL_FILE = "models.json"
"""In a home: the catalog that `alipes model --refresh` fetched."""
PROFILE_VARIABLE = "ALIPES_PROFILE"
LOCK_NAME = "serve.claim"
"""The file in `Paths.run` whose lock the running `alipes serve` holds."""
VERSIONS = "versions"
"""The folder of versions of alipes, in the default home: all profiles use the same one."""
VERSION_LAUNCHER = "alipes"
"""The program in it that starts the current version."""
_PROFILE_NAME = lazy_pattern(r"[a-z0-9][a-z0-9_-]{0,31}")
_environ: ContextVar[Mapping[str, str] | None] = ContextVar("alipes_environ", default=None)


SHARED_FOLDERS = ("memory", "skills", "checkpoints", "files", "outgoing", PROFILES)
"""What alipes keeps in `cluster.folder`."""


class Paths:
    """Paths under `home`. Only `make` creates anything."""

    def __init__(self, home: Path, shared: str = "") -> None:
        """`shared`: the setting `cluster.folder`; empty if the home has all of its folders itself."""
        self.home = home
        self.shared_root = Path(shared) if shared else None
        """The folder that all workers of a cluster see at the same path."""
        ours = home if self.shared_root is None else _shared_folder(self.shared_root, home)
        self.config = home / "config.toml"
        self.env = home / ".env"
        self.run = home / "run"
        """Sockets and locks of running processes."""
        self.logs = home / "logs"
        self.log = self.logs / "alipes.log"
        self.spill = home / "spill"
        """Tool output that was too long to show in full."""
        self.files = ours / "files"
        """Files that people sent in chats, by platform."""
        self.checkpoints = ours / "checkpoints"
        """Snapshots of projects, by folder."""
        self.outgoing = ours / "outgoing"
        """Files that were generated for chats."""
        self.schedules = home / "schedules"
        """Answers of scheduled jobs that are kept as files."""
        self.memory = ours / "memory"
        """Notes that are kept from one conversation to the next, by person."""
        self.memory_lock = self.run / "memory.lock" if self.shared_root is None else self.memory / ".lock"
        self.skills = ours / "skills"
        """The person's own skills."""
        self.browser = home / "browser"
        """Cookies and local storage of the browser, if they are kept."""

    @property
    def root(self) -> Path:
        """The default home, if this is the home of a profile; else this home."""
        return find_root(self.home)

    @property
    def shared(self) -> tuple[Path, ...]:
        """The folders of alipes outside of the home, those of other profiles included."""
        return tuple(self.shared_root / name for name in SHARED_FOLDERS) if self.shared_root is not None else ()

    def make(self) -> "Paths":
        """Create the home and its directories with mode 0700. Raises ConfigError."""
        for folder in (self.home, self.run, self.logs, self.spill):
            make_private(folder)
        if self.shared_root is not None:
            _make_shared(self.shared_root, self.memory, self.skills, self.checkpoints, self.files, self.outgoing)
        return self


def _shared_folder(root: Path, home: Path) -> Path:
    """The part of `cluster.folder` that belongs to the profile of this home."""
    name = profile_name(home)
    return root if name == DEFAULT_PROFILE else root / PROFILES / name


def _make_shared(root: Path, *folders: Path) -> None:
    """Create the folders in `cluster.folder`, and check that files can be written there. Raises ConfigError."""
    if not root.is_dir():  # creating it would hide that its file system is not mounted
        raise ConfigError(f"cluster.folder: {root} is not a directory. Mount its file system, or create it.")
    try:
        for folder in folders:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=folder):
                pass
    except OSError as error:
        why = error.strerror or str(error)
        raise ConfigError(f"cluster.folder: {root} cannot be written: {why}. Check its owner and its mount.") from error


def find_home(environ: Mapping[str, str] | None = None) -> Path:
    """`$ALIPES_HOME`, else `~/.alipes`, or the home of the profile in `$ALIPES_PROFILE`; absolute, not necessarily
    existing. Raises ConfigError, also if there is no such profile."""
    environ = current_environ() if environ is None else environ
    named = environ.get("ALIPES_HOME", "").strip()
    if any(not character.isprintable() for character in named):
        raise ConfigError("environment: ALIPES_HOME contains control characters: give the path of a directory.")
    try:
        home = Path(named or "~/.alipes").expanduser().absolute()
    except (RuntimeError, OSError) as error:
        raise ConfigError(f"The home directory cannot be found ({error}): set ALIPES_HOME to a directory.") from error
    profile = environ.get(PROFILE_VARIABLE, "").strip()
    return find_profile(find_root(home), profile) if profile else home


def current_environ() -> Mapping[str, str]:
    """The variables of this process, or those of the profile that the current task works for."""
    scoped = _environ.get()
    return os.environ if scoped is None else scoped


def has_own_environ() -> bool:
    """True if the current task works for one of several profiles in this process."""
    return _environ.get() is not None


def current_scope() -> str:
    """Tells the profiles in this process apart; empty if it serves only one."""
    scoped = _environ.get()
    return "" if scoped is None else scoped.get("ALIPES_HOME", "")


@contextmanager
def use_environ(environ: Mapping[str, str]) -> Iterator[None]:
    """Everything inside, also the tasks and threads it starts, reads these variables instead of the process's."""
    token = _environ.set(environ)
    try:
        yield
    finally:
        _environ.reset(token)


def choose_profile(name: str) -> None:
    """Use this profile from now on, in this process and its children."""
    os.environ[PROFILE_VARIABLE] = name


def find_root(home: Path) -> Path:
    """The default home of a profile's home; any other home is its own."""
    return home.parent.parent if _is_profile(home) else home


def start_command(home: Path) -> tuple[str, ...]:
    """The words that start alipes again. If it is a version in the home, an update may have switched to another one."""
    versions = find_root(home) / VERSIONS
    if Path(sys.prefix).parent == versions and os.access(versions / VERSION_LAUNCHER, os.X_OK):
        return (str(versions / VERSION_LAUNCHER),)
    return (sys.executable, "-m", "alipes")


def profile_name(home: Path) -> str:
    """The name of the profile whose home this is."""
    return home.name if _is_profile(home) else DEFAULT_PROFILE


def _is_profile(home: Path) -> bool:
    return home.parent.name == PROFILES and (home.parent / PROFILES_MARK).exists()


def list_profiles(root: Path) -> list[str]:
    """The names of the profiles of a default home, without the default one."""
    folder = root / PROFILES
    try:
        names = [each.name for each in folder.iterdir() if _PROFILE_NAME.fullmatch(each.name) and each.is_dir()]
    except OSError:
        return []
    return sorted(names) if (folder / PROFILES_MARK).exists() else []


def find_profile(root: Path, name: str) -> Path:
    """The home of a profile. Raises ConfigError if there is none of that name."""
    if name == DEFAULT_PROFILE:
        return root
    if name in list_profiles(root):
        return root / PROFILES / name
    from alipes.kernel.formatting import did_you_mean  # noqa: PLC0415

    known = (DEFAULT_PROFILE, *list_profiles(root))
    hint = did_you_mean(name, known) or f" There is {', '.join(known)}."
    raise ConfigError(f"There is no profile {name!r}.{hint} Create one with `alipes profile new NAME`.")


def check_profile_name(name: str) -> None:
    """Raises ConfigError if no profile can be called `name`."""
    if name in (DEFAULT_PROFILE, "main"):
        raise ConfigError(f"{name} is the profile that is always there: choose another name.")
    if not _PROFILE_NAME.fullmatch(name):
        rule = "use 1 to 32 lower-case letters, digits, - and _, and start with a letter or digit"
        raise ConfigError(f"{name!r} cannot be the name of a profile: {rule}.")


def all_homes(home: Path) -> list[Path]:
    """The default home and those of its profiles, given one of them."""
    root = find_root(home)
    return [root, *(root / PROFILES / name for name in list_profiles(root))]


def make_private(folder: Path) -> Path:
    """Create `folder` with mode 0700 unless it exists. Raises ConfigError if it is not writable."""
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        folder.mkdir(mode=0o700, exist_ok=True)
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise ConfigError(f"{folder} cannot be created: {why}. {_ELSEWHERE}") from error
    if not os.access(folder, os.W_OK | os.X_OK):
        raise ConfigError(f"{folder} is not writable: check its owner and its file system. {_ELSEWHERE}")
    return folder


def make_private_tree(folder: Path) -> None:
    """Create `folder` and the folders above it that are missing, with mode 0700. Raises OSError."""
    if not folder.is_dir():
        make_private_tree(folder.parent)
        folder.mkdir(mode=0o700, exist_ok=True)


def sync_to_disk(path: Path) -> None:
    """Sync a file or a directory."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


_ELSEWHERE = "Set ALIPES_HOME to use another directory."
