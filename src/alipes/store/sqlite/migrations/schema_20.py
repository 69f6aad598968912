"""Statements from schema 19 to 20: turns that wait for a limit, keys that rest, and the bill of each key."""

STATEMENTS = (
    "ALTER TABLE turns ADD COLUMN resume_at REAL NOT NULL DEFAULT 0",  # not claimed before this time
    "CREATE INDEX turns_parked ON turns (resume_at) WHERE resume_at > 0",
    """CREATE TABLE key_rests (  -- API keys that their provider does not serve for a while
        provider TEXT NOT NULL,
        variable TEXT NOT NULL,
        reason   TEXT NOT NULL,  -- limit, credit or rejected
        until    REAL NOT NULL,
        PRIMARY KEY (provider, variable)
    ) WITHOUT ROWID""",
    """CREATE TABLE key_usage (  -- running sums of the calls with each key of a provider that has several
        provider    TEXT NOT NULL,
        variable    TEXT NOT NULL,
        session_id  TEXT NOT NULL,
        model       TEXT NOT NULL,
        quarter     INTEGER NOT NULL,  -- of an hour, as in `usage_sums`
        calls       INTEGER NOT NULL,
        input       INTEGER NOT NULL,
        output      INTEGER NOT NULL,
        cached      INTEGER NOT NULL,
        cache_write INTEGER NOT NULL,
        reasoning   INTEGER NOT NULL,
        cost        REAL NOT NULL,
        priced      INTEGER NOT NULL,
        updated     REAL NOT NULL,
        PRIMARY KEY (provider, session_id, variable, model, quarter)
    ) WITHOUT ROWID""",
    "CREATE INDEX key_usage_by_time ON key_usage (quarter)",
)
