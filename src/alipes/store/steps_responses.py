"""The step of the schema for answers that a caller may build on."""

STEP: tuple[str, ...] = (
    """CREATE TABLE answers (           -- by a mark of what a caller has of a conversation: its last turn
        mark      BLOB NOT NULL,
        turn      INTEGER NOT NULL REFERENCES turns (number) ON DELETE CASCADE,
        PRIMARY KEY (mark, turn)
    ) WITHOUT ROWID""",
    "CREATE INDEX answers_by_turn ON answers (turn)",
    """CREATE TABLE responses (         -- turns that a caller may ask for by name, and what it asked for
        id        TEXT PRIMARY KEY,
        turn      INTEGER NOT NULL UNIQUE REFERENCES turns (number) ON DELETE CASCADE,
        caller    TEXT NOT NULL,
        asked     TEXT NOT NULL,
        deleted   INTEGER NOT NULL DEFAULT 0
    ) WITHOUT ROWID""",
    """CREATE TABLE passing (           -- conversations that are forgotten as soon as they are answered
        session   TEXT PRIMARY KEY REFERENCES sessions (id) ON DELETE CASCADE
    ) WITHOUT ROWID""",
)
