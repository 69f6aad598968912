"""Each messenger is one folder: its settings, which every start imports, and its opener, which the registry names."""

import ast
from pathlib import Path

import pytest

from alipes.config.messengers import MESSENGERS
from alipes.platforms.registry import PLATFORMS

SRC = Path(__file__).parents[2] / "src" / "alipes"
FOLDERS = sorted(path.parent for path in (SRC / "platforms").glob("*/__init__.py"))
EVERY_FOLDER = pytest.mark.parametrize("folder", FOLDERS, ids=lambda path: path.name)
LEAVES = ("alipes.kernel.", "alipes.config.platforms", "alipes.config.urls", "alipes.config.value_types")
LIGHT = {"collections.abc", "pathlib", "re", "typing", "msgspec"}


def test_settings_and_registry_name_every_folder():
    names = {folder.name for folder in FOLDERS}
    assert set(MESSENGERS) == names
    assert {name: f"alipes.platforms.{name}.platform" for name in names} == PLATFORMS


@EVERY_FOLDER
def test_a_folder_has_an_opener_of_the_same_signature(folder):
    assert not (folder / "__init__.py").read_text()
    (opener,) = (
        node
        for node in ast.parse((folder / "platform.py").read_text()).body
        if isinstance(node, ast.FunctionDef) and node.name == "open_platform"
    )
    given = f"({ast.unparse(opener.args)}) -> {ast.unparse(opener.returns)}"
    assert given == f"(settings: {folder.name.capitalize()}Config, scope: ClientScope) -> Platform"


@EVERY_FOLDER
def test_settings_import_only_leaves(folder):
    """Also not inside functions: every start imports them."""
    nodes = list(ast.walk(ast.parse((folder / "settings.py").read_text())))
    assert [node for node in nodes if isinstance(node, ast.Import)] == []
    modules = {node.module for node in nodes if isinstance(node, ast.ImportFrom)}
    assert {module for module in modules if not module.startswith(LEAVES)} <= LIGHT


@EVERY_FOLDER
def test_other_folders_do_not_name_a_messenger(folder):
    """Facts of a messenger are in its folder; `config.messengers` and the registry list it."""
    prefix, users = f"alipes.platforms.{folder.name}.", set()
    for path in SRC.rglob("*.py"):
        if not path.is_relative_to(folder):
            imports = (node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.ImportFrom))
            if any(f"{node.module}.".startswith(prefix) for node in imports):
                users.add(path.relative_to(SRC).as_posix())
    assert users == {"config/messengers.py"}
