"""Statements from schema 18 to 19: order among conversations, versions of a message, links that show one."""

STATEMENTS = (
    "ALTER TABLE sessions ADD COLUMN pinned INTEGER NOT NULL DEFAULT 0",
    "ALTER TABLE sessions ADD COLUMN archived INTEGER NOT NULL DEFAULT 0",
    "ALTER TABLE sessions ADD COLUMN folder TEXT NOT NULL DEFAULT ''",
    "CREATE INDEX sessions_filed ON sessions (folder) WHERE folder <> ''",
    "CREATE INDEX sessions_pinned ON sessions (updated) WHERE pinned = 1",
    "ALTER TABLE api_keys ADD COLUMN unlisted INTEGER NOT NULL DEFAULT 0",  # its conversations are not on the page
    "ALTER TABLE undone_turns ADD COLUMN after_turn INTEGER",  # the turn before those undone together; 0: none
    """CREATE TABLE shared_conversations (  -- links that show a conversation as it was when they were made
        id         TEXT PRIMARY KEY,
        token_hash BLOB NOT NULL UNIQUE,
        session_id TEXT NOT NULL REFERENCES sessions (id) ON DELETE CASCADE,
        created    REAL NOT NULL,
        expires    REAL NOT NULL)""",
    "CREATE INDEX shared_conversations_by_session ON shared_conversations (session_id)",
)
