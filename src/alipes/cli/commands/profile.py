"""`alipes profile`: lists, creates, clones and removes profiles."""

import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from msgspec import Struct

from alipes.config.editor import change
from alipes.config.environment import parse_env, read_text
from alipes.config.loader import load_settings
from alipes.config.paths import (
    DEFAULT_PROFILE,
    PROFILES,
    PROFILES_MARK,
    Paths,
    all_homes,
    check_profile_name,
    find_home,
    find_profile,
    find_root,
    list_profiles,
    make_private,
    profile_name,
)
from alipes.config.reader import KeyPath
from alipes.config.settings import ServeConfig, Settings
from alipes.console import help_text
from alipes.console.common import print_list, run_in_archive
from alipes.console.options import OptionParser
from alipes.console.stdio import is_terminal
from alipes.kernel.errors import AlipesError, ConfigError
from alipes.kernel.formatting import closest_matches, format_count, format_size
from alipes.runtime.process_lock import find_holder
from alipes.runtime.processes.ancestors import living_agents
from alipes.store.quick_reads import store_exists

_OWN = (
    *("run", "logs", "spill", "files", "checkpoints", "outgoing", "browser", "cache", "sandbox", "plugin-data"),
    *(PROFILES, "history", "programs-reported", "__pycache__"),
)
"""What a clone does not get from its source: conversations, files of chats, logs, data of plugins."""
_OWN_ENDINGS = (".db", ".db-wal", ".db-shm", ".db-journal", ".key", ".pem", ".sock", ".lock", ".part")


class ProfileFacts(Struct, frozen=True):
    """A profile in the list."""

    name: str
    home: str
    model: str
    messengers: tuple[str, ...]
    port: int
    running: tuple[int, ...]
    """The processes that use it."""
    active: bool
    problem: str = ""


def run(argv: list[str]) -> int:
    parser = OptionParser("alipes profile", help_text.PROFILE)
    args, named = parser.parse_with_words(argv)
    root = find_root(find_home())
    match named:
        case [] | ["list"]:
            return _list(root, json=args.json)
        case ["new", name]:
            return _create(root, name)
        case ["clone", source, name]:
            return _clone(root, source, name, with_keys=args.with_keys)
        case ["remove", name]:
            return _remove(root, name, confirmed=args.confirm)
    return parser.error("use `list`, `new NAME`, `clone SOURCE NAME` or `remove NAME`")


def _list(root: Path, *, json: bool) -> int:
    found = [_inspect(home) for home in all_homes(root)]
    rows = [
        (
            f"{each.name}{' *' if each.active else ''}",
            each.model or "not chosen",
            ", ".join(each.messengers),
            str(each.port),
            ", ".join(map(str, each.running)),
            each.problem or each.home,
        )
        for each in found
    ]
    print_list(found, ("NAME", "MODEL", "MESSENGERS", "PORT", "PROCESSES", "HOME"), rows, json=json)
    return 0


def _inspect(home: Path) -> ProfileFacts:
    name, active = profile_name(home), home == find_home()
    running = tuple(find_processes(home))
    try:
        settings = load_settings(home)
    except ConfigError as error:
        problem = f"{home}: the settings have errors: {str(error).splitlines()[0]}"
        return ProfileFacts(name, str(home), "", (), 0, running, active, problem)
    messengers = tuple(settings.messengers.configured)
    return ProfileFacts(name, str(home), settings.model, messengers, settings.serve.port, running, active)


def find_processes(home: Path) -> Iterator[int]:
    """The processes that use this home."""
    run = Paths(home).run
    holder = find_holder(run / "serve.claim")
    yield from dict.fromkeys((*living_agents(run), *((holder.pid,) if holder is not None and holder.pid else ())))


def _create(root: Path, name: str) -> int:
    home = _make_home(root, name)
    change({("serve", "port"): str(_free_port(root, home))}, home=home)
    print(f"Profile {name} was created in {home}.")
    print(f"  connect a model with `alipes -P {name} setup`, then start with `alipes -P {name}`")
    return 0


def _make_home(root: Path, name: str) -> Path:
    check_profile_name(name)
    known = list_profiles(root)
    home = root / PROFILES / name
    if name in known or os.path.lexists(home):
        raise ConfigError(f"{home} already exists: choose another name.")
    if near := closest_matches(name, known, 1):
        print(f"There is also a profile {near[0]}.", file=sys.stderr)
    make_private(root)
    mark = make_private(root / PROFILES) / PROFILES_MARK
    try:
        mark.touch(0o600)
    except OSError as error:
        raise ConfigError(f"{mark} cannot be written: {error.strerror}.") from error
    return make_private(home)


def _free_port(root: Path, new: Path) -> int:
    """A port that no other profile is set to use."""
    used = {ServeConfig().port}
    for home in all_homes(root):
        if home != new:
            with suppress(ConfigError):
                used.add(load_settings(home).serve.port)
    return next(port for port in range(min(ServeConfig().port, 65000) + 1, 65536) if port not in used)


def _clone(root: Path, source: str, name: str, *, with_keys: bool) -> int:
    origin = find_profile(root, source)
    settings = load_settings(origin)  # a broken source would give a broken clone
    home = _make_home(root, name)
    try:
        _copy(origin, home)
        _copy_shared(settings.paths, Paths(home, settings.cluster.folder))
        if with_keys:
            _copy_keys(settings, home)
        values: dict[KeyPath, str | None] = {("serve", "port"): str(_free_port(root, home))}
        if settings.serve.profiles:
            values["serve", "profiles"] = None
        change(values, home=home)
    except (OSError, shutil.Error) as error:
        raise ConfigError(f"{origin} cannot be copied to {home}: {error}. Remove {home} and try again.") from error
    print(f"Profile {name} was cloned from {source} to {home}: settings, memory, skills and plugins.")
    print("  Conversations, approvals, people and files of chats were not copied.")
    if not with_keys:
        print(f"  Keys were not copied: add them with `alipes -P {name} setup` or `alipes -P {name} secrets`.")
    elif settings.messengers.configured:
        names = ", ".join(settings.messengers.configured)
        print(f"  {name} has the same bots as {source} ({names}): give it its own before you serve both.")
    return 0


def _copy(source: Path, home: Path) -> None:
    def skip(folder: str, names: list[str]) -> list[str]:
        top = Path(folder) == source
        return [
            each
            for each in names
            if each.endswith(_OWN_ENDINGS)
            or each == "__pycache__"
            or (top and (each in _OWN or each.startswith((".env", "alipes.db", "approvals"))))
        ]

    shutil.copytree(source, home, symlinks=True, ignore=skip, dirs_exist_ok=True)


def _copy_shared(source: Paths, clone: Paths) -> None:
    """Memory and skills in `cluster.folder`, if it is set."""
    for old, new in ((source.memory, clone.memory), (source.skills, clone.skills)):
        if source.shared_root is not None and old.is_dir():
            shutil.copytree(old, new, symlinks=True, ignore=shutil.ignore_patterns(".lock"), dirs_exist_ok=True)


def _copy_keys(settings: Settings, home: Path) -> None:
    """The keys of `.env`, but not the API key: it would open both profiles."""
    text = read_text(settings.paths.env) or ""
    keys = {name: line.value for name, line in parse_env(text, settings.paths.env).items() if line.value}
    keys.pop(settings.serve.key_env, None)
    if keys:
        change({}, keys, home=home)


def _remove(root: Path, name: str, *, confirmed: str) -> int:
    if name == DEFAULT_PROFILE:
        raise ConfigError("The default profile cannot be removed: it is the home itself.")
    home = find_profile(root, name)
    if running := list(find_processes(home)):
        raise ConfigError(f"profile {name} is in use by process {', '.join(map(str, running))}: stop it first.")
    kept = _find_shared(home)
    print(f"This deletes {home} for ever:")
    for line in _describe_content(home):
        print(f"  {line}")
    if not confirmed:
        if not is_terminal(sys.stdin):
            raise ConfigError(f"no terminal to confirm on; use --confirm {name} to delete it")
        sys.stderr.write("Type the name of the profile to delete it: ")
        sys.stderr.flush()
        confirmed = sys.stdin.readline().strip()
    if confirmed != name:
        print("Nothing was deleted: that is not its name.")
        return 1
    _delete(home)
    print(f"Profile {name} was deleted.")
    if kept is not None:
        print(f"  Its memory, skills and checkpoints in {kept} were kept: other workers may use them.")
    with suppress(ConfigError):
        if name in load_settings(root).serve.profiles:
            print(f"  serve.profiles in {Paths(root).config} still names it: remove it there.")
    return 0


def _find_shared(home: Path) -> Path | None:
    """The folder of the profile in `cluster.folder`; None if it has none."""
    with suppress(ConfigError):
        paths = load_settings(home).paths
        if paths.shared_root is not None and paths.memory.parent.is_dir():
            return paths.memory.parent
    return None


def _describe_content(home: Path) -> Iterator[str]:
    settings = Settings(home=home)
    if store_exists(settings.home):
        try:
            facts = run_in_archive(settings, lambda archive: archive.facts())
            yield f"{format_count(facts.sessions, 'conversation')}, {format_count(facts.messages, 'message')}"
        except AlipesError as error:
            yield f"conversations that cannot be read ({error})"
    with suppress(ConfigError):
        keys = parse_env(read_text(settings.paths.env) or "", settings.paths.env)
        if keys:
            yield f"{format_count(len(keys), 'key')} in .env: {', '.join(keys)}"
    sizes = [file.lstat().st_size for file in home.rglob("*") if file.is_file()]
    size = f"{format_count(len(sizes), 'file')}, {format_size(sum(sizes))}"
    yield f"{size}: settings, memory, skills, plugins, logs"


def _delete(home: Path) -> None:
    """Delete the folder; its name is gone first, so that nobody finds a half of it."""
    gone = home.with_name(f".{home.name}.{os.urandom(4).hex()}.removed")
    try:
        home.rename(gone)
        shutil.rmtree(gone)
    except OSError as error:
        left = gone if gone.exists() else home
        raise ConfigError(f"{left} cannot be deleted: {error.strerror}. Delete what is left of it.") from error
