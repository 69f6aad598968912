"""Fetches a plugin into a temporary folder without running its code."""

from pathlib import Path

from msgspec import Struct

from alipes.cli.plugins.install_dir import InstalledPackage, copy_tree, list_files
from alipes.cli.plugins.packages import SITE, fetch_package, package_files
from alipes.cli.plugins.sources import Source, check_name, run_program
from alipes.kernel.errors import ConfigError
from alipes.plugins.discovery import DiscoveredPlugin, inspect_folder


class FetchedPlugin(Struct, frozen=True):
    found: DiscoveredPlugin
    folder: Path
    exact: str = ""
    """The commit, or the version of the package."""
    packages: tuple[InstalledPackage, ...] = ()
    """For a package: itself first, then its dependencies."""


async def fetch(source: Source, stage: Path) -> FetchedPlugin:
    """Fetch the plugin into a folder inside `stage`. Raises ConfigError; `stage` is then useless."""
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
    folder = stage / "plugin" / _default_name(source)
    copy_tree(within, folder)
    return FetchedPlugin(_read_plugin(folder, source), folder, exact)


def plugin_files(folder: Path, packages: tuple[InstalledPackage, ...]) -> list[Path]:
    """The files of the plugin itself, without its dependencies."""
    if packages:
        return package_files(folder, packages[0])
    return [folder / path for path in list_files(folder) if path.parts[0] != SITE]


async def _package(source: Source, stage: Path) -> FetchedPlugin:
    folder = stage / "plugin"
    packages = await fetch_package(source.place, folder, source.entry)
    return FetchedPlugin(_read_plugin(folder, source), folder, packages[0].version, packages)


async def _clone(source: Source, target: Path) -> str:
    """Clone the repository, check out the ref and return the commit."""
    what = f"cannot fetch {source.place}"
    words = ("git", "clone", "--quiet", "--no-recurse-submodules", "--", source.place, str(target))
    await run_program(words, target.parent, what=what)
    if source.ref:
        # A remote branch first, so that an update gets its newest commit.
        for ref in (f"origin/{source.ref}", source.ref):
            known = ("git", "rev-parse", "--verify", "--quiet", "--end-of-options", f"{ref}^{{commit}}")
            if commit := await run_program(known, target, what=what, may_fail=True):
                checkout = ("git", "checkout", "--quiet", "--detach", commit.strip())
                await run_program(checkout, target, what=what)
                break
        else:
            raise ConfigError(f"{source.place} has no branch, tag or commit {source.ref}.")
    return (await run_program(("git", "rev-parse", "HEAD"), target, what=what)).strip()


def _read_plugin(folder: Path, source: Source) -> DiscoveredPlugin:
    found = inspect_folder(folder, str(source))
    if found is None:
        raise ConfigError(_no_plugin_message(folder, source))
    if found.manifest.error:
        raise ConfigError(f"Cannot read its manifest: {found.manifest.error}")
    check_name(found.name)
    return found


def _no_plugin_message(folder: Path, source: Source) -> str:
    deeper = sorted(
        path.parent.relative_to(folder).as_posix()
        for pattern in ("*/plugin.*", "*/*/plugin.*")
        for path in folder.glob(pattern)
        if inspect_folder(path.parent) is not None
    )
    message = f"{source} is not a plugin: it has no plugin.toml, plugin.yaml or __init__.py."
    return f"{message} Found one in {' and in '.join(deeper)}: use --folder." if deeper else message


def _default_name(source: Source) -> str:
    """The name for a plugin whose manifest has none."""
    path = source.folder or source.place
    return path.rstrip("/").replace(":", "/").rpartition("/")[2].removesuffix(".git") or "plugin"
