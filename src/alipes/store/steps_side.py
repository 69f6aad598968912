"""The step of the schema for summaries that stand for what was said, and for what was spent on the side."""

STEP: tuple[str, ...] = (
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
