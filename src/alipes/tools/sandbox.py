"""Sandboxes of projects: turns the settings and a project directory into what its commands may see and use."""

import fnmatch
import os
import re
import shutil
import site
import stat
import sys
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeAlias

from msgspec import Struct, field

from alipes.config.display import looks_secret
from alipes.config.environment import process_environment
from alipes.config.paths import find_root, make_private_tree
from alipes.config.protected_paths import (
    SECRET_IN_HOME,
    SECRET_IN_SYSTEM,
    TRUSTED_IN_PROJECT,
    is_secret_in_home,
    is_secret_in_project,
)
from alipes.config.settings import SandboxAccess, SandboxConfig, Settings
from alipes.kernel.turns import Address
from alipes.runtime.processes.process_tree import OrphanGuard
from alipes.runtime.sandbox.backend import CommandBackend, CommandScope, HostBackend
from alipes.runtime.sandbox.bubblewrap import BubblewrapSandbox
from alipes.runtime.sandbox.mounts import SYSTEM
from alipes.runtime.sandbox.namespaces import NetworkNamespaces
from alipes.runtime.sandbox.policy import (
    CACHES,
    SandboxLimits,
    SandboxPolicy,
    is_inside,
    make_private_directory,
    real_path,
    short_hash,
)
from alipes.runtime.sandbox.project import Project, find_project
from alipes.runtime.sandbox.repositories import SKIPPED, read_settings
from alipes.tools.backends import ChosenBackend

if TYPE_CHECKING:
    from alipes.runtime.sandbox.tracked import TrackedFiles

SandboxVariables: TypeAlias = Callable[[CommandScope, str, bool], Mapping[str, str]]
"""The variables for the network, given the scratch directory and whether the SSH agent may be used."""
TOOLCHAINS = (
    *(".cargo/bin", ".cargo/env", ".rustup", ".pyenv", ".nvm", ".fnm", ".volta", ".asdf", ".sdkman", ".rbenv", ".rvm"),
    *(".goenv", "go/bin", ".local/bin", ".local/lib", ".local/share/pipx", ".local/share/uv", ".local/share/pnpm"),
    *(".local/share/fnm", ".local/share/mise", ".local/share/virtualenvs", ".bun/bin", ".deno/bin", ".ghcup/bin"),
    *(".juliaup", ".dotnet", ".nix-profile", "miniconda3", "anaconda3", "mambaforge", "miniforge3", "bin"),
)
"""Programs and their libraries in the home, which sandboxed commands may run."""
PROGRAM_SETTINGS = (
    *(".config/pip/pip.conf", ".pip/pip.conf", ".npmrc", ".cargo/config.toml", ".cargo/config", ".condarc"),
    *(".config/uv/uv.toml", ".yarnrc.yml", ".gemrc", ".config/go/env"),
)
"""Settings that say where packages come from; shown unless they contain credentials."""
GIT_IDENTITY = (
    r"(?i)(?:user\.(?:name|email)|init\.defaultbranch|core\.(?:autocrlf|eol|quotepath)|pull\.|push\.default|merge\.|rebase\."
    r"|fetch\.prune|branch\.|color\.)"
)
"""Global git settings that commands get; none of them runs a program or holds a secret."""
_GIT_PROGRAMS = r"(?i)\.(?:tool|driver|cmd|path)$"
DOCKER_SOCKETS = ("/run/docker.sock", "/var/run/docker.sock", "/run/podman/podman.sock")
SHARED_GIT_SETTINGS = ("hooks", "config", "config.worktree", "info/attributes")
"""Files of a git directory that the project shares with other work trees; commands cannot change them."""
KEEP_SCRATCH_S = 30 * 86400.0
KEEP_SECRETS_S = 5.0
MAX_FOLDERS = 5_000
"""Folders of a project that are looked at for secrets; those near its root come first."""
EMPTY, GITCONFIG, REFUSED, HOME, CACHE = "empty", "gitconfig", "no-git", "homes", "caches"
SHARED_HOME = "home"
"""Where homes were when all conversations of a project shared one."""
OWNER = "owner"
DOWNLOAD_CACHES = (
    *(".cache/pip", ".cache/uv", ".cache/yarn", ".cache/go-build", ".npm/_cacache", ".cargo/registry", ".cargo/git"),
    *("go/pkg/mod", ".m2/repository", ".gradle/caches", ".nuget/packages"),
)
"""What package managers downloaded, in the home of commands; shared by the conversations of a caller in a project."""
MAX_LINKS = 40


FileGrants: TypeAlias = tuple[tuple[str, ...], tuple[str, ...]]
"""Paths outside of the project that may be read, and those that may be written."""


class SandboxExtras(Struct, frozen=True):
    """What commands of a project see besides its files and what the settings list."""

    network: SandboxVariables | None = None
    """Makes the variables that lead to the proxy."""
    files: Sequence[tuple[str, str]] = ()
    """More files to show, as in `SandboxPolicy.files`."""
    folders: list[Callable[[str], Sequence[str]]] = field(default_factory=list)
    """See `add_folders`."""
    grants: list[Callable[[CommandScope], FileGrants]] = field(default_factory=list)
    """See `add_grants`."""

    def add_folders(self, list_folders: Callable[[str], Sequence[str]]) -> None:
        """`list_folders(workdir)`: folders that a project's commands may read, although the alipes home is hidden."""
        self.folders.append(list_folders)

    def add_grants(self, list_grants: Callable[[CommandScope], FileGrants]) -> None:
        """`list_grants(scope)`: what a person allowed a conversation to use outside of the project."""
        self.grants.append(list_grants)

    def list_grants(self, scope: CommandScope) -> FileGrants:
        found = [grants(scope) for grants in self.grants]
        return tuple(path for read, _ in found for path in read), tuple(path for _, write in found for path in write)

    def list_folders(self, workdir: str) -> tuple[str, ...]:
        return tuple(path for find in self.folders for path in find(workdir))


class ProjectSandboxes:
    """Makes the policy of each command. Directories are created when a command first needs them."""

    def __init__(
        self,
        config: SandboxConfig,
        *,
        home: str,
        alipes_home: Path,
        environ: Mapping[str, str],
        extras: SandboxExtras | None = None,
        shared: Sequence[Path] = (),
    ) -> None:
        """`environ`: where variables listed in `sandbox.environment` come from. `shared`: folders of alipes outside of
        its home."""
        self._config, self._environ = config, environ
        self._home, self._alipes_home = real_path(home), real_path(alipes_home)
        self._alipes_root = real_path(find_root(Path(self._alipes_home)))
        self._shared = tuple(map(real_path, shared))
        self._state = os.path.join(self._alipes_home, "sandbox")
        self._extras = extras or SandboxExtras()
        self._toolchains: tuple[str, ...] | None = None
        self._system_secrets: tuple[str, ...] | None = None
        self._secrets: dict[str, tuple[float, tuple[str, ...]]] = {}
        """By project: its files with secrets, and when to look for more."""
        self._tracked: TrackedFiles | None = None
        self._bound: tuple[float, frozenset[str]] = 0.0, frozenset()
        """When to read the names of the sockets of this machine again, and these."""
        self._sockets: dict[tuple[str, ...], tuple[str, ...]] = {}
        """By project and listed paths, those of them that commands would see."""
        self._cleaned = False

    def make_policy(self, scope: CommandScope) -> SandboxPolicy:
        workdir = real_path(scope.workdir or os.getcwd())
        project = find_project(workdir, self._home, self._alipes_root)
        access = self.access(scope)
        scratch = self._make_scratch(project.root, scope)
        around_home = is_inside(self._home, project.root)
        private_home, caches = ("", "") if around_home else self._make_home(project.root, scope)
        read, write = self._extras.list_grants(scope)
        listed = self._listed((*access.write, *write), workdir)
        roots = (*_existing((project.root, *filter(None, (project.git,)))), *listed)
        more = (path for path in _existing(scope.write) if not any(is_inside(path, root) for root in roots))
        inner = tuple(path for path in _existing(scope.write) if is_inside(path, self._alipes_root))
        writable = inner if around_home else tuple(dict.fromkeys((*roots, *more, *inner)))
        readable = (*self._listed((*access.read, *read), workdir), *_existing(scope.read))
        hidden = *self._hidden_paths(workdir, project.root, (*writable, *readable)), *self._hidden_in((*read, *write))
        network = access.network or "ask"
        return SandboxPolicy(
            workdir=project.root,
            home=self._home,
            private_home=private_home,
            scratch=scratch,
            caches=caches,
            empty=self._make_file(EMPTY, ""),
            writable=writable,
            inner=inner,
            readable=_outermost((*self._list_toolchains(), *readable)),
            protected=(
                *_list_protected(writable, workdir, project, opened=scope.write),
                *(path for path in _existing(scope.protect) if any(is_inside(path, root) for root in writable)),
            ),
            hidden=_outermost(hidden),
            sockets=tuple(
                self._find_sockets(project.root, (*writable, *readable), writable if network == "open" else ())
            ),
            tracked=() if project.refused else tuple(self._find_tracked(project.root, hidden)),
            files=tuple(self._files(project, private_home, access, (project.root, scratch, *writable))),
            refused_git=project.refused,
            refusal=project.reason,
            environment=(
                *self._variables(workdir, access, around_home=around_home),
                *self._network_variables(scope, scratch, access),
            ),
            limits=SandboxLimits(
                memory_bytes=self._config.memory * 2**20,
                processes=self._config.processes,
                file_bytes=self._config.file_size * 2**20,
            ),
            network=network,
            user_namespaces="browser" in access.grants,
        )

    def access(self, scope: CommandScope) -> SandboxAccess:
        """What the settings allow in this project and permission mode."""
        config, workdir = self._config, real_path(scope.workdir or os.getcwd())
        mode = "auto" if scope.turn is not None and scope.turn.inbound.trusted else "ask"
        found = [config, *(each for path, each in config.projects.items() if is_inside(workdir, real_path(path)))]
        found += [config.modes[mode]] if mode in config.modes else []
        joined = {
            name: tuple(dict.fromkeys(item for each in found for item in getattr(each, name)))
            for name in ("read", "write", "environment", "grants")
        }
        networks = [each.network for each in found if each.network]
        return SandboxAccess(**joined, network=networks[-1] if networks else "ask")

    def _list_toolchains(self) -> tuple[str, ...]:
        if self._toolchains is None:
            programs = map(self._program_folder, filter(os.path.isabs, self._environ.get("PATH", "").split(":")))
            named = (os.path.join(self._home, name) for name in TOOLCHAINS)
            python = (sys.prefix, sys.base_prefix, site.getusersitepackages())
            found = _existing((*named, *programs, *python))
            self._toolchains = _outermost(
                path for path in found if not self._is_too_wide(path) and not _is_system(path)
            )
        return tuple(path for path in self._toolchains if os.path.exists(path))

    def _program_folder(self, path: str) -> str:
        """What a folder of PATH needs: outside of the home, the libraries beside `bin` too."""
        folder, name = os.path.split(path.rstrip("/"))
        if is_inside(path, self._home) or name not in ("bin", "sbin") or folder.count("/") < 2 or _is_system(path):
            return "/" if is_inside(path, "/mnt") or is_inside(path, "/media") else path  # programs of Windows, disks
        return path if self._is_too_wide(real_path(folder)) else folder

    def _is_too_wide(self, path: str) -> bool:
        """Whether it would show the home or that of alipes."""
        return any(is_inside(home, path) for home in ("/usr", self._home, self._alipes_root))

    def _listed(self, paths: Iterable[str], workdir: str) -> tuple[str, ...]:
        """Real paths of those listed in the settings. What is in the home of alipes is not shown, only a project."""
        return tuple(path for path in _existing(paths) if path == workdir or not is_inside(path, self._alipes_root))

    def _hidden_paths(self, workdir: str, root: str, listed: Sequence[str]) -> Iterator[str]:
        around_home = is_inside(self._home, root)
        if any(is_inside(self._alipes_root, path) for path in (root, *listed)):
            yield self._alipes_root
        yield from filter(os.path.isdir, self._shared)
        if self._system_secrets is None:
            self._system_secrets = tuple(path for pattern in SECRET_IN_SYSTEM for path in _readable_glob(pattern))
        yield from self._system_secrets
        if around_home or any(is_inside(self._home, path) for path in listed):
            names = (os.path.join(self._home, entry) for entry in SECRET_IN_HOME)
            yield from (path for pattern in names for path in _readable_glob(pattern))
        yield from dict.fromkeys((*self._project_secrets(root), *self._project_secrets(workdir)))

    def _hidden_in(self, granted: Sequence[str]) -> Iterator[str]:
        """Secrets in folders that a person allowed the conversation to use."""
        if not granted:
            return
        yield from (path for folder in granted for path in self._project_secrets(folder))
        named = (path for entry in SECRET_IN_HOME for path in _readable_glob(os.path.join(self._home, entry)))
        yield from (path for path in named if any(is_inside(path, folder) for folder in granted))

    def _find_sockets(self, root: str, listed: Sequence[str], own: Sequence[str]) -> Iterator[str]:
        """Sockets of programs of this machine that commands would see, unless they are listed themselves. `own`: where
        commands may have made them. In a network of their own, the kernel does not count theirs to this machine."""
        now = time.monotonic()
        if now >= self._bound[0]:
            self._bound = now + KEEP_SECRETS_S, frozenset(_list_bound())
            self._sockets.clear()
        if (key := (root, *listed)) not in self._sockets:
            shown = tuple(f"{place.rstrip('/')}/" for place in (*SYSTEM, *listed))
            relative = tuple(f"/{name}" for name in self._bound[1] if not name.startswith("/"))
            _, found = self._secrets.get(root, (0.0, ()))
            seen = [path for path in self._bound[1] if path.startswith(shown)]
            seen += [path for path in found if path.endswith(relative)]
            self._sockets[key] = tuple(dict.fromkeys(map(real_path, sorted(seen))))
        for path in self._sockets[key]:
            if path not in listed and _is_socket(path) and not any(is_inside(path, each) for each in own):
                yield path

    def _find_tracked(self, root: str, hidden: Iterable[str]) -> Iterator[tuple[str, str]]:
        """Hidden files of the project that git tracks, each with the version that commands may see."""
        found = [path for path in dict.fromkeys(hidden) if is_inside(path, root)]
        if found and self._tracked is None:
            from alipes.runtime.sandbox.tracked import TrackedFiles  # noqa: PLC0415

            self._tracked = TrackedFiles(self._make_state)
        copies = ((path, self._tracked.find_copy(path, root)) for path in found if self._tracked)
        yield from ((path, copy) for path, copy in copies if copy)

    def _project_secrets(self, workdir: str) -> tuple[str, ...]:
        """Files such as `.env` in the project, also in its folders.

        They are looked for again after a few seconds; later if that takes long. One that was found stays in the list.
        """
        until, found = self._secrets.get(workdir, (0.0, ()))
        began = time.monotonic()
        if began >= until:
            found = tuple(dict.fromkeys((*filter(_is_real_file, found), *_find_secrets(workdir))))
            took = time.monotonic() - began
            self._secrets[workdir] = began + max(KEEP_SECRETS_S, 100 * took), found
        return tuple(filter(_is_real_file, found))

    def _files(
        self, project: Project, private_home: str, access: SandboxAccess, writable: Sequence[str]
    ) -> Iterator[tuple[str, str]]:
        if project.refused:
            yield from self._refuse_git(project, private_home)
        if private_home:
            yield os.path.join(self._home, ".gitconfig"), self._make_file(GITCONFIG, self._git_settings())
            settings = (os.path.join(self._home, name) for name in PROGRAM_SETTINGS)
            for path in (*settings, *self._ssh_files()):
                real = _resolve_outside(path, writable)
                if real and (is_inside(path, os.path.join(self._home, ".ssh")) or _is_plain_settings(real)):
                    yield path, real
        yield from self._extras.files
        shown = (_resolve_outside(path, writable) for path in self._extras.list_folders(project.root))
        yield from ((path, path) for path in filter(None, shown) if not is_inside(path, project.root))
        for path in (sys.prefix, sys.base_prefix):  # behind a link, its name would be missing
            if path != real_path(path) and not _is_system(path):
                yield path, real_path(path)
        if "docker" in access.grants:
            yield from ((path, path) for path in _existing(DOCKER_SOCKETS))

    def _refuse_git(self, project: Project, private_home: str) -> Iterator[tuple[str, str]]:
        """What commands see as the `.git` that they cannot use: git refuses it, and prints the reason."""
        if os.path.islink(project.refused):
            return
        is_covered = private_home and os.path.dirname(project.refused) == self._home
        if os.path.isdir(project.refused) and not is_covered:
            name = os.path.join(REFUSED, short_hash(project.reason))
            for inner in ("objects", "refs"):
                self._make_state(name, inner)
            self._make_file(os.path.join(name, "HEAD"), "ref: refs/heads/none\n")
            words = re.sub(r"[^A-Za-z0-9]+", "-", project.reason).strip("-")
            text = f"[core]\n\trepositoryformatversion = 1\n[extensions]\n\t{words} = true\n"
            self._make_file(os.path.join(name, "config"), text)
            yield project.refused, os.path.join(self._state, name)
        else:
            text = f"gitdir: /git cannot be used in this sandbox: {project.reason}\n"
            yield project.refused, self._make_file(f"{REFUSED}-{short_hash(project.reason)}", text)

    def _ssh_files(self) -> Iterator[str]:
        """Files of `~/.ssh` without secrets: known hosts, settings, public keys."""
        folder = os.path.join(self._home, ".ssh")
        names = (name for name in _list_directory(folder) if not is_secret_in_home(f".ssh/{name}"))
        yield from (path for name in names if os.path.isfile(path := os.path.join(folder, name)))

    def _git_settings(self) -> str:
        """The user's name, address and habits from the global git settings, without programs."""
        lines = list[str]()
        for key, value in read_settings(os.path.join(self._home, ".gitconfig")):
            if re.match(GIT_IDENTITY, key) and not re.search(_GIT_PROGRAMS, key):
                section, _, name = key.rpartition(".")
                first, _, rest = section.partition(".")
                head = f'[{first} "{rest}"]' if rest else f"[{first}]"
                lines.append(f"{head}\n\t{name} = {value}\n")
        return "".join(lines) + "[safe]\n\tdirectory = *\n"

    def _network_variables(self, scope: CommandScope, scratch: str, access: SandboxAccess) -> Iterable[tuple[str, str]]:
        if self._extras.network is None or access.network in ("open", "none"):
            return ()
        return self._extras.network(scope, scratch, "ssh-agent" in access.grants).items()

    def _variables(self, workdir: str, access: SandboxAccess, *, around_home: bool) -> Iterator[tuple[str, str]]:
        yield "TMPDIR", "/tmp"
        if around_home:
            yield "HOME", "/tmp"
        yield from ((name, self._environ[name]) for name in access.environment if name in self._environ)
        if not any(is_inside(workdir, real_path(path)) for path in self._config.trust):
            yield "GIT_CONFIG_COUNT", "1"
            yield "GIT_CONFIG_KEY_0", "core.hooksPath"
            yield "GIT_CONFIG_VALUE_0", "/dev/null"

    def _make_scratch(self, root: str, scope: CommandScope) -> str:
        """The directory for temporary files of a project and conversation."""
        scratch = make_private_directory(short_hash(self._alipes_home), _hash_owner(root, scope))
        os.utime(scratch)
        if not self._cleaned:
            self._cleaned = True
            for folder in (os.path.dirname(scratch), *(os.path.join(self._state, name) for name in (HOME, CACHE))):
                _remove_old(folder, time.time() - KEEP_SCRATCH_S)
            _remove_old(os.path.join(self._state, SHARED_HOME), 1.0)
        return scratch

    def _make_home(self, root: str, scope: CommandScope) -> tuple[str, str]:
        """The home of the commands of a project and conversation, and the download caches of its caller.

        The home has links into the caches. It is filled once, before any command can put other links into it.
        """
        home = os.path.join(self._make_state(HOME), _hash_owner(root, scope))
        caches = os.path.join(self._make_state(CACHE), short_hash(f"{root}\0{_caller(scope)}"))
        if not os.path.isdir(home) or not os.path.isdir(caches):
            if _caller(scope) == OWNER:
                _keep_caches(os.path.join(self._state, SHARED_HOME, short_hash(root)), caches)
            for name in DOWNLOAD_CACHES:
                os.makedirs(os.path.join(caches, _flat(name)), 0o700, exist_ok=True)
        if not os.path.isdir(home):
            new = f"{home}.{os.getpid()}"
            os.makedirs(os.path.join(new, CACHES), 0o700)
            for name in DOWNLOAD_CACHES:
                link = os.path.join(new, name)
                os.makedirs(os.path.dirname(link), 0o700, exist_ok=True)
                inside = os.path.relpath(os.path.join(new, CACHES, _flat(name)), os.path.dirname(link))
                os.makedirs(os.path.join(new, CACHES, _flat(name)), 0o700)  # for a sandbox without mounts
                os.symlink(inside, link)
            os.rename(new, home)
        for folder in (home, caches):
            os.utime(folder)
        return home, caches

    def _make_state(self, *names: str) -> str:
        folder = os.path.join(self._state, *names)
        make_private_tree(Path(folder))
        return folder

    def _make_file(self, name: str, text: str) -> str:
        path = os.path.join(self._make_state(), name)
        try:
            with open(path, encoding="utf-8", errors="replace") as file:
                if file.read() == text:
                    return path
        except OSError:
            pass
        new = f"{path}.{os.getpid()}"
        with open(new, "w", encoding="utf-8") as file:
            file.write(text)
        os.replace(new, path)
        return path


def _session(scope: CommandScope) -> tuple[str, Address | None, str]:
    """The conversation that a command works for, also through subagents: its session, address and sender."""
    if scope.turn is None:
        return scope.session, None, ""
    inbound = scope.turn.inbound
    if inbound.parent and inbound.origin is not None and inbound.origin.session:
        return inbound.origin.session, inbound.origin.address, inbound.sender
    return scope.session, inbound.address, inbound.sender


def _hash_owner(root: str, scope: CommandScope) -> str:
    """A name for what belongs to a project and a conversation; in a group, to each of its members."""
    session, address, sender = _session(scope)
    member = "" if address is None or address.chat_type == "dm" else sender
    return short_hash("\0".join((root, session, member)))


def _caller(scope: CommandScope) -> str:
    """Who shares download caches: an owner, or a person on one platform."""
    _, address, sender = _session(scope)
    if address is None or scope.turn is None or scope.turn.inbound.owner:
        return OWNER
    return f"{address.platform} {sender}"


def _flat(name: str) -> str:
    return name.strip(".").replace("/", "-")


def _keep_caches(home: str, caches: str) -> None:
    """Move the download caches of a home that all conversations of a project shared, if they are plain folders. The
    rest is marked as unused, and removed at the next start."""
    if not os.path.isdir(home):
        return
    for name in DOWNLOAD_CACHES:
        old, new = os.path.join(home, name), os.path.join(caches, _flat(name))
        if real_path(old) == old and os.path.isdir(old) and not os.path.lexists(new):
            os.makedirs(caches, 0o700, exist_ok=True)
            os.rename(old, new)
    os.utime(home, (0, 0))


def _remove_old(folder: str, since: float) -> None:
    """Remove what nobody used since then."""
    with suppress(FileNotFoundError), os.scandir(folder) as entries:
        old = [entry.path for entry in entries if entry.stat().st_mtime < since]
        for path in old:
            shutil.rmtree(path, ignore_errors=True)


def make_backend(
    settings: Settings, guard: OrphanGuard | None, namespaces: NetworkNamespaces, extras: SandboxExtras | None = None
) -> ChosenBackend:
    """The backend of the settings; nothing is started or looked for yet. See `ProjectSandboxes` for the rest."""
    config, extras = settings.sandbox, extras or SandboxExtras()
    make = partial(
        ProjectSandboxes,
        config,
        home=os.path.expanduser("~"),
        alipes_home=settings.home,
        environ=process_environment(),
        shared=settings.paths.shared,
    )
    projects, offline = make(extras=extras), make(extras=SandboxExtras(folders=extras.folders))
    makers: dict[str, Callable[[], CommandBackend]] = {
        "host": lambda: HostBackend(guard),
        "bubblewrap": lambda: BubblewrapSandbox(projects.make_policy, namespaces, guard=guard),
        "landlock": lambda: _make_landlock(projects, namespaces, guard),
        "docker": lambda: _make_container("docker", config, offline, guard),
        "podman": lambda: _make_container("podman", config, offline, guard),
        "ssh": lambda: _make_ssh(config, guard, extras),
    }
    saved = settings.home / "sandbox" / "check.json"
    return ChosenBackend(config.backend, makers, saved=saved, make_policy=projects.make_policy)


def _make_landlock(
    projects: ProjectSandboxes, namespaces: NetworkNamespaces, guard: OrphanGuard | None
) -> CommandBackend:
    from alipes.runtime.sandbox.landlock import LandlockSandbox  # noqa: PLC0415

    return LandlockSandbox(projects.make_policy, namespaces, guard=guard)


def _make_container(
    program: Literal["docker", "podman"], config: SandboxConfig, projects: ProjectSandboxes, guard: OrphanGuard | None
) -> CommandBackend:
    from alipes.runtime.sandbox.container import ContainerBackend, ContainerSettings  # noqa: PLC0415

    more = config.container_arguments
    given = ContainerSettings(program, config.image, process_environment(), arguments=more)
    return ContainerBackend(given, projects.make_policy, guard)


def _make_ssh(config: SandboxConfig, guard: OrphanGuard | None, extras: SandboxExtras) -> CommandBackend:
    from alipes.runtime.sandbox.ssh import SshBackend, SshSettings  # noqa: PLC0415

    given = SshSettings(config.ssh, config.ssh_workdir, process_environment(), names=config.environment)
    return SshBackend(given, guard, extras.list_folders)


def _list_protected(
    writable: Sequence[str], workdir: str, project: Project, *, opened: Sequence[str]
) -> tuple[str, ...]:
    """Existing files and folders of writable places that other programs run or trust, without those in `opened`."""
    trusted = [path for root in (*writable, *((workdir,) if writable else ())) for path in _protected_paths(root)]
    # behind a link it may be outside, where commands can change nothing
    inside = (path for path in trusted if any(is_inside(path, root) for root in writable))
    found = [path for each in inside for path in _without(each, opened)]
    if project.git in writable:
        os.makedirs(os.path.join(project.git, "hooks"), exist_ok=True)
        found += _existing(os.path.join(project.git, name) for name in SHARED_GIT_SETTINGS)
    return tuple(dict.fromkeys(found))


def _without(path: str, opened: Sequence[str]) -> Iterator[str]:
    """A path, or what is in it, without what is opened. Git directories are never opened."""
    inside = [each for each in opened if is_inside(each, path) and ".git" not in each.split("/")]
    if not inside:
        yield path
    elif path not in inside and os.path.isdir(path):
        inner = (os.path.join(path, name) for name in sorted(_list_directory(path)))
        yield from (each for found in inner if not os.path.islink(found) for each in _without(found, inside))


def _protected_paths(root: str) -> Iterator[str]:
    git = root if os.path.basename(root) == ".git" else os.path.join(root, ".git")
    if os.path.isdir(git):
        os.makedirs(os.path.join(git, "hooks"), exist_ok=True)
        yield os.path.join(git, "hooks")
    names = _list_directory(root)
    for entry in TRUSTED_IN_PROJECT:
        if "*" in entry and "/" not in entry:
            yield from _existing(os.path.join(root, name) for name in names if fnmatch.fnmatch(name, entry))
        elif entry.partition("/")[0] in names:
            yield from _existing([os.path.join(root, entry)])


def _find_secrets(workdir: str) -> Iterator[str]:
    """Real paths of files in a project whose names say that they hold credentials, and of sockets."""
    folders, left = deque([workdir]), MAX_FOLDERS
    while folders and left > 0:
        left -= 1
        try:
            with os.scandir(folders.popleft()) as entries:
                found = [entry for entry in entries if _may_hold_secret(entry, folders)]
        except OSError:
            continue
        real = (real_path(entry.path) for entry in found)
        yield from (path for path in real if is_inside(path, workdir) and (os.path.isfile(path) or _is_socket(path)))


def _may_hold_secret(entry: os.DirEntry[str], folders: deque[str]) -> bool:
    """Whether this is a file with secrets or a socket; a folder is added to `folders`."""
    if entry.is_dir(follow_symlinks=False):
        folders.extend(() if entry.name in SKIPPED or entry.name == ".git" else (entry.path,))
        return False
    is_plain = entry.is_file(follow_symlinks=False) or entry.is_symlink()
    return is_secret_in_project(entry.name) or (not is_plain and _is_socket(entry.path))


def _list_directory(folder: str) -> frozenset[str]:
    try:
        return frozenset(os.listdir(folder))
    except OSError:
        return frozenset()


def _outermost(paths: Iterable[str]) -> tuple[str, ...]:
    """Without duplicates and paths inside others."""
    kept = list[str]()
    for path in sorted(set(paths)):
        if not kept or not is_inside(path, kept[-1]):
            kept.append(path)
    return tuple(kept)


def _existing(paths: Iterable[str]) -> Iterator[str]:
    """Real paths of those that exist."""
    return (real_path(path) for path in paths if os.path.exists(path))


def _is_system(path: str) -> bool:
    return any(is_inside(path, folder) for folder in SYSTEM)


def _is_real_file(path: str) -> bool:
    """True if it is still a file, and no link in a folder above leads to another one."""
    return os.path.isfile(path) and real_path(path) == path


def _is_socket(path: str) -> bool:
    try:
        return stat.S_ISSOCK(os.lstat(path).st_mode)
    except OSError:
        return False


def _list_bound() -> Iterator[str]:
    """The names to which programs of this machine bound sockets, as they wrote them."""
    with suppress(OSError), open("/proc/net/unix", encoding="utf-8", errors="surrogateescape") as file:
        yield from map(os.path.normpath, re.findall(r"(?m)^\w+:(?: \w+){5} +\d+ (?!@)(.+)$", file.read()))


def _resolve_outside(path: str, writable: Sequence[str]) -> str:
    """The real path of an existing one; empty if a link that commands can change leads to it."""
    for _ in range(MAX_LINKS):
        if not os.path.exists(path):
            return ""
        link = _first_link(path)
        if not link:
            return path
        if any(is_inside(link, folder) for folder in writable):
            return ""
        path = os.path.normpath(os.path.join(os.path.dirname(link), os.readlink(link)) + path[len(link) :])
    return ""


def _first_link(path: str) -> str:
    """The path up to the first link in it; empty if there is none."""
    at = path.find("/", 1)
    while at > 0:
        if os.path.islink(path[:at]):
            return path[:at]
        at = path.find("/", at + 1)
    return path if os.path.islink(path) else ""


def _readable_glob(pattern: str) -> Iterator[str]:
    """Existing paths that we could read."""
    folder, _, name = pattern.rpartition("/")
    if "*" not in pattern:
        names: Iterable[str] = (name,)
    elif "*" in folder:
        return
    else:
        names = fnmatch.filter(_list_directory(folder), name)
    for each in names:
        path = os.path.join(folder, each)
        if os.access(path, os.R_OK) and not os.path.islink(path):
            yield path


def _is_plain_settings(path: str) -> bool:
    """True if the file exists and contains nothing that looks like a credential."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            text = file.read(100_000)
    except OSError:
        return False
    credentials = re.search(r"(?i)_auth|token|password|secret|://[^/\s:@]+:[^/\s@]+@", text)
    return credentials is None and not any(map(looks_secret, text.split()))
