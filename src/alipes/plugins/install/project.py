"""Reads what the folder of a plugin declares: entry points, dependencies, and its own modules."""

import re
import tomllib
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

from msgspec import Struct

from alipes.plugins.discovery import GROUPS, Manifest, is_hermes_name
from alipes.plugins.private_packages import PACKAGES

SITE = "site"
"""In an installed package: itself and its dependencies."""
LINKS = ".modules"
"""In a folder that declares its plugin by an entry point: links to its importable modules."""
CODE_FOLDERS = (SITE, LINKS, "src", PACKAGES)
"""Folders of a plugin whose modules it imports by their own names."""
HERMES_AGENT = "hermes-agent"
"""The package of Hermes Agent: alipes provides its plugin API, so it counts as installed."""
_NAME = r"[A-Za-z0-9](?:[\w.-]*[A-Za-z0-9])?"
_VERSIONS = r"\(?\s*(?:[=!<>~]=?|===)\s*[\w.*+!]+(?:\s*,\s*(?:[=!<>~]=?|===)\s*[\w.*+!]+)*\s*,?\s*\)?"
_REQUIREMENT = re.compile(rf"({_NAME})\s*(?:\[[\w,. -]*\])?\s*(?:{_VERSIONS})?\s*(;.+)?")


class Requirement(Struct, frozen=True):
    """A package that a plugin needs."""

    text: str
    """As pip understands it, such as `boots[warm]>=2`."""
    name: str
    """Normalised."""
    conditional: bool = False
    """It has a marker, so it is needed on some systems only."""


class Requirements(Struct, frozen=True):
    """The declared dependencies of a plugin in a folder."""

    packages: tuple[Requirement, ...] = ()
    refused: tuple[str, ...] = ()
    """Lines that alipes does not pass to pip: addresses, files and options."""


def parse_requirement(text: str) -> Requirement | None:
    """None unless it is the name of a package with versions and markers."""
    match = _REQUIREMENT.fullmatch(text.strip())
    return Requirement(text.strip(), normalize_name(match[1]), bool(match[2])) if match else None


def normalize_name(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def read_requirements(folder: Path, manifest: Manifest) -> Requirements:
    """From pyproject.toml, requirements.txt and the manifest; without Hermes Agent."""
    declared = read_project(folder).get("dependencies")
    lines = [str(each) for each in declared] if isinstance(declared, list) else []
    lines += [*_requirement_lines(folder / "requirements.txt"), *manifest.pip_dependencies]
    packages: dict[Requirement, None] = {}
    refused: dict[str, None] = {}
    for line in lines:
        requirement = parse_requirement(line)
        if requirement is None:
            refused[line] = None
        elif requirement.name != HERMES_AGENT:
            packages[requirement] = None
    return Requirements(tuple(packages), tuple(refused))


def _requirement_lines(file: Path) -> list[str]:
    try:
        text = file.read_text("utf-8", "replace").replace("\\\n", " ")
    except OSError:
        return []
    lines = [re.sub(r"(^|\s)#.*", "", line).strip() for line in text.splitlines()]
    return [re.sub(r"\s+--hash[= ]\S+", "", line) for line in lines if line]


def read_entry_points(folder: Path) -> list[EntryPoint]:
    """The plugins in pyproject.toml, those of the preferred group first."""
    tables = read_project(folder).get("entry-points")
    found = []
    for group in GROUPS:
        table = tables.get(group) if isinstance(tables, dict) else None
        if isinstance(table, dict):
            found += [EntryPoint(str(name), str(value), group) for name, value in table.items()]
    return [each for each in found if re.fullmatch(r"\s*[\w.]+\s*(:\s*[\w.]+\s*)?", each.value)]


def read_project(folder: Path) -> dict[str, Any]:
    """The table [project] of pyproject.toml; empty if there is none or it cannot be read."""
    try:
        project = tomllib.loads((folder / "pyproject.toml").read_text("utf-8")).get("project")
    except (OSError, ValueError):
        return {}
    return project if isinstance(project, dict) else {}


class OwnModules:
    """The modules that a plugin itself contains."""

    def __init__(self, folder: Path) -> None:
        self._places = [place for place in (folder, *(folder / name for name in CODE_FOLDERS)) if place.is_dir()]
        self._declared = {each.module.partition(".")[0] for each in read_entry_points(folder)}

    def __contains__(self, name: str) -> bool:
        """Is the dotted name in one of them? A name of Hermes is only if the module there has it."""
        root, _, rest = name.partition(".")
        if not is_hermes_name(root) and root in self._declared:
            return True
        for place in self._places:
            module, file = place / root, place / f"{root}.py"
            if not module.is_dir() and not file.is_file():
                continue
            if not is_hermes_name(root) or _defines(module, file, rest.partition(".")[0]):
                return True
        return False


def _defines(module: Path, file: Path, name: str) -> bool:
    if not name or (module / name).is_dir() or (module / f"{name}.py").is_file():
        return True
    code = file if file.is_file() else module / "__init__.py"
    try:
        text = code.read_text("utf-8", "replace")
    except OSError:
        return False
    return bool(re.search(rf"^(?:(?:async )?def|class) {re.escape(name)}\b|^{re.escape(name)}\b.*=", text, re.M))
