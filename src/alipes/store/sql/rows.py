"""Rows of the store: values as JSON, text that a column can hold, and the base of the classes that use tables."""

import time
from collections.abc import Callable

from alipes.kernel.messages import Message, ToolResult
from alipes.kernel.turns import Address, Inbound, Op, Usage
from alipes.runtime.json_text import clean_text as clean_text
from alipes.runtime.json_text import to_json as to_json
from alipes.runtime.json_text import to_json_bytes as to_json_bytes
from alipes.store.sql.connection import Database
from alipes.store.sql.damage import RowDecoder


class SqlRows:
    """Rows of some tables, written with the time of `clock`."""

    def __init__(self, database: Database, *, clock: Callable[[], float] = time.time) -> None:
        self._database, self._clock = database, clock


class Decoders:
    """Read values from their JSON text."""

    message: RowDecoder[Message] = RowDecoder(Message)
    inbound: RowDecoder[Inbound] = RowDecoder(Inbound)
    address: RowDecoder[Address] = RowDecoder(Address)
    result: RowDecoder[ToolResult] = RowDecoder(ToolResult)
    op: RowDecoder[Op] = RowDecoder(Op)


def searchable_text(message: Message) -> str:
    """The text that search finds: what the user and the model said, not tool results."""
    return clean_text(message.text).replace("\0", " ") if message.role in ("user", "assistant") else ""


UsageRow = tuple[int | None, int | None, int | None, int | None, int | None, float | None]


def usage_columns(usage: Usage | None) -> UsageRow:
    if usage is None:
        return (None,) * 6
    return (usage.input, usage.output, usage.cached, usage.cache_write, usage.reasoning, usage.cost)


def usage_from_row(row: UsageRow) -> Usage:
    """Sums as one `Usage`; the sum of no rows is 0 tokens at an unknown price."""
    return Usage(row[0] or 0, row[1] or 0, row[2] or 0, row[3] or 0, row[4] or 0, row[5])
