"""The store's SQL in PostgreSQL's words: placeholders, and the few words of SQLite that PostgreSQL does not know."""

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, NamedTuple

_TOKENS = re.compile(r"'(?:[^']|'')*'|::|\?(\d+)|\?|:([a-z_]+)|%", re.S)
_REPLACED: dict[str, tuple[str, str]] = {
    "todos": ("session_id", "items updated"),
    "pairing_requests": ("platform, person_id", "name address salt code_hash created"),
    "default_chats": ("platform", "address"),
    "chat_settings": ("lane", "progress"),
    "message_vectors": ("number", "vector"),
    "search_progress": ("name", "first last"),
}
"""Tables of `INSERT OR REPLACE`: their key and their other columns."""
_STATEMENTS = {
    "PRAGMA defer_foreign_keys = ON": "SET CONSTRAINTS ALL DEFERRED",
    "SELECT max(number) + 1 FROM turns": "SELECT nextval(pg_get_serial_sequence('turns', 'number'))",
    "INSERT INTO search_index (rowid, text) VALUES (?, ?)": "INSERT INTO search_index (number, text) VALUES (?, ?)",
}
_WORDS = (
    (re.compile(r"(AS \(\s*SELECT )(:\w+|\?\d*)(?= UNION)"), r'\1CAST(\2 AS text) COLLATE "C"'),
    (re.compile(r"\sINDEXED BY \w+"), ""),
    (
        re.compile(r"strftime\('%Y-%m-%d', created, 'unixepoch', 'localtime'\)"),
        "to_char(to_timestamp(created), 'YYYY-MM-DD')",
    ),
)
_IGNORED = ("INSERT INTO search_trigrams", "INSERT INTO search_index (search_index")
"""Statements about SQLite's indexes."""


class Statement(NamedTuple):
    sql: str
    """Empty: it has no meaning in PostgreSQL."""
    numbered: bool
    """Its values have the names `p1`, `p2`, ..."""

    def bind(self, values: Any) -> Any:
        """The values as the driver takes them."""
        if isinstance(values, Mapping):
            return values
        if self.numbered:
            return {f"p{place}": value for place, value in enumerate(values, 1)}
        return tuple(values)


@lru_cache(maxsize=2048)
def translate(sql: str) -> Statement:
    """`sql` for PostgreSQL."""
    text = sql.strip()
    if text.startswith(_IGNORED):
        return Statement("", numbered=False)
    text = _STATEMENTS.get(text, text)
    for pattern, word in _WORDS:
        text = pattern.sub(word, text)
    text = _translate_insert(text)
    numbered = any(match[1] for match in _TOKENS.finditer(text))
    return Statement(_TOKENS.sub(_placeholder, text), numbered)


def _translate_insert(text: str) -> str:
    if text.startswith("INSERT OR IGNORE"):
        body, returning = _split_returning(text.replace("INSERT OR IGNORE", "INSERT", 1))
        return f"{body} ON CONFLICT DO NOTHING{returning}"
    if text.startswith("INSERT OR REPLACE"):
        table = text.split()[4]
        key, columns = _REPLACED[table]
        changes = ", ".join(f"{name} = excluded.{name}" for name in columns.split())
        body, returning = _split_returning(text.replace("INSERT OR REPLACE", "INSERT", 1))
        return f"{body} ON CONFLICT ({key}) DO UPDATE SET {changes}{returning}"
    return text


def _split_returning(text: str) -> tuple[str, str]:
    body, word, rest = text.partition(" RETURNING ")
    return body, word + rest


def _placeholder(match: "re.Match[str]") -> str:
    token = match[0]
    if token.startswith("'"):
        return token.replace("%", "%%")
    if token == "%":
        return "%%"
    if token == "::":
        return token
    if match[1]:
        return f"%(p{match[1]})s"
    return f"%({match[2]})s" if match[2] else "%s"
