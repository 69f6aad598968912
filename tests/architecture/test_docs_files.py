"""docs/files.md names the file of every command, endpoint and section of settings, as the code has them.

`python -m tests.architecture.test_docs_files` renews it.
"""

import ast
import re
import sys
from collections.abc import Iterable, Iterator
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, cast, get_args

from msgspec import Struct, structs

from alipes.cli.main import list_commands
from alipes.config.messengers import Messengers
from alipes.config.schema import KEYS
from alipes.config.settings import Settings
from alipes.gateway.commands import ChatCommands
from alipes.sessions.commands.registry import known_commands
from tests.world.commands import all_commands

ROOT = Path(__file__).parents[2]
SRC = ROOT / "src" / "alipes"
PAGE = ROOT / "docs" / "files.md"
MARKED = re.compile(r"(<!-- begin (\w+) -->\n).*?(<!-- end \2 -->)", re.DOTALL)
PATH = re.compile(r"/[\w{}:./-]*")
Rows = Iterable[tuple[str, str]]


def place(thing: Any) -> str:
    """The file of a function or class, and its name there."""
    while isinstance(thing, partial):
        thing = thing.func
    file = Path(cast(str, sys.modules[thing.__module__].__file__)).relative_to(SRC)
    return f"{file}:{thing.__name__}"


def slash_commands() -> Rows:
    return ((f"/{each.name}", place(each.act)) for each in known_commands(all_commands()))


def chat_commands() -> Rows:
    """Those that only chats have, or have their own way."""
    unused = cast(Any, None)
    known = ChatCommands(unused, unused, unused).known(all_commands())
    return ((f"/{each.name}", place(each.act)) for each in known if place(each.act).startswith("gateway/"))


def shell_commands() -> Rows:
    for each in sorted(list_commands(), key=lambda command: command.name):
        yield f"alipes {each.name}", place(getattr(import_module(each.module), each.function))


def endpoints() -> Rows:
    """Those that are declared, with the method that handles each; then other routes, which check access themselves."""
    declared, others = [], []
    for file in sorted([*SRC.glob("web/**/*.py"), *SRC.glob("features/**/*.py")]):
        tree, name = ast.parse(file.read_text()), str(file.relative_to(SRC))
        declared += [(call, f"{name}:{function}") for call, function in _declared(tree)]
        if any(_calls(node, "Route") for node in ast.walk(tree)):
            others += [(path, name) for path in _paths(tree) if (path, name) not in others]
    return [*sorted(declared, key=lambda row: row[0].partition(" ")[2]), *sorted(others)]


def _calls(node: ast.AST, name: str) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == name


def _declared(tree: ast.Module) -> Iterator[tuple[str, str]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.AsyncFunctionDef):
            for call in (each for each in node.decorator_list if _calls(each, "ApiEndpoint")):
                method, path = (ast.literal_eval(each) for each in cast(ast.Call, call).args[:2])
                yield f"{method} {path}", node.name


def _paths(tree: ast.Module) -> Iterator[str]:
    """The first argument of each route, and the keys of tables of routes."""
    constants = {
        node.targets[0].id: node.value.value
        for node in tree.body
        if isinstance(node, ast.Assign)
        and isinstance(node.targets[0], ast.Name)
        and isinstance(node.value, ast.Constant)
    }
    for node in ast.walk(tree):
        match node:
            case ast.Call(func=ast.Name("Route"), args=[ast.Name(name), *_]) if name in constants:
                yield constants[name]
            case ast.Call(func=ast.Name("Route"), args=[ast.Constant(str(path)), *_]):
                yield path
            case ast.Dict(keys=keys):
                yield from (
                    key.value for key in keys if isinstance(key, ast.Constant) and PATH.fullmatch(str(key.value))
                )
            case ast.Subscript(slice=ast.Constant(str(path)), ctx=ast.Store()) if PATH.fullmatch(path):
                yield path


def settings() -> Rows:
    fields = [(each.name, each.type) for each in structs.fields(Settings) if each.type is not Messengers]
    fields += [(each.name, each.type) for each in structs.fields(Messengers)]
    sections = {key.path.partition(".")[0] for key in KEYS if "." in key.path}
    yield "(no section)", place(Settings)
    for name, kind in sorted(fields):
        if name in sections:
            found = next(_structs(kind), None)
            yield f"[{name}]", place(Settings) if found is None else place(found)


def _structs(kind: Any) -> Iterator[type[Struct]]:
    if isinstance(kind, type) and issubclass(kind, Struct):
        yield kind
    for each in get_args(kind):
        yield from _structs(each)


TABLES = {
    "slash_commands": ("command", slash_commands),
    "chat_commands": ("command", chat_commands),
    "shell_commands": ("command", shell_commands),
    "endpoints": ("endpoint", endpoints),
    "settings": ("section", settings),
}


def to_table(head: str, rows: Rows) -> str:
    lines = [f"| {head} | file |", "|---|---|", *(f"| `{name}` | `{file}` |" for name, file in rows)]
    return "\n".join(lines) + "\n"


def renewed(page: str) -> str:
    def table(found: re.Match[str]) -> str:
        head, rows = TABLES[found[2]]
        return found[1] + to_table(head, rows()) + found[3]

    return MARKED.sub(table, page)


def test_the_page_names_the_files_of_the_code():
    page = PAGE.read_text()
    assert {found[2] for found in MARKED.finditer(page)} == set(TABLES)
    assert page == renewed(page), "run: make docs"


def test_every_section_and_endpoint_is_found():
    """The tables are made of the source; these are counted otherwise."""
    sections = {key.path.partition(".")[0] for key in KEYS if "." in key.path}
    assert {name.strip("[]") for name, _ in settings()} == {"(no section)", *sections}
    decorated = sum(len(re.findall(r"@ApiEndpoint\(", file.read_text())) for file in SRC.rglob("*.py"))
    names = [name for name, _ in endpoints()]
    assert sum(" " in name for name in names) == decorated and len(names) == len(set(names))
    assert {"/health", "/ready", "/metrics", "/openapi.json", "/mcp", "/hooks/{name}", "/"} <= set(names)


if __name__ == "__main__":
    PAGE.write_text(renewed(PAGE.read_text()))
