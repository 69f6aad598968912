"""Finds plugins and reads their manifests, without importing their code.

If a name is found twice, the later of these places wins: `~/.hermes/plugins` (if enabled),
`$ALIPES_HOME/plugins`, `.alipes/plugins` of the working directory (if enabled), installed packages.
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
    SourcelessFileLoader,
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
from alipes.kernel.lazy import lazy_pattern
from alipes.plugins.private_packages import use_private_packages
from alipes.plugins.registration import hook_parameters

Kind: TypeAlias = Literal["native", "hermes", "file-hook", "shell-hooks"]
GROUPS: dict[str, Kind] = {"alipes.plugins": "native", "hermes_agent.plugins": "hermes"}
SHELL_HOOKS = "shell-hooks"
_YAML = ("plugin.yaml", "plugin.yml")
_HOOK = ("HOOK.yaml", "HOOK.yml")
_NAME = lazy_pattern(r"[A-Za-z0-9][A-Za-z0-9._:/-]*")


class Manifest(Struct, frozen=True):
    """The manifest in `plugin.toml` or `plugin.yaml`."""

    version: str = ""
    description: str = ""
    author: str = ""
    label: str = ""
    kind: str = ""
    requires_env: tuple[str, ...] = ()
    optional_env: tuple[str, ...] = ()
    provides_tools: tuple[str, ...] = ()
    provides_hooks: tuple[str, ...] = ()
    pip_dependencies: tuple[str, ...] = ()
    error: str = ""
    """Why it could not be read; all other fields are empty then."""


class DiscoveredPlugin(Struct, frozen=True):
    name: str
    kind: Kind
    path: Path | None = None
    """Its folder, if it has one."""
    entry: str = ""
    """The entry point `module:attr`, if it is part of a package."""
    source: str = ""
    """Where it was found, for people."""
    manifest: Manifest = Manifest()

    @property
    def slug(self) -> str:
        """Its name as a Python module name."""
        return re.sub(r"\W", "_", self.name)


def find_plugins(settings: Settings) -> tuple[DiscoveredPlugin, ...]:
    """All plugins, enabled or not, by name."""
    found = _folder_plugins(settings) | _package_plugins()
    for each in _hook_plugins(settings):
        found.setdefault(each.name, each)
    return tuple(found[name] for name in sorted(found))


def enabled_plugins(settings: Settings) -> tuple[tuple[DiscoveredPlugin, ...], tuple[str, ...]]:
    """The plugins to open, in order, and the enabled names that were not found."""
    plugins = settings.plugins
    if plugins.safe:
        return (), ()
    names = [name for name in plugins.enabled if name not in plugins.disabled]
    found = _folder_plugins(settings) if names else {}
    if any(name not in found for name in names) or (names and _packages_have_plugins()):
        found |= _package_plugins()
    own = (each for each in _hook_plugins(settings) if each.name not in (*plugins.disabled, *names))
    known = tuple(found[name] for name in names if name in found)
    return (*known, *own), tuple(name for name in names if name not in found)


HERMES_MODULES = frozenset(
    (
        *("agent", "batch_runner", "cli", "cron", "gateway", "mcp_serve", "model_tools", "plugins", "providers"),
        *("run_agent", "tools", "toolsets", "toolset_distributions", "trajectory_compressor", "tui_gateway", "utils"),
        *("hermes_bootstrap", "hermes_cli", "hermes_constants", "hermes_logging", "hermes_plugins", "hermes_state"),
        *("hermes_time", "acp_adapter"),
    )
)
"""Top-level modules of Hermes Agent; packages of the same names on PyPI are strangers'."""


def is_hermes_name(name: str) -> bool:
    """True if a dotted name belongs to a module of Hermes Agent."""
    return name.partition(".")[0] in HERMES_MODULES


def has_plugins(settings: Settings) -> bool:
    """False if there is nothing to open; looks at one folder at most."""
    plugins = settings.plugins
    mine = bool(plugins.enabled or settings.hooks) or (settings.home / "hooks").is_dir()
    return mine and not plugins.safe


def _folder_plugins(settings: Settings) -> dict[str, DiscoveredPlugin]:
    places: list[tuple[Path, str]] = []
    if settings.plugins.import_hermes:
        places.append((Path("~/.hermes/plugins").expanduser(), "~/.hermes/plugins"))
    places.append((settings.home / "plugins", "home"))
    if settings.plugins.project:
        places.append((Path(settings.workdir or os.getcwd(), ".alipes", "plugins"), "project"))
    return {each.name: each for place, source in places for each in _plugins_in(place, source)}


def _plugins_in(place: Path, source: str, deeper: bool = True) -> Iterator[DiscoveredPlugin]:
    for folder in _subfolders(place):
        if (each := inspect_folder(folder, source)) is not None:
            yield each
        elif deeper:  # a folder that groups several plugins
            yield from _plugins_in(folder, source, deeper=False)


def _subfolders(place: Path) -> list[Path]:
    try:
        return sorted(each for each in place.iterdir() if each.is_dir() and not each.name.startswith((".", "_")))
    except OSError:
        return []


def is_plugin_name(name: str) -> bool:
    """True if a manifest may give a plugin this name."""
    return bool(_NAME.fullmatch(name))


def inspect_folder(folder: Path, source: str = "") -> DiscoveredPlugin | None:
    """The plugin in `folder`, or None."""
    if (file := next((folder / name for name in _YAML if (folder / name).is_file()), None)) is not None:
        kind: Kind = "hermes"
        said = _read_yaml(file)
    elif (file := folder / "plugin.toml").is_file():
        kind, said = "native", _read_toml(file)
    elif (folder / "__init__.py").is_file():
        kind, said = _kind_from_code(folder / "__init__.py"), {}
    else:
        return None
    name = str(said.get("name") or "").strip()
    if not is_plugin_name(name):
        name = folder.name
    return DiscoveredPlugin(name=name, kind=kind, path=folder, source=source, manifest=_manifest(said))


def _kind_from_code(file: Path) -> Kind:
    """A module with `register` and nothing of ours is a Hermes plugin. The code is parsed, not run."""
    try:
        body = ast.parse(file.read_bytes()).body
    except (OSError, SyntaxError, ValueError):
        return "native"
    names = {name for node in body for name in _bound(node)}
    marked = any(getattr(node, "decorator_list", None) for node in body)
    ours = marked or "setup" in names or any(hook_parameters(name) is not None for name in names)
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


def _packages_have_plugins() -> bool:
    """True if a package on the path declares plugins. Reading these files is cheaper than importing
    `importlib.metadata`."""
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


def _package_plugins() -> dict[str, DiscoveredPlugin]:
    """Plugins of installed packages; they take precedence over folders."""
    points = import_module("importlib.metadata").entry_points()
    found: dict[str, DiscoveredPlugin] = {}
    for group, kind in GROUPS.items():
        for point in points.select(group=group):
            dist, about, source = point.dist, Manifest(), "package"
            if dist is not None:
                about = Manifest(version=dist.version, description=dist.metadata["Summary"] or "")
                source = f"package {dist.name}"
            each = DiscoveredPlugin(name=point.name, kind=kind, entry=point.value, source=source, manifest=about)
            found.setdefault(each.name, each)
    return found


def _hook_plugins(settings: Settings) -> Iterator[DiscoveredPlugin]:
    """File hooks and shell hooks: enabled by being there, unless they are disabled."""
    for folder in _subfolders(settings.home / "hooks"):
        file = next((folder / name for name in _HOOK if (folder / name).is_file()), None)
        if file is not None:
            said = _read_yaml(file)
            name = str(said.get("name") or "").strip()
            name = name if is_plugin_name(name) else folder.name
            yield DiscoveredPlugin(name=name, kind="file-hook", path=folder, source="hooks", manifest=_manifest(said))
    if settings.hooks:
        yield DiscoveredPlugin(name=SHELL_HOOKS, kind="shell-hooks", source="config.toml")


def _read_toml(file: Path) -> Mapping[str, Any]:
    try:
        return tomllib.loads(file.read_text("utf-8"))
    except (OSError, ValueError) as error:
        return {"error": f"{file}: {error}"}


def _read_yaml(file: Path) -> Mapping[str, Any]:
    try:
        yaml = import_module("yaml")
    except ModuleNotFoundError:
        return {"error": f"{file} cannot be read without PyYAML: run `alipes install hermes`"}
    try:
        said = yaml.safe_load(file.read_text("utf-8"))
    except (OSError, ValueError, yaml.YAMLError) as error:
        return {"error": f"{file}: {' '.join(str(error).split())}"}
    return said if isinstance(said, dict) else {}


def _manifest(said: Mapping[str, Any]) -> Manifest:
    made = Manifest()
    for field in structs.fields(Manifest):
        given = said.get(field.name)
        if given is None:
            continue
        value = _to_names(given) if isinstance(field.default, tuple) else " ".join(str(given).split())
        made = structs.replace(made, **{field.name: value})
    return made


def _to_names(given: object) -> tuple[str, ...]:
    """Names, also if each is a table with more fields."""
    if isinstance(given, str):
        return tuple(given.replace(",", " ").split())
    if isinstance(given, dict):
        return tuple(str(name) for name in given)
    items = given if isinstance(given, list | tuple) else ()
    return tuple(str(item.get("name", "")) if isinstance(item, dict) else str(item) for item in items)


State: TypeAlias = Literal["on", "off", "failed", "disabled"]
"""`off`: disabled because it blocked the event loop; `failed`: could not be opened; `disabled`: not enabled."""


class PluginStatus(msgspec.Struct, frozen=True, omit_defaults=True):
    name: str
    state: State
    why: str = ""
    """What is wrong and how to fix it."""
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
    """Failures that still count."""
    silenced: dict[str, str] = {}
    """Callbacks that are off after failures, and why."""


class SavedPluginStatus(msgspec.Struct, frozen=True):
    """Plugin states written by the process that last opened plugins in this home."""

    pid: int
    when: float
    plugins: tuple[PluginStatus, ...]


def state_file(paths: Paths) -> Path:
    return paths.home / "plugins" / ".state.json"


def save_status(paths: Paths, facts: tuple[PluginStatus, ...]) -> None:
    """Save the states for `alipes plugins list` of another process. Raises OSError."""
    file = state_file(paths)
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    new = file.with_name(f".state.{os.getpid()}.new")
    new.write_bytes(msgspec.json.encode(SavedPluginStatus(os.getpid(), time.time(), facts)))
    os.replace(new, file)


def read_status(paths: Paths) -> SavedPluginStatus | None:
    """The saved states; None if there are none."""
    try:
        return msgspec.json.decode(state_file(paths).read_bytes(), type=SavedPluginStatus)
    except (OSError, msgspec.MsgspecError):
        return None


PACKAGE = "alipes_plugins"
_PACKAGES: set[str] = set()


class _SourceLoader(SourceFileLoader):
    """Ignores cached bytecode: its stamp has whole seconds, so a file saved twice in one would run stale."""

    def get_code(self, fullname: str) -> CodeType:
        path = self.get_filename(fullname)
        code: CodeType = self.source_to_code(self.get_data(path), path)
        return code


class _Finder:
    """Finds the modules of plugin packages as they are on disk now."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname.partition(".")[0] not in _PACKAGES or path is None:
            return None
        for folder in path:
            extensions, bytecode = (ExtensionFileLoader, EXTENSION_SUFFIXES), (SourcelessFileLoader, [".pyc"])
            finder = FileFinder(folder, extensions, (_SourceLoader, [".py"]), bytecode)
            if (spec := finder.find_spec(fullname, target)) is not None:
                return spec
        return None


def import_fresh(slug: str, folder: Path) -> ModuleType:
    """Import the package in `folder` from its current source; raises what its code raises. Call `forget` when
    it is closed."""
    add_package(PACKAGE)
    file = folder / "__init__.py"
    for number in count(1):
        name = f"{PACKAGE}.{slug}" if number == 1 else f"{PACKAGE}.{slug}_{number}"
        module = module_from_spec(source_spec(name, file, folder))
        if sys.modules.setdefault(name, module) is module:  # plugins are imported in parallel threads
            break
    done = False
    try:
        run_module(module)
        done = True
    finally:
        if not done:
            forget(name)
    return module


def forget(name: str) -> None:
    """Remove the package and its modules from `sys.modules`; existing references stay valid."""
    for each in tuple(sys.modules):  # other threads may import meanwhile
        if each == name or each.startswith(f"{name}."):
            sys.modules.pop(each, None)


def source_spec(name: str, file: Path, folder: Path | None = None) -> ModuleSpec:
    """How to import `file` as `name` from its source; with `folder` as a package, whose modules are there."""
    inside = None if folder is None else [str(folder)]
    if folder is not None:
        use_private_packages(folder)
    loader = _SourceLoader(name, str(file))
    spec = spec_from_file_location(name, file, loader=loader, submodule_search_locations=inside)
    assert spec is not None
    return spec


def run_module(module: ModuleType) -> None:
    """Run the code of a module that was made from a `source_spec`; raises what it raises.

    If it tried several imports and all failed, that is the error of the first one.
    """
    assert module.__spec__ is not None and module.__spec__.loader is not None
    try:
        module.__spec__.loader.exec_module(module)
    except ImportError as error:
        if (first := first_import_error(error)) is error:
            raise
        raise first from None


def first_import_error(error: ImportError) -> ImportError:
    """The failed import that `error` was a fallback for; else `error` itself."""
    first = error
    # a `raise ImportError` of the plugin itself has no `name`; `raise ... from` was meant as it is
    while first.name and not first.__suppress_context__ and isinstance(first.__context__, ImportError):
        first = first.__context__
    return first


def add_package(name: str) -> None:
    """Make the package `name`, whose modules are always imported from their source."""
    _PACKAGES.add(name)
    if name not in sys.modules:
        parent = ModuleType(name, "Plugins in folders.")
        parent.__path__ = []
        sys.modules[name] = parent
    if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder())
