"""The step of the schema for what is to be done in a conversation."""

STEP: tuple[str, ...] = (
    """CREATE TABLE todos (             -- what a conversation has still to do, as its model wrote it down
        session   TEXT PRIMARY KEY REFERENCES sessions (id) ON DELETE CASCADE,
        items     TEXT NOT NULL,
        updated   REAL NOT NULL
    ) WITHOUT ROWID""",
)
