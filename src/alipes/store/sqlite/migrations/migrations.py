"""The database schema, and the migrations that bring older homes up to it."""

import sqlite3
from collections.abc import Mapping
from typing import TypeAlias

from alipes.kernel.errors import StoreError
from alipes.store.sqlite.migrations import (
    schema_14,
    schema_15,
    schema_16,
    schema_17,
    schema_18,
    schema_19,
    schema_20,
    schema_21,
)

"""Expressions of indexes: a query that is to use one contains the same text."""
_MODEL_CALLS = """CREATE VIEW model_calls AS
        SELECT turns.id AS turn_id, messages.session_id AS session_id, 'answer' AS task,
            iif(turns.parent_id IS NULL, '', 'delegate_task') AS tool, messages.model AS model,
            input, output, cached, cache_write, reasoning, cost, messages.created AS created
        FROM messages JOIN turns ON turns.number = messages.turn_number WHERE input IS NOT NULL
        UNION ALL
        SELECT turn_id, session_id, task, tool, model,
            input, output, cached, cache_write, reasoning, cost, created FROM auxiliary_calls"""

_OUTBOX = """CREATE TABLE outbox (  -- messages to chats, each lane sent in the order of the numbers
        number         INTEGER PRIMARY KEY AUTOINCREMENT,
        id             TEXT NOT NULL UNIQUE,
        platform       TEXT NOT NULL,
        lane           TEXT NOT NULL,
        outbound       TEXT NOT NULL,
        state          TEXT NOT NULL DEFAULT 'queued',
        attempts       INTEGER NOT NULL DEFAULT 0,
        due            REAL NOT NULL DEFAULT 0,
        sent_ids       TEXT NOT NULL DEFAULT '[]',
        uncertain_part INTEGER NOT NULL DEFAULT 0,
        reason         TEXT NOT NULL DEFAULT '',
        created        REAL NOT NULL,
        finished       REAL
    )"""
_TRIGGER = """CREATE TRIGGER messages_deleted AFTER DELETE ON messages
        BEGIN DELETE FROM search_index WHERE rowid = old.number; END"""
_TABLES = (
    """CREATE TABLE sessions (  -- one conversation; a key may have had several
        id        TEXT PRIMARY KEY,
        key       TEXT NOT NULL,
        platform  TEXT NOT NULL,
        address   TEXT NOT NULL,
        title     TEXT NOT NULL DEFAULT '',
        created   REAL NOT NULL,
        updated   REAL NOT NULL,
        parent_id TEXT REFERENCES sessions (id) ON DELETE SET NULL,
        model     TEXT NOT NULL DEFAULT '',
        busy_mode TEXT NOT NULL DEFAULT ''
    )""",
    """CREATE TABLE leases (  -- the current session of a key, and the process that may write to it
        key        TEXT PRIMARY KEY,
        session_id TEXT REFERENCES sessions (id) ON DELETE SET NULL,
        holder     TEXT,
        epoch      INTEGER NOT NULL DEFAULT 0
    ) WITHOUT ROWID""",
    """CREATE TABLE turns (
        number     INTEGER PRIMARY KEY,
        id         TEXT NOT NULL UNIQUE,
        key        TEXT NOT NULL,
        session_id TEXT NOT NULL REFERENCES sessions (id) ON DELETE CASCADE,
        platform   TEXT NOT NULL,
        inbound_id TEXT NOT NULL,
        inbound    TEXT NOT NULL,
        epoch      INTEGER NOT NULL DEFAULT 0,
        attempts   INTEGER NOT NULL DEFAULT 0,
        ending     TEXT,  -- NULL while it is queued or running
        detail     TEXT NOT NULL DEFAULT '',
        created    REAL NOT NULL,
        ended      REAL,
        busy_mode  TEXT NOT NULL DEFAULT 'queue',
        started    REAL,
        parent_id  TEXT AS (json_extract(inbound, '$.parent')) VIRTUAL,  -- the turn it works for
        UNIQUE (platform, inbound_id)   -- rejects the second copy of a message
    )""",
    """CREATE TABLE messages (  -- the transcript: these rows in the order of their numbers
        number      INTEGER PRIMARY KEY,
        turn_number INTEGER NOT NULL REFERENCES turns (number) ON DELETE CASCADE,
        session_id  TEXT NOT NULL,
        role        TEXT NOT NULL,
        message     TEXT NOT NULL,
        model       TEXT NOT NULL DEFAULT '',
        input       INTEGER,  -- token counts: NULL when no model was called
        output      INTEGER,
        cached      INTEGER,
        cache_write INTEGER,
        reasoning   INTEGER,
        cost        REAL,  -- NULL when the price is unknown
        created     REAL NOT NULL
    )""",
    """CREATE TABLE tool_calls (  -- of unfinished turns; a finished turn has them in its transcript
        turn_number INTEGER NOT NULL REFERENCES turns (number) ON DELETE CASCADE,
        call_id     TEXT NOT NULL,
        result      TEXT,  -- NULL: started, not known to have finished
        UNIQUE (turn_number, call_id)
    )""",
    """CREATE TABLE pending_ops (  -- stops and other ops, until the holder of the session takes them
        number INTEGER PRIMARY KEY AUTOINCREMENT,
        key    TEXT NOT NULL,
        kind   TEXT NOT NULL,
        op     TEXT NOT NULL
    )""",
    "CREATE VIRTUAL TABLE search_index USING fts5 (text, tokenize = 'unicode61 remove_diacritics 2')",
    _TRIGGER,
    """CREATE TABLE session_ancestors (  -- what a branch shares: the turns of an ancestor up to `last_turn`
        session_id  TEXT NOT NULL REFERENCES sessions (id) ON DELETE CASCADE,
        ancestor_id TEXT NOT NULL REFERENCES sessions (id),
        last_turn   INTEGER NOT NULL,
        PRIMARY KEY (session_id, ancestor_id)
    ) WITHOUT ROWID""",
    """CREATE TABLE undone_turns (  -- hidden from a session; its branches may still see them
        session_id  TEXT NOT NULL REFERENCES sessions (id) ON DELETE CASCADE,
        turn_number INTEGER NOT NULL REFERENCES turns (number) ON DELETE CASCADE,
        PRIMARY KEY (session_id, turn_number)
    ) WITHOUT ROWID""",
    """CREATE TABLE grants (  -- rules that a person approved with "always", compared byte by byte
        rule    BLOB PRIMARY KEY,
        created REAL NOT NULL
    ) WITHOUT ROWID""",
    _OUTBOX,
    """CREATE TABLE drafts (  -- messages in chats that show the answer of a running turn
        lane       TEXT NOT NULL,
        turn_id    TEXT NOT NULL,
        message_id TEXT NOT NULL,
        created    REAL NOT NULL,
        PRIMARY KEY (lane, turn_id, message_id)
    ) WITHOUT ROWID""",
    """CREATE TABLE people (  -- who has access on a platform, in addition to the configuration
        platform  TEXT NOT NULL,
        person_id TEXT NOT NULL,
        name      TEXT NOT NULL,
        role      TEXT NOT NULL,
        added     REAL NOT NULL,
        PRIMARY KEY (platform, person_id)
    ) WITHOUT ROWID""",
    """CREATE TABLE pairing_requests (  -- who asked for access, and the hash of the code they were given
        platform  TEXT NOT NULL,
        person_id TEXT NOT NULL,
        name      TEXT NOT NULL,
        address   TEXT NOT NULL,
        salt      BLOB NOT NULL,
        code_hash BLOB NOT NULL,
        created   REAL NOT NULL,
        PRIMARY KEY (platform, person_id)
    ) WITHOUT ROWID""",
    "CREATE TABLE wrong_pairing_codes (created REAL NOT NULL)",
    """CREATE TABLE default_chats (  -- where messages to a platform go when no chat is named
        platform TEXT PRIMARY KEY,
        address  TEXT NOT NULL
    ) WITHOUT ROWID""",
    """CREATE TABLE chat_settings (
        lane     TEXT PRIMARY KEY,
        progress TEXT NOT NULL
    ) WITHOUT ROWID""",
    """CREATE TABLE inbox (  -- incoming messages that are not a turn (yet), and ids already handled
        number   INTEGER PRIMARY KEY AUTOINCREMENT,
        platform TEXT NOT NULL,
        id       TEXT NOT NULL,
        message  TEXT NOT NULL DEFAULT '',
        batch    TEXT NOT NULL DEFAULT '',
        created  REAL NOT NULL,
        handled  REAL,
        UNIQUE (platform, id)
    )""",
    """CREATE TABLE api_keys (
        name                TEXT PRIMARY KEY,
        key_hash            BLOB NOT NULL UNIQUE,
        scope               TEXT NOT NULL,
        created             REAL NOT NULL,
        expires             REAL,
        requests_per_minute INTEGER
    ) WITHOUT ROWID""",
    """CREATE TABLE webhooks (  -- the secret in clear text: signatures are made with it
        name          TEXT PRIMARY KEY,
        settings      TEXT NOT NULL,
        secret        TEXT NOT NULL,
        created       REAL NOT NULL,
        deliveries    INTEGER NOT NULL DEFAULT 0,
        last_delivery REAL
    ) WITHOUT ROWID""",
    """CREATE TABLE history_hashes (  -- finds the turn after which an API client continues its conversation
        hash        BLOB NOT NULL,
        turn_number INTEGER NOT NULL REFERENCES turns (number) ON DELETE CASCADE,
        PRIMARY KEY (hash, turn_number)
    ) WITHOUT ROWID""",
    """CREATE TABLE responses (  -- stored responses of the API, by the id that the client knows
        id          TEXT PRIMARY KEY,
        turn_number INTEGER NOT NULL UNIQUE REFERENCES turns (number) ON DELETE CASCADE,
        caller      TEXT NOT NULL,
        request     TEXT NOT NULL,
        deleted     INTEGER NOT NULL DEFAULT 0
    ) WITHOUT ROWID""",
    """CREATE TABLE temporary_sessions (  -- deleted as soon as they are answered
        session_id TEXT PRIMARY KEY REFERENCES sessions (id) ON DELETE CASCADE
    ) WITHOUT ROWID""",
    """CREATE TABLE auxiliary_calls (  -- model calls that are not a message of a transcript
        number      INTEGER PRIMARY KEY,
        turn_id     TEXT NOT NULL,
        session_id  TEXT NOT NULL,
        task        TEXT NOT NULL,
        tool        TEXT NOT NULL,
        model       TEXT NOT NULL,
        input       INTEGER NOT NULL,
        output      INTEGER NOT NULL,
        cached      INTEGER NOT NULL,
        cache_write INTEGER NOT NULL,
        reasoning   INTEGER NOT NULL,
        cost        REAL,  -- NULL when the price is unknown
        created     REAL NOT NULL
    )""",
    _MODEL_CALLS,
    """CREATE TABLE summaries (  -- replace the start of a conversation; the newest valid one counts
        number         INTEGER PRIMARY KEY,
        session_id     TEXT NOT NULL REFERENCES sessions (id) ON DELETE CASCADE,
        last_message   INTEGER NOT NULL,  -- the last message it replaces; 0: none
        message_count  INTEGER NOT NULL, -- how many messages that were; no longer valid if this has changed
        last_trimmed   INTEGER NOT NULL,  -- tool results up to this message are shortened
        max_chars      INTEGER NOT NULL,
        newest_message INTEGER NOT NULL,  -- the last message of the conversation when it was written
        text           TEXT NOT NULL,
        created        REAL NOT NULL
    )""",
    """CREATE TABLE failed_compactions (  -- since the last one that succeeded
        session_id TEXT PRIMARY KEY REFERENCES sessions (id) ON DELETE CASCADE,
        attempts   INTEGER NOT NULL,
        error      TEXT NOT NULL
    ) WITHOUT ROWID""",
    """CREATE TABLE todos (  -- the to-do list of a conversation, as JSON
        session_id TEXT PRIMARY KEY REFERENCES sessions (id) ON DELETE CASCADE,
        items      TEXT NOT NULL,
        updated    REAL NOT NULL
    ) WITHOUT ROWID""",
)

_INDEXES = (
    "CREATE INDEX IF NOT EXISTS sessions_by_key ON sessions (key)",
    "CREATE INDEX IF NOT EXISTS sessions_by_time ON sessions (updated)",
    "CREATE INDEX IF NOT EXISTS leases_by_session ON leases (session_id)",
    "CREATE INDEX IF NOT EXISTS turns_by_session ON turns (session_id)",
    "CREATE INDEX IF NOT EXISTS turns_unfinished ON turns (key) WHERE ending IS NULL",
    "CREATE INDEX IF NOT EXISTS turns_by_parent ON turns (parent_id) WHERE parent_id IS NOT NULL",
    """CREATE INDEX IF NOT EXISTS turns_by_origin ON turns (json_extract(inbound, '$.origin.session'))
        WHERE platform = 'subagent'""",
    "CREATE INDEX IF NOT EXISTS messages_by_turn ON messages (turn_number)",
    "CREATE INDEX IF NOT EXISTS messages_by_session ON messages (session_id)",
    "CREATE INDEX IF NOT EXISTS messages_by_time ON messages (created) WHERE input IS NOT NULL",
    "CREATE INDEX IF NOT EXISTS pending_ops_by_key ON pending_ops (key)",
    "CREATE INDEX IF NOT EXISTS session_ancestors_by_ancestor ON session_ancestors (ancestor_id)",
    "CREATE INDEX IF NOT EXISTS undone_turns_by_turn ON undone_turns (turn_number)",
    """CREATE INDEX IF NOT EXISTS outbox_open ON outbox (platform, lane, number)
        WHERE state IN ('queued', 'sending')""",
    "CREATE INDEX IF NOT EXISTS outbox_finished ON outbox (finished) WHERE finished IS NOT NULL",
    "CREATE INDEX IF NOT EXISTS inbox_waiting ON inbox (platform, number) WHERE handled IS NULL",
    "CREATE INDEX IF NOT EXISTS inbox_handled ON inbox (handled) WHERE handled IS NOT NULL",
    "CREATE INDEX IF NOT EXISTS history_hashes_by_turn ON history_hashes (turn_number)",
    "CREATE INDEX IF NOT EXISTS auxiliary_calls_by_turn ON auxiliary_calls (turn_id)",
    "CREATE INDEX IF NOT EXISTS auxiliary_calls_by_session ON auxiliary_calls (session_id)",
    "CREATE INDEX IF NOT EXISTS auxiliary_calls_by_time ON auxiliary_calls (created)",
    "CREATE INDEX IF NOT EXISTS summaries_by_session ON summaries (session_id)",
)

_RENAMES: dict[str, tuple[str, dict[str, str]]] = {
    "sessions": ("sessions", {"parent": "parent_id", "busy": "busy_mode"}),
    "seats": ("leases", {"session": "session_id"}),
    "turns": ("turns", {"session": "session_id", "busy": "busy_mode", "begun": "started", "parent": "parent_id"}),
    "said": ("messages", {"turn": "turn_number", "session": "session_id"}),
    "acts": ("tool_calls", {"turn": "turn_number"}),
    "controls": ("pending_ops", {}),
    "words": ("search_index", {}),
    "lineage": ("session_ancestors", {"session": "session_id", "ancestor": "ancestor_id", "upto": "last_turn"}),
    "hidden": ("undone_turns", {"session": "session_id", "turn": "turn_number"}),
    "drafts": ("drafts", {"turn": "turn_id", "message": "message_id"}),
    "people": ("people", {"person": "person_id", "since": "added"}),
    "pairings": ("pairing_requests", {"person": "person_id", "hash": "code_hash"}),
    "missed_codes": ("wrong_pairing_codes", {}),
    "homes": ("default_chats", {}),
    "chats": ("chat_settings", {}),
    "arrivals": ("inbox", {"arrival": "message", "done": "handled"}),
    "callers": ("api_keys", {"hash": "key_hash", "rate": "requests_per_minute"}),
    "webhooks": ("webhooks", {"hook": "settings", "taken": "deliveries", "last": "last_delivery"}),
    "answers": ("history_hashes", {"mark": "hash", "turn": "turn_number"}),
    "responses": ("responses", {"turn": "turn_number", "asked": "request"}),
    "passing": ("temporary_sessions", {"session": "session_id"}),
    "billed": ("auxiliary_calls", {"turn": "turn_id", "session": "session_id"}),
    "digests": (
        "summaries",
        {
            "session": "session_id",
            "upto": "last_message",
            "covers": "message_count",
            "trimmed": "last_trimmed",
            "widest": "max_chars",
            "last": "newest_message",
        },
    ),
    "compactions": ("failed_compactions", {"session": "session_id", "tries": "attempts", "why": "error"}),
    "todos": ("todos", {"session": "session_id"}),
}
"""Tables and columns of schema 9: their names in schema 10."""

_OLD_INDEXES = (
    *("seats_by_session", "said_by_turn", "said_by_session", "said_by_time", "controls_by_key"),
    *("lineage_by_ancestor", "hidden_by_turn", "arrivals_waiting", "arrivals_done", "answers_by_turn"),
    *("billed_by_turn", "billed_by_session", "billed_by_time", "digests_by_session"),
)


def _rename(old: str, new: str, columns: dict[str, str]) -> list[str]:
    tables = [f"ALTER TABLE {old} RENAME TO {new}"] if old != new else []
    return tables + [f"ALTER TABLE {new} RENAME COLUMN {was} TO {now}" for was, now in columns.items()]


_FROM_9 = (
    "DROP VIEW bill",
    "DROP TRIGGER said_unsaid",
    *(f"DROP INDEX {name}" for name in _OLD_INDEXES),
    *(statement for old, names in _RENAMES.items() for statement in _rename(old, *names)),
    _OUTBOX,
    """INSERT INTO outbox SELECT number, id, platform, lane, outbound,
        CASE state WHEN 'owed' THEN 'queued' WHEN 'trying' THEN 'sending' WHEN 'dead' THEN 'failed'
            ELSE state END,
        attempts, due, paid, uncertain, why, created, settled FROM debts""",
    "DELETE FROM sqlite_sequence WHERE name = 'outbox'",
    "UPDATE sqlite_sequence SET name = 'outbox' WHERE name = 'debts'",  # a number is never given twice
    "DROP TABLE debts",
    """UPDATE turns SET detail = 'imported' WHERE detail LIKE 'as the caller %'
        AND number IN (SELECT number FROM turns WHERE inbound_id LIKE '%:given:%')""",
    _TRIGGER,
    _MODEL_CALLS,
    *_INDEXES,
)

_FROM_10 = (
    """CREATE TABLE approvals (  -- questions about tool calls, the answers, and the rights that these give
        number      INTEGER PRIMARY KEY,
        id          TEXT NOT NULL UNIQUE,
        session_id  TEXT NOT NULL,
        key         TEXT NOT NULL,
        turn_id     TEXT NOT NULL,
        tool        TEXT NOT NULL,
        arguments   TEXT NOT NULL,  -- JSON, without secrets
        workdir     TEXT NOT NULL,
        reason      TEXT NOT NULL,
        rule        BLOB NOT NULL,  -- compared byte by byte
        sources     TEXT NOT NULL DEFAULT '[]',  -- of untrusted text that had been read when it was asked
        asked_at    REAL NOT NULL,
        choice      TEXT,  -- NULL while it is open
        answered_by TEXT NOT NULL DEFAULT '',
        answered_at REAL,
        taken_at    REAL,  -- when the turn acted on the answer
        revoked_at  REAL
    )""",
    """INSERT INTO approvals
        (id, session_id, key, turn_id, tool, arguments, workdir, reason, rule, asked_at, choice, answered_at, taken_at)
        SELECT lower(hex(randomblob(6))), '', '', '', '', '{}', '', '', rule, created, 'always', created, created
        FROM grants ORDER BY created, rule""",
    "DROP TABLE grants",
    "CREATE INDEX approvals_by_rule ON approvals (rule) WHERE revoked_at IS NULL",
    "CREATE INDEX approvals_waiting ON approvals (turn_id) WHERE taken_at IS NULL",
    "CREATE INDEX approvals_by_session ON approvals (session_id)",
    """CREATE TRIGGER turn_ended_unanswered AFTER UPDATE OF ending ON turns WHEN new.ending IS NOT NULL
        BEGIN UPDATE approvals SET choice = 'no', answered_by = 'stop', answered_at = new.ended
            WHERE turn_id = new.id AND taken_at IS NULL AND choice IS NULL; END""",
    """CREATE TRIGGER session_deleted_approvals AFTER DELETE ON sessions
        BEGIN DELETE FROM approvals WHERE session_id = old.id AND choice IS NOT 'always'; END""",
    """CREATE TABLE untrusted_sources (  -- text of strangers, and secrets, that a conversation has read
        session_id TEXT NOT NULL,
        source     TEXT NOT NULL,
        label      TEXT NOT NULL,
        created    REAL NOT NULL,
        PRIMARY KEY (session_id, source)
    ) WITHOUT ROWID""",
    """CREATE TRIGGER session_deleted_sources AFTER DELETE ON sessions
        BEGIN DELETE FROM untrusted_sources WHERE session_id = old.id; END""",
)

_FROM_11 = (
    "ALTER TABLE sessions ADD COLUMN permission_mode TEXT NOT NULL DEFAULT ''",
    "ALTER TABLE sessions ADD COLUMN effort TEXT NOT NULL DEFAULT ''",
    "ALTER TABLE sessions ADD COLUMN workdir TEXT NOT NULL DEFAULT ''",  # where its last turn worked
    """UPDATE sessions SET workdir = coalesce((SELECT iif(json_valid(inbound), json_extract(inbound, '$.workdir'), '')
        FROM turns WHERE session_id = sessions.id ORDER BY number DESC LIMIT 1), '')""",
    "CREATE INDEX sessions_by_workdir ON sessions (platform, workdir, updated)",
    "ALTER TABLE turns ADD COLUMN held INTEGER NOT NULL DEFAULT 0",  # 1: queued, and kept back after a stop
    "ALTER TABLE approvals ADD COLUMN pattern TEXT NOT NULL DEFAULT ''",  # such as `git push *`; empty: the exact rule
    "ALTER TABLE approvals ADD COLUMN note TEXT NOT NULL DEFAULT ''",  # why not, in the person's words
    "ALTER TABLE undone_turns ADD COLUMN step INTEGER NOT NULL DEFAULT 0",  # turns undone together; 0: not to be redone
)

_FROM_12 = (
    "ALTER TABLE sessions ADD COLUMN tools_off TEXT NOT NULL DEFAULT ''",  # tools and groups, separated by spaces
)

Steps: TypeAlias = Mapping[int, tuple[int, tuple[str, ...]]]
"""By the schema of a file: the schema that it gets next, and the statements that lead to it."""

STEPS: Steps = {
    0: (10, (*_TABLES, *_INDEXES)),
    9: (10, _FROM_9),
    10: (11, _FROM_10),
    11: (12, _FROM_11),
    12: (13, _FROM_12),
    13: (14, schema_14.STATEMENTS),
    14: (15, schema_15.STATEMENTS),
    15: (16, schema_16.STATEMENTS),
    16: (17, schema_17.STATEMENTS),
    17: (18, schema_18.STATEMENTS),
    18: (19, schema_19.STATEMENTS),
    19: (20, schema_20.STATEMENTS),
    20: (21, schema_21.STATEMENTS),
}
"""0: a new file; 9: the previous release. A released step is never edited: add the next one."""
SCHEMA = 21


def migrate(db: sqlite3.Connection, steps: Steps = STEPS) -> None:
    """Bring `db` up to the newest schema, in one transaction; safe while other processes do the same.

    Raises `StoreError` for a file of a newer alipes, or of one that is too old.
    """
    newest = max(reached for reached, _ in steps.values())
    if schema_version(db) == newest:
        return
    db.execute("BEGIN IMMEDIATE")
    try:
        while (version := schema_version(db)) != newest:
            reached, statements = _next_step(version, newest, steps)
            for statement in statements:
                db.execute(statement)
            db.execute(f"PRAGMA user_version = {reached}")
        db.execute("COMMIT")
    finally:
        if db.in_transaction:
            db.execute("ROLLBACK")


def _next_step(version: int, newest: int, steps: Steps) -> tuple[int, tuple[str, ...]]:
    if version > newest:
        raise StoreError(
            f"this home was written by a newer alipes (schema {version}, this one knows {newest}); "
            "upgrade alipes or use another home"
        )
    if version not in steps:
        oldest = min(filter(None, steps))
        raise StoreError(
            f"this home is too old for this alipes (schema {version}, oldest supported: {oldest}); "
            "open it once with the previous release, or use another home"
        )
    return steps[version]


def schema_version(db: sqlite3.Connection) -> int:
    """The schema of `db`; 0 for an empty file."""
    (version,) = db.execute("PRAGMA user_version").fetchone()
    return int(version)
