"""Triggers of one SQLite connection that note changed rows for `HomeChangeFeed`. They are not in the file."""

from collections.abc import Iterator

_SESSION = "{row}.session_id"
_RUN_SESSION = "coalesce(nullif({row}.origin_session, ''), {row}.session_id)"
_RUN_STATUS = """coalesce({row}.ending, iif({row}.attempts > 0, 'running', iif({row}.held, 'held', 'queued')))"""
_BOTH, _ALL = ("INSERT", "UPDATE"), ("INSERT", "UPDATE", "DELETE")
_VISIBLE = "{row}.platform <> 'subagent'"


def row_triggers() -> Iterator[str]:
    """One statement for each event of each watched table."""
    for table, events, condition, *notes in (
        ("sessions", _BOTH, _VISIBLE, ("session", "{row}.id")),
        ("sessions", ("DELETE",), _VISIBLE, ("session_deleted", "{row}.id")),
        ("turns", ("INSERT", "UPDATE OF ending, attempts, held"), "1", ("run", "{row}.id", _RUN_SESSION, _RUN_STATUS)),
        ("todos", _BOTH, "1", ("session", _SESSION)),
        ("undone_turns", ("INSERT", "DELETE"), "1", ("session", _SESSION)),
        ("approvals", _BOTH, "1", ("inbox",), ("session", _SESSION)),
        ("questions", _BOTH, "1", ("inbox",), ("session", _SESSION)),
        ("schedules", _ALL, "1", ("schedule", "{row}.id")),
        ("schedule_runs", _BOTH, "1", ("schedule", "{row}.schedule_id")),
        ("memory_changes", _BOTH, "1", ("memory",)),
        ("proposals", _BOTH, "{row}.kind = 'memory'", ("memory",), ("inbox",)),
        ("proposals", _BOTH, "{row}.kind <> 'memory'", ("skill",), ("inbox",)),
        ("people", _ALL, "1", ("person",)),
        ("pairing_requests", _ALL, "1", ("person",), ("inbox",)),
        ("outbox", _ALL, "1", ("outbox",)),
    ):
        for event in events:
            row = "old" if event == "DELETE" else "new"
            calls = (_note(*(part.format(row=row) for part in note)) for note in notes)
            name = f"watch_{table}_{event.split()[0].lower()}_{notes[0][0]}"
            yield f"""CREATE TEMP TRIGGER IF NOT EXISTS {name} AFTER {event} ON main.{table}
                WHEN {condition.format(row=row)} BEGIN {" ".join(calls)} END"""


def _note(kind: str, id: str = "''", session: str = "''", status: str = "''") -> str:
    return f"SELECT note_change('{kind}', {id}, {session}, {status});"
