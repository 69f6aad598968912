"""A package with a plugin in it, fetched into a folder of its own: wheels only, so that nothing is run.

Our own Python stays as it is; `docs/adr/0013-where-plugins-are-installed.md` says why.
"""

from importlib.metadata import Distribution, EntryPoint, distributions
from pathlib import Path
from typing import Any

import msgspec

from alipes.cli.plugins.install_dir import Package
from alipes.cli.plugins.sources import pip, run_program
from alipes.kernel.errors import ConfigError

GROUPS = {"alipes.plugins": "native", "hermes_agent.plugins": "hermes"}
"""Where packages announce plugins, and through which door each group goes; the first is preferred."""
SITE = "site"
_MADE = "# Made by `alipes plugins install`; installed.json, beside this folder, says from what.\n"
_LEADING = """
import sys
from importlib import import_module, invalidate_caches
from pathlib import Path
from types import ModuleType

site = str(Path(__file__).resolve().parent / "site")
if site not in sys.path:
    sys.path.append(site)  # at the end: what alipes stands on goes before
for name, loaded in list(sys.modules.items()):
    if (getattr(loaded, "__file__", None) or "").startswith(site + "/"):
        del sys.modules[name]  # a version that was here before
invalidate_caches()

found = import_module(module)
for name in filter(None, attr.split(".")):
    found = getattr(found, name)
if callable(found) and not isinstance(found, (ModuleType, type)):
    globals()[begin] = found
else:
    globals().update({name: getattr(found, name) for name in dir(found) if not name.startswith("__")})
"""
"""The module of a plugin whose code is a package: it shows what the package's own module shows."""


class _Archive(msgspec.Struct, frozen=True):
    hashes: dict[str, str] = {}


class _Download(msgspec.Struct, frozen=True):
    url: str = ""
    archive_info: _Archive = _Archive()


class _Metadata(msgspec.Struct, frozen=True):
    name: str
    version: str


class _Item(msgspec.Struct, frozen=True):
    metadata: _Metadata
    download_info: _Download
    requested: bool = False


class _Report(msgspec.Struct, frozen=True):
    install: list[_Item]


async def fetch_package(requirement: str, folder: Path, entry: str = "") -> tuple[Package, ...]:
    """Put the package and what it lacks into `folder`, with a manifest that says where to begin.

    The package itself comes first in what is returned. Raises ConfigError.
    """
    items = await _resolve(requirement, folder.parent)
    own, *others = sorted(items, key=lambda item: not item.requested)
    await _install(items, requirement, folder)
    (distribution,) = (each for each in distributions(path=[str(folder / SITE)]) if _is(each, own))
    _announce(distribution, folder, _choose(distribution, entry))
    return tuple(_package(item) for item in (own, *others))


def own_files(folder: Path, package: Package) -> list[Path]:
    """The code of the plugin itself, without that of the packages it brought along."""
    site = folder / SITE
    for each in distributions(path=[str(site)]):
        if _normal(each.name) == _normal(package.name):
            return [site / str(file) for file in each.files or () if (site / str(file)).is_file()]
    return []


async def _resolve(requirement: str, work: Path) -> list[_Item]:
    """What would have to be added to our Python for it, which pip knows without doing it."""
    held = work / "held.txt"
    held.write_text("".join(f"{each.name}=={each.version}\n" for each in distributions()))
    report = work / "report.json"
    await run_program(
        pip(
            *("install", "--dry-run", "--only-binary", ":all:"),
            *("--constraint", str(held), "--report", str(report), "--", requirement),
        ),
        work,
        what=f"{requirement} cannot be fetched (only wheels are, which run nothing when they are unpacked)",
    )
    items = msgspec.json.decode(report.read_bytes(), type=_Report).install
    if not any(item.requested for item in items):
        raise ConfigError(
            f"{requirement} is part of this Python already: `alipes plugins list` shows it, and "
            "`alipes plugins enable NAME` enables it."
        )
    return items


async def _install(items: list[_Item], requirement: str, folder: Path) -> None:
    """Exactly what was resolved, and checked against the hashes told then."""
    wanted = folder.parent / "wanted.txt"
    wanted.write_text("".join(f"{_line(item)}\n" for item in items))
    await run_program(
        pip(
            *("install", "--quiet", "--only-binary", ":all:", "--no-deps", "--no-compile"),
            *("--target", str(folder / SITE), "--require-hashes", "--requirement", str(wanted)),
        ),
        folder.parent,
        what=f"{requirement} cannot be installed",
    )


def _line(item: _Item) -> str:
    told = item.download_info
    where = f"{item.metadata.name}=={item.metadata.version}"
    if item.requested and told.url.startswith("file:"):
        where = f"{item.metadata.name} @ {told.url}"
    hashes = " ".join(f"--hash={kind}:{value}" for kind, value in told.archive_info.hashes.items())
    return f"{where} {hashes}"


def _choose(distribution: Distribution, wanted: str) -> EntryPoint:
    found = [each for group in GROUPS for each in distribution.entry_points.select(group=group)]
    names = list(dict.fromkeys(each.name for each in found))
    if not found:
        raise ConfigError(
            f"{distribution.name} {distribution.version} announces no plugin: it has no entry point in "
            f"{' or '.join(GROUPS)}."
        )
    if wanted and wanted not in names:
        raise ConfigError(f"{distribution.name} has no plugin {wanted}; it has {', '.join(names)}.")
    if len(names) > 1 and not wanted:
        raise ConfigError(f"{distribution.name} has several plugins, {', '.join(names)}: say --entry NAME.")
    return next(each for each in found if each.name == (wanted or names[0]))


def _announce(distribution: Distribution, folder: Path, entry: EntryPoint) -> None:
    """Make the folder a plugin like any other: a manifest, and a module that leads to the package's."""
    told: Any = distribution.metadata
    about = {
        "name": entry.name,
        "version": distribution.version,
        "description": " ".join((told.get("Summary") or "").split()),
        "author": " ".join((told.get("Author") or told.get("Author-email") or "").split()),
    }
    native = GROUPS[entry.group] == "native"
    lines = [f"{key}{' =' if native else ':'} {_quoted(value)}\n" for key, value in about.items()]
    (folder / ("plugin.toml" if native else "plugin.yaml")).write_text(
        "".join([_MADE, *lines]), encoding="utf-8"
    )
    given = {"module": entry.module, "attr": entry.attr or "", "begin": "setup" if native else "register"}
    (folder / "__init__.py").write_text(
        "".join([_MADE, *(f"{name} = {value!r}\n" for name, value in given.items()), _LEADING])
    )


def _quoted(text: str) -> str:
    """As both TOML and YAML read it."""
    return msgspec.json.encode(text).decode()


def _package(item: _Item) -> Package:
    hashes = item.download_info.archive_info.hashes
    return Package(item.metadata.name, item.metadata.version, hashes.get("sha256", ""))


def _is(distribution: Distribution, item: _Item) -> bool:
    return _normal(distribution.name) == _normal(item.metadata.name)


def _normal(name: str) -> str:
    return name.lower().replace("_", "-").replace(".", "-")
