"""Finds statements of a PostgreSQL migration that break workers of the version before, which still run.

A small reader of SQL, enough for our own files: comments, strings, quoted bodies, statements, parentheses. The body of
a function is not looked at; that of a `DO` block is, strings included, because it runs at once.
"""

import re
from collections.abc import Iterable, Iterator

BASELINE = 7
"""The last migration that may contain anything: there was no release on PostgreSQL before it."""
CONTRACTS = re.compile(r"\A(?:--[^\n]*\n)*?-- contracts: (\d{4})\n")
_TOKEN = re.compile(
    r"""--[^\n]* | /\*.*?\*/ | '(?:[^']|'')*' | (?P<tag>\$\w*\$)(?P<body>.*?)(?P=tag)""", re.DOTALL | re.VERBOSE
)
_FUNCTION = re.compile(r"^create (?:or replace )?(?:function|procedure) ([\w.]+) ?\(")
_TABLE = re.compile(r"^create (?:unlogged )?table (?:if not exists )?([\w.]+)")
_ALTER_TABLE = re.compile(r"^alter table (?:if exists )?(?:only )?([\w.]+) (.*)$")
_UNIQUE_INDEX = re.compile(r"^create unique index (?:concurrently )?(?:if not exists )?(?:\w+ )?on (?:only )?([\w.]+)")
_DROP = re.compile(
    r"^drop (table|view|materialized view|function|procedure|routine|aggregate|type|domain|sequence|schema|trigger|"
    r"extension)\b"
)
_ACTIONS = (
    (re.compile(r"^drop (?!constraint)"), "drops a column"),
    (re.compile(r"^drop constraint"), "drops a constraint"),
    (re.compile(r"^rename "), "renames"),
    (re.compile(r"^set schema"), "moves a table"),
    (re.compile(r"^alter (?:column )?\w+ (?:set data )?type "), "changes the type of a column"),
    (re.compile(r"^alter (?:column )?\w+ drop default"), "drops a default"),
    (re.compile(r"^add (?:constraint|check|unique|primary key|foreign key|exclude)"), "adds a constraint"),
)
_SET_NOT_NULL = re.compile(r"^alter (?:column )?(\w+) set not null")
_ADD_COLUMN = re.compile(
    r"^add (?!constraint)(?:column )?(?:if not exists )?\w+ .*\b(not null|primary key|unique|check|references)\b"
)


def find_breaks(sql: str, earlier: Iterable[str] = ()) -> list[str]:
    """What this file does that an older worker does not survive. `earlier`: the migrations before it."""
    functions = {name: parameters for text in earlier for name, parameters in _find_functions(text)}
    statements = list(_split(sql))
    created = {found[1] for each in statements if (found := _TABLE.match(each))}
    return [
        f"{why}: {statement[:80]}"
        for statement in statements
        for why in _judge(statement, statements, created, functions)
    ]


def find_contract(sql: str) -> int | None:
    """The migration since which the removed thing has not been used, if the file names it."""
    found = CONTRACTS.match(sql)
    return int(found[1]) if found else None


def _judge(
    statement: str, statements: list[str], created: set[str], functions: dict[str, tuple[str, ...]]
) -> Iterator[str]:
    if found := _DROP.match(statement):
        yield f"drops a {found[1]}"
    elif (found := _FUNCTION.match(statement)) and found[1] in functions:
        if _read_parameters(statement, found.end()) != functions[found[1]]:
            yield "changes the parameters of a function"
    elif (found := _UNIQUE_INDEX.match(statement)) and found[1] not in created:
        yield "adds a unique index to an existing table"
    elif (found := _ALTER_TABLE.match(statement)) and found[1] not in created:
        for action in _split_list(found[2]):
            yield from _judge_action(found[1], action, statements)
    elif statement.startswith("alter ") and " rename " in statement and not _ALTER_TABLE.match(statement):
        yield "renames"


def _judge_action(table: str, action: str, statements: list[str]) -> Iterator[str]:
    for pattern, why in _ACTIONS:
        if pattern.match(action):
            yield why
    if found := _SET_NOT_NULL.match(action):
        default = re.compile(rf"^alter table (?:only )?{table} .*alter (?:column )?{found[1]} set default ")
        if not any(map(default.match, statements)):
            yield "makes a column NOT NULL without a default"
    if (found := _ADD_COLUMN.match(action)) and not re.search(r" (default|generated) ", f"{action} "):
        if found[1] in ("not null", "primary key"):
            yield "adds a column that is NOT NULL without a default"
        elif found[1] != "references":
            yield "adds a constraint"


def _split(sql: str) -> Iterator[str]:
    """Statements in lower case with single spaces; strings and bodies of functions are empty."""

    def blank(found: re.Match[str]) -> str:
        text = found[0]
        if text.startswith("--") or text.startswith("/*"):
            return " "
        if found["tag"] is not None:
            before = sql[: found.start()].rstrip().lower()
            return f";{found['body'].replace(chr(39), ' ; ')};" if before.endswith("do") else "''"
        return "''"

    for statement in _TOKEN.sub(blank, sql).split(";"):
        if words := " ".join(statement.lower().split()):
            yield re.sub(r"^(?:begin|execute format \(|execute|then|loop|else) ", "", words)


def _find_functions(sql: str) -> Iterator[tuple[str, tuple[str, ...]]]:
    for statement in _split(sql):
        if found := _FUNCTION.match(statement):
            yield found[1], _read_parameters(statement, found.end())


def _read_parameters(statement: str, start: int) -> tuple[str, ...]:
    """What is between the parenthesis before `start` and the one that closes it."""
    depth, end = 1, start
    while depth and end < len(statement):
        depth += {"(": 1, ")": -1}.get(statement[end], 0)
        end += 1
    return tuple(_split_list(statement[start : end - 1]))


def _split_list(text: str) -> Iterator[str]:
    """The parts between commas that are not inside parentheses."""
    depth, part = 0, ""
    for letter in text:
        depth += {"(": 1, ")": -1}.get(letter, 0)
        if letter == "," and not depth:
            yield part.strip()
            part = ""
        else:
            part += letter
    if part.strip():
        yield part.strip()
