"""Each feature is one folder with the same file names in it; few other files know that it is there."""

import ast
import re
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import get_args

import pytest

from alipes.features.all import FEATURES
from alipes.features.feature import Feature, Part

ROOT = Path(__file__).parents[2]
SRC = ROOT / "src" / "alipes"
FOLDERS = sorted(path.parent for path in (SRC / "features").glob("*/__init__.py"))
NAMES = {folder.name for folder in FOLDERS}
MAX_LINES = 40
CONTRACT = {
    "tool": ("def", "tools", "feature"),
    "hooks": ("async def", "add_hooks", "feature", "stack: AsyncExitStack"),
    "commands": ("=", "COMMANDS"),
    "endpoints": ("def", "endpoints", "feature", "server: Server"),
    "serve": ("def", "routes", "feature", "server: Server", "api: ApiRouter"),
    "doctor": ("async def", "check", "settings: Settings", "store: Store | None"),
}
"""What each part has, with its parameters; `feature` has the class of the feature. Parts are imported by name, so mypy
cannot check it."""
LEAF = ("alipes.kernel", "alipes.config.value_types", "alipes.config.urls", "alipes.config.time_zones")
"""What settings may import at the top: they are loaded at every start."""
EDGES = {
    "importer": {"mcp", "memory", "schedules", "skills"},
    "learning": {"memory", "skills"},
    "schedules": {"skills"},
    "webhooks": {"schedules"},
}
"""The features that a feature needs; import-linter checks it."""
KNOWN_ELSEWHERE = {
    "config/settings.py": NAMES - {"importer", "openai", "subagents", "usage", "webhooks"},  # the fields of `Settings`
    "config/loader.py": {"agents", "mcp", "web_search"},  # secrets of services, servers and agents
    "cli/acp/mcp_servers.py": {"mcp"},  # editors bring MCP servers along
    "cli/setup/command.py": {"importer"},  # names homes of other programs
    "cli/terminal/pickers/rewind_picker.py": {"checkpoints"},  # which files a message can be restored to
    "cli/commands/backup.py": {"webhooks"},  # backups have no secrets: names the webhooks that need one
    "cli/security_audit.py": {"webhooks"},  # weak secrets
    "compat/hermes/memory.py": {"memory"},  # whose notes a memory provider of Hermes gets
    "compat/hermes/modules/cron_jobs.py": {"schedules"},  # the module `cron.jobs`
}
"""Files of other folders that name a feature, and why."""
CORE_SCREENS = {"browsers", "cluster", "doctor", "inbox", "log", "people", "plugins", "search", "settings"}
SCREEN_PARTS = {"common", "controls", "add_source", "settings_topics"}
"""Files that several screens use."""
NO_MODULES = {
    "alipes.log": "a file",
    "alipes.db": "a file",
    "alipes.tool": "an event of the API",
    "alipes.caller": "a key of a request",
    "alipes.check_person": "a key of a request",
    "alipes.buttons": "a field of a Matrix message",
}


def parse(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


def kind_of(folder: Path) -> type[Feature]:
    return next(kind for kind in FEATURES if kind.__module__ == f"alipes.features.{folder.name}.feature")


def describe(tree: ast.Module, name: str) -> tuple[str, ...]:
    """How a module defines a name: `def` or `async def` with its parameters, or `=`."""
    for node in tree.body:
        match node:
            case ast.FunctionDef(name=found) | ast.AsyncFunctionDef(name=found) if found == name:
                given = [f"{each.arg.lstrip('_')}: {ast.unparse(each.annotation)}" for each in node.args.args]
                assert len(given) == len(ast.unparse(node.args).split(", ")), "positional parameters only"
                return ("async def" if isinstance(node, ast.AsyncFunctionDef) else "def", name, *given)
            case ast.Assign(targets=[ast.Name(id=found)]) if found == name:
                return "=", name
    return ()


def top_imports(tree: ast.Module) -> Iterator[str]:
    """What is imported when the module is; not what only type checkers read."""
    for node in tree.body:
        match node:
            case ast.ImportFrom(module=str(module)):
                yield module
            case ast.Import(names=names):
                yield from (each.name for each in names)


def late_imports(tree: ast.Module) -> Iterator[str]:
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    yield from (inner.module for node in functions for inner in ast.walk(node) if isinstance(inner, ast.ImportFrom))


def named_features(text: str) -> set[str]:
    return set(re.findall(r"\balipes\.features\.(\w+)", text)) & NAMES


def dotted_names(tree: ast.Module) -> Iterator[str]:
    """Strings that look like the name of a module of alipes."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and re.fullmatch(r"alipes(\.[a-z_]\w*)+", str(node.value)):
            yield node.value


def exists(name: str) -> bool:
    """True if there is such a module, or a module with such an attribute."""
    path = SRC.joinpath(*name.split(".")[1:])
    if path.with_suffix(".py").is_file() or (path / "__init__.py").is_file():
        return True
    module = path.parent.with_suffix(".py")
    return module.is_file() and re.search(rf"\b{path.name}\b", module.read_text()) is not None


def test_every_folder_is_a_feature_and_is_listed():
    assert {kind.__module__ for kind in FEATURES} == {f"alipes.features.{name}.feature" for name in NAMES}
    assert [kind.name for kind in FEATURES] == [kind.__module__.split(".")[2] for kind in FEATURES]


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_the_head_of_a_feature_is_one_short_class(folder):
    path = folder / "feature.py"
    tree = parse(path)
    classes = [node for node in tree.body if isinstance(node, ast.ClassDef)]
    assert [[ast.unparse(base) for base in node.bases] for node in classes] == [["Feature"]]
    assert len(path.read_text().splitlines()) <= MAX_LINES
    ours = [name for name in top_imports(tree) if name.startswith("alipes")]
    assert ours == ["alipes.features.feature"]


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_the_parts_of_a_feature_are_its_files_and_have_their_functions(folder):
    kind = kind_of(folder)
    files = {path.stem for path in folder.iterdir() if path.suffix == ".py" or (path / "__init__.py").is_file()}
    assert {*kind.parts} == files & {*get_args(Part)}
    for part in kind.parts:
        how, name, *parameters = CONTRACT[part]
        expected = [kind.__name__.join(("feature: ", "")) if each == "feature" else each for each in parameters]
        assert describe(parse(folder / f"{part}.py"), name) == (how, name, *expected), part


def test_there_is_a_rule_for_every_part():
    assert set(CONTRACT) == set(get_args(Part))


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_the_commands_of_a_feature_are_functions_of_its_folder(folder):
    for command in kind_of(folder).cli_commands:
        assert command.module.startswith(f"alipes.features.{folder.name}.cli")
        spec = find_spec(command.module)
        assert spec is not None and spec.origin is not None
        assert describe(parse(Path(spec.origin)), command.function)[1:] == (command.function, "argv: list[str]")


@pytest.mark.parametrize("path", sorted((SRC / "features").glob("*/settings.py")), ids=lambda path: path.parent.name)
def test_settings_are_leaves(path):
    tree = parse(path)
    ours = [name for name in top_imports(tree) if name.startswith("alipes")]
    assert [name for name in ours if not any(f"{name}.".startswith(f"{leaf}.") for leaf in LEAF)] == []
    own = f"alipes.features.{path.parent.name}."
    assert [name for name in late_imports(tree) if name.startswith("alipes") and not name.startswith(own)] == []


def test_few_files_outside_its_folder_name_a_feature():
    found = {}
    for path in sorted(SRC.rglob("*.py")):
        file, folder = str(path.relative_to(SRC)), path.relative_to(SRC).parts[:2]
        named = named_features(path.read_text())
        if folder[0] == "features":
            named -= {folder[1], *EDGES.get(folder[1], ())}
        if named and file != "features/all.py":
            found[file] = named
    assert found == KNOWN_ELSEWHERE


def test_a_name_of_a_feature_is_found_in_imports_and_in_strings():
    assert named_features("from alipes.features.mcp.feature import McpFeature") == {"mcp"}
    assert named_features('import_module("alipes.features.skills.cli")') == {"skills"}
    assert named_features("from alipes.features.feature import Feature") == set()


def test_every_screen_is_a_feature_or_a_listed_one():
    screens = {path.stem for path in (SRC / "web" / "page" / "static" / "screens").glob("*.js")} - SCREEN_PARTS
    assert screens - NAMES == CORE_SCREENS


def test_every_string_that_names_a_module_names_one_that_exists():
    names = {name: path.name for path in SRC.rglob("*.py") for name in dotted_names(parse(path))}
    assert {name for name in names if not exists(name)} == set(NO_MODULES), names


def test_a_string_that_names_no_module_is_found():
    tree = ast.parse('import_module("alipes.features.mcp.feature"), "alipes.mcp.gone", "see alipes.x", "alipes.Name."')
    assert [name for name in dotted_names(tree) if not exists(name)] == ["alipes.mcp.gone"]
    assert exists("alipes.plugins.tool_decorator.tool") and not exists("alipes.plugins.tool_decorator.absent_name")
