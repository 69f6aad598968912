"""Statements from schema 13 to 14: search in large homes, schedules, skills, memory."""

SESSION_CHAT = "iif(json_valid(address), json_extract(address, '$.chat'), '')"
SESSION_USER = "iif(json_valid(address), coalesce(json_extract(address, '$.user'), ''), '')"
_PARENT = "(SELECT parent_id FROM turns WHERE number = {row}.turn_number)"


def _usage_triggers(table: str, task: str, tool: str) -> list[str]:
    """Add the usage of a new row of `table` to the running sums, and subtract that of a deleted one."""
    counts = ("input", "output", "cached", "cache_write", "reasoning")
    names = ("calls", *counts, "cost", "priced")
    triggers = []
    for event, row, sign in (("INSERT", "new", "+"), ("DELETE", "old", "-")):
        signed = "" if sign == "+" else "-"
        given = [f"{signed}1", *(f"{signed}{row}.{name}" for name in counts)]
        given += [f"{signed}coalesce({row}.cost, 0)", f"{signed}({row}.cost IS NOT NULL)"]
        place = f"CAST({row}.created / 900 AS INTEGER), {task.format(row=row)}, {tool.format(row=row)}, {row}.model"
        added = ", ".join(f"{name} = {name} + excluded.{name}" for name in names)
        triggers.append(
            f"""CREATE TRIGGER {table}_usage_{event.lower()} AFTER {event} ON {table} WHEN {row}.input IS NOT NULL
        BEGIN INSERT INTO usage_sums VALUES ({place}, {", ".join(given)})
            ON CONFLICT DO UPDATE SET {added}; END"""
        )
    return triggers


MESSAGE_USAGE_TRIGGERS = _usage_triggers("messages", "'answer'", f"iif({_PARENT} IS NULL, '', 'delegate_task')")
_SEARCH = (
    "ALTER TABLE sessions ADD COLUMN first_text TEXT NOT NULL DEFAULT ''",  # start of its first message
    """UPDATE sessions SET first_text = coalesce((SELECT iif(json_valid(inbound),
        substr(json_extract(inbound, '$.text'), 1, 200), '') FROM turns WHERE session_id = sessions.id
        ORDER BY number LIMIT 1), '')""",
    """CREATE TRIGGER turns_first_text AFTER INSERT ON turns
        BEGIN UPDATE sessions SET first_text = coalesce(substr(json_extract(new.inbound, '$.text'), 1, 200), '')
            WHERE id = new.session_id AND first_text = ''; END""",
    "CREATE INDEX sessions_by_title ON sessions (title COLLATE NOCASE)",
    "CREATE INDEX sessions_by_first_text ON sessions (first_text COLLATE NOCASE)",
    f"CREATE INDEX sessions_by_chat ON sessions ({SESSION_CHAT})",
    f"CREATE INDEX sessions_by_owner ON sessions (platform, {SESSION_USER}, updated)",
    "DROP INDEX sessions_by_key",
    "CREATE INDEX sessions_by_key ON sessions (key, updated)",
    """CREATE TABLE usage_sums (  -- running sums of `model_calls`
        quarter     INTEGER NOT NULL,  -- of an hour: seconds since 1970 divided by 900
        task        TEXT NOT NULL,
        tool        TEXT NOT NULL,
        model       TEXT NOT NULL,
        calls       INTEGER NOT NULL,
        input       INTEGER NOT NULL,
        output      INTEGER NOT NULL,
        cached      INTEGER NOT NULL,
        cache_write INTEGER NOT NULL,
        reasoning   INTEGER NOT NULL,
        cost        REAL NOT NULL,
        priced      INTEGER NOT NULL,  -- calls with a known price
        PRIMARY KEY (quarter, task, tool, model)
    ) WITHOUT ROWID""",
    """INSERT INTO usage_sums SELECT CAST(created / 900 AS INTEGER), task, tool, model, count(*), sum(input),
        sum(output), sum(cached), sum(cache_write), sum(reasoning), total(cost), count(cost)
        FROM model_calls GROUP BY 1, 2, 3, 4""",
    *MESSAGE_USAGE_TRIGGERS,
    *_usage_triggers("auxiliary_calls", "{row}.task", "{row}.tool"),
    """CREATE VIRTUAL TABLE search_trigrams USING fts5 (  -- parts of words; filled in the background
        text, content = '', columnsize = 0, detail = none, tokenize = 'trigram')""",
    """CREATE TABLE search_progress (  -- which messages an index has: those from `first` to `last`
        name  TEXT PRIMARY KEY,
        first INTEGER NOT NULL,
        last  INTEGER NOT NULL
    ) WITHOUT ROWID""",
    """CREATE TRIGGER messages_deleted_progress AFTER DELETE ON messages  -- the number may be given again
        WHEN NOT EXISTS (SELECT 1 FROM messages WHERE number > old.number)
        BEGIN UPDATE search_progress SET last = old.number - 1 WHERE last >= old.number; END""",
    """CREATE TABLE message_vectors (  -- embeddings of messages, if they are available
        number INTEGER PRIMARY KEY REFERENCES messages (number) ON DELETE CASCADE,
        vector BLOB NOT NULL
    )""",
)
_SCHEDULES = (
    """CREATE TABLE schedules (  -- scheduled jobs
        id         TEXT PRIMARY KEY,
        name       TEXT NOT NULL UNIQUE,
        job        TEXT NOT NULL,  -- JSON
        state      TEXT NOT NULL DEFAULT 'on',  -- on, paused or done
        due        REAL,  -- the next time; NULL if it has none
        wake_at    REAL,  -- due, and the jitter
        event_kind TEXT NOT NULL DEFAULT '',  -- after, file or mail: what starts it instead of the time
        event_name TEXT NOT NULL DEFAULT '',
        seen       TEXT NOT NULL DEFAULT '',  -- of a watched file
        created    REAL NOT NULL,
        updated    REAL NOT NULL
    ) WITHOUT ROWID""",
    "CREATE INDEX schedules_due ON schedules (wake_at) WHERE wake_at IS NOT NULL AND state = 'on'",
    "CREATE INDEX schedules_by_event ON schedules (event_kind, event_name) WHERE event_kind <> ''",
    """CREATE TABLE schedule_runs (  -- one row for each time that a job fired, and for each retry
        number      INTEGER PRIMARY KEY AUTOINCREMENT,
        schedule_id TEXT NOT NULL,  -- the schedule may have been removed
        name        TEXT NOT NULL,
        job         TEXT NOT NULL,  -- JSON, as it was when the run was made
        fire_at     REAL NOT NULL,
        attempt     INTEGER NOT NULL DEFAULT 1,
        state       TEXT NOT NULL,  -- waiting, running, ok, failed, stopped or skipped
        start_at    REAL,
        cause       TEXT NOT NULL DEFAULT '',
        given       TEXT NOT NULL DEFAULT '',  -- text from elsewhere for the prompt
        untrusted   TEXT NOT NULL DEFAULT '',  -- whose text that is
        turn_id     TEXT NOT NULL DEFAULT '',
        session_id  TEXT NOT NULL DEFAULT '',
        detail      TEXT NOT NULL DEFAULT '',
        created     REAL NOT NULL,
        started     REAL,
        finished    REAL,
        settled     INTEGER NOT NULL DEFAULT 1,  -- 0: ended, and neither delivered nor retried yet
        UNIQUE (schedule_id, fire_at, attempt)
    )""",
    "CREATE INDEX schedule_runs_open ON schedule_runs (state, start_at) WHERE state IN ('waiting', 'running')",
    "CREATE INDEX schedule_runs_unsettled ON schedule_runs (number) WHERE settled = 0",
    "CREATE INDEX schedule_runs_by_turn ON schedule_runs (turn_id) WHERE turn_id <> ''",
    """CREATE TRIGGER schedule_turn_ended AFTER UPDATE OF ending ON turns
        WHEN new.ending IS NOT NULL AND new.platform = 'schedule'
        BEGIN UPDATE schedule_runs SET detail = new.detail, finished = new.ended, settled = 0,
            state = CASE new.ending WHEN 'answered' THEN 'ok' WHEN 'stopped' THEN 'stopped' ELSE 'failed' END
            WHERE turn_id = new.id AND state = 'running'; END""",
    """CREATE TRIGGER schedule_turn_deleted AFTER DELETE ON turns WHEN old.platform = 'schedule'
        BEGIN UPDATE schedule_runs SET state = 'stopped', detail = 'its conversation was deleted'
            WHERE turn_id = old.id AND state = 'running'; END""",
    """CREATE TABLE schedule_posts (  -- answers that are sent to web addresses
        number   INTEGER PRIMARY KEY AUTOINCREMENT,
        id       TEXT NOT NULL UNIQUE,
        url      TEXT NOT NULL,
        body     TEXT NOT NULL,
        attempts INTEGER NOT NULL DEFAULT 0,
        due      REAL NOT NULL,
        state    TEXT NOT NULL DEFAULT 'queued',  -- queued, sent or failed
        reason   TEXT NOT NULL DEFAULT '',
        created  REAL NOT NULL
    )""",
    "CREATE INDEX schedule_posts_queued ON schedule_posts (due) WHERE state = 'queued'",
)
_SKILLS = (
    "ALTER TABLE sessions ADD COLUMN skills_off TEXT NOT NULL DEFAULT ''",  # names, separated by spaces
    """CREATE TABLE prompt_sections (  -- parts of the system prompt that stay the same for a whole conversation
        session_id TEXT NOT NULL,
        section    TEXT NOT NULL,
        text       TEXT NOT NULL,
        created    REAL NOT NULL,
        PRIMARY KEY (session_id, section)
    ) WITHOUT ROWID""",
    """CREATE TRIGGER session_deleted_sections AFTER DELETE ON sessions
        BEGIN DELETE FROM prompt_sections WHERE session_id = old.id; END""",
    """CREATE TABLE skill_uses (  -- a skill that was read in a turn, and how the turn ended
        number     INTEGER PRIMARY KEY,
        skill      TEXT NOT NULL,
        session_id TEXT NOT NULL,
        turn_id    TEXT NOT NULL,
        how        TEXT NOT NULL,  -- `viewed` by the model, or given by a `command`
        created    REAL NOT NULL,
        ending     TEXT,  -- NULL while the turn runs
        UNIQUE (skill, turn_id, how)
    )""",
    "CREATE INDEX skill_uses_open ON skill_uses (turn_id) WHERE ending IS NULL",
    """CREATE TRIGGER turn_ended_skills AFTER UPDATE OF ending ON turns WHEN new.ending IS NOT NULL
        BEGIN UPDATE skill_uses SET ending = new.ending WHERE turn_id = new.id AND ending IS NULL; END""",
)
_MEMORY = (
    """CREATE TABLE memory_snapshots (  -- the notes in the system prompt: as they were when the conversation started
        session_id TEXT PRIMARY KEY REFERENCES sessions (id) ON DELETE CASCADE,
        scope      TEXT NOT NULL,  -- whose notes
        text       TEXT NOT NULL,
        created    REAL NOT NULL
    ) WITHOUT ROWID""",
    """CREATE TABLE memory_changes (  -- every change of a memory file, with the file before and after it
        number     INTEGER PRIMARY KEY AUTOINCREMENT,
        scope      TEXT NOT NULL,
        target     TEXT NOT NULL,
        action     TEXT NOT NULL,
        before     TEXT NOT NULL,
        after      TEXT NOT NULL,
        author     TEXT NOT NULL,
        session_id TEXT NOT NULL,
        turn_id    TEXT NOT NULL,
        sources    TEXT NOT NULL,  -- untrusted text that had been read, as JSON; empty list: none, or confirmed
        created    REAL NOT NULL,
        undone_by  INTEGER
    )""",
    "CREATE INDEX memory_changes_by_file ON memory_changes (scope, target, number)",
    """CREATE TABLE proposals (  -- changes of memory and skills that wait for a person's decision
        number     INTEGER PRIMARY KEY AUTOINCREMENT,
        id         TEXT NOT NULL UNIQUE,
        kind       TEXT NOT NULL,
        scope      TEXT NOT NULL,
        change     TEXT NOT NULL,  -- as JSON, by kind
        reason     TEXT NOT NULL,
        session_id TEXT NOT NULL,
        turn_id    TEXT NOT NULL,
        sources    TEXT NOT NULL,
        state      TEXT NOT NULL DEFAULT 'pending',
        decided_by TEXT NOT NULL DEFAULT '',
        created    REAL NOT NULL,
        decided    REAL
    )""",
    "CREATE INDEX proposals_by_state ON proposals (state, scope, number)",
)
STATEMENTS: tuple[str, ...] = (*_SEARCH, *_SCHEDULES, *_SKILLS, *_MEMORY)
