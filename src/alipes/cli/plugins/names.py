"""What the names in a file of Python stand for, as far as imports and plain assignments tell."""

import ast
from collections.abc import Iterator

_LOADS = ("importlib.import_module", "__import__", "sys.modules.get")


class Names:
    def __init__(self, tree: ast.Module) -> None:
        self._means: dict[str, str] = {}
        for node in ast.walk(tree):
            for name, meant, _ in imported(node):
                self._means[name] = meant
        for node in ast.walk(tree):
            self._learn(node)

    def dotted(self, node: ast.expr) -> str:
        """What a name or `a.b.c` stands for; empty for anything else."""
        if isinstance(node, ast.Name):
            return self._means.get(node.id, node.id)
        if isinstance(node, ast.Attribute):
            before = self.dotted(node.value) or self.module(node.value)
            return f"{before}.{node.attr}" if before else ""
        return ""

    def module(self, node: ast.expr) -> str:
        """The module that `import_module("x")` or `sys.modules["x"]` is; else empty."""
        if isinstance(node, ast.Call) and node.args and self.dotted(node.func) in _LOADS:
            return text_of(node.args[0])
        if isinstance(node, ast.Subscript) and self.dotted(node.value) == "sys.modules":
            return text_of(node.slice)
        return ""

    def _learn(self, node: ast.AST) -> None:
        """`runner = gateway.run.Runner` is one more name for it."""
        if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
            meant = self.dotted(node.value) or self.module(node.value)
            if "." in meant or meant in self._means.values():
                self._means[node.targets[0].id] = meant


def imported(node: ast.AST) -> Iterator[tuple[str, str, str]]:
    """Of an import of somebody else's code: the new name, what it stands for, and what was imported."""
    if isinstance(node, ast.Import):
        for each in node.names:
            root = each.name.partition(".")[0]
            yield each.asname or root, each.name if each.asname else root, each.name
    elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
        for each in node.names:
            whole = f"{node.module}.{each.name}"
            yield each.asname or each.name, whole, node.module if each.name == "*" else whole


def text_of(node: ast.expr | None) -> str:
    """The text that stands there; empty for anything else."""
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""
