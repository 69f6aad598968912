"""Statements from schema 14 to 15: what the page shows, and the browsers that may show it."""

_BROWSERS = (
    """CREATE TABLE browsers (  -- logged in to the page; both halves of what a browser holds, as hashes
        id          TEXT PRIMARY KEY,
        name        TEXT NOT NULL,
        scope       TEXT NOT NULL,
        cookie_hash BLOB NOT NULL,
        secret_hash BLOB NOT NULL,
        created     REAL NOT NULL,
        last_seen   REAL NOT NULL
    ) WITHOUT ROWID""",
    """CREATE TABLE login_codes (  -- of links to the page; deleted when used
        code_hash BLOB PRIMARY KEY,
        scope     TEXT NOT NULL,
        name      TEXT NOT NULL,  -- of the browser; empty: from what the browser says about itself
        expires   REAL NOT NULL
    ) WITHOUT ROWID""",
)
STATEMENTS: tuple[str, ...] = (*_BROWSERS,)
