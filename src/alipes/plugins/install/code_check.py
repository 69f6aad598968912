"""Checks the code of a plugin without running it: what alipes does not serve, and which modules are missing."""

import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

from alipes.kernel.checks import CheckResult
from alipes.plugins.discovery import DiscoveredPlugin, is_hermes_name
from alipes.plugins.install.fetch import plugin_files
from alipes.plugins.install.install_dir import InstalledPackage, InstalledPlugin
from alipes.plugins.install.project import OwnModules
from alipes.plugins.install.scan import CodeScan, ImportedName, is_supported, scan_code

_NOT_SUPPORTED = "not supported: alipes has no equivalent"
_FIND_PACKAGE = "install the package that the plugin's documentation names for it"
"""A package on PyPI with the name of a module may be somebody else's."""


def check_code(found: DiscoveredPlugin, installed: InstalledPlugin | None, *, opened: bool) -> Iterator[CheckResult]:
    if found.path is None or found.kind in ("file-hook", "shell-hooks"):
        return
    if installed and not installed.now.matches(found.path):
        yield CheckResult(found.name, "note", "its files changed since the installation")
    seen: CodeScan = scan_plugin(found.path, installed.now.packages if installed else ())
    for part in seen.not_served:
        yield CheckResult(found.name, "note", f"its {part} is not served by alipes")
    for remark in seen.unsupported:
        says = f"{found.path / remark.place} {remark.says}"
        yield CheckResult(
            found.name, "note" if remark.optional else "wrong", says, "" if remark.optional else _NOT_SUPPORTED
        )
    for line in seen.unread:
        yield CheckResult(found.name, "wrong", f"{found.path / line}")
    for module, place in missing_modules(found.path, seen).items():
        state: Literal["note", "wrong"] = "note" if opened else "wrong"
        where = f"{found.path / place} imports {module}"
        if is_hermes_name(module):
            yield CheckResult(found.name, state, f"{where} of Hermes Agent, which alipes does not provide")
        else:
            yield CheckResult(found.name, state, f"{where}, which is not installed", _FIND_PACKAGE)


def scan_plugin(folder: Path, packages: tuple[InstalledPackage, ...] = ()) -> CodeScan:
    """Scan the plugin's own code, without its dependencies."""
    return scan_code(folder, plugin_files(folder, packages))


def missing_modules(folder: Path, seen: CodeScan) -> dict[str, str]:
    """Required modules that are not installed, and where they are imported.

    Where the code tries several imports and none of them works, this is the first one.
    """
    own = OwnModules(folder)

    def is_missing(each: ImportedName) -> bool:
        if each.name in own or is_supported(each.name):
            return False
        return is_hermes_name(each.name) or not _is_importable(_root(each.name))

    missing = {
        name: place
        for name, place in seen.imports.items()
        if not is_hermes_name(name) and is_missing(ImportedName(name, place))
    }
    for choice in seen.choices:
        failed = [next(filter(is_missing, branch), None) for branch in choice]
        if all(failed) and failed[0] is not None:
            name = failed[0].name if is_hermes_name(failed[0].name) else _root(failed[0].name)
            missing.setdefault(name, failed[0].place)
    return missing


def _root(name: str) -> str:
    return name.partition(".")[0]


def _is_importable(name: str) -> bool:
    if name in sys.stdlib_module_names:
        return True
    try:
        return find_spec(name) is not None
    except (ImportError, ValueError):
        return False
