"""What a plugin's code says of itself, read and never run: what it adds, reaches for, asks for, changes."""

import ast
from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import cache
from importlib import import_module
from pathlib import Path

from msgspec import Struct

from alipes.plugins.dispatch import parameters

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


ROOTS = (
    *("agent", "batch_runner", "cli", "cron", "gateway", "mcp_serve", "model_tools", "run_agent"),
    *("tools", "toolsets", "toolset_distributions", "trajectory_compressor", "tui_gateway"),
)
"""Top-level modules of the original, besides all that begin with `hermes_`."""


def is_original(name: str) -> bool:
    """Whether a dotted name begins in a module of the original."""
    root = name.partition(".")[0]
    return root in ROOTS or root.startswith("hermes_")


def is_supported(name: str) -> bool:
    """Whether the dotted name of a module, or of something in one, works here."""
    known = _names()
    if name in known or name.startswith("hermes_plugins."):
        return True
    module, _, last = name.rpartition(".")
    if module not in known:  # deeper, as in tools.registry.registry.register
        return bool(module) and is_supported(module)
    return last in known[module]


@cache
def _names() -> Mapping[str, Collection[str]]:
    """The compatible door's own table; loaded only for code that names the original."""
    names: Mapping[str, Collection[str]] = import_module("alipes.compat.hermes.modules.install").NAMES
    return names


MODULES: Mapping[str, tuple[str, ...]] = {
    "network": (
        *(
            "socket",
            "socketserver",
            "ssl",
            "http",
            "urllib.request",
            "ftplib",
            "smtplib",
            "imaplib",
            "poplib",
        ),
        *("telnetlib", "nntplib", "xmlrpc", "wsgiref", "requests", "httpx", "httpx2", "httpcore", "aiohttp"),
        *("urllib3", "websockets", "websocket", "paramiko", "asyncssh", "grpc", "zmq", "pycurl", "boto3"),
        *("openai", "anthropic", "telegram", "discord", "slack_sdk", "nio", "redis", "pymongo", "psycopg"),
        *("fastapi", "flask", "uvicorn", "starlette", "tornado", "twisted", "paho", "selenium", "playwright"),
    ),
    "processes": ("subprocess", "multiprocessing", "pty", "pexpect", "plumbum", "sh"),
    "native code": ("ctypes", "cffi"),
    "made code": ("pickle", "marshal", "dill", "cloudpickle", "runpy", "code"),
}
"""What importing one of these, or something in it, is a sign of."""

NAMES: Mapping[str, tuple[str, ...]] = {
    "network": ("asyncio.open_connection", "asyncio.start_server", "ctx.clients", "context.clients"),
    "processes": (
        *("os.system", "os.popen", "os.fork", "os.forkpty", "os.kill", "os.killpg", "os.posix_spawn"),
        *("os.execv", "os.execve", "os.execvp", "os.execvpe", "os.execl", "os.execlp", "os.startfile"),
        *("os.spawnl", "os.spawnlp", "os.spawnv", "os.spawnve", "os.spawnvp", "os.posix_spawnp"),
        *("asyncio.create_subprocess_exec", "asyncio.create_subprocess_shell"),
    ),
    "made code": ("eval", "exec", "compile", "__import__"),
}

POWERS = {
    "network": "network",
    "processes": "processes",
    "native code": "native code",
    "made code": "code made as it runs",
    "environment": "whole environment",
}
"""The kinds, in the order they are shown, and how they are called there."""

REGISTERS: Mapping[str, str] = {
    "register_tool": "tools",
    "register_hook": "hooks",
    "register_command": "commands",
    "register_cli_command": "programs",
    "register_skill": "skills",
}
"""Methods of the Hermes `ctx`; any other `register_x` provides an x."""

OFFERS: Mapping[str, str] = {
    "tool": "tools",
    "hook": "hooks",
    "command": "commands",
    "cli": "programs",
    "skill": "skills",
}
"""Methods of our own `ctx`."""

MARKS = ("alipes.plugin.tool", "alipes.plugins.tool_decorator.tool")
"""Decorators that make a function a tool."""

VARIABLES = (
    *("os.environ.get", "os.environ.pop", "os.environ.setdefault", "os.getenv"),
    *("get_env_value", "get_secret"),
)
"""Functions whose first argument is the name of a variable."""

COMPILED = (".so", ".pyd", ".dll", ".dylib", ".pyc", ".exe")


UNNAMED = "…"
"""Something whose name is only made as the code runs."""


class Remark(Struct, frozen=True):
    """Something in the code that will not work here, and where."""

    place: str
    says: str


class Survey(Struct):
    """All of it as far as it can be read; code can do more than can be read from it."""

    adds: dict[str, dict[str, None]] = {}
    """By kind (tools, hooks, commands, programs, skills, provides): names, in the order found."""
    powers: dict[str, dict[str, list[str]]] = {}
    """By kind: what shows it, and where."""
    variables: dict[str, None] = {}
    imports: dict[str, str] = {}
    """Top-level modules that it cannot do without, and where they are first imported."""
    outside: list[Remark] = []
    """Uses of the original's internals, which are out of scope."""
    unread: list[str] = []
    """Files that are no readable Python."""

    def add(self, kind: str, name: str | None) -> None:
        self.adds.setdefault(kind, {})[name or UNNAMED] = None

    def show(self, power: str, what: str, place: str) -> None:
        places = self.powers.setdefault(power, {}).setdefault(what, [])
        if place not in places:
            places.append(place)


def survey(folder: Path, files: Iterable[Path]) -> Survey:
    """Read the Python files among `files`; places are told from `folder`."""
    found = Survey()
    for file in files:
        name = file.relative_to(folder).as_posix()
        if file.suffix in COMPILED:
            found.show("native code", name, name)
        elif file.suffix == ".py" and not is_test(Path(name)):
            try:
                _File(found, name, ast.parse(file.read_bytes())).read()
            except (SyntaxError, ValueError, RecursionError, MemoryError, OSError) as error:
                found.unread.append(f"{name}: {error}")
    return found


def is_test(path: Path) -> bool:
    """Tests of a plugin are not run with it."""
    return any(part in ("tests", "test") for part in path.parts[:-1]) or path.name == "conftest.py"


class _File:
    """One file of it."""

    def __init__(self, found: Survey, name: str, tree: ast.Module) -> None:
        self._found, self._name, self._tree, self._names = found, name, tree, Names(tree)
        self._guarded = {
            line
            for node in ast.walk(tree)
            if isinstance(node, ast.Try)
            for inner in node.body
            for line in range(inner.lineno, (inner.end_lineno or inner.lineno) + 1)
        }
        """Lines inside a `try`: what is imported there may be missing."""

    def read(self) -> None:
        for top in self._tree.body:
            if isinstance(top, ast.AsyncFunctionDef) and parameters(top.name) is not None:
                self._found.add("hooks", top.name)
        for node in ast.walk(self._tree):
            for _, _, name in imported(node):
                self._imported(name, node)
            self._look(node)

    def _place(self, node: ast.AST) -> str:
        return f"{self._name}:{getattr(node, 'lineno', 0)}"

    def _imported(self, name: str, node: ast.AST) -> None:
        guarded = getattr(node, "lineno", 0) in self._guarded
        if not guarded:
            self._found.imports.setdefault(name.partition(".")[0], self._place(node))
        for power, modules in MODULES.items():
            for module in modules:
                if name == module or name.startswith(f"{module}."):
                    self._found.show(power, module, self._place(node))
        if is_original(name) and not is_supported(name):
            ready = ", and goes on without it" if guarded else ""
            self._outside(node, f"imports {name}, which is not among the names supported here{ready}")

    def _look(self, node: ast.AST) -> None:
        match node:
            case ast.Call():
                self._call(node)
            case ast.AsyncFunctionDef() | ast.FunctionDef():
                self._function(node)
            case ast.Attribute() | ast.Name() if isinstance(node.ctx, ast.Load):
                self._named(node)
            case ast.Subscript() if self._names.dotted(node.value) == "os.environ":
                self._variable(node.slice, node)
            case ast.Assign() | ast.Delete():
                for target in node.targets:
                    self._changed(target)
            case ast.AugAssign() | ast.AnnAssign():
                self._changed(node.target)

    def _named(self, node: ast.Attribute | ast.Name) -> None:
        name = self._names.dotted(node)
        for power, names in NAMES.items():
            if name in names:
                self._found.show(power, name, self._place(node))

    def _function(self, node: ast.AsyncFunctionDef | ast.FunctionDef) -> None:
        for mark in node.decorator_list:
            words = mark.keywords if isinstance(mark, ast.Call) else []
            if self._names.dotted(mark.func if isinstance(mark, ast.Call) else mark) in MARKS:
                named = next((text_of(each.value) for each in words if each.arg == "name"), "")
                self._found.add("tools", named or node.name)

    def _call(self, node: ast.Call) -> None:
        name, first = self._names.dotted(node.func), node.args[0] if node.args else None
        if name in VARIABLES or name.rpartition(".")[2] in VARIABLES:
            self._variable(first, node)
        elif name.startswith("os.environ.") or (first and self._names.dotted(first) == "os.environ"):
            self._found.show("environment", "os.environ", self._place(node))
        elif name == "importlib.import_module" and not self._names.module(node):
            self._found.show("made code", name, self._place(node))
        elif name == "setattr" and len(node.args) == 3:
            owner = self._names.dotted(node.args[0]) or self._names.module(node.args[0])
            self._patched(f"{owner}.{text_of(node.args[1]) or UNNAMED}", node)
        elif isinstance(node.func, ast.Attribute):
            self._registered(node, node.func)
        if is_original(module := self._names.module(node)):
            self._imported(module, node)

    def _registered(self, node: ast.Call, method: ast.Attribute) -> None:
        """`ctx.register_tool("x", ...)`, `ctx.tool(x)`, `registry.register(name="x")`."""
        owner = self._names.dotted(method.value).rpartition(".")[2]
        ours = owner in ("ctx", "context")
        if method.attr in REGISTERS:
            self._found.add(REGISTERS[method.attr], _first(node))
        elif method.attr.startswith("register_") and ours:
            self._found.add("provides", _kinded(method.attr.removeprefix("register_"), _first(node)))
        elif method.attr == "register" and owner == "registry":
            self._found.add("tools", _first(node))
        elif ours and method.attr in OFFERS:
            self._found.add(OFFERS[method.attr], _first(node))
        elif ours and method.attr == "provide" and len(node.args) > 1:
            self._found.add("provides", _kinded(text_of(node.args[0]), text_of(node.args[1])))

    def _variable(self, name: ast.expr | None, node: ast.AST) -> None:
        if text := text_of(name):
            self._found.variables[text] = None
        else:
            self._found.show("environment", "os.environ", self._place(node))

    def _changed(self, target: ast.expr) -> None:
        match target:
            case ast.Tuple() | ast.List():
                for each in target.elts:
                    self._changed(each)
            case ast.Attribute():
                self._patched(self._names.dotted(target), target)
            case ast.Subscript():
                self._patched(self._names.module(target), target)

    def _patched(self, name: str, node: ast.AST) -> None:
        if is_original(name):
            self._outside(node, f"changes {name}, which is the original's own and not ours")

    def _outside(self, node: ast.AST, says: str) -> None:
        remark = Remark(self._place(node), says)
        if remark not in self._found.outside:
            self._found.outside.append(remark)


def _first(node: ast.Call) -> str:
    """The name that is registered: what `name=` says, or the first argument as far as it can be read."""
    named = next((each.value for each in node.keywords if each.arg in ("name", "hook_name")), None)
    first = named or (node.args[0] if node.args else None)
    return first.id if isinstance(first, ast.Name) and not named else text_of(first)


def _kinded(kind: str, name: str) -> str:
    return f"{kind.replace('_', ' ')} {name}".strip()
