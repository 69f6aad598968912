"""Statements from schema 14 to 15: what the page shows, and the browsers that may show it."""

_COUNTS = ("input", "output", "cached", "cache_write", "reasoning")


def _sum_trigger(table: str, event: str, task: str) -> str:
    """Add the usage of a new row of `table` to the sums of its conversation, or subtract that of a deleted one."""
    row, sign = ("new", "") if event == "INSERT" else ("old", "-")
    values = [f"{sign}1", *(f"{sign}{row}.{name}" for name in _COUNTS)]
    values += [f"{sign}coalesce({row}.cost, 0)", f"{sign}({row}.cost IS NOT NULL)"]
    place = f"CAST({row}.created / 900 AS INTEGER), {row}.session_id, {task.format(row=row)}, {row}.model"
    added = ", ".join(f"{name} = {name} + excluded.{name}" for name in ("calls", *_COUNTS, "cost", "priced"))
    return f"""CREATE TRIGGER {table}_session_usage_{event.lower()} AFTER {event} ON {table}
        WHEN {row}.input IS NOT NULL BEGIN INSERT INTO session_usage_sums VALUES ({place}, {", ".join(values)})
            ON CONFLICT DO UPDATE SET {added}; END"""


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
_PAGE = (
    """CREATE TABLE questions (  -- questions of the model to people, and the answers
        number      INTEGER PRIMARY KEY,
        id          TEXT NOT NULL UNIQUE,
        session_id  TEXT NOT NULL REFERENCES sessions (id) ON DELETE CASCADE,
        key         TEXT NOT NULL,
        turn_id     TEXT NOT NULL,
        question    TEXT NOT NULL,
        choices     TEXT NOT NULL,  -- as JSON
        asked_at    REAL NOT NULL,
        until       REAL NOT NULL,
        answer      TEXT NOT NULL DEFAULT '',
        answered_by TEXT NOT NULL DEFAULT '',
        answered_at REAL  -- NULL while it is open
    )""",
    "CREATE INDEX questions_open ON questions (turn_id) WHERE answered_at IS NULL",
    "CREATE INDEX questions_by_session ON questions (session_id)",
    "CREATE INDEX sessions_by_platform ON sessions (platform, updated)",
    "CREATE INDEX sessions_by_folder ON sessions (workdir, updated)",
    "CREATE INDEX sessions_by_parent ON sessions (parent_id) WHERE parent_id IS NOT NULL",  # for deletions
    "CREATE INDEX approvals_open ON approvals (number) WHERE choice IS NULL",
    """CREATE TRIGGER turn_ended_questions AFTER UPDATE OF ending ON turns WHEN new.ending IS NOT NULL
        BEGIN UPDATE questions SET answered_by = 'stop', answered_at = new.ended
            WHERE turn_id = new.id AND answered_at IS NULL; END""",
    """CREATE TABLE session_usage_sums (  -- running sums of `model_calls`, by conversation
        quarter     INTEGER NOT NULL,  -- of an hour, as in `usage_sums`
        session_id  TEXT NOT NULL,
        task        TEXT NOT NULL,
        model       TEXT NOT NULL,
        calls       INTEGER NOT NULL,
        input       INTEGER NOT NULL,
        output      INTEGER NOT NULL,
        cached      INTEGER NOT NULL,
        cache_write INTEGER NOT NULL,
        reasoning   INTEGER NOT NULL,
        cost        REAL NOT NULL,
        priced      INTEGER NOT NULL,
        PRIMARY KEY (quarter, session_id, task, model)
    ) WITHOUT ROWID""",
    """INSERT INTO session_usage_sums SELECT CAST(created / 900 AS INTEGER), session_id, task, model, count(*),
        sum(input), sum(output), sum(cached), sum(cache_write), sum(reasoning), total(cost), count(cost)
        FROM model_calls GROUP BY 1, 2, 3, 4""",
    *(_sum_trigger("messages", event, "'answer'") for event in ("INSERT", "DELETE")),
    *(_sum_trigger("auxiliary_calls", event, "{row}.task") for event in ("INSERT", "DELETE")),
)
STATEMENTS: tuple[str, ...] = (*_BROWSERS, *_PAGE)
