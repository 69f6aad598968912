"""A plugin brought here from where it is, into a folder where it is not in use yet. None of it is run."""

from pathlib import Path

from msgspec import Struct

from alipes.cli.plugins.install_dir import Package, copy_tree, files_of
from alipes.cli.plugins.packages import SITE, fetch_package, own_files
from alipes.cli.plugins.sources import Source, check_name, run_program
from alipes.kernel.errors import ConfigError
from alipes.plugins.discovery import Found, look_at


class Fetched(Struct, frozen=True):
    found: Found
    folder: Path
    exact: str = ""
    """The commit, or the version of the package."""
    packages: tuple[Package, ...] = ()
    """If it is one: itself first, then what it brought along."""


async def fetch(source: Source, stage: Path) -> Fetched:
    """Fetch it anew into a folder inside `stage`. Raises ConfigError; what is in `stage` then is void."""
    if source.kind == "package":
        return await _package(source, stage)
    root, exact = Path(source.place), ""
    if source.kind == "git":
        root = stage / "clone"
        exact = await _clone(source, root)
    within = root / source.folder
    if not within.is_dir():
        where = f"{source.folder} in {source.place}" if source.folder else source.place
        raise ConfigError(f"There is no folder {where}.")
    folder = stage / "plugin" / _last(source)
    copy_tree(within, folder)
    return Fetched(_look(folder, source), folder, exact)


def code_of(folder: Path, packages: tuple[Package, ...]) -> list[Path]:
    """The files of the plugin itself, without those of packages it brought along."""
    if packages:
        return own_files(folder, packages[0])
    return [folder / path for path in files_of(folder) if path.parts[0] != SITE]


async def _package(source: Source, stage: Path) -> Fetched:
    folder = stage / "plugin"
    packages = await fetch_package(source.place, folder, source.entry)
    return Fetched(_look(folder, source), folder, packages[0].version, packages)


async def _clone(source: Source, target: Path) -> str:
    """The commit that is meant, checked out."""
    what = f"{source.place} cannot be fetched"
    words = ("git", "clone", "--quiet", "--no-recurse-submodules", "--", source.place, str(target))
    await run_program(words, target.parent, what=what)
    if source.ref:
        # A branch of theirs first, so that an update gets what it has become.
        for ref in (f"origin/{source.ref}", source.ref):
            known = ("git", "rev-parse", "--verify", "--quiet", "--end-of-options", f"{ref}^{{commit}}")
            if commit := await run_program(known, target, what=what, may_fail=True):
                checkout = ("git", "checkout", "--quiet", "--detach", commit.strip())
                await run_program(checkout, target, what=what)
                break
        else:
            raise ConfigError(f"{source.place} has no branch, tag or commit {source.ref}.")
    return (await run_program(("git", "rev-parse", "HEAD"), target, what=what)).strip()


def _look(folder: Path, source: Source) -> Found:
    found = look_at(folder, str(source))
    if found is None:
        raise ConfigError(_no_plugin(folder, source))
    if found.manifest.trouble:
        raise ConfigError(f"Its manifest cannot be read: {found.manifest.trouble}")
    check_name(found.name)
    return found


def _no_plugin(folder: Path, source: Source) -> str:
    deeper = sorted(
        path.parent.relative_to(folder).as_posix()
        for pattern in ("*/plugin.*", "*/*/plugin.*")
        for path in folder.glob(pattern)
        if look_at(path.parent) is not None
    )
    told = f"{source} is no plugin: there is no plugin.toml, plugin.yaml or __init__.py in it."
    return f"{told} There is one in {' and in '.join(deeper)}: say --folder." if deeper else told


def _last(source: Source) -> str:
    """What it is called where its manifest names it not."""
    path = source.folder or source.place
    return path.rstrip("/").replace(":", "/").rpartition("/")[2].removesuffix(".git") or "plugin"
