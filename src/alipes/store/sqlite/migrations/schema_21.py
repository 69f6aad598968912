"""Statements from schema 20 to 21: what was imported from other programs."""

STATEMENTS = (
    """CREATE TABLE imports (
        id       TEXT PRIMARY KEY,
        scope    TEXT NOT NULL,  -- the program, its home and the part of it
        started  REAL NOT NULL,
        finished REAL  -- NULL: broken off; the next import of this scope continues it
    )""",
    """CREATE TABLE imported_items (  -- what an import made, replaced or continued, and from what
        number      INTEGER PRIMARY KEY,
        import_id   TEXT NOT NULL REFERENCES imports (id) ON DELETE CASCADE,
        scope       TEXT NOT NULL,
        kind        TEXT NOT NULL,
        source_id   TEXT NOT NULL,
        source_file TEXT NOT NULL,
        source_hash TEXT NOT NULL,
        action      TEXT NOT NULL,
        target      TEXT NOT NULL,
        target_hash TEXT NOT NULL,
        details     TEXT NOT NULL,  -- what undo needs, as JSON
        UNIQUE (import_id, scope, kind, source_id)
    )""",
    "CREATE INDEX imported_items_by_source ON imported_items (scope, kind, source_id, number)",
)
