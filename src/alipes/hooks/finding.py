"""Which plugins there are, and what their manifests say of them. It imports none of their code.

Where a name is found twice, the later of these places counts: `~/.hermes/plugins` (when asked for),
`$ALIPES_HOME/plugins`, `.alipes/plugins` of the working folder (when asked for), installed packages.
"""

import ast
import os
import re
import sys
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any, Literal, TypeAlias

from msgspec import Struct, structs

from alipes.config.settings import Settings
from alipes.hooks.entries import parameters

Kind: TypeAlias = Literal["native", "hermes", "file-hook", "shell-hooks"]
GROUPS: dict[str, Kind] = {"alipes.plugins": "native", "hermes_agent.plugins": "hermes"}
SHELL_HOOKS = "shell-hooks"
_YAML = ("plugin.yaml", "plugin.yml")
_HOOK = ("HOOK.yaml", "HOOK.yml")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/-]*")


class Manifest(Struct, frozen=True):
    """What a plugin says of itself in `plugin.toml` or `plugin.yaml`."""

    version: str = ""
    description: str = ""
    author: str = ""
    label: str = ""
    kind: str = ""
    requires_env: tuple[str, ...] = ()
    optional_env: tuple[str, ...] = ()
    provides_tools: tuple[str, ...] = ()
    provides_hooks: tuple[str, ...] = ()
    trouble: str = ""
    """Why it could not be read; then nothing else is known."""


class Found(Struct, frozen=True):
    name: str
    kind: Kind
    path: Path | None = None
    """The folder, where there is one."""
    entry: str = ""
    """The entry point `module:attr`, where it came with a package."""
    source: str = ""
    """Where it was found, for a person."""
    manifest: Manifest = Manifest()

    @property
    def slug(self) -> str:
        """Its name as Python may call a module."""
        return re.sub(r"\W", "_", self.name)


def find(settings: Settings) -> tuple[Found, ...]:
    """All there are, enabled or not, by name."""
    found = _folders(settings) | _packaged()
    for each in _own_hooks(settings):
        found.setdefault(each.name, each)
    return tuple(found[name] for name in sorted(found))


def wanted(settings: Settings) -> tuple[tuple[Found, ...], tuple[str, ...]]:
    """Those to be opened, in their order, and the enabled names that mean nothing."""
    plugins = settings.plugins
    if plugins.safe:
        return (), ()
    names = [name for name in plugins.enabled if name not in plugins.disabled]
    found = _folders(settings) if names else {}
    if any(name not in found for name in names) or (names and _announced()):
        found |= _packaged()
    own = (each for each in _own_hooks(settings) if each.name not in (*plugins.disabled, *names))
    known = tuple(found[name] for name in names if name in found)
    return (*known, *own), tuple(name for name in names if name not in found)


def anything_wanted(settings: Settings) -> bool:
    """False: nothing is to be opened, which is told without looking further than one folder."""
    plugins = settings.plugins
    mine = bool(plugins.enabled or settings.hooks) or (settings.home / "hooks").is_dir()
    return mine and not plugins.safe


def _folders(settings: Settings) -> dict[str, Found]:
    places: list[tuple[Path, str]] = []
    if settings.plugins.import_hermes:
        places.append((Path("~/.hermes/plugins").expanduser(), "~/.hermes/plugins"))
    places.append((settings.home / "plugins", "home"))
    if settings.plugins.project:
        places.append((Path(settings.workdir or os.getcwd(), ".alipes", "plugins"), "project"))
    return {each.name: each for place, source in places for each in _in(place, source)}


def _in(place: Path, source: str, deeper: bool = True) -> Iterator[Found]:
    for folder in _subfolders(place):
        if (each := look_at(folder, source)) is not None:
            yield each
        elif deeper:  # a folder of plugins of one family
            yield from _in(folder, source, deeper=False)


def _subfolders(place: Path) -> list[Path]:
    try:
        return sorted(
            each for each in place.iterdir() if each.is_dir() and not each.name.startswith((".", "_"))
        )
    except OSError:
        return []


def look_at(folder: Path, source: str = "") -> Found | None:
    """The plugin that lies in `folder`, or None if none does."""
    if (file := next((folder / name for name in _YAML if (folder / name).is_file()), None)) is not None:
        kind: Kind = "hermes"
        said = _yaml(file)
    elif (file := folder / "plugin.toml").is_file():
        kind, said = "native", _toml(file)
    elif (folder / "__init__.py").is_file():
        kind, said = _by_its_code(folder / "__init__.py"), {}
    else:
        return None
    name = str(said.get("name") or "").strip()
    if not _NAME.fullmatch(name):
        name = folder.name
    return Found(name=name, kind=kind, path=folder, source=source, manifest=_manifest(said))


def _by_its_code(file: Path) -> Kind:
    """A module with `register` and nothing of ours is a Hermes plugin. It is read, and not run."""
    try:
        body = ast.parse(file.read_bytes()).body
    except (OSError, SyntaxError, ValueError):
        return "native"
    names = {name for node in body for name in _bound(node)}
    marked = any(getattr(node, "decorator_list", None) for node in body)
    ours = marked or "setup" in names or any(parameters(name) is not None for name in names)
    return "hermes" if "register" in names and not ours else "native"


def _bound(node: ast.stmt) -> Iterable[str]:
    match node:
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
            return [name]
        case ast.ImportFrom(names=names):
            return [each.asname or each.name for each in names]
        case ast.Assign(targets=targets):
            return [target.id for target in targets if isinstance(target, ast.Name)]
    return []


def _announced() -> bool:
    """Does a package on the path say that it brings plugins? To read these files costs less than to import
    what knows all about packages."""
    groups = [f"[{group}]".encode() for group in GROUPS]
    for place in map(Path, sys.path):
        for file in place.glob("*.*-info/entry_points.txt"):
            try:
                said = file.read_bytes()
            except OSError:
                continue
            if any(group in said for group in groups):
                return True
    return False


def _packaged() -> dict[str, Found]:
    """What installed packages bring along; it goes over what lies in folders."""
    points = import_module("importlib.metadata").entry_points()
    found: dict[str, Found] = {}
    for group, kind in GROUPS.items():
        for point in points.select(group=group):
            dist, about, source = point.dist, Manifest(), "package"
            if dist is not None:
                about = Manifest(version=dist.version, description=dist.metadata["Summary"] or "")
                source = f"package {dist.name}"
            each = Found(name=point.name, kind=kind, entry=point.value, source=source, manifest=about)
            found.setdefault(each.name, each)
    return found


def _own_hooks(settings: Settings) -> Iterator[Found]:
    """File hooks and shell hooks: who put them there wants them, unless it is told otherwise."""
    for folder in _subfolders(settings.home / "hooks"):
        file = next((folder / name for name in _HOOK if (folder / name).is_file()), None)
        if file is not None:
            said = _yaml(file)
            name = str(said.get("name") or "").strip()
            name = name if _NAME.fullmatch(name) else folder.name
            yield Found(name=name, kind="file-hook", path=folder, source="hooks", manifest=_manifest(said))
    if settings.hooks:
        yield Found(name=SHELL_HOOKS, kind="shell-hooks", source="config.toml")


def _toml(file: Path) -> Mapping[str, Any]:
    try:
        return tomllib.loads(file.read_text("utf-8"))
    except (OSError, ValueError) as error:
        return {"trouble": f"{file}: {error}"}


def _yaml(file: Path) -> Mapping[str, Any]:
    try:
        yaml = import_module("yaml")
    except ModuleNotFoundError:
        return {"trouble": f"{file} cannot be read without PyYAML: pip install pyyaml"}
    try:
        said = yaml.safe_load(file.read_text("utf-8"))
    except (OSError, ValueError, yaml.YAMLError) as error:
        return {"trouble": f"{file}: {' '.join(str(error).split())}"}
    return said if isinstance(said, dict) else {}


def _manifest(said: Mapping[str, Any]) -> Manifest:
    made = Manifest()
    for field in structs.fields(Manifest):
        given = said.get(field.name)
        if given is None:
            continue
        value = _list(given) if isinstance(field.default, tuple) else " ".join(str(given).split())
        made = structs.replace(made, **{field.name: value})
    return made


def _list(given: object) -> tuple[str, ...]:
    """Names, also where each stands in a table that says more about it."""
    if isinstance(given, str):
        return tuple(given.replace(",", " ").split())
    if isinstance(given, dict):
        return tuple(str(name) for name in given)
    items = given if isinstance(given, list | tuple) else ()
    return tuple(str(item.get("name", "")) if isinstance(item, dict) else str(item) for item in items)
