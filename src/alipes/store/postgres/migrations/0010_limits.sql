-- Turns that wait for a limit, keys that rest, and the bill of each key.

ALTER TABLE turns ADD COLUMN resume_at double precision NOT NULL DEFAULT 0;  -- not claimed before this time
CREATE INDEX turns_parked ON turns (resume_at) WHERE resume_at > 0;

-- API keys that their provider does not serve for a while
CREATE TABLE key_rests (
    provider text COLLATE "C" NOT NULL,
    variable text COLLATE "C" NOT NULL,
    reason text COLLATE "C" NOT NULL,
    until double precision NOT NULL,
    PRIMARY KEY (provider, variable)
);

-- running sums of the calls with each key of a provider that has several
CREATE TABLE key_usage (
    provider text COLLATE "C" NOT NULL,
    variable text COLLATE "C" NOT NULL,
    session_id text COLLATE "C" NOT NULL,
    model text COLLATE "C" NOT NULL,
    quarter bigint NOT NULL,
    calls bigint NOT NULL,
    input bigint NOT NULL,
    output bigint NOT NULL,
    cached bigint NOT NULL,
    cache_write bigint NOT NULL,
    reasoning bigint NOT NULL,
    cost double precision NOT NULL,
    priced bigint NOT NULL,
    updated double precision NOT NULL,
    PRIMARY KEY (provider, session_id, variable, model, quarter)
);
CREATE INDEX key_usage_by_time ON key_usage (quarter);

CREATE OR REPLACE FUNCTION is_parked(in_key text, now_s double precision) RETURNS boolean LANGUAGE plpgsql STABLE AS $$
BEGIN  -- true if the first turn of the session waits for a limit, and nobody stopped it or left its conversation
    RETURN EXISTS (SELECT 1 FROM turns t JOIN leases l ON l.key = t.key
        WHERE t.key = in_key AND t.ending IS NULL AND t.held = 0 AND t.resume_at > now_s AND t.session_id = l.session_id
        AND NOT EXISTS (SELECT 1 FROM pending_ops p WHERE p.key = in_key AND (
            p.kind = 'stop' AND coalesce(p.turn_id, '') IN ('', t.id)
            OR p.kind = 'reset' AND p.session_id = t.session_id)));
END $$;

CREATE OR REPLACE FUNCTION claim_turn(worker text, c jsonb) RETURNS text LANGUAGE plpgsql AS $$
-- c: 'claim', key, now, workers known to be dead, whether to release the session if nothing waits
-- Result: NULL if nothing waits or the turn is parked, ["held", holder], or number, epoch and attempts of the turn
DECLARE
    in_key text := c->>1;
    head bigint;
    other text;
    new_epoch bigint;
    tries bigint;
BEGIN
    SELECT min(number) INTO head FROM turns WHERE key = in_key AND ending IS NULL AND held = 0;
    IF head IS NULL OR is_parked(in_key, (c->>2)::double precision) THEN
        IF (c->>4)::boolean THEN
            UPDATE leases SET holder = NULL WHERE key = in_key AND holder = worker;
        END IF;
        RETURN 'null';
    END IF;
    other := find_holder(worker, in_key, c->3);
    IF other IS NOT NULL THEN
        RETURN json_build_array('held', other);
    END IF;
    UPDATE leases SET holder = worker, epoch = epoch + 1 WHERE key = in_key RETURNING epoch INTO new_epoch;
    UPDATE turns SET epoch = new_epoch, attempts = attempts + 1, resume_at = 0, detail = '',
        started = coalesce(started, (c->>2)::double precision) WHERE number = head RETURNING attempts INTO tries;
    RETURN '[' || head || ',' || new_epoch || ',' || tries || ']';
END $$;

CREATE OR REPLACE FUNCTION count_waiting(per_person bigint, OUT sessions bigint, OUT oldest_s double precision)
LANGUAGE plpgsql STABLE AS $$
BEGIN  -- the sessions that wait for a worker, without those of a person who has as many running ones as allowed
    SELECT count(DISTINCT t.key), coalesce(extract(epoch FROM clock_timestamp())::float8 - min(t.created), 0)
        INTO sessions, oldest_s FROM turns t LEFT JOIN leases l ON l.key = t.key
        WHERE t.ending IS NULL AND t.held = 0 AND l.holder IS NULL
            AND NOT is_parked(t.key, extract(epoch FROM clock_timestamp())::double precision)
            AND (per_person = 0 OR t.user_id = '' OR t.user_id IS NULL OR per_person > (
                SELECT count(DISTINCT o.key) FROM turns o JOIN leases h ON h.key = o.key AND h.holder IS NOT NULL
                WHERE o.ending IS NULL AND o.held = 0 AND o.user_id = t.user_id));
END $$;

CREATE OR REPLACE FUNCTION take_sessions(taker text, wanted integer, per_person integer)
RETURNS SETOF text LANGUAGE plpgsql AS $$
-- Take at most `wanted` sessions for a worker, the longest-waiting first; at most `per_person` of one person in the
-- cluster (0: no limit). A session waits if it has an unfinished turn that is not held, and no holder.
DECLARE
    candidate record;
    refused text[] := '{}';
    taken integer := 0;
BEGIN
    PERFORM 1 FROM workers WHERE id = taker AND state = 'alive';
    IF NOT FOUND THEN
        RETURN;
    END IF;
    FOR candidate IN  -- read step by step: usually the first rows are enough
        SELECT t.key, t.user_id AS person FROM turns t
            WHERE t.ending IS NULL AND t.held = 0
            AND EXISTS (SELECT 1 FROM leases w WHERE w.key = t.key AND w.holder IS NULL)
            AND NOT is_parked(t.key, extract(epoch FROM clock_timestamp())::double precision) ORDER BY t.number
    LOOP
        EXIT WHEN taken >= wanted;
        CONTINUE WHEN candidate.person = ANY (refused);
        IF NOT may_take(candidate.person, per_person) THEN
            refused := refused || candidate.person;
            CONTINUE;
        END IF;
        PERFORM 1 FROM leases WHERE key = candidate.key AND holder IS NULL FOR UPDATE SKIP LOCKED;
        CONTINUE WHEN NOT FOUND;  -- another worker takes it, or it was an earlier candidate
        UPDATE leases SET holder = taker WHERE key = candidate.key;
        taken := taken + 1;
        RETURN NEXT candidate.key;
    END LOOP;
END $$;
