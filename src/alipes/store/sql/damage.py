"""Rows whose JSON cannot be read: found by name, and passed over so that the rest stays readable."""

import logging
import sqlite3
from collections.abc import Iterator
from typing import Any, Generic, TypeVar

import msgspec

from alipes.kernel.errors import StoreError

log = logging.getLogger(__name__)

T = TypeVar("T")
_JSON_COLUMNS = (
    ("messages", "number", "message"),
    ("turns", "number", "inbound"),
    ("sessions", "id", "address"),
    ("tool_calls", "call_id", "result"),
    ("pending_ops", "number", "op"),
    ("outbox", "number", "outbound"),
)
MAX_NAMED = 20
"""Damaged rows that are named."""


class RowDecoder(Generic[T]):
    """Reads values of one type from rows, on any thread. Raises `StoreError` for a row that cannot be read."""

    def __init__(self, kind: Any) -> None:
        self._decoder: msgspec.json.Decoder[T] = msgspec.json.Decoder(kind)
        self._name = getattr(kind, "__name__", "value").lower()

    def decode(self, text: str | bytes) -> T:
        try:
            return self._decoder.decode(text)
        except (msgspec.DecodeError, UnicodeError, TypeError) as error:
            why = f"the store contains a row whose {self._name} cannot be read ({error})"
            raise StoreError(f"{why}; `alipes doctor` names it, `alipes restore` restores a backup") from error

    def decode_or(self, text: str | bytes, default: T, row: str) -> T:
        """`default` if the row cannot be read; that is logged once for each read."""
        try:
            return self.decode(text)
        except StoreError as error:
            log.error("%s cannot be read: %s", row, error.__cause__)
            return default


def find_damaged_rows(db: sqlite3.Connection) -> Iterator[str]:
    """One sentence for each row that is not valid JSON."""
    for table, key, column in _JSON_COLUMNS:
        sql = f"SELECT {key} FROM {table} WHERE {column} IS NOT NULL AND NOT json_valid({column}) LIMIT {MAX_NAMED}"
        for (name,) in db.execute(sql):
            yield f"row {name} of {table} cannot be read: its {column} is not valid JSON"
