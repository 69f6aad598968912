"""Updates alipes and goes back: fetch, install beside the old version, try on a copy, back up, switch, hand over.

Nothing that is running or would be started changes before the switch, which is one link. Everything before it can be
broken off and done again.
"""

import shutil
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from msgspec import Struct

from alipes import __version__
from alipes.config import extras
from alipes.config.paths import LOCK_NAME, find_root, make_private
from alipes.config.settings import Settings
from alipes.features.update.environment import make_environment
from alipes.features.update.handover import hand_over
from alipes.features.update.installation import find_installation
from alipes.features.update.rehearsal import DATABASE, explain_unreadable, rehearse, run_version
from alipes.features.update.release import (
    COMMIT_DIGITS,
    Channel,
    GitSource,
    Release,
    ReleaseSource,
    choose,
    find_source,
)
from alipes.features.update.version_number import is_release, order
from alipes.features.update.versions import Versions
from alipes.kernel.errors import ConfigError
from alipes.plugins.install.sources import run_program
from alipes.runtime.process_lock import find_holder
from alipes.store.backups import backup_archive
from alipes.store.backups.replacement import list_processes, replace_database

Show = Callable[[str], None]


class UpdateCheck(Struct, frozen=True):
    """What there is."""

    version: str
    """The one that runs."""
    newest: str
    newer: bool
    source: str


class UpdateResult(Struct, frozen=True):
    before: str
    after: str
    backup: str = ""
    next_steps: tuple[str, ...] = ()
    """What the person has to do, as sentences."""
    way_back: str = ""
    """The command that returns to the version before."""


class Updater:
    """Updates one home; `show` gets each step."""

    def __init__(self, settings: Settings, show: Show, *, source: str = "", channel: Channel | None = None) -> None:
        self._settings, self._show = settings, show
        self.versions = Versions(settings.home)
        self.installation = find_installation(self.versions.folder)
        self._source = source or settings.update.source
        self._channel: Channel = channel or settings.update.channel

    async def _derive_source(self) -> str:
        """Where this alipes came from; of a checkout, where that came from."""
        match self.installation.kind:
            case "version":
                own = self.versions.find(self.installation.prefix.name)
                return own.source if own else ""
            case "uv" | "pipx":
                known = [each for each in self.versions.list() if each.version == __version__]
                return known[-1].source if known else self.installation.origin
            case "checkout":
                folder = self.installation.origin
                words = ("git", "-C", folder, "config", "--get", "remote.origin.url")
                remote = await run_program(words, Path.cwd(), what="cannot run git", may_fail=True)
                return remote.strip() or folder
            case _:
                return self.installation.origin

    async def _find_source(self) -> ReleaseSource:
        self._source = self._source or await self._derive_source()
        if not self._source:
            raise ConfigError(
                "it is not known where alipes was installed from: set update.source to `index`, a folder with wheels, "
                "or a Git address"
            )
        return find_source(self._source)

    async def check(self) -> UpdateCheck:
        source = await self._find_source()
        known = await source.list("next")
        if isinstance(source, GitSource) and (self._channel == "next" or not any(map(is_release, known))):
            commit = await source.find_newest_commit()
            newer = await self._find_commit() != commit[:COMMIT_DIGITS]
            return UpdateCheck(__version__, f"commit {commit[:COMMIT_DIGITS]}", newer, self._source)
        newest = choose(known, "", self._channel, self._source)
        return UpdateCheck(__version__, newest, order(newest) > order(__version__), self._source)

    async def _find_commit(self) -> str:
        """The first digits of the commit that runs; empty if that is not known."""
        if self.installation.kind != "checkout":
            return self.installation.prefix.name.partition("+g")[2]
        words = ("git", "-C", self.installation.origin, "rev-parse", "HEAD")
        return (await run_program(words, Path.cwd(), what="cannot run git", may_fail=True))[:COMMIT_DIGITS]

    async def update(self, version: str = "") -> UpdateResult:
        """Install a version, or the newest one, and start it from now on. Raises ConfigError; then nothing changed."""
        self.refuse_image()
        source = await self._find_source()
        with self.versions.locked():
            self.versions.remove_leftovers()
            with tempfile.TemporaryDirectory(prefix=".fetch-", dir=self.versions.folder) as place:
                self._show(f"fetching alipes {version}".rstrip())
                release = await source.fetch(version, self._channel, Path(place))
                if release.name == (self.versions.current() or __version__):
                    return UpdateResult(release.name, release.name)
                return await self._install(release)

    async def _install(self, release: Release) -> UpdateResult:
        root = find_root(self._settings.home)
        wanted = {name for name in extras.EXTRAS if extras.is_installed(name)} | {*extras.read_added(root)}
        named = [name for name in extras.EXTRAS if name in wanted]
        await make_environment(release, self.versions, named, self._show)
        await self._rehearse(release.name)
        backup = await self._back_up(release.name)
        if self.installation.kind in ("uv", "pipx"):
            await self._install_with_tool(release, named)
            steps = await hand_over(self._settings, self.installation.prefix, "alipes", self._show)
            return UpdateResult(__version__, release.name, backup, steps, f"alipes update --to {__version__}")
        before = self.versions.current()
        if not before:
            self.versions.write_launcher(str(self.installation.command))
        self.versions.switch(release.name, backup=backup, origin=str(self.installation.command))
        steps = (*self._link_command(), *await self._hand_over(self.versions.folder / release.name))
        return UpdateResult(before or __version__, release.name, backup, steps, "alipes update --back")

    async def _rehearse(self, name: str) -> None:
        self._show("trying it on a copy of the home")
        old, new = self._words(self.versions.current()), self._words(name)
        found = await rehearse(self._settings, self.versions, old, new)
        if found.problems:
            shown = "\n".join(f"  {each}" for each in found.problems)
            raise ConfigError(
                f"alipes {name} finds on a copy of this home:\n{shown}\nNothing was changed.{self._offer_backups(name)}"
            )
        if found.migrates and (others := self._list_terminals()):
            raise ConfigError(
                f"alipes {name} changes the database, and other terminals still use it (process "
                f"{', '.join(map(str, others))}): quit alipes there, then update. Nothing was changed."
            )

    def _offer_backups(self, name: str) -> str:
        """For a version that is older, and may read the conversations as they were before an update."""
        older = order(name) < order(__version__) and any(self.versions.backups.glob("before-*.tgz"))
        restore = "`alipes restore FILE --to FOLDER` makes a home of one"
        return f"\nThe home as it was before each update is in {self.versions.backups}: {restore}." if older else ""

    def _list_terminals(self) -> list[int]:
        """The processes of the home but `alipes serve`, which is handed over."""
        home = self._settings.home
        serving = find_holder(self._settings.paths.run / LOCK_NAME)
        return [pid for pid in list_processes(home) if serving is None or pid != serving.pid]

    def _words(self, name: str) -> tuple[str, ...]:
        """The words that start a version; without a name, the installation before the first update."""
        if name:
            return (str(self.versions.python(name)), "-m", "alipes")
        origin = self.versions.history().origin
        return (origin,) if origin else (str(self.installation.command),)

    async def _back_up(self, name: str) -> str:
        """The file with everything but keys; empty if the conversations are in PostgreSQL, or there are none."""
        home = self._settings.home
        if self._settings.store or not (home / DATABASE).is_file():
            return ""
        self._show("backing up the home")
        make_private(self.versions.backups)
        target = self.versions.backups / f"before-{name}-{time.strftime('%Y%m%d-%H%M%S')}.tgz"
        await backup_archive.pack_home(home, target, version=__version__)
        return str(target)

    async def _install_with_tool(self, release: Release, named: Sequence[str]) -> None:
        """Let uv or pipx install the version that was tried."""
        wheel = self.versions.folder / release.wheel.name
        shutil.copyfile(release.wheel, wheel)
        requirement = f"alipes[{','.join(named)}] @ {wheel.as_uri()}"
        words = ("uv", "tool", "install") if self.installation.kind == "uv" else ("pipx", "install")
        self._show(f"installing it with {words[0]}")
        await run_program((*words, "--force", requirement), self.versions.folder, what=f"{words[0]} failed")

    async def _hand_over(self, environment: Path) -> tuple[str, ...]:
        return await hand_over(self._settings, environment, str(self.versions.launcher), self._show)

    def _link_command(self) -> tuple[str, ...]:
        """Put the launcher in the place of the command on the PATH, if that is a link to this installation."""
        found = shutil.which("alipes")
        launcher = self.versions.launcher
        if found is None:
            return (f"Put the new version on your PATH: ln -s {launcher} ~/.local/bin/alipes",)
        if Path(found).resolve() == launcher.resolve():
            return ()
        if not Path(found).is_symlink() or Path(found).resolve() != self.installation.command.resolve():
            return (f"`alipes` is {found}, which still starts the old version: replace it by a link to {launcher}.",)
        draft = Path(f"{found}.new")
        draft.unlink(missing_ok=True)
        draft.symlink_to(launcher)
        draft.replace(found)
        return ()

    def refuse_image(self) -> None:
        """Raises ConfigError with the commands that replace the image, if alipes runs in a container."""
        if self.installation.kind == "image":
            raise ConfigError(
                "alipes runs in a container, whose image is replaced from outside:\n"
                "  podman exec alipes alipes backup /data/before.tgz\n"
                "  podman build --pull --format docker -t alipes .   (or: podman pull IMAGE)\n"
                "  podman stop alipes && podman rm alipes\n"
                "  podman run -d --name alipes --read-only --tmpfs /tmp --env-file bot.env -v alipes:/data "
                "--stop-timeout 40 alipes"
            )

    async def back(self, *, restore: bool = False) -> UpdateResult:
        """Start the version before the last update again. `restore`: with the conversations of that time.

        Raises ConfigError if it cannot read the conversations as they are; then nothing changed.
        """
        self.refuse_image()
        if self.installation.kind in ("uv", "pipx"):
            tool = self.installation.kind
            raise ConfigError(f"{tool} installed this alipes: go back with `alipes update --to VERSION`")
        with self.versions.locked():
            last, now = self.versions.last_switch(), self.versions.current()
            if last is None or not now:
                raise ConfigError("there is no version to go back to: alipes was not updated")
            if last.before and self.versions.find(last.before) is None:
                raise ConfigError(f"alipes {last.before} is no longer installed: `alipes update --to {last.before}`")
            self.versions.remove_leftovers()
            words = self._words(last.before)
            steps: tuple[str, ...] = ()
            if restore:
                steps = await self._restore(words, last.backup)
            elif problem := await explain_unreadable(self._settings, self.versions, words):
                raise ConfigError(self._refuse_back(last.before, problem, last.backup))
            self.versions.switch(last.before)
            environment = self.versions.folder / last.before if last.before else Path(words[0]).parent.parent
            return UpdateResult(
                now,
                last.before or "the version before the first update",
                "",
                (*steps, *await self._hand_over(environment)),
            )

    def _refuse_back(self, name: str, problem: str, backup: str) -> str:
        who = f"alipes {name}" if name else "the alipes from before the first update"
        text = f"{who} cannot read the conversations of this home: {problem.rstrip('.')}."
        if not backup:
            return f"{text} Nothing was changed."
        return (
            f"{text} Nothing was changed. `alipes update --back --restore` goes back with the conversations of the "
            f"backup made before the update ({backup}); what was said since is kept in a file beside it."
        )

    async def _restore(self, words: Sequence[str], backup: str) -> tuple[str, ...]:
        """Put the database of the backup into the home; the present one is kept in a file."""
        if not self._has_backup(backup):
            raise ConfigError("there is no backup from before the update; go back without --restore")
        self._show("restoring the conversations")
        with tempfile.TemporaryDirectory(prefix=".copy-", dir=self.versions.folder) as place:
            home = Path(place) / "home"  # the old version restores: it ends what was running, and migrates nothing
            status, _, errors = await run_version((*words, "restore", backup, "--to", str(home)), home)
            if status:
                raise ConfigError(f"the backup cannot be restored: {errors.strip().removeprefix('alipes: ')}")
            kept = self.versions.backups / f"after-{time.strftime('%Y%m%d-%H%M%S')}.db"
            await replace_database(self._settings.home, home / DATABASE, kept)
        return (f"The conversations since the update are in {kept}.",)

    def _has_backup(self, path: str) -> bool:
        return bool(path) and Path(path).is_file()
