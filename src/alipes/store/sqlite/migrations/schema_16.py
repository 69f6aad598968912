"""Statements from schema 15 to 16: what queries looked up in JSON becomes columns."""

from alipes.store.sqlite.migrations import schema_14

_INBOUND = "iif(json_valid(inbound), coalesce(json_extract(inbound, '$.{}'), ''), '')"
_OP = "iif(json_valid(op), coalesce(json_extract(op, '$.{}'), ''), '')"
_TURN_COLUMNS = {
    "text": _INBOUND.format("text"),
    "notice": _INBOUND.format("notice"),
    "via": _INBOUND.format("via"),
    "model": _INBOUND.format("model"),
    "user_id": _INBOUND.format("address.user"),
    "origin_session": _INBOUND.format("origin.session"),
}
_OP_COLUMNS = {name: _OP.format(name.removesuffix("_id")) for name in ("turn_id", "reason", "session_id")}
_SESSION_COLUMNS = {"chat": f"coalesce({schema_14.SESSION_CHAT}, '')", "user_id": schema_14.SESSION_USER}


def _add(table: str, columns: dict[str, str]) -> list[str]:
    """Add text columns and fill them."""
    added = [f"ALTER TABLE {table} ADD COLUMN {name} TEXT NOT NULL DEFAULT ''" for name in columns]
    values = ", ".join(f"{name} = {value}" for name, value in columns.items())
    return [*added, f"UPDATE {table} SET {values}"]


STATEMENTS = (
    "DROP VIEW model_calls",
    *(f"DROP TRIGGER messages_usage_{event}" for event in ("insert", "delete")),
    "DROP TRIGGER turns_first_text",
    "DROP INDEX turns_by_parent",
    "DROP INDEX turns_by_origin",
    "ALTER TABLE turns DROP COLUMN parent_id",
    "ALTER TABLE turns ADD COLUMN parent_id TEXT",  # the turn it works for
    f"UPDATE turns SET parent_id = nullif({_INBOUND.format('parent')}, '')",
    *_add("turns", _TURN_COLUMNS),
    *_add("pending_ops", _OP_COLUMNS),
    *_add("sessions", _SESSION_COLUMNS),
    "ALTER TABLE outbox ADD COLUMN fleeting INTEGER NOT NULL DEFAULT 0",
    "UPDATE outbox SET fleeting = 1 WHERE json_valid(outbound) AND json_extract(outbound, '$.fleeting')",
    "ALTER TABLE outbox ADD COLUMN owner TEXT NOT NULL DEFAULT ''",
    "ALTER TABLE outbox ADD COLUMN sender TEXT NOT NULL DEFAULT ''",
    "CREATE INDEX turns_by_parent ON turns (parent_id) WHERE parent_id IS NOT NULL",
    "CREATE INDEX turns_by_origin ON turns (origin_session) WHERE platform = 'subagent'",
    *(f"DROP INDEX sessions_by_{name}" for name in ("chat", "owner", "title", "first_text")),
    "CREATE INDEX sessions_by_chat ON sessions (chat)",
    "CREATE INDEX sessions_by_owner ON sessions (platform, user_id, updated)",
    "CREATE INDEX sessions_by_title ON sessions (lower(title))",
    "CREATE INDEX sessions_by_first_text ON sessions (lower(first_text))",
    """CREATE TRIGGER turns_first_text AFTER INSERT ON turns
        BEGIN UPDATE sessions SET first_text = substr(new.text, 1, 200)
            WHERE id = new.session_id AND first_text = ''; END""",
    *schema_14.MESSAGE_USAGE_TRIGGERS,
    """CREATE VIEW model_calls AS
        SELECT turns.id AS turn_id, messages.session_id AS session_id, 'answer' AS task,
            CASE WHEN turns.parent_id IS NULL THEN '' ELSE 'delegate_task' END AS tool, messages.model AS model,
            input, output, cached, cache_write, reasoning, cost, messages.created AS created
        FROM messages JOIN turns ON turns.number = messages.turn_number WHERE input IS NOT NULL
        UNION ALL
        SELECT turn_id, session_id, task, tool, model,
            input, output, cached, cache_write, reasoning, cost, created FROM auxiliary_calls""",
)
