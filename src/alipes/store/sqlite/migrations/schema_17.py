"""Statements from schema 16 to 17: background processes, so that a notice can name those that were lost."""

STATEMENTS = (
    """CREATE TABLE background_processes (  -- of conversations, as long as they run
        holder     TEXT NOT NULL,           -- the process of alipes that started it
        name       TEXT NOT NULL,
        session_id TEXT NOT NULL,
        command    TEXT NOT NULL,
        started    REAL NOT NULL,
        PRIMARY KEY (holder, name))""",
    "CREATE INDEX background_processes_by_session ON background_processes (session_id)",
)
