"""The schema, as the numbered steps that led to it. A released step is never edited: add the next one."""

import sqlite3

from alipes.kernel.errors import StoreError
from alipes.store import steps_api, steps_responses, steps_senses, steps_side, steps_subagents

_FIRST = (
    """CREATE TABLE sessions (          -- one conversation; a key may have had several
        id        TEXT PRIMARY KEY,
        key       TEXT NOT NULL,
        platform  TEXT NOT NULL,
        address   TEXT NOT NULL,
        title     TEXT NOT NULL DEFAULT '',
        created   REAL NOT NULL,
        updated   REAL NOT NULL
    )""",
    "CREATE INDEX sessions_by_key ON sessions (key)",
    "CREATE INDEX sessions_by_time ON sessions (updated)",
    """CREATE TABLE seats (             -- who lives a session now, and the claim under which they may write
        key       TEXT PRIMARY KEY,
        session   TEXT REFERENCES sessions (id) ON DELETE SET NULL,
        holder    TEXT,
        epoch     INTEGER NOT NULL DEFAULT 0
    ) WITHOUT ROWID""",
    "CREATE INDEX seats_by_session ON seats (session)",
    """CREATE TABLE turns (
        number    INTEGER PRIMARY KEY,
        id        TEXT NOT NULL UNIQUE,
        key       TEXT NOT NULL,
        session   TEXT NOT NULL REFERENCES sessions (id) ON DELETE CASCADE,
        platform  TEXT NOT NULL,
        inbound_id TEXT NOT NULL,
        inbound   TEXT NOT NULL,
        epoch     INTEGER NOT NULL DEFAULT 0,
        attempts  INTEGER NOT NULL DEFAULT 0,
        ending    TEXT,                 -- NULL while it waits or lives
        detail    TEXT NOT NULL DEFAULT '',
        created   REAL NOT NULL,
        ended     REAL,
        UNIQUE (platform, inbound_id)   -- the second copy of a message is refused here
    )""",
    "CREATE INDEX turns_by_session ON turns (session)",
    "CREATE INDEX turns_unfinished ON turns (key) WHERE ending IS NULL",
    """CREATE TABLE said (              -- the transcript: these rows by number, and nothing else
        number    INTEGER PRIMARY KEY,
        turn      INTEGER NOT NULL REFERENCES turns (number) ON DELETE CASCADE,
        session   TEXT NOT NULL,
        role      TEXT NOT NULL,
        message   TEXT NOT NULL,
        model     TEXT NOT NULL DEFAULT '',
        input     INTEGER,              -- usage: NULL when no model was asked
        output    INTEGER,
        cached    INTEGER,
        cache_write INTEGER,
        reasoning INTEGER,
        cost      REAL,                 -- NULL when the price is unknown
        created   REAL NOT NULL
    )""",
    "CREATE INDEX said_by_turn ON said (turn)",
    "CREATE INDEX said_by_session ON said (session)",
    "CREATE INDEX said_by_time ON said (created) WHERE input IS NOT NULL",
    """CREATE TABLE acts (              -- calls of unfinished turns; a finished turn's are in its transcript
        turn      INTEGER NOT NULL REFERENCES turns (number) ON DELETE CASCADE,
        call_id   TEXT NOT NULL,
        result    TEXT,                 -- NULL: begun, not known to have finished
        UNIQUE (turn, call_id)
    )""",
    """CREATE TABLE controls (          -- stops and the like, until whoever holds the session takes them
        number    INTEGER PRIMARY KEY AUTOINCREMENT,
        key       TEXT NOT NULL,
        kind      TEXT NOT NULL,
        op        TEXT NOT NULL
    )""",
    "CREATE INDEX controls_by_key ON controls (key)",
    "CREATE VIRTUAL TABLE words USING fts5 (text, tokenize = 'unicode61 remove_diacritics 2')",
    "CREATE TRIGGER said_unsaid AFTER DELETE ON said BEGIN DELETE FROM words WHERE rowid = old.number; END",
)

_SECOND = (
    "ALTER TABLE sessions ADD COLUMN parent TEXT REFERENCES sessions (id) ON DELETE SET NULL",
    "ALTER TABLE sessions ADD COLUMN model TEXT NOT NULL DEFAULT ''",
    "ALTER TABLE sessions ADD COLUMN busy TEXT NOT NULL DEFAULT ''",
    "ALTER TABLE turns ADD COLUMN busy TEXT NOT NULL DEFAULT 'queue'",
    "ALTER TABLE turns ADD COLUMN begun REAL",
    """CREATE TABLE lineage (           -- what a branch shares: an ancestor's turns up to one of them
        session   TEXT NOT NULL REFERENCES sessions (id) ON DELETE CASCADE,
        ancestor  TEXT NOT NULL REFERENCES sessions (id),
        upto      INTEGER NOT NULL,
        PRIMARY KEY (session, ancestor)
    ) WITHOUT ROWID""",
    "CREATE INDEX lineage_by_ancestor ON lineage (ancestor)",
    """CREATE TABLE hidden (            -- turns that a session undid; its branches may still see them
        session   TEXT NOT NULL REFERENCES sessions (id) ON DELETE CASCADE,
        turn      INTEGER NOT NULL REFERENCES turns (number) ON DELETE CASCADE,
        PRIMARY KEY (session, turn)
    ) WITHOUT ROWID""",
    "CREATE INDEX hidden_by_turn ON hidden (turn)",
    """CREATE TABLE grants (            -- what was allowed for good, word for word
        rule      BLOB PRIMARY KEY,
        created   REAL NOT NULL
    ) WITHOUT ROWID""",
)

_THIRD = (
    """CREATE TABLE debts (             -- what is owed to a chat, in the order it is paid there
        number    INTEGER PRIMARY KEY AUTOINCREMENT,
        id        TEXT NOT NULL UNIQUE,
        platform  TEXT NOT NULL,
        lane      TEXT NOT NULL,
        outbound  TEXT NOT NULL,
        state     TEXT NOT NULL DEFAULT 'owed',
        attempts  INTEGER NOT NULL DEFAULT 0,
        due       REAL NOT NULL DEFAULT 0,
        paid      TEXT NOT NULL DEFAULT '[]',
        uncertain INTEGER NOT NULL DEFAULT 0,
        why       TEXT NOT NULL DEFAULT '',
        created   REAL NOT NULL,
        settled   REAL
    )""",
    "CREATE INDEX debts_open ON debts (platform, lane, number) WHERE state IN ('owed', 'trying')",
    "CREATE INDEX debts_settled ON debts (settled) WHERE settled IS NOT NULL",
    """CREATE TABLE drafts (            -- messages in chats that a living turn is still writing
        lane      TEXT NOT NULL,
        turn      TEXT NOT NULL,
        message   TEXT NOT NULL,
        created   REAL NOT NULL,
        PRIMARY KEY (lane, turn, message)
    ) WITHOUT ROWID""",
)

_FOURTH = (
    """CREATE TABLE people (            -- who may speak on a platform beside those in the configuration
        platform  TEXT NOT NULL,
        person    TEXT NOT NULL,
        name      TEXT NOT NULL,
        role      TEXT NOT NULL,
        since     REAL NOT NULL,
        PRIMARY KEY (platform, person)
    ) WITHOUT ROWID""",
    """CREATE TABLE pairings (          -- who asked to be let in, and the hash of the code they were shown
        platform  TEXT NOT NULL,
        person    TEXT NOT NULL,
        name      TEXT NOT NULL,
        address   TEXT NOT NULL,
        salt      BLOB NOT NULL,
        hash      BLOB NOT NULL,
        created   REAL NOT NULL,
        PRIMARY KEY (platform, person)
    ) WITHOUT ROWID""",
    "CREATE TABLE missed_codes (created REAL NOT NULL)   -- wrong codes that were tried",
    """CREATE TABLE homes (             -- where a platform is written to when no chat is named
        platform  TEXT PRIMARY KEY,
        address   TEXT NOT NULL
    ) WITHOUT ROWID""",
    """CREATE TABLE chats (             -- what was chosen for a chat
        lane      TEXT PRIMARY KEY,
        progress  TEXT NOT NULL
    ) WITHOUT ROWID""",
    """CREATE TABLE arrivals (          -- what came in and is no turn: it waits for company, or is dealt with
        number    INTEGER PRIMARY KEY AUTOINCREMENT,
        platform  TEXT NOT NULL,
        id        TEXT NOT NULL,
        arrival   TEXT NOT NULL DEFAULT '',
        batch     TEXT NOT NULL DEFAULT '',
        created   REAL NOT NULL,
        done      REAL,
        UNIQUE (platform, id)
    )""",
    "CREATE INDEX arrivals_waiting ON arrivals (platform, number) WHERE done IS NULL",
    "CREATE INDEX arrivals_done ON arrivals (done) WHERE done IS NOT NULL",
)

MIGRATIONS: tuple[tuple[str, ...], ...] = (
    _FIRST,
    _SECOND,
    _THIRD,
    _FOURTH,
    steps_api.STEP,
    steps_responses.STEP,
    steps_side.STEP,
    steps_subagents.STEP,
    steps_senses.STEP,
)
SCHEMA = len(MIGRATIONS)


def migrate(db: sqlite3.Connection, steps: tuple[tuple[str, ...], ...] = MIGRATIONS) -> None:
    """Take the steps that `db` lacks, each in its own transaction; safe beside others who do the same.

    Raises `StoreError` when a newer alipes has already taken further steps.
    """
    if version(db) == len(steps):
        return
    done = False
    while not done:
        db.execute("BEGIN IMMEDIATE")
        try:
            done = _step(db, steps)
            db.execute("COMMIT")
        finally:
            if db.in_transaction:
                db.execute("ROLLBACK")


def _step(db: sqlite3.Connection, steps: tuple[tuple[str, ...], ...]) -> bool:
    have = version(db)
    if have > len(steps):
        raise StoreError(
            f"this home was written by a newer alipes (schema {have}, this one knows {len(steps)}); "
            "upgrade alipes or use another home"
        )
    if have < len(steps):
        for statement in steps[have]:
            db.execute(statement)
        db.execute(f"PRAGMA user_version = {have + 1}")
    return have + 1 >= len(steps)


def version(db: sqlite3.Connection) -> int:
    """How many steps `db` has behind it."""
    (number,) = db.execute("PRAGMA user_version").fetchone()
    return int(number)
