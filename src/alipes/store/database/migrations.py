"""The schema, as the numbered steps that led to it. A released step is never edited: add the next one."""

import sqlite3

from alipes.kernel.errors import StoreError

STEP_API: tuple[str, ...] = (
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


STEP_RESPONSES: tuple[str, ...] = (
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


STEP_SENSES: tuple[str, ...] = (
    """CREATE TABLE todos (             -- what a conversation has still to do, as its model wrote it down
        session   TEXT PRIMARY KEY REFERENCES sessions (id) ON DELETE CASCADE,
        items     TEXT NOT NULL,
        updated   REAL NOT NULL
    ) WITHOUT ROWID""",
)


STEP_SIDE: tuple[str, ...] = (
    # the turn on whose behalf another is lived: it is read off its message, and looked up by it
    "ALTER TABLE turns ADD COLUMN parent TEXT AS (json_extract(inbound, '$.parent')) VIRTUAL",
    "CREATE INDEX turns_by_parent ON turns (parent) WHERE parent IS NOT NULL",
    """CREATE TABLE billed (            -- model calls that are no message of a transcript
        number    INTEGER PRIMARY KEY,
        turn      TEXT NOT NULL,        -- the id of the turn it was done for
        session   TEXT NOT NULL,
        task      TEXT NOT NULL,
        tool      TEXT NOT NULL,
        model     TEXT NOT NULL,
        input     INTEGER NOT NULL,
        output    INTEGER NOT NULL,
        cached    INTEGER NOT NULL,
        cache_write INTEGER NOT NULL,
        reasoning INTEGER NOT NULL,
        cost      REAL,                 -- NULL when the price is unknown
        created   REAL NOT NULL
    )""",
    "CREATE INDEX billed_by_turn ON billed (turn)",
    "CREATE INDEX billed_by_session ON billed (session)",
    "CREATE INDEX billed_by_time ON billed (created)",
    """CREATE VIEW bill AS              -- every model call, whoever made it
        SELECT turns.id AS turn, said.session AS session, 'answer' AS task,
            iif(turns.parent IS NULL, '', 'delegate_task') AS tool, said.model AS model,
            input, output, cached, cache_write, reasoning, cost, said.created AS created
        FROM said JOIN turns ON turns.number = said.turn WHERE input IS NOT NULL
        UNION ALL
        SELECT turn, session, task, tool, model,
            input, output, cached, cache_write, reasoning, cost, created FROM billed""",
    """CREATE TABLE digests (           -- what stands for the beginning of a conversation; the latest counts
        number    INTEGER PRIMARY KEY,
        session   TEXT NOT NULL REFERENCES sessions (id) ON DELETE CASCADE,
        upto      INTEGER NOT NULL,     -- the last message it stands for; zero: for none
        covers    INTEGER NOT NULL,     -- how many messages that were; if others now, it is not true any more
        trimmed   INTEGER NOT NULL,     -- results up to this message are shown shortened
        widest    INTEGER NOT NULL,
        last      INTEGER NOT NULL,     -- the last message there was when it was made
        text      TEXT NOT NULL,
        created   REAL NOT NULL
    )""",
    "CREATE INDEX digests_by_session ON digests (session)",
    """CREATE TABLE compactions (       -- how summing up went that did not help, since it last did
        session   TEXT PRIMARY KEY REFERENCES sessions (id) ON DELETE CASCADE,
        tries     INTEGER NOT NULL,
        why       TEXT NOT NULL
    ) WITHOUT ROWID""",
)


STEP_SUBAGENTS: tuple[str, ...] = (
    """CREATE INDEX turns_by_origin ON turns (json_extract(inbound, '$.origin.session'))
        WHERE platform = 'subagent'""",
)


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
    STEP_API,
    STEP_RESPONSES,
    STEP_SIDE,
    STEP_SUBAGENTS,
    STEP_SENSES,
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
