"""Scans the code of a plugin without running it: what it adds, uses, reads and changes."""

import ast
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TypeAlias

from msgspec import Struct

from alipes.plugins.discovery import is_hermes_name
from alipes.plugins.dispatch import hook_parameters
from alipes.plugins.foreign_loaders import provided_names
from alipes.plugins.install.project import OwnModules

_IMPORT_CALLS = ("importlib.import_module", "__import__", "sys.modules.get")


class NameResolver:
    """Full names of expressions. Knows which names are imported and which are parameters or local variables."""

    def __init__(self, tree: ast.Module) -> None:
        self._scopes: dict[ast.AST, _Scope] = {}
        """The scope in which a node is evaluated."""
        order = list(self._enter_scopes(tree))
        for node, scope in order:
            for name, meant, _ in iter_imports(node):
                scope.names[name] = meant
        for node, scope in order:
            # assignments such as `runner = gateway.run.Runner`
            if isinstance(node, ast.Assign) and self.is_imported(node.value):
                target, meant = node.targets[0], self.dotted(node.value) or self.module(node.value)
                if isinstance(target, ast.Name) and meant:
                    scope.names[target.id] = meant

    def _enter_scopes(self, tree: ast.Module) -> Iterator[tuple[ast.AST, "_Scope"]]:
        todo: list[tuple[ast.AST, _Scope]] = [(tree, _Scope())]
        while todo:
            node, scope = todo.pop()
            self._scopes[node] = scope
            yield node, scope
            inner = scope
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
                inner = _Scope(outer=scope)
                for each in ast.walk(node.args):
                    if isinstance(each, ast.arg):
                        inner.names[each.arg] = None
            elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                scope.names.setdefault(node.id, None)
            todo += [(child, inner) for child in reversed(list(ast.iter_child_nodes(node)))]

    def _find(self, node: ast.Name) -> tuple[bool, str]:
        """Whether the name is bound in the code, and its full name if it is imported."""
        scope = self._scopes.get(node)
        while scope is not None:
            if node.id in scope.names:
                return True, scope.names[node.id] or ""
            scope = scope.outer
        return False, ""

    def dotted(self, node: ast.expr) -> str:
        """The full dotted name of a name or `a.b.c`; empty for anything else."""
        if isinstance(node, ast.Name):
            return self._find(node)[1] or node.id
        if isinstance(node, ast.Attribute):
            before = self.dotted(node.value) or self.module(node.value)
            return f"{before}.{node.attr}" if before else ""
        return ""

    def is_imported(self, node: ast.expr) -> bool:
        """True if a name or `a.b.c` starts with something imported."""
        while isinstance(node, ast.Attribute):
            node = node.value
        return bool(self._find(node)[1] if isinstance(node, ast.Name) else self.module(node))

    def is_variable(self, node: ast.expr) -> bool:
        """True if a name or `a.b.c` starts with a parameter or variable of the code."""
        while isinstance(node, ast.Attribute):
            node = node.value
        return isinstance(node, ast.Name) and self._find(node) == (True, "")

    def module(self, node: ast.expr) -> str:
        """The module of `import_module("x")` or `sys.modules["x"]`; empty for anything else."""
        if isinstance(node, ast.Call) and node.args and self.dotted(node.func) in _IMPORT_CALLS:
            return string_value(node.args[0])
        if isinstance(node, ast.Subscript) and self.dotted(node.value) == "sys.modules":
            return string_value(node.slice)
        return ""


class _Scope(Struct):
    """Names bound in a module or function: the full name of an import, None for a variable."""

    names: dict[str, str | None] = {}
    outer: "_Scope | None" = None


def iter_imports(node: ast.AST) -> Iterator[tuple[str, str, str]]:
    """For each absolute import: the new name, its full name, and what was imported."""
    if isinstance(node, ast.Import):
        for each in node.names:
            root = each.name.partition(".")[0]
            yield each.asname or root, each.name if each.asname else root, each.name
    elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
        for each in node.names:
            whole = f"{node.module}.{each.name}"
            yield each.asname or each.name, whole, node.module if each.name == "*" else whole


def string_value(node: ast.expr | None) -> str:
    """The value of a string literal; empty for anything else."""
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""


def is_supported(name: str) -> bool:
    """True if alipes supports the dotted name of a module or of something in it."""
    known = provided_names()
    if name in known or name.startswith("hermes_plugins."):
        return True
    module, _, last = name.rpartition(".")
    if module not in known:  # deeper, as in tools.registry.registry.register
        return bool(module) and is_supported(module)
    return last in known[module]


POWER_MODULES: Mapping[str, tuple[str, ...]] = {
    "network": (
        *("socket", "socketserver", "ssl", "http", "urllib.request", "ftplib", "smtplib", "imaplib", "poplib"),
        *("telnetlib", "nntplib", "xmlrpc", "wsgiref", "requests", "httpx", "httpx2", "httpcore", "aiohttp"),
        *("urllib3", "websockets", "websocket", "paramiko", "asyncssh", "grpc", "zmq", "pycurl", "boto3"),
        *("openai", "anthropic", "telegram", "discord", "slack_sdk", "nio", "redis", "pymongo", "psycopg"),
        *("fastapi", "flask", "uvicorn", "starlette", "tornado", "twisted", "paho", "selenium", "playwright"),
    ),
    "processes": ("subprocess", "multiprocessing", "pty", "pexpect", "plumbum", "sh"),
    "native code": ("ctypes", "cffi"),
    "made code": ("pickle", "marshal", "dill", "cloudpickle", "runpy", "code"),
}
"""Modules whose import shows a power."""

POWER_NAMES: Mapping[str, tuple[str, ...]] = {
    "network": ("asyncio.open_connection", "asyncio.start_server", "ctx.clients", "context.clients"),
    "processes": (
        *("os.system", "os.popen", "os.fork", "os.forkpty", "os.kill", "os.killpg", "os.posix_spawn"),
        *("os.execv", "os.execve", "os.execvp", "os.execvpe", "os.execl", "os.execlp", "os.startfile"),
        *("os.spawnl", "os.spawnlp", "os.spawnv", "os.spawnve", "os.spawnvp", "os.posix_spawnp"),
        *("asyncio.create_subprocess_exec", "asyncio.create_subprocess_shell"),
    ),
    "made code": ("eval", "exec", "compile", "__import__"),
}

POWER_LABELS = {name: name for name in ("network", "processes", "native code")}
POWER_LABELS |= {"made code": "dynamic code", "environment": "whole environment"}
"""The powers and their labels, in the order shown."""

CONTEXT_METHOD_KINDS = {"tool": "tools", "hook": "hooks", "command": "commands", "cli": "programs", "skill": "skills"}
"""Methods of the native `ctx`."""

HERMES_REGISTER_KINDS = {
    f"register_{name.replace('cli', 'cli_command')}": kind for name, kind in CONTEXT_METHOD_KINDS.items()
}
"""Methods of the Hermes `ctx`; any other `register_x` provides an x."""

TOOL_DECORATORS = ("alipes.plugin.tool", "alipes.plugins.tool_decorator.tool")
"""Decorators that make a function a tool."""

ENVIRONMENT_READERS = (
    *("os.environ.get", "os.environ.pop", "os.environ.setdefault", "os.getenv"),
    *("get_env_value", "get_secret"),
)
"""Functions whose first argument is the name of a variable."""

COMPILED = (".so", ".pyd", ".dll", ".dylib", ".pyc", ".exe")


UNNAMED = "…"
"""Something whose name is computed at run time."""


class ScanRemark(Struct, frozen=True):
    """Something in the code that alipes does not support, and where."""

    place: str
    says: str
    optional: bool = False
    """The plugin has a fallback."""


class ImportedName(Struct, frozen=True):
    name: str
    """The dotted name of a module or of something in it."""
    place: str


ImportChoice: TypeAlias = tuple[tuple[ImportedName, ...], ...]
"""The branches of a `try` around imports, in order. One of them has to succeed; an empty one always does."""


class CodeScan(Struct):
    """Result of a scan. The code can do more than a scan can see."""

    adds: dict[str, dict[str, None]] = {}
    """Names by kind (tools, hooks, commands, programs, skills, provides), in the order found."""
    powers: dict[str, dict[str, list[str]]] = {}
    """By power: the names that show it, and their places."""
    variables: dict[str, None] = {}
    imports: dict[str, str] = {}
    """Required top-level modules, and where they are first imported."""
    choices: list[ImportChoice] = []
    unsupported: list[ScanRemark] = []
    """Uses of unsupported Hermes internals."""
    unread: list[str] = []
    """Files that could not be parsed."""
    not_served: dict[str, None] = {}
    """Parts of the plugin that alipes does not use and does not scan."""

    def add(self, kind: str, name: str | None) -> None:
        self.adds.setdefault(kind, {})[name or UNNAMED] = None

    def add_power(self, power: str, what: str, place: str) -> None:
        places = self.powers.setdefault(power, {}).setdefault(what, [])
        if place not in places:
            places.append(place)


NOT_SERVED = ("dashboard",)
"""Folders with pages for Hermes's own dashboard."""


def scan_code(folder: Path, files: Iterable[Path]) -> CodeScan:
    """Scan the Python files except tests, which are not loaded; places are relative to `folder`."""
    found, own = CodeScan(), OwnModules(folder)
    for file in files:
        name = file.relative_to(folder).as_posix()
        if name.partition("/")[0] in NOT_SERVED:
            found.not_served[name.partition("/")[0]] = None
        elif file.suffix in COMPILED:
            found.add_power("native code", name, name)
        elif file.suffix == ".py" and file.name != "conftest.py" and not {"tests", "test"} & {*name.split("/")[:-1]}:
            try:
                scan = _FileScan(found, name, ast.parse(file.read_bytes()), own)
                scan.read(loaded=not _is_script(folder, file))
            except (SyntaxError, ValueError, RecursionError, MemoryError, OSError) as error:
                found.unread.append(f"{name}: {error}")
    return found


SCRIPT_FOLDERS = ("scripts", "examples", "docs", "benchmarks", "bench", "dev", "evals")
SCRIPT_FILES = ("setup.py", "noxfile.py", "test_*.py", "*_test.py")


def _is_script(folder: Path, file: Path) -> bool:
    """True for files that the plugin does not import: their powers are shown, their imports are not checked."""
    inside = file.relative_to(folder)
    above = [folder / parent for parent in inside.parents if parent.name in SCRIPT_FOLDERS]
    return any(inside.match(pattern) for pattern in SCRIPT_FILES) or any(
        not (place / "__init__.py").is_file() for place in above
    )


_IMPORT_ERRORS = ("ImportError", "ModuleNotFoundError", "Exception", "BaseException")


class _Guards:
    """The imports of one file that may fail: those in a `try`, and those that never run when it is loaded."""

    def __init__(self, tree: ast.Module, place: Callable[[ast.AST], str]) -> None:
        self._place = place
        self.guarded: set[ast.AST] = set()
        self.skipped: set[ast.AST] = set()
        self.choices: list[ImportChoice] = []
        for node in ast.walk(tree):
            if isinstance(node, ast.Try) and _import_handlers(node) and node not in self.guarded:
                branches = tuple(self._branches(node))
                self.choices.append(branches)
                self._add(self.guarded, [node])
                if len(branches) == 1:  # the handlers only raise a better message
                    self.guarded -= {each for inner in node.body for each in ast.walk(inner)}
            elif isinstance(node, ast.With) and any(_suppresses(item.context_expr) for item in node.items):
                self._add(self.guarded, node.body)
            elif isinstance(node, ast.If) and _never_runs(node.test):
                self._add(self.skipped, node.body)

    def _branches(self, node: ast.Try) -> Iterator[tuple[ImportedName, ...]]:
        yield tuple(self._imports(node.body))
        for handler in _import_handlers(node):
            nested = next((each for each in handler.body if isinstance(each, ast.Try) and _import_handlers(each)), None)
            if nested is not None:
                yield from self._branches(nested)
            elif not isinstance(handler.body[-1], ast.Raise):
                yield tuple(self._imports(handler.body))

    def _imports(self, body: Iterable[ast.stmt]) -> Iterator[ImportedName]:
        for statement in body:
            for node in ast.walk(statement):
                for _, _, name in iter_imports(node):
                    yield ImportedName(name, self._place(node))

    @staticmethod
    def _add(nodes: set[ast.AST], body: Iterable[ast.AST]) -> None:
        nodes.update(each for node in body for each in ast.walk(node))


def _import_handlers(node: ast.Try) -> list[ast.ExceptHandler]:
    """The handlers that catch a failed import."""
    return [each for each in node.handlers if each.type is None or _names_import_error(each.type)]


def _names_import_error(node: ast.expr) -> bool:
    kinds = node.elts if isinstance(node, ast.Tuple) else [node]
    return any(isinstance(kind, ast.Name) and kind.id in _IMPORT_ERRORS for kind in kinds)


def _suppresses(node: ast.expr) -> bool:
    return (
        isinstance(node, ast.Call)
        and ast.unparse(node.func).endswith("suppress")
        and any(_names_import_error(each) for each in node.args)
    )


def _never_runs(test: ast.expr) -> bool:
    """`if TYPE_CHECKING` and `if __name__ == "__main__"`."""
    shown = ast.unparse(test) if isinstance(test, ast.Name | ast.Attribute | ast.Compare) else ""
    return shown.endswith("TYPE_CHECKING") or shown == "__name__ == '__main__'"


class _FileScan:
    def __init__(self, found: CodeScan, name: str, tree: ast.Module, own: OwnModules) -> None:
        self._found, self._name, self._tree, self._names = found, name, tree, NameResolver(tree)
        self._own, self._loaded = own, True
        self._guards = _Guards(tree, self._place)

    def read(self, *, loaded: bool = True) -> None:
        """`loaded`: the plugin imports this file."""
        self._loaded = loaded
        if loaded:
            self._found.choices += self._guards.choices
        for top in self._tree.body:
            if isinstance(top, ast.AsyncFunctionDef) and hook_parameters(top.name) is not None:
                self._found.add("hooks", top.name)
        for node in ast.walk(self._tree):
            for _, _, name in iter_imports(node):
                self._scan_import(name, node)
            self._scan_node(node)

    def _place(self, node: ast.AST) -> str:
        return f"{self._name}:{getattr(node, 'lineno', 0)}"

    def _scan_import(self, name: str, node: ast.AST) -> None:
        for power, modules in POWER_MODULES.items():
            for module in modules:
                if name == module or name.startswith(f"{module}."):
                    self._found.add_power(power, module, self._place(node))
        if not self._loaded or node in self._guards.skipped or name in self._own:
            return
        guarded = node in self._guards.guarded
        if not guarded:
            self._found.imports.setdefault(name.partition(".")[0], self._place(node))
        if is_hermes_name(name) and not is_supported(name):
            fallback = "; the plugin has a fallback" if guarded else ""
            self._add_remark(node, f"imports {name} of Hermes Agent, which alipes does not provide{fallback}", guarded)

    def _scan_node(self, node: ast.AST) -> None:
        match node:
            case ast.Call():
                self._scan_call(node)
            case ast.AsyncFunctionDef() | ast.FunctionDef():
                self._scan_function(node)
            case ast.Attribute() | ast.Name() if isinstance(node.ctx, ast.Load):
                name = self._names.dotted(node)
                for power in [each for each, names in POWER_NAMES.items() if name in names]:
                    if name.startswith(("ctx.", "context.")) or not self._names.is_variable(node):
                        self._found.add_power(power, name, self._place(node))
            case ast.Subscript() if self._names.dotted(node.value) == "os.environ":
                self._add_variable(node.slice, node)
            case ast.Assign() | ast.Delete():
                for target in node.targets:
                    self._scan_target(target)
            case ast.AugAssign() | ast.AnnAssign():
                self._scan_target(node.target)

    def _scan_function(self, node: ast.AsyncFunctionDef | ast.FunctionDef) -> None:
        for mark in node.decorator_list:
            words = mark.keywords if isinstance(mark, ast.Call) else []
            if self._names.dotted(mark.func if isinstance(mark, ast.Call) else mark) in TOOL_DECORATORS:
                named = next((string_value(each.value) for each in words if each.arg == "name"), "")
                self._found.add("tools", named or node.name)

    def _scan_call(self, node: ast.Call) -> None:
        name, first = self._names.dotted(node.func), node.args[0] if node.args else None
        if name in ENVIRONMENT_READERS or name.rpartition(".")[2] in ENVIRONMENT_READERS:
            self._add_variable(first, node)
        elif name.startswith("os.environ.") or (first and self._names.dotted(first) == "os.environ"):
            self._found.add_power("environment", "os.environ", self._place(node))
        elif name == "importlib.import_module" and not self._names.module(node):
            self._found.add_power("made code", name, self._place(node))
        elif name == "setattr" and len(node.args) == 3:
            owner = self._names.dotted(node.args[0]) or self._names.module(node.args[0])
            if self._names.is_imported(node.args[0]):
                self._scan_patch(f"{owner}.{string_value(node.args[1]) or UNNAMED}", node)
        elif isinstance(node.func, ast.Attribute):
            self._scan_registration(node, node.func)
        if is_hermes_name(module := self._names.module(node)):
            self._scan_import(module, node)

    def _scan_registration(self, node: ast.Call, method: ast.Attribute) -> None:
        """`ctx.register_tool("x", ...)`, `ctx.tool(x)`, `registry.register(name="x")`."""
        owner = self._names.dotted(method.value).rpartition(".")[2]
        ours = owner in ("ctx", "context")
        if method.attr in HERMES_REGISTER_KINDS:
            self._found.add(HERMES_REGISTER_KINDS[method.attr], _registered_name(node))
        elif method.attr.startswith("register_") and ours:
            self._found.add("provides", _format_provided(method.attr.removeprefix("register_"), _registered_name(node)))
        elif method.attr == "register" and owner == "registry":
            self._found.add("tools", _registered_name(node))
        elif ours and method.attr in CONTEXT_METHOD_KINDS:
            self._found.add(CONTEXT_METHOD_KINDS[method.attr], _registered_name(node))
        elif ours and method.attr == "provide" and len(node.args) > 1:
            self._found.add("provides", _format_provided(string_value(node.args[0]), string_value(node.args[1])))

    def _add_variable(self, name: ast.expr | None, node: ast.AST) -> None:
        if text := string_value(name):
            self._found.variables[text] = None
        else:
            self._found.add_power("environment", "os.environ", self._place(node))

    def _scan_target(self, target: ast.expr) -> None:
        match target:
            case ast.Tuple() | ast.List():
                for each in target.elts:
                    self._scan_target(each)
            case ast.Attribute() if self._names.is_imported(target):
                self._scan_patch(self._names.dotted(target), target)
            case ast.Subscript():
                self._scan_patch(self._names.module(target), target)

    def _scan_patch(self, name: str, node: ast.AST) -> None:
        if self._loaded and is_hermes_name(name) and name not in self._own:
            self._add_remark(node, f"changes {name} of Hermes Agent, which does not exist in alipes")

    def _add_remark(self, node: ast.AST, says: str, optional: bool = False) -> None:
        remark = ScanRemark(self._place(node), says, optional)
        if remark not in self._found.unsupported:
            self._found.unsupported.append(remark)


def _registered_name(node: ast.Call) -> str:
    """The registered name: the value of `name=`, or the first argument."""
    named = next((each.value for each in node.keywords if each.arg in ("name", "hook_name")), None)
    first = named or (node.args[0] if node.args else None)
    return first.id if isinstance(first, ast.Name) and not named else string_value(first)


def _format_provided(kind: str, name: str) -> str:
    return f"{kind.replace('_', ' ')} {name}".strip()
