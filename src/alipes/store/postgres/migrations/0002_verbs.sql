-- The hot writes of the store as functions, and `apply`, which runs many of them in one statement and one commit.
--
-- A call is a JSON array: its verb, its session key (empty: none), then the arguments of the verb. The result of a
-- verb is JSON. `apply` locks the lease rows of all its keys first: that is the fence, since a claim changes the epoch
-- under the same lock, and a worker that was declared dead is refused. What a caller must expect (a fenced write, a held session, a second copy) is a result, never an error.

CREATE TABLE workers (  -- the processes of a cluster
    id          text COLLATE "C" PRIMARY KEY,
    started     timestamptz NOT NULL DEFAULT clock_timestamp(),
    host        text COLLATE "C" NOT NULL DEFAULT '',
    pid         integer NOT NULL DEFAULT 0,
    roles       text COLLATE "C" NOT NULL DEFAULT '',
    lease_until timestamptz NOT NULL DEFAULT clock_timestamp() + interval '3 seconds',
    state       text COLLATE "C" NOT NULL DEFAULT 'alive'
) WITH (fillfactor = 50);

CREATE TABLE worker_batches (  -- the last `apply` of a worker; apart from `workers`, so that no heartbeat waits for it
    worker       text COLLATE "C" PRIMARY KEY,
    last_batch   bigint NOT NULL,
    last_results text COLLATE "C" NOT NULL
) WITH (fillfactor = 50);

CREATE FUNCTION is_alive(worker text) RETURNS boolean LANGUAGE sql STABLE AS $$
    -- until it is declared dead, also if its lease is over; true for a worker without a row
    SELECT coalesce((SELECT state = 'alive' FROM workers WHERE id = worker), true)
$$;

CREATE FUNCTION require_alive(worker text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN  -- at the start of each writing transaction: declaring the worker dead waits for its end
    PERFORM pg_advisory_xact_lock(20002, hashtext(worker));  -- a batch that is sent again also waits for its first try
    IF NOT is_alive(worker) THEN
        RAISE EXCEPTION 'worker % was declared dead', worker USING ERRCODE = 'AL001';
    END IF;
END $$;

CREATE FUNCTION lock_message(in_platform text, in_id text) RETURNS void LANGUAGE sql AS $$
    -- a message becomes a turn or the answer to a question, not both
    SELECT pg_advisory_xact_lock(hashtextextended(
        'alipes message ' || current_schema() || ' ' || in_platform || ' ' || in_id, 0))
$$;

CREATE FUNCTION refuse_answer_of_turn() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM lock_message(NEW.platform, NEW.id);
    PERFORM 1 FROM turns WHERE platform = NEW.platform AND inbound_id = NEW.id;
    IF FOUND THEN
        RETURN NULL;
    END IF;
    RETURN NEW;
END $$;

CREATE TRIGGER inbox_answer BEFORE INSERT ON inbox FOR EACH ROW WHEN (NEW.batch = 'answer')
    EXECUTE FUNCTION refuse_answer_of_turn();

-- Parts of several verbs -------------------------------------------------------------------------------------------

CREATE FUNCTION insert_message(in_turn bigint, in_session text, m jsonb, now_s double precision) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    new_number bigint;
BEGIN  -- m: role, JSON, model, input, output, cached, cache_write, reasoning, cost, text for the search
    INSERT INTO messages (turn_number, session_id, role, message, model,
                          input, output, cached, cache_write, reasoning, cost, created)
        VALUES (in_turn, in_session, m->>0, m->>1, m->>2, (m->>3)::bigint, (m->>4)::bigint, (m->>5)::bigint,
                (m->>6)::bigint, (m->>7)::bigint, (m->>8)::double precision, now_s)
        RETURNING number INTO new_number;
    IF m->>9 <> '' THEN
        INSERT INTO search_index (number, text) VALUES (new_number, m->>9);
    END IF;
END $$;

CREATE FUNCTION insert_outbound(worker text, entries jsonb, now_s double precision) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN  -- each: id, platform, lane, JSON, fleeting
    INSERT INTO outbox (id, platform, lane, outbound, fleeting, owner, created)
        SELECT o->>0, o->>1, o->>2, o->>3, (o->>4)::bigint, worker, now_s FROM jsonb_array_elements(entries) o
        ON CONFLICT (id) DO NOTHING;
END $$;

CREATE FUNCTION find_holder(worker text, in_key text, known_dead jsonb) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    found text;
BEGIN  -- another live worker that holds the session; NULL if there is none
    SELECT holder INTO found FROM leases WHERE key = in_key;
    IF found IS NULL OR found = worker OR known_dead ? found OR NOT is_alive(found) THEN
        RETURN NULL;
    END IF;
    RETURN found;
END $$;

-- The verbs --------------------------------------------------------------------------------------------------------

CREATE FUNCTION admit_turn(worker text, c jsonb) RETURNS text LANGUAGE plpgsql AS $$
-- c: 'admit', key, turn, new session, now, busy, usual, fits, session columns, turn columns, untrusted, outbox rows
-- session columns: platform, address, chat, user_id, workdir
-- turn columns: inbound_id, inbound, text, notice, via, model, user_id, origin_session, parent_id
-- Result: NULL for a second copy; else mode, and the unfinished turns ahead
DECLARE
    in_key text := c->>1;
    now_s double precision := (c->>4)::double precision;
    place jsonb := c->8;
    t jsonb := c->9;
    in_platform text := place->>0;
    in_session text;
    session_mode text;
    mode text := c->>5;
    ahead text;
    first_model text;
BEGIN
    PERFORM 1 FROM turns WHERE platform = in_platform AND inbound_id = t->>0;
    IF FOUND THEN
        RETURN 'null';
    END IF;
    PERFORM 1 FROM inbox WHERE platform = in_platform AND id = t->>0 AND batch = 'answer';
    IF FOUND THEN
        RETURN 'null';
    END IF;
    UPDATE sessions s SET updated = now_s, workdir = coalesce(nullif(place->>4, ''), s.workdir)
        FROM leases l WHERE l.key = in_key AND s.id = l.session_id RETURNING s.id, s.busy_mode
        INTO in_session, session_mode;
    IF NOT FOUND THEN
        in_session := c->>3;
        INSERT INTO sessions (id, key, platform, address, chat, user_id, created, updated, workdir)
            VALUES (in_session, in_key, in_platform, place->>1, place->>2, place->>3, now_s, now_s, place->>4);
        UPDATE leases SET session_id = in_session WHERE key = in_key;
    END IF;
    SELECT json_agg(json_build_array(u.id, u.session_id, u.text, u.busy_mode, u.created, u.started)
                    ORDER BY u.number)::text, (array_agg(u.model ORDER BY u.number))[1] INTO ahead, first_model
        FROM turns u WHERE u.key = in_key AND u.ending IS NULL AND u.held = 0;
    mode := coalesce(mode, nullif(session_mode, ''), c->>6);
    IF mode = 'steer' AND c->>5 IS NULL AND ahead IS NOT NULL
            AND NOT ((c->>7)::boolean AND t->>5 = first_model) THEN
        mode := 'queue';
    END IF;
    INSERT INTO turns (id, key, session_id, platform, inbound_id, inbound, text, notice, via, model, user_id,
                       origin_session, parent_id, busy_mode, created)
        VALUES (c->>2, in_key, in_session, in_platform, t->>0, t->>1, t->>2, t->>3, t->>4, t->>5, t->>6, t->>7, t->>8,
                mode, now_s)
        ON CONFLICT (platform, inbound_id) DO NOTHING;
    IF NOT FOUND THEN  -- at the same time under another key
        DELETE FROM sessions WHERE id = c->>3;
        RETURN 'null';
    END IF;
    IF ahead IS NULL THEN  -- stops that found nothing to stop must not stop this turn
        DELETE FROM pending_ops WHERE key = in_key AND kind = 'stop';
    END IF;
    IF c->>10 <> '' THEN
        INSERT INTO untrusted_sources (session_id, source, label, created)
            VALUES (in_session, c->>10, c->>10, now_s) ON CONFLICT DO NOTHING;
    END IF;
    IF jsonb_array_length(c->11) > 0 THEN
        PERFORM insert_outbound(worker, c->11, now_s);
    END IF;
    RETURN '["' || mode || '",' || coalesce(ahead, '[]') || ']';
END $$;

CREATE FUNCTION claim_turn(worker text, c jsonb) RETURNS text LANGUAGE plpgsql AS $$
-- c: 'claim', key, now, workers known to be dead. Result: NULL if nothing waits, ["held", holder],
-- or number, epoch and attempts of the turn
DECLARE
    in_key text := c->>1;
    head bigint;
    other text;
    new_epoch bigint;
    tries bigint;
BEGIN
    SELECT min(number) INTO head FROM turns WHERE key = in_key AND ending IS NULL AND held = 0;
    IF head IS NULL THEN
        RETURN 'null';
    END IF;
    other := find_holder(worker, in_key, c->3);
    IF other IS NOT NULL THEN
        RETURN json_build_array('held', other);
    END IF;
    UPDATE leases SET holder = worker, epoch = epoch + 1 WHERE key = in_key RETURNING epoch INTO new_epoch;
    UPDATE turns SET epoch = new_epoch, attempts = attempts + 1,
        started = coalesce(started, (c->>2)::double precision) WHERE number = head RETURNING attempts INTO tries;
    RETURN '[' || head || ',' || new_epoch || ',' || tries || ']';
END $$;

CREATE FUNCTION record_message(worker text, c jsonb) RETURNS text LANGUAGE plpgsql AS $$
-- c: 'record', key, turn, epoch, now, messages, outbox rows, call ids. Result: false if it is fenced
DECLARE
    in_turn bigint;
    in_session text;
    now_s double precision := (c->>4)::double precision;
    m jsonb;
BEGIN
    SELECT t.number, t.session_id INTO in_turn, in_session
        FROM turns t JOIN leases l ON l.key = t.key AND l.holder = worker
        WHERE t.id = c->>2 AND t.epoch = (c->>3)::bigint AND t.ending IS NULL;
    IF in_turn IS NULL THEN
        RETURN 'false';
    END IF;
    FOR m IN SELECT value FROM jsonb_array_elements(c->5) LOOP
        PERFORM insert_message(in_turn, in_session, m, now_s);
    END LOOP;
    IF jsonb_array_length(c->6) > 0 THEN
        PERFORM insert_outbound(worker, c->6, now_s);
    END IF;
    IF jsonb_array_length(c->7) > 0 THEN  -- some models reuse call ids: a new call has not been run yet
        DELETE FROM tool_calls WHERE turn_number = in_turn AND call_id IN (SELECT jsonb_array_elements_text(c->7));
    END IF;
    RETURN 'true';
END $$;

CREATE FUNCTION record_call(worker text, c jsonb) RETURNS text LANGUAGE plpgsql AS $$
-- c: 'call', key, turn, epoch, call id, result (NULL: it starts). Result: false if it is fenced
DECLARE
    in_turn bigint;
BEGIN
    SELECT t.number INTO in_turn FROM turns t JOIN leases l ON l.key = t.key AND l.holder = worker
        WHERE t.id = c->>2 AND t.epoch = (c->>3)::bigint AND t.ending IS NULL;
    IF in_turn IS NULL THEN
        RETURN 'false';
    END IF;
    INSERT INTO tool_calls (turn_number, call_id, result) VALUES (in_turn, c->>4, c->>5)
        ON CONFLICT (turn_number, call_id) DO UPDATE SET result = excluded.result;
    RETURN 'true';
END $$;

CREATE FUNCTION finish_turn(worker text, c jsonb) RETURNS text LANGUAGE plpgsql AS $$
-- c: 'finish', key, turn, epoch, now, messages, outbox rows, ending, detail. Result: false if it is fenced
DECLARE
    in_turn bigint;
    in_session text;
    now_s double precision := (c->>4)::double precision;
    m jsonb;
BEGIN
    SELECT t.number, t.session_id INTO in_turn, in_session
        FROM turns t JOIN leases l ON l.key = t.key AND l.holder = worker
        WHERE t.id = c->>2 AND t.epoch = (c->>3)::bigint AND t.ending IS NULL;
    IF in_turn IS NULL THEN
        RETURN 'false';
    END IF;
    FOR m IN SELECT value FROM jsonb_array_elements(c->5) LOOP
        PERFORM insert_message(in_turn, in_session, m, now_s);
    END LOOP;
    IF jsonb_array_length(c->6) > 0 THEN
        PERFORM insert_outbound(worker, c->6, now_s);
    END IF;
    UPDATE turns SET ending = c->>7, detail = c->>8, ended = now_s WHERE number = in_turn;
    DELETE FROM tool_calls WHERE turn_number = in_turn;
    UPDATE sessions SET updated = now_s WHERE id = in_session;
    RETURN 'true';
END $$;

CREATE FUNCTION take_ops(worker text, c jsonb) RETURNS text LANGUAGE plpgsql AS $$
-- c: 'take_ops', key, workers known to be dead. Result: ["held", holder], or a list with the ops as JSON texts
DECLARE
    in_key text := c->>1;
    other text := find_holder(worker, in_key, c->2);
    taken text;
BEGIN
    IF other IS NOT NULL THEN
        RETURN json_build_array('held', other);
    END IF;
    WITH unfinished AS (
        SELECT number, id FROM turns WHERE key = in_key AND ending IS NULL AND held = 0
    ), gone AS (
        DELETE FROM pending_ops WHERE key = in_key AND NOT (kind = 'stop' AND coalesce(turn_id, '') IN
            (SELECT id FROM unfinished WHERE number > (SELECT min(number) FROM unfinished)))
        RETURNING number, op
    ) SELECT json_agg(op ORDER BY number)::text INTO taken FROM gone;
    RETURN '[' || coalesce(taken, '[]') || ']';
END $$;

CREATE FUNCTION release_session(worker text, c jsonb) RETURNS text LANGUAGE plpgsql AS $$
BEGIN  -- c: 'release', key
    UPDATE leases SET holder = NULL WHERE key = c->>1 AND holder = worker;
    RETURN 'true';
END $$;

CREATE FUNCTION describe_delivery(o outbox, with_drafts boolean, turn text) RETURNS text LANGUAGE plpgsql STABLE AS $$
BEGIN  -- the columns of a delivery, and its drafts
    RETURN json_build_array(o.number, o.outbound, o.created, o.state, o.attempts, o.due, o.sent_ids, o.uncertain_part,
        o.reason, CASE WHEN with_drafts AND turn <> '' THEN coalesce((SELECT json_agg(d.message_id ORDER BY
            d.created, d.message_id) FROM drafts d WHERE d.lane = o.lane AND d.turn_id = turn), '[]') ELSE '[]' END);
END $$;

CREATE FUNCTION take_delivery(worker text, c jsonb) RETURNS text LANGUAGE plpgsql AS $$
-- c: 'take', '', number, attempts (NULL: any state), turn. Result: NULL if it changed since it was read
DECLARE
    taken outbox;
BEGIN
    IF c->>3 IS NULL THEN
        UPDATE outbox SET state = 'sending', attempts = attempts + 1, sender = worker
            WHERE number = (c->>2)::bigint RETURNING * INTO taken;
    ELSE
        UPDATE outbox o SET state = 'sending', attempts = attempts + 1, sender = worker
            WHERE number = (c->>2)::bigint AND state = 'queued' AND attempts = (c->>3)::bigint
            AND NOT EXISTS (SELECT 1 FROM outbox b WHERE b.platform = o.platform AND b.lane = o.lane
                AND b.number < o.number AND b.state IN ('queued', 'sending'))
            RETURNING * INTO taken;
    END IF;
    IF taken.number IS NULL THEN
        RETURN 'null';
    END IF;
    RETURN describe_delivery(taken, true, c->>4);
END $$;

CREATE FUNCTION mark_sent(worker text, c jsonb) RETURNS text LANGUAGE plpgsql AS $$
-- c: 'sent', '', number, ids as JSON text, uncertain, now (NULL: more parts follow), lane, turn. Result: NULL if gone
DECLARE
    changed outbox;
BEGIN
    IF c->>5 IS NULL THEN
        UPDATE outbox SET sent_ids = c->>3, uncertain_part = greatest(uncertain_part, (c->>4)::bigint)
            WHERE number = (c->>2)::bigint RETURNING * INTO changed;
    ELSE
        UPDATE outbox SET sent_ids = c->>3, uncertain_part = greatest(uncertain_part, (c->>4)::bigint),
            state = 'sent', reason = '', finished = (c->>5)::double precision
            WHERE number = (c->>2)::bigint RETURNING * INTO changed;
        IF c->>7 <> '' THEN  -- its drafts have become this message
            DELETE FROM drafts WHERE lane = c->>6 AND turn_id = c->>7;
        END IF;
    END IF;
    IF changed.number IS NULL THEN
        RETURN 'null';
    END IF;
    RETURN describe_delivery(changed, false, '');
END $$;

-- One round trip ---------------------------------------------------------------------------------------------------

CREATE FUNCTION apply(in_worker text, batch bigint, calls jsonb, sync boolean) RETURNS text
LANGUAGE plpgsql SET plan_cache_mode = force_generic_plan AS $$
-- Run all calls in order. The same batch again, after its answer was lost, returns the results of the first time.
DECLARE
    c jsonb;
    results text := '';
    done worker_batches;
    new_keys text[];
    keys text[];
BEGIN
    PERFORM require_alive(in_worker);
    SELECT * INTO done FROM worker_batches WHERE worker = in_worker;
    IF done.last_batch = batch THEN
        RETURN done.last_results;
    END IF;
    IF NOT sync THEN
        PERFORM set_config('synchronous_commit', 'off', true);
    END IF;
    SELECT array_agg(DISTINCT v->>1) FILTER (WHERE v->>1 <> ''), array_agg(DISTINCT v->>1) FILTER (WHERE v->>0 = 'admit')
        INTO keys, new_keys FROM jsonb_array_elements(calls) v;
    IF new_keys IS NOT NULL THEN
        PERFORM lock_message(platform, id) FROM (SELECT v->8->>0 AS platform, v->9->>0 AS id
            FROM jsonb_array_elements(calls) v WHERE v->>0 = 'admit' ORDER BY 1, 2) messages;
        INSERT INTO leases (key) SELECT k FROM unnest(new_keys) k ORDER BY k COLLATE "C" ON CONFLICT (key) DO NOTHING;
    END IF;
    IF keys IS NOT NULL THEN  -- sorted, so that two batches cannot wait for each other
        PERFORM 1 FROM leases WHERE key = ANY (keys) ORDER BY key FOR UPDATE;
    END IF;
    FOR c IN SELECT value FROM jsonb_array_elements(calls) LOOP
        results := results || CASE c->>0
            WHEN 'record' THEN record_message(in_worker, c)
            WHEN 'call' THEN record_call(in_worker, c)
            WHEN 'admit' THEN admit_turn(in_worker, c)
            WHEN 'claim' THEN claim_turn(in_worker, c)
            WHEN 'finish' THEN finish_turn(in_worker, c)
            WHEN 'take' THEN take_delivery(in_worker, c)
            WHEN 'sent' THEN mark_sent(in_worker, c)
            WHEN 'release' THEN release_session(in_worker, c)
            WHEN 'take_ops' THEN take_ops(in_worker, c)
            WHEN 'signal' THEN signal_session(in_worker, c)
            WHEN 'sync' THEN 'null'  -- its commit, and with it those before, waits for the disk
        END || ',';
    END LOOP;
    results := '[' || rtrim(results, ',') || ']';
    IF done.worker IS NULL THEN
        INSERT INTO worker_batches VALUES (in_worker, batch, results);
    ELSE
        UPDATE worker_batches SET last_batch = batch, last_results = results WHERE worker = in_worker;
    END IF;
    RETURN results;
END $$;

-- Reads ------------------------------------------------------------------------------------------------------------

CREATE FUNCTION load_turn(in_number bigint)
RETURNS TABLE (part integer, number bigint, turn_number bigint, body text, tokens bigint)
LANGUAGE plpgsql STABLE SET plan_cache_mode = force_generic_plan AS $$
-- A turn with what the model sees in it. Parts: 0 the turn, 1 messages before it, 2 its own, 3 summaries, 4 calls
DECLARE
    t turns;
    hidden bigint[];
    part_of record;
BEGIN
    SELECT * INTO t FROM turns WHERE turns.number = in_number;
    RETURN QUERY SELECT 0, in_number, in_number, json_build_array(t.id, t.session_id, t.inbound, s.created, s.model,
            t.epoch, t.attempts, NOT EXISTS (SELECT 1 FROM turns o WHERE o.key = t.key AND o.ending IS NULL
                AND o.held = 0 AND o.number <> in_number)
            AND NOT EXISTS (SELECT 1 FROM pending_ops p WHERE p.key = t.key))::text, NULL::bigint
        FROM sessions s WHERE s.id = t.session_id;
    SELECT coalesce(array_agg(u.turn_number), '{}') || in_number INTO hidden
        FROM undone_turns u WHERE u.session_id = t.session_id;
    FOR part_of IN SELECT a.ancestor_id, a.last_turn FROM session_ancestors a WHERE a.session_id = t.session_id
            UNION ALL SELECT t.session_id, 9223372036854775807 ORDER BY 2 LOOP
        RETURN QUERY SELECT 1, m.number, m.turn_number, m.message, m.input + m.output FROM messages m
            WHERE m.session_id = part_of.ancestor_id AND m.turn_number <= part_of.last_turn
            AND m.turn_number <> ALL (hidden) ORDER BY m.number;
    END LOOP;
    RETURN QUERY SELECT 2, m.number, m.turn_number, m.message, m.input + m.output FROM messages m
        WHERE m.turn_number = in_number ORDER BY m.number;
    IF t.attempts > 1 THEN
        RETURN QUERY SELECT 4, in_number, in_number, json_build_array(k.call_id, k.result)::text, NULL::bigint
            FROM tool_calls k WHERE k.turn_number = in_number;
    END IF;
    FOR part_of IN SELECT a.ancestor_id, a.last_turn FROM session_ancestors a WHERE a.session_id = t.session_id
            UNION ALL SELECT t.session_id, 9223372036854775807 ORDER BY 2 DESC LOOP
        RETURN QUERY SELECT 3, y.number, in_number, json_build_array(y.last_message, y.message_count, y.last_trimmed,
                y.max_chars, y.newest_message, y.text)::text, NULL::bigint
            FROM summaries y WHERE y.session_id = part_of.ancestor_id ORDER BY y.number DESC LIMIT 20;
    END LOOP;
END $$;
