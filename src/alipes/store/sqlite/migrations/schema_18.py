"""Statements from schema 17 to 18: what conversations that had read untrusted text have written."""

STATEMENTS = (
    """CREATE TABLE untrusted_writes (  -- files that were changed in this time may contain text of strangers
        path  TEXT NOT NULL,             -- a file, or the folder of a command
        began REAL NOT NULL,
        ended REAL NOT NULL,
        PRIMARY KEY (path, began)
    ) WITHOUT ROWID""",
)
