"""Which plugins there are, and what their manifests say of them. It imports none of their code.

Where a name is found twice, the later of these places counts: `~/.hermes/plugins` (when asked for),
`$ALIPES_HOME/plugins`, `.alipes/plugins` of the working folder (when asked for), installed packages.
"""

import ast
import os
import re
import sys
import time
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib import import_module
from importlib.machinery import (
    EXTENSION_SUFFIXES,
    ExtensionFileLoader,
    FileFinder,
    ModuleSpec,
    SourceFileLoader,
)
from importlib.util import module_from_spec, spec_from_file_location
from itertools import count
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any, Literal, TypeAlias

import msgspec
from msgspec import Struct, structs

from alipes.config.paths import Paths
from alipes.config.settings import Settings
from alipes.plugins.registration import parameters

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


State: TypeAlias = Literal["on", "off", "failed", "disabled"]
"""`off`: switched off after failures; `failed`: could not be opened; `disabled`: not asked for."""


class PluginFacts(msgspec.Struct, frozen=True, omit_defaults=True):
    name: str
    state: State
    why: str = ""
    """What is wrong, and what to do about it."""
    kind: Kind | Literal[""] = ""
    source: str = ""
    path: str = ""
    version: str = ""
    description: str = ""
    hooks: tuple[str, ...] = ()
    tools: tuple[str, ...] = ()
    commands: tuple[str, ...] = ()
    cli: tuple[str, ...] = ()
    skills: tuple[str, ...] = ()
    provides: tuple[str, ...] = ()
    """`kind:name` of everything else."""
    strikes: int = 0


class LastKnown(msgspec.Struct, frozen=True):
    """What the process that last opened plugins on this home knew of them."""

    pid: int
    when: float
    plugins: tuple[PluginFacts, ...]


def state_file(paths: Paths) -> Path:
    return paths.home / "plugins" / ".state.json"


def keep(paths: Paths, facts: tuple[PluginFacts, ...]) -> None:
    """Write it down for `alipes plugins list` of another process. Raises OSError."""
    file = state_file(paths)
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    new = file.with_name(f".state.{os.getpid()}.new")
    new.write_bytes(msgspec.json.encode(LastKnown(os.getpid(), time.time(), facts)))
    os.replace(new, file)


def last_known(paths: Paths) -> LastKnown | None:
    """What was kept; None where nothing readable was."""
    try:
        return msgspec.json.decode(state_file(paths).read_bytes(), type=LastKnown)
    except (OSError, msgspec.MsgspecError):
        return None


PACKAGE = "alipes_plugins"


class _Source(SourceFileLoader):
    """Takes no bytecode: its stamp has whole seconds, and a file saved twice in one would be mistaken."""

    def get_code(self, fullname: str) -> CodeType:
        path = self.get_filename(fullname)
        code: CodeType = self.source_to_code(self.get_data(path), path)
        return code


class _Finder:
    """Finds what lies in the folders of our packages, as it lies there now."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if not fullname.startswith(f"{PACKAGE}.") or path is None:
            return None
        for folder in path:
            finder = FileFinder(folder, (ExtensionFileLoader, EXTENSION_SUFFIXES), (_Source, [".py"]))
            if (spec := finder.find_spec(fullname, target)) is not None:
                return spec
        return None


def fresh(slug: str, folder: Path) -> ModuleType:
    """The package in `folder`, imported anew; raises what its code raises. `forget` it when it is closed."""
    _prepare()
    file = folder / "__init__.py"
    for number in count(1):
        name = f"{PACKAGE}.{slug}" if number == 1 else f"{PACKAGE}.{slug}_{number}"
        loader, inside = _Source(name, str(file)), [str(folder)]
        spec = spec_from_file_location(name, file, loader=loader, submodule_search_locations=inside)
        assert spec is not None
        module = module_from_spec(spec)
        if sys.modules.setdefault(name, module) is module:  # plugins are imported side by side, in threads
            break
    done = False
    try:
        loader.exec_module(module)
        done = True
    finally:
        if not done:
            forget(name)
    return module


def forget(name: str) -> None:
    """Take the package and all in it out of what is imported; who still holds something of it keeps that."""
    for each in tuple(sys.modules):  # others import meanwhile
        if each == name or each.startswith(f"{name}."):
            sys.modules.pop(each, None)


def _prepare() -> None:
    if PACKAGE not in sys.modules:
        parent = ModuleType(PACKAGE, "The plugins that lie in folders.")
        parent.__path__ = []
        sys.modules[PACKAGE] = parent
    if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder())
