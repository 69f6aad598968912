"""Files that tools name are opened once, by the boundary: no other code decides by a name that it opens again."""

import ast

from tests.architecture.test_gates import RULES, TREES, short

FOLDERS = ("tools/files/", "tools/search/", "agent/approval/", "features/checkpoints/")
FILES = ("tools/images.py", "tools/send_file.py", "agent/attachments.py")
METHODS = {"resolve", "read_text", "read_bytes", "write_text", "write_bytes"}
NAMES_ONLY = {"places", "directories"}
"""Objects whose `resolve` joins names and opens nothing."""


def acts_by_name(node: ast.AST) -> bool:
    """True for a call that follows a path: `realpath`, `Path.resolve`, `open(path)`, `path.read_text()`."""
    if not isinstance(node, ast.Call):
        return False
    if isinstance(node.func, ast.Name):
        opened = ast.unparse(node.args[0]) if node.args else ""
        return node.func.id == "open" and not opened.endswith((")", "handle"))
    if not isinstance(node.func, ast.Attribute):
        return False
    owner = ast.unparse(node.func.value).rpartition(".")[2].lstrip("_")
    return node.func.attr == "realpath" or (node.func.attr in METHODS and owner not in NAMES_ONLY)


def test_no_path_that_a_tool_names_is_followed_a_second_time():
    checked = {
        short(path): tree for path, tree in TREES.items() if short(path).startswith(FOLDERS) or short(path) in FILES
    }
    found = {name for name, tree in checked.items() if any(map(acts_by_name, ast.walk(tree)))}
    assert found == RULES["paths_by_name"].keys(), "use FileBoundary, or say in architecture.toml why a name is enough"
