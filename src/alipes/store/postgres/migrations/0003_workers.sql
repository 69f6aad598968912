-- Workers: who is alive, who takes which session, and what happens to the sessions of a dead one.

CREATE TABLE IF NOT EXISTS workers (
    id text COLLATE "C" PRIMARY KEY,
    started timestamptz NOT NULL DEFAULT clock_timestamp(),
    host text COLLATE "C" NOT NULL DEFAULT '',
    pid integer NOT NULL DEFAULT 0,
    roles text COLLATE "C" NOT NULL DEFAULT '',
    lease_until timestamptz NOT NULL DEFAULT clock_timestamp() + interval '3 seconds',
    state text COLLATE "C" NOT NULL DEFAULT 'alive'
);

-- the start of the server at which the worker took its lock: after a restart of the server the lock of a living
-- worker is free until it has connected again
ALTER TABLE workers ADD COLUMN IF NOT EXISTS server_start timestamptz;

CREATE INDEX IF NOT EXISTS workers_alive ON workers (id) WHERE state = 'alive';
CREATE INDEX IF NOT EXISTS leases_held ON leases (holder) WHERE holder IS NOT NULL;
CREATE INDEX IF NOT EXISTS turns_unfinished ON turns (key, number) WHERE ending IS NULL;

-- Take-overs by cause, for the metrics.
CREATE TABLE IF NOT EXISTS takeovers (
    worker text COLLATE "C" PRIMARY KEY,
    cause text COLLATE "C" NOT NULL,
    sessions bigint NOT NULL,
    by_worker text COLLATE "C" NOT NULL,
    at timestamptz NOT NULL DEFAULT clock_timestamp()
);

-- Declare a worker dead: mark its row and free its sessions. Returns how many sessions, or NULL if it was not ours to
-- declare. `cause`: `death` (its lock was released), `lease` (its lease is over), `left` (it exits).
CREATE OR REPLACE FUNCTION declare_dead(gone text, how text, declarer text) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    freed bigint;
BEGIN
    PERFORM 1 FROM workers WHERE id = gone AND state = 'alive'
        AND (how <> 'lease' OR lease_until < clock_timestamp());
    IF NOT FOUND THEN
        RETURN NULL;
    END IF;
    -- a paused worker may hold row locks in an open transaction
    IF how <> 'left' THEN
        PERFORM pg_terminate_backend(pid) FROM pg_stat_activity
            WHERE datname = current_database() AND application_name = 'alipes ' || gone;
    END IF;
    PERFORM pg_advisory_xact_lock(20002, hashtext(gone));  -- its running write ends first; later ones are refused
    UPDATE workers SET state = CASE how WHEN 'left' THEN 'left' ELSE 'dead' END
        WHERE id = gone AND state = 'alive' AND (how <> 'lease' OR lease_until < clock_timestamp());
    IF NOT FOUND THEN
        RETURN NULL;
    END IF;
    PERFORM 1 FROM leases WHERE holder = gone ORDER BY key FOR UPDATE;  -- in the order in which `apply` locks
    UPDATE leases SET holder = NULL WHERE holder = gone;
    GET DIAGNOSTICS freed = ROW_COUNT;
    IF how <> 'left' THEN
        INSERT INTO takeovers (worker, cause, sessions, by_worker) VALUES (gone, how, freed, declarer)
            ON CONFLICT DO NOTHING;
    END IF;
    PERFORM pg_notify('alipes_' || id, '!gone ' || gone) FROM workers WHERE state = 'alive' OR id = gone;
    RETURN freed;
END $$;

-- Store an op and notify the worker that holds the session, in the same transaction: a stop is rare and must be quick.
CREATE OR REPLACE FUNCTION signal_session(worker text, c jsonb) RETURNS text LANGUAGE plpgsql AS $$
-- c: 'signal', key, kind, op, turn, reason, session. Result: the live holder or NULL, and whether a turn waits
DECLARE
    in_key text := c->>1;
    other text;
BEGIN
    INSERT INTO pending_ops (key, kind, op, turn_id, reason, session_id)
        VALUES (in_key, c->>2, c->>3, c->>4, c->>5, c->>6);
    SELECT holder INTO other FROM leases WHERE key = in_key;
    IF other <> worker AND is_alive(other) THEN
        PERFORM pg_notify('alipes_' || other, '!ops ' || in_key);
    END IF;
    RETURN json_build_array(CASE WHEN is_alive(other) THEN other END, EXISTS (
        SELECT 1 FROM turns WHERE key = in_key AND ending IS NULL AND held = 0));
END $$;
