"""Scans the code of a plugin without running it: what it adds, uses, reads and changes."""

import ast
from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import cache
from importlib import import_module
from pathlib import Path

from msgspec import Struct

from alipes.plugins.dispatch import hook_parameters

_IMPORT_CALLS = ("importlib.import_module", "__import__", "sys.modules.get")


class NameResolver:
    def __init__(self, tree: ast.Module) -> None:
        self._names: dict[str, str] = {}
        for node in ast.walk(tree):
            for name, meant, _ in iter_imports(node):
                self._names[name] = meant
        for node in ast.walk(tree):
            # assignments such as `runner = gateway.run.Runner`
            if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
                meant = self.dotted(node.value) or self.module(node.value)
                if "." in meant or meant in self._names.values():
                    self._names[node.targets[0].id] = meant

    def dotted(self, node: ast.expr) -> str:
        """The full dotted name of a name or `a.b.c`; empty for anything else."""
        if isinstance(node, ast.Name):
            return self._names.get(node.id, node.id)
        if isinstance(node, ast.Attribute):
            before = self.dotted(node.value) or self.module(node.value)
            return f"{before}.{node.attr}" if before else ""
        return ""

    def module(self, node: ast.expr) -> str:
        """The module of `import_module("x")` or `sys.modules["x"]`; empty for anything else."""
        if isinstance(node, ast.Call) and node.args and self.dotted(node.func) in _IMPORT_CALLS:
            return string_value(node.args[0])
        if isinstance(node, ast.Subscript) and self.dotted(node.value) == "sys.modules":
            return string_value(node.slice)
        return ""


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


HERMES_MODULES = (
    *("agent", "batch_runner", "cli", "cron", "gateway", "mcp_serve", "model_tools", "run_agent"),
    *("tools", "toolsets", "toolset_distributions", "trajectory_compressor", "tui_gateway"),
)
"""Top-level modules of Hermes, in addition to those that start with `hermes_`."""


def is_hermes_name(name: str) -> bool:
    """True if a dotted name belongs to a module of Hermes."""
    root = name.partition(".")[0]
    return root in HERMES_MODULES or root.startswith("hermes_")


def is_supported(name: str) -> bool:
    """True if alipes supports the dotted name of a module or of something in it."""
    known = _supported_names()
    if name in known or name.startswith("hermes_plugins."):
        return True
    module, _, last = name.rpartition(".")
    if module not in known:  # deeper, as in tools.registry.registry.register
        return bool(module) and is_supported(module)
    return last in known[module]


@cache
def _supported_names() -> Mapping[str, Collection[str]]:
    """The supported names; imported only for code that uses Hermes modules."""
    names: Mapping[str, Collection[str]] = import_module("alipes.compat.hermes.modules.install").NAMES
    return names


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


class CodeScan(Struct):
    """Result of a scan. The code can do more than a scan can see."""

    adds: dict[str, dict[str, None]] = {}
    """Names by kind (tools, hooks, commands, programs, skills, provides), in the order found."""
    powers: dict[str, dict[str, list[str]]] = {}
    """By power: the names that show it, and their places."""
    variables: dict[str, None] = {}
    imports: dict[str, str] = {}
    """Required top-level modules, and where they are first imported."""
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
    found = CodeScan()
    for file in files:
        name = file.relative_to(folder).as_posix()
        if name.partition("/")[0] in NOT_SERVED:
            found.not_served[name.partition("/")[0]] = None
        elif file.suffix in COMPILED:
            found.add_power("native code", name, name)
        elif file.suffix == ".py" and file.name != "conftest.py" and not {"tests", "test"} & {*name.split("/")[:-1]}:
            try:
                _FileScan(found, name, ast.parse(file.read_bytes())).read()
            except (SyntaxError, ValueError, RecursionError, MemoryError, OSError) as error:
                found.unread.append(f"{name}: {error}")
    return found


class _FileScan:
    def __init__(self, found: CodeScan, name: str, tree: ast.Module) -> None:
        self._found, self._name, self._tree, self._names = found, name, tree, NameResolver(tree)
        self._guarded = {
            line
            for node in ast.walk(tree)
            if isinstance(node, ast.Try)
            for inner in node.body
            for line in range(inner.lineno, (inner.end_lineno or inner.lineno) + 1)
        }
        """Lines inside a `try`, where imports are optional."""

    def read(self) -> None:
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
        guarded = getattr(node, "lineno", 0) in self._guarded
        if not guarded:
            self._found.imports.setdefault(name.partition(".")[0], self._place(node))
        for power, modules in POWER_MODULES.items():
            for module in modules:
                if name == module or name.startswith(f"{module}."):
                    self._found.add_power(power, module, self._place(node))
        if is_hermes_name(name) and not is_supported(name):
            ready = ", but works without it" if guarded else ""
            self._add_remark(node, f"imports {name}, which is not supported{ready}")

    def _scan_node(self, node: ast.AST) -> None:
        match node:
            case ast.Call():
                self._scan_call(node)
            case ast.AsyncFunctionDef() | ast.FunctionDef():
                self._scan_function(node)
            case ast.Attribute() | ast.Name() if isinstance(node.ctx, ast.Load):
                name = self._names.dotted(node)
                for power in [each for each, names in POWER_NAMES.items() if name in names]:
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
            case ast.Attribute():
                self._scan_patch(self._names.dotted(target), target)
            case ast.Subscript():
                self._scan_patch(self._names.module(target), target)

    def _scan_patch(self, name: str, node: ast.AST) -> None:
        if is_hermes_name(name):
            self._add_remark(node, f"changes {name}, which does not exist in alipes")

    def _add_remark(self, node: ast.AST, says: str) -> None:
        remark = ScanRemark(self._place(node), says)
        if remark not in self._found.unsupported:
            self._found.unsupported.append(remark)


def _registered_name(node: ast.Call) -> str:
    """The registered name: the value of `name=`, or the first argument."""
    named = next((each.value for each in node.keywords if each.arg in ("name", "hook_name")), None)
    first = named or (node.args[0] if node.args else None)
    return first.id if isinstance(first, ast.Name) and not named else string_value(first)


def _format_provided(kind: str, name: str) -> str:
    return f"{kind.replace('_', ' ')} {name}".strip()
