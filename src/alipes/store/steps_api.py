"""The step of the schema for who may call over HTTP, and for webhooks that lead in."""

STEP: tuple[str, ...] = (
    """CREATE TABLE callers (           -- keys that were given names
        name      TEXT PRIMARY KEY,
        hash      BLOB NOT NULL UNIQUE,
        scope     TEXT NOT NULL,
        created   REAL NOT NULL,
        expires   REAL,
        rate      INTEGER
    ) WITHOUT ROWID""",
    """CREATE TABLE webhooks (          -- the secret as it is: signatures are made with it
        name      TEXT PRIMARY KEY,
        hook      TEXT NOT NULL,
        secret    TEXT NOT NULL,
        created   REAL NOT NULL,
        taken     INTEGER NOT NULL DEFAULT 0,
        last      REAL
    ) WITHOUT ROWID""",
)
