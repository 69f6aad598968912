-- The current functions of PostgreSQL, derived from `migrations/` by `tools/postgres_functions.py` (`make docs`).
-- To read only: nothing executes this file. A change is a new migration, so that a new worker never changes a function
-- under an older one.

-- migrations/0001_tables.sql

CREATE FUNCTION on_session_deleted() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    DELETE FROM approvals WHERE session_id = old.id AND choice IS DISTINCT FROM 'always';
    DELETE FROM untrusted_sources WHERE session_id = old.id;
    DELETE FROM prompt_sections WHERE session_id = old.id;
    RETURN NULL;
END $$;

CREATE FUNCTION on_turn_added() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    UPDATE sessions SET first_text = substr(new.text, 1, 200) WHERE id = new.session_id AND first_text = '';
    RETURN NULL;
END $$;

CREATE FUNCTION on_turn_ended() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    UPDATE approvals SET choice = 'no', answered_by = 'stop', answered_at = new.ended
        WHERE turn_id = new.id AND taken_at IS NULL AND choice IS NULL;
    UPDATE questions SET answered_by = 'stop', answered_at = new.ended
        WHERE turn_id = new.id AND answered_at IS NULL;
    UPDATE skill_uses SET ending = new.ending WHERE turn_id = new.id AND ending IS NULL;
    IF new.platform = 'schedule' THEN
        UPDATE schedule_runs SET detail = new.detail, finished = new.ended, settled = 0,
            state = CASE new.ending WHEN 'answered' THEN 'ok' WHEN 'stopped' THEN 'stopped' ELSE 'failed' END
            WHERE turn_id = new.id AND state = 'running';
    END IF;
    RETURN NULL;
END $$;

CREATE FUNCTION on_schedule_turn_deleted() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    UPDATE schedule_runs SET state = 'stopped', detail = 'its conversation was deleted'
        WHERE turn_id = old.id AND state = 'running';
    RETURN NULL;
END $$;

CREATE FUNCTION messages_usage_insert() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO usage_sums (quarter, task, tool, model, calls, input, output, cached, cache_write, reasoning, cost, priced)
    VALUES (floor(new.created / 900), 'answer', 
        CASE WHEN (SELECT parent_id FROM turns WHERE number = new.turn_number) IS NULL THEN '' ELSE 'delegate_task' END, new.model,
        1, new.input, new.output, new.cached, new.cache_write, new.reasoning,
        coalesce(new.cost, 0), (CASE WHEN new.cost IS NULL THEN 0 ELSE 1 END))
    ON CONFLICT (quarter, task, tool, model, backend) DO UPDATE SET calls = usage_sums.calls + excluded.calls, input = usage_sums.input + excluded.input, output = usage_sums.output + excluded.output, cached = usage_sums.cached + excluded.cached, cache_write = usage_sums.cache_write + excluded.cache_write, reasoning = usage_sums.reasoning + excluded.reasoning, cost = usage_sums.cost + excluded.cost, priced = usage_sums.priced + excluded.priced;
    INSERT INTO session_usage_sums (quarter, session_id, task, model, calls, input, output, cached, cache_write, reasoning, cost, priced)
    VALUES (floor(new.created / 900), new.session_id, 'answer', new.model,
        1, new.input, new.output, new.cached, new.cache_write, new.reasoning,
        coalesce(new.cost, 0), (CASE WHEN new.cost IS NULL THEN 0 ELSE 1 END))
    ON CONFLICT (quarter, session_id, task, model) DO UPDATE SET calls = session_usage_sums.calls + excluded.calls, input = session_usage_sums.input + excluded.input, output = session_usage_sums.output + excluded.output, cached = session_usage_sums.cached + excluded.cached, cache_write = session_usage_sums.cache_write + excluded.cache_write, reasoning = session_usage_sums.reasoning + excluded.reasoning, cost = session_usage_sums.cost + excluded.cost, priced = session_usage_sums.priced + excluded.priced;
    RETURN NULL;
END $$;

CREATE FUNCTION messages_usage_delete() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO usage_sums (quarter, task, tool, model, calls, input, output, cached, cache_write, reasoning, cost, priced)
    VALUES (floor(old.created / 900), 'answer', 
        CASE WHEN (SELECT parent_id FROM turns WHERE number = old.turn_number) IS NULL THEN '' ELSE 'delegate_task' END, old.model,
        -1, -old.input, -old.output, -old.cached, -old.cache_write, -old.reasoning,
        -coalesce(old.cost, 0), -(CASE WHEN old.cost IS NULL THEN 0 ELSE 1 END))
    ON CONFLICT (quarter, task, tool, model, backend) DO UPDATE SET calls = usage_sums.calls + excluded.calls, input = usage_sums.input + excluded.input, output = usage_sums.output + excluded.output, cached = usage_sums.cached + excluded.cached, cache_write = usage_sums.cache_write + excluded.cache_write, reasoning = usage_sums.reasoning + excluded.reasoning, cost = usage_sums.cost + excluded.cost, priced = usage_sums.priced + excluded.priced;
    INSERT INTO session_usage_sums (quarter, session_id, task, model, calls, input, output, cached, cache_write, reasoning, cost, priced)
    VALUES (floor(old.created / 900), old.session_id, 'answer', old.model,
        -1, -old.input, -old.output, -old.cached, -old.cache_write, -old.reasoning,
        -coalesce(old.cost, 0), -(CASE WHEN old.cost IS NULL THEN 0 ELSE 1 END))
    ON CONFLICT (quarter, session_id, task, model) DO UPDATE SET calls = session_usage_sums.calls + excluded.calls, input = session_usage_sums.input + excluded.input, output = session_usage_sums.output + excluded.output, cached = session_usage_sums.cached + excluded.cached, cache_write = session_usage_sums.cache_write + excluded.cache_write, reasoning = session_usage_sums.reasoning + excluded.reasoning, cost = session_usage_sums.cost + excluded.cost, priced = session_usage_sums.priced + excluded.priced;
    RETURN NULL;
END $$;

CREATE FUNCTION auxiliary_calls_usage_insert() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO usage_sums (quarter, task, tool, model, calls, input, output, cached, cache_write, reasoning, cost, priced)
    VALUES (floor(new.created / 900), new.task, new.tool, new.model,
        1, new.input, new.output, new.cached, new.cache_write, new.reasoning,
        coalesce(new.cost, 0), (CASE WHEN new.cost IS NULL THEN 0 ELSE 1 END))
    ON CONFLICT (quarter, task, tool, model, backend) DO UPDATE SET calls = usage_sums.calls + excluded.calls, input = usage_sums.input + excluded.input, output = usage_sums.output + excluded.output, cached = usage_sums.cached + excluded.cached, cache_write = usage_sums.cache_write + excluded.cache_write, reasoning = usage_sums.reasoning + excluded.reasoning, cost = usage_sums.cost + excluded.cost, priced = usage_sums.priced + excluded.priced;
    INSERT INTO session_usage_sums (quarter, session_id, task, model, calls, input, output, cached, cache_write, reasoning, cost, priced)
    VALUES (floor(new.created / 900), new.session_id, new.task, new.model,
        1, new.input, new.output, new.cached, new.cache_write, new.reasoning,
        coalesce(new.cost, 0), (CASE WHEN new.cost IS NULL THEN 0 ELSE 1 END))
    ON CONFLICT (quarter, session_id, task, model) DO UPDATE SET calls = session_usage_sums.calls + excluded.calls, input = session_usage_sums.input + excluded.input, output = session_usage_sums.output + excluded.output, cached = session_usage_sums.cached + excluded.cached, cache_write = session_usage_sums.cache_write + excluded.cache_write, reasoning = session_usage_sums.reasoning + excluded.reasoning, cost = session_usage_sums.cost + excluded.cost, priced = session_usage_sums.priced + excluded.priced;
    RETURN NULL;
END $$;

CREATE FUNCTION auxiliary_calls_usage_delete() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO usage_sums (quarter, task, tool, model, calls, input, output, cached, cache_write, reasoning, cost, priced)
    VALUES (floor(old.created / 900), old.task, old.tool, old.model,
        -1, -old.input, -old.output, -old.cached, -old.cache_write, -old.reasoning,
        -coalesce(old.cost, 0), -(CASE WHEN old.cost IS NULL THEN 0 ELSE 1 END))
    ON CONFLICT (quarter, task, tool, model, backend) DO UPDATE SET calls = usage_sums.calls + excluded.calls, input = usage_sums.input + excluded.input, output = usage_sums.output + excluded.output, cached = usage_sums.cached + excluded.cached, cache_write = usage_sums.cache_write + excluded.cache_write, reasoning = usage_sums.reasoning + excluded.reasoning, cost = usage_sums.cost + excluded.cost, priced = usage_sums.priced + excluded.priced;
    INSERT INTO session_usage_sums (quarter, session_id, task, model, calls, input, output, cached, cache_write, reasoning, cost, priced)
    VALUES (floor(old.created / 900), old.session_id, old.task, old.model,
        -1, -old.input, -old.output, -old.cached, -old.cache_write, -old.reasoning,
        -coalesce(old.cost, 0), -(CASE WHEN old.cost IS NULL THEN 0 ELSE 1 END))
    ON CONFLICT (quarter, session_id, task, model) DO UPDATE SET calls = session_usage_sums.calls + excluded.calls, input = session_usage_sums.input + excluded.input, output = session_usage_sums.output + excluded.output, cached = session_usage_sums.cached + excluded.cached, cache_write = session_usage_sums.cache_write + excluded.cache_write, reasoning = session_usage_sums.reasoning + excluded.reasoning, cost = session_usage_sums.cost + excluded.cost, priced = session_usage_sums.priced + excluded.priced;
    RETURN NULL;
END $$;

-- Full-text search: the words of a message without diacritics, and its text for parts of words.
CREATE FUNCTION fold_text(value text) RETURNS text LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT regexp_replace(normalize(lower(value COLLATE "und-x-icu"), NFD), '[\u0300-\u036f]', '', 'g') COLLATE "C"
$$;

-- At most the first 200,000 characters, and no longer words than a tsvector takes.
CREATE FUNCTION fold_words(value text) RETURNS text LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT trim(regexp_replace(fold_text(left(value, 200000)) COLLATE "und-x-icu", '[^[:alnum:]]+', ' ', 'g'))
$$;

-- migrations/0003_workers.sql

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

-- migrations/0005_changes.sql

CREATE FUNCTION note_change(kind text, id text DEFAULT '', session text DEFAULT '', status text DEFAULT '')
RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    noted text := coalesce(current_setting('alipes.noted', true), '');
    note text := ',' || json_build_array(kind, id, session, status);
BEGIN
    IF position(note IN noted) = 0 THEN
        PERFORM set_config('alipes.noted', noted || note, true);
    END IF;
END $$;

CREATE FUNCTION note_row() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    r record;
BEGIN
    IF TG_OP = 'DELETE' THEN r := old; ELSE r := new; END IF;
    CASE TG_TABLE_NAME
        WHEN 'sessions' THEN
            IF r.platform <> 'subagent' THEN
                PERFORM note_change(CASE TG_OP WHEN 'DELETE' THEN 'session_deleted' ELSE 'session' END, r.id);
            END IF;
        WHEN 'turns' THEN
            PERFORM note_change('run', r.id, coalesce(nullif(r.origin_session, ''), r.session_id),
                coalesce(r.ending, CASE WHEN r.attempts > 0 THEN 'running' WHEN r.held <> 0 THEN 'held' ELSE 'queued' END));
        WHEN 'todos' THEN PERFORM note_change('session', r.session_id);
        WHEN 'undone_turns' THEN PERFORM note_change('session', r.session_id);
        WHEN 'approvals' THEN PERFORM note_change('inbox'), note_change('session', r.session_id);
        WHEN 'questions' THEN PERFORM note_change('inbox'), note_change('session', r.session_id);
        WHEN 'schedules' THEN PERFORM note_change('schedule', r.id);
        WHEN 'schedule_runs' THEN PERFORM note_change('schedule', r.schedule_id);
        WHEN 'memory_changes' THEN PERFORM note_change('memory');
        WHEN 'proposals' THEN
            PERFORM note_change(CASE r.kind WHEN 'memory' THEN 'memory' ELSE 'skill' END), note_change('inbox');
        WHEN 'people' THEN PERFORM note_change('person');
        WHEN 'pairing_requests' THEN PERFORM note_change('person'), note_change('inbox');
        WHEN 'outbox' THEN PERFORM note_change('outbox');
    END CASE;
    RETURN NULL;
END $$;

-- migrations/0007_verbs.sql

CREATE OR REPLACE FUNCTION is_alive(worker text) RETURNS boolean LANGUAGE plpgsql STABLE AS $$
BEGIN  -- until it is declared dead, also if its lease is over; true for a worker without a row
    RETURN coalesce((SELECT state = 'alive' FROM workers WHERE id = worker), true);
END $$;

CREATE OR REPLACE FUNCTION require_alive(worker text) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    ignored text;
BEGIN  -- at the start of each writing transaction: declaring the worker dead waits for its end
    ignored := pg_advisory_xact_lock(20002, hashtext(worker));  -- a batch that is sent again also waits for its first try
    IF NOT is_alive(worker) THEN
        RAISE EXCEPTION 'worker % was declared dead', worker USING ERRCODE = 'AL001';
    END IF;
END $$;

CREATE OR REPLACE FUNCTION lock_message(in_platform text, in_id text) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    ignored text;
BEGIN  -- a message becomes a turn or the answer to a question, not both
    ignored := pg_advisory_xact_lock(hashtextextended(
        'alipes message ' || current_schema() || ' ' || in_platform || ' ' || in_id, 0));
END $$;

CREATE OR REPLACE FUNCTION refuse_answer_of_turn() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM lock_message(NEW.platform, NEW.id);
    PERFORM 1 FROM turns WHERE platform = NEW.platform AND inbound_id = NEW.id;
    IF FOUND THEN
        RETURN NULL;
    END IF;
    RETURN NEW;
END $$;

CREATE FUNCTION on_turn_deleted() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    DELETE FROM messages WHERE turn_number = old.number;
    DELETE FROM tool_calls WHERE turn_number = old.number;
    RETURN NULL;
END $$;

CREATE FUNCTION on_message_deleted() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    DELETE FROM search_index WHERE number = old.number;
    RETURN NULL;
END $$;

-- The search index: plain ASCII needs neither ICU nor a query.
CREATE OR REPLACE FUNCTION on_search_text() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    words text;
BEGIN
    IF octet_length(new.text) = length(new.text) AND length(new.text) < 1000 THEN
        new.folded := lower(new.text);
        words := trim(regexp_replace(new.folded, '[^a-z0-9]+', ' ', 'g'));
        new.words := CASE WHEN words = '' THEN ''::tsvector ELSE array_to_tsvector(string_to_array(words, ' ')) END;
        RETURN new;
    END IF;
    new.folded := fold_text(new.text);
    SELECT coalesce(array_to_tsvector(array_agg(DISTINCT word)), ''::tsvector) INTO new.words
        FROM regexp_split_to_table(fold_words(new.text), ' ') AS word WHERE word <> '' AND octet_length(word) < 1000;
    RETURN new;
END $$;

CREATE OR REPLACE FUNCTION insert_messages(in_turn bigint, in_session text, entries jsonb, now_s double precision)
RETURNS void LANGUAGE plpgsql AS $$
-- each: role, JSON, model, input, output, cached, cache_write, reasoning, cost, text for the search
DECLARE
    m jsonb;
    new_number bigint;
BEGIN
    FOR place IN 0 .. jsonb_array_length(entries) - 1 LOOP
        m := entries->place;
        INSERT INTO messages (turn_number, session_id, role, message, model,
                              input, output, cached, cache_write, reasoning, cost, created)
            VALUES (in_turn, in_session, m->>0, m->>1, m->>2, (m->>3)::bigint, (m->>4)::bigint, (m->>5)::bigint,
                    (m->>6)::bigint, (m->>7)::bigint, (m->>8)::double precision, now_s)
            RETURNING number INTO new_number;
        IF m->>9 <> '' THEN
            INSERT INTO search_index (number, text) VALUES (new_number, m->>9);
        END IF;
    END LOOP;
END $$;

CREATE OR REPLACE FUNCTION insert_outbound(worker text, entries jsonb, now_s double precision) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN  -- each: id, platform, lane, JSON, fleeting
    INSERT INTO outbox (id, platform, lane, outbound, fleeting, owner, created)
        SELECT o->>0, o->>1, o->>2, o->>3, (o->>4)::bigint, worker, now_s FROM jsonb_array_elements(entries) o
        ON CONFLICT (id) DO NOTHING;
END $$;

CREATE OR REPLACE FUNCTION find_holder(worker text, in_key text, known_dead jsonb) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    found text;
BEGIN  -- another live worker that holds the session; NULL if there is none
    SELECT holder INTO found FROM leases WHERE key = in_key;
    IF found IS NULL OR found = worker OR known_dead ? found OR NOT is_alive(found) THEN
        RETURN NULL;
    END IF;
    RETURN found;
END $$;

CREATE OR REPLACE FUNCTION may_take(person text, per_person integer) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN  -- false if so many sessions of the person run in the cluster, and while another worker counts them
    RETURN per_person = 0 OR coalesce(person, '') = '' OR (
        pg_try_advisory_xact_lock(hashtextextended('alipes person ' || current_schema() || ' ' || person, 0))
        AND per_person > (SELECT count(DISTINCT t.key) FROM turns t JOIN leases l ON l.key = t.key
            WHERE t.ending IS NULL AND t.held = 0 AND t.user_id = person AND l.holder IS NOT NULL));
END $$;

CREATE OR REPLACE FUNCTION admit_turn(worker text, c jsonb) RETURNS text LANGUAGE plpgsql AS $$
-- c: 'admit', key, turn, new session, now, busy, usual, fits, session columns, turn columns, untrusted, outbox rows,
--     how many sessions of one person may run if this worker takes the session (0: any number; NULL: it does not)
-- session columns: platform, address, chat, user_id, workdir
-- turn columns: inbound_id, inbound, text, notice, via, model, user_id, origin_session, parent_id
-- Result: NULL for a second copy; else mode, the unfinished turns ahead, and the holder of the session
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
    held_by text;
    ignored text;
BEGIN
    PERFORM 1 FROM turns WHERE platform = in_platform AND inbound_id = t->>0;
    IF FOUND THEN
        RETURN 'null';
    END IF;
    PERFORM 1 FROM inbox WHERE platform = in_platform AND id = t->>0 AND batch = 'answer';
    IF FOUND THEN
        RETURN 'null';
    END IF;
    SELECT session_id, holder INTO in_session, held_by FROM leases WHERE key = in_key;
    IF in_session IS NOT NULL THEN
        UPDATE sessions s SET updated = now_s, workdir = coalesce(nullif(place->>4, ''), s.workdir)
            WHERE id = in_session RETURNING s.busy_mode INTO session_mode;
    ELSE
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
        ignored := insert_outbound(worker, c->11, now_s);
    END IF;
    IF held_by IS NULL AND c->>12 IS NOT NULL AND (c->>12 = '0' OR may_take(t->>6, (c->>12)::integer)) THEN
        UPDATE leases SET holder = worker WHERE key = in_key;
        held_by := worker;
    END IF;
    RETURN '["' || mode || '",' || coalesce(ahead, '[]') || ',' || coalesce('"' || held_by || '"', 'null') || ']';
END $$;

CREATE OR REPLACE FUNCTION record_message(worker text, c jsonb) RETURNS text LANGUAGE plpgsql AS $$
-- c: 'record', key, turn, epoch, now, messages, outbox rows, call ids. Result: false if it is fenced
DECLARE
    in_turn bigint;
    in_session text;
    now_s double precision := (c->>4)::double precision;
    ignored text;
BEGIN
    SELECT t.number, t.session_id INTO in_turn, in_session FROM turns t
        WHERE t.id = c->>2 AND t.epoch = (c->>3)::bigint AND t.ending IS NULL
        AND worker = (SELECT l.holder FROM leases l WHERE l.key = t.key);
    IF in_turn IS NULL THEN
        RETURN 'false';
    END IF;
    ignored := insert_messages(in_turn, in_session, c->5, now_s);
    IF jsonb_array_length(c->6) > 0 THEN
        ignored := insert_outbound(worker, c->6, now_s);
    END IF;
    IF jsonb_array_length(c->7) > 0 THEN  -- some models reuse call ids: a new call has not been run yet
        DELETE FROM tool_calls WHERE turn_number = in_turn AND call_id IN (SELECT jsonb_array_elements_text(c->7));
    END IF;
    RETURN 'true';
END $$;

CREATE OR REPLACE FUNCTION record_call(worker text, c jsonb) RETURNS text LANGUAGE plpgsql AS $$
-- c: 'call', key, turn, epoch, call id, result (NULL: it starts). Result: false if it is fenced
DECLARE
    in_turn bigint;
BEGIN
    SELECT t.number INTO in_turn FROM turns t
        WHERE t.id = c->>2 AND t.epoch = (c->>3)::bigint AND t.ending IS NULL
        AND worker = (SELECT l.holder FROM leases l WHERE l.key = t.key);
    IF in_turn IS NULL THEN
        RETURN 'false';
    END IF;
    INSERT INTO tool_calls (turn_number, call_id, result) VALUES (in_turn, c->>4, c->>5)
        ON CONFLICT (turn_number, call_id) DO UPDATE SET result = excluded.result;
    RETURN 'true';
END $$;

CREATE OR REPLACE FUNCTION finish_turn(worker text, c jsonb) RETURNS text LANGUAGE plpgsql AS $$
-- c: 'finish', key, turn, epoch, now, messages, outbox rows, ending, detail. Result: false if it is fenced
DECLARE
    in_turn bigint;
    in_session text;
    now_s double precision := (c->>4)::double precision;
    ignored text;
BEGIN
    SELECT t.number, t.session_id INTO in_turn, in_session FROM turns t
        WHERE t.id = c->>2 AND t.epoch = (c->>3)::bigint AND t.ending IS NULL
        AND worker = (SELECT l.holder FROM leases l WHERE l.key = t.key);
    IF in_turn IS NULL THEN
        RETURN 'false';
    END IF;
    IF jsonb_array_length(c->5) > 0 THEN
        ignored := insert_messages(in_turn, in_session, c->5, now_s);
    END IF;
    IF jsonb_array_length(c->6) > 0 THEN
        ignored := insert_outbound(worker, c->6, now_s);
    END IF;
    UPDATE turns SET ending = c->>7, detail = c->>8, ended = now_s WHERE number = in_turn;
    DELETE FROM tool_calls WHERE turn_number = in_turn;
    UPDATE sessions SET updated = now_s WHERE id = in_session AND updated < now_s - 1;  -- it is in many indexes
    RETURN 'true';
END $$;

CREATE OR REPLACE FUNCTION take_ops(worker text, c jsonb) RETURNS text LANGUAGE plpgsql AS $$
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

CREATE OR REPLACE FUNCTION release_session(worker text, c jsonb) RETURNS text LANGUAGE plpgsql AS $$
BEGIN  -- c: 'release', key
    UPDATE leases SET holder = NULL WHERE key = c->>1 AND holder = worker;
    RETURN 'true';
END $$;

CREATE OR REPLACE FUNCTION describe_delivery(o outbox, with_drafts boolean, turn text) RETURNS text
LANGUAGE plpgsql STABLE AS $$
BEGIN  -- the columns of a delivery, and its drafts
    RETURN json_build_array(o.number, o.outbound, o.created, o.state, o.attempts, o.due, o.sent_ids, o.uncertain_part,
        o.reason, CASE WHEN with_drafts AND turn <> '' THEN coalesce((SELECT json_agg(d.message_id ORDER BY
            d.created, d.message_id) FROM drafts d WHERE d.lane = o.lane AND d.turn_id = turn), '[]') ELSE '[]' END);
END $$;

CREATE OR REPLACE FUNCTION take_delivery(worker text, c jsonb) RETURNS text LANGUAGE plpgsql AS $$
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

CREATE OR REPLACE FUNCTION take_first_delivery(worker text, c jsonb) RETURNS text LANGUAGE plpgsql AS $$
-- c: 'take_first', '', platform, lane, since. Takes the first delivery of the lane if it was never tried and was created
-- after `since`. Result: NULL if there is none; else whether it was taken, its sender, the delivery, and the drafts of
-- the lane with their turns
DECLARE
    head outbox;
    taken boolean := false;
BEGIN
    SELECT * INTO head FROM outbox WHERE platform = c->>2 AND lane = c->>3 AND state IN ('queued', 'sending')
        ORDER BY number LIMIT 1;
    IF head.number IS NULL THEN
        RETURN 'null';
    END IF;
    IF head.state = 'queued' AND head.attempts = 0 AND head.due = 0 AND head.uncertain_part = 0
            AND head.created > (c->>4)::double precision THEN
        UPDATE outbox SET state = 'sending', attempts = 1, sender = worker
            WHERE number = head.number AND state = 'queued' AND attempts = 0 RETURNING * INTO head;
        taken := FOUND;
        IF NOT taken THEN  -- another worker was faster
            SELECT * INTO head FROM outbox WHERE platform = c->>2 AND lane = c->>3 AND state IN ('queued', 'sending')
                ORDER BY number LIMIT 1;
        END IF;
    END IF;
    RETURN '[' || taken || ',' || to_json(head.sender) || ',' || describe_delivery(head, false, '') || ',' || coalesce((
        SELECT json_agg(json_build_array(d.turn_id, d.message_id) ORDER BY d.created, d.message_id)::text
        FROM drafts d WHERE d.lane = head.lane), '[]') || ']';
END $$;

CREATE OR REPLACE FUNCTION put_back_delivery(worker text, c jsonb) RETURNS text LANGUAGE plpgsql AS $$
BEGIN  -- c: 'put_back', '', number. It was taken and must not be sent yet
    UPDATE outbox SET state = 'queued', attempts = attempts - 1, sender = ''
        WHERE number = (c->>2)::bigint AND state = 'sending' AND sender = worker;
    RETURN 'null';
END $$;

CREATE OR REPLACE FUNCTION mark_sent(worker text, c jsonb) RETURNS text LANGUAGE plpgsql AS $$
-- c: 'sent', '', number, ids as JSON text, uncertain, now (NULL: more parts follow), lane, turn. Result: NULL if it is
-- gone; else whether its lane is empty now
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
    RETURN NOT EXISTS (SELECT 1 FROM outbox WHERE platform = changed.platform AND lane = changed.lane
        AND state IN ('queued', 'sending'));
END $$;

CREATE OR REPLACE FUNCTION apply(in_worker text, batch bigint, calls jsonb, sync boolean) RETURNS text
LANGUAGE plpgsql SET plan_cache_mode = force_generic_plan AS $$
-- Run all calls in order. The same batch again, after its answer was lost, returns the results of the first time.
DECLARE
    c jsonb;
    results text := '';
    done worker_batches;
    new_keys text[];
    keys text[];
    ignored text;
BEGIN
    ignored := require_alive(in_worker);
    SELECT * INTO done FROM worker_batches WHERE worker = in_worker;
    IF done.last_batch = batch THEN
        RETURN done.last_results;
    END IF;
    IF NOT sync THEN
        ignored := set_config('synchronous_commit', 'off', true);
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
    FOR place IN 0 .. jsonb_array_length(calls) - 1 LOOP
        c := calls->place;
        results := results || CASE c->>0
            WHEN 'record' THEN record_message(in_worker, c)
            WHEN 'call' THEN record_call(in_worker, c)
            WHEN 'claim' THEN claim_turn(in_worker, c)
            WHEN 'admit' THEN admit_turn(in_worker, c)
            WHEN 'finish' THEN finish_turn(in_worker, c)
            WHEN 'take_first' THEN take_first_delivery(in_worker, c)
            WHEN 'sent' THEN mark_sent(in_worker, c)
            WHEN 'take' THEN take_delivery(in_worker, c)
            WHEN 'put_back' THEN put_back_delivery(in_worker, c)
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

CREATE OR REPLACE FUNCTION describe_messages(in_session text, last_turn bigint, hidden bigint[]) RETURNS text
LANGUAGE plpgsql STABLE AS $$
BEGIN  -- number, turn, JSON and tokens of the messages of a session, as the items of a JSON list
    RETURN (SELECT string_agg('[' || m.number || ',' || m.turn_number || ',' || to_json(m.message) || ','
            || coalesce((m.input + m.output)::text, 'null') || ']', ',' ORDER BY m.number)
        FROM messages m WHERE m.session_id = in_session AND m.turn_number <= last_turn
        AND m.turn_number <> ALL (hidden));
END $$;

CREATE OR REPLACE FUNCTION describe_summaries(in_session text) RETURNS text LANGUAGE plpgsql STABLE AS $$
BEGIN  -- the last summaries of a session, as the items of a JSON list
    RETURN (SELECT string_agg(json_build_array(y.last_message, y.message_count, y.last_trimmed, y.max_chars,
            y.newest_message, y.text)::text, ',' ORDER BY y.number DESC)
        FROM (SELECT * FROM summaries WHERE session_id = in_session ORDER BY number DESC LIMIT 20) y);
END $$;

CREATE OR REPLACE FUNCTION describe_turn(in_number bigint) RETURNS text LANGUAGE plpgsql STABLE AS $$
-- A turn with what the model sees in it: id, session, inbound, the session's start, model, effort, tools switched off
-- and prompt sections, whether its queue is empty, the messages before it, its own, summaries, calls
DECLARE
    t turns;
    s sessions;
    hidden bigint[];
    before text;
    own text;
    shortened text;
    begun text;
    ancestor record;
    empty boolean;
BEGIN
    SELECT * INTO t FROM turns WHERE number = in_number;
    SELECT * INTO s FROM sessions WHERE id = t.session_id;
    empty := NOT EXISTS (SELECT 1 FROM turns o WHERE o.key = t.key AND o.ending IS NULL AND o.held = 0
            AND o.number <> in_number)
        AND NOT EXISTS (SELECT 1 FROM pending_ops p WHERE p.key = t.key);
    hidden := coalesce((SELECT array_agg(u.turn_number) FROM undone_turns u WHERE u.session_id = t.session_id), '{}')
        || in_number;
    before := describe_messages(t.session_id, 9223372036854775807, hidden);
    shortened := describe_summaries(t.session_id);
    FOR ancestor IN SELECT * FROM session_ancestors WHERE session_id = t.session_id ORDER BY last_turn DESC LOOP
        before := concat_ws(',', describe_messages(ancestor.ancestor_id, ancestor.last_turn, hidden), before);
        shortened := concat_ws(',', shortened, describe_summaries(ancestor.ancestor_id));
    END LOOP;
    own := (SELECT string_agg('[' || m.number || ',' || m.turn_number || ',' || to_json(m.message) || ','
            || coalesce((m.input + m.output)::text, 'null') || ']', ',' ORDER BY m.number)
        FROM messages m WHERE m.turn_number = in_number);
    IF t.attempts > 1 THEN
        begun := (SELECT json_agg(json_build_array(k.call_id, k.result))::text FROM tool_calls k
            WHERE k.turn_number = in_number);
    END IF;
    RETURN '[' || to_json(t.id) || ',' || to_json(t.session_id) || ',' || to_json(t.inbound) || ',' || s.created || ','
        || to_json(s.model) || ',' || to_json(s.effort) || ',' || to_json(s.tools_off) || ','
        || coalesce((SELECT json_object_agg(p.section, p.text)::text FROM prompt_sections p
            WHERE p.session_id = t.session_id), '{}') || ',' || empty || ',[' || coalesce(before, '') || '],[' || coalesce(own, '') || '],['
        || coalesce(shortened, '') || '],' || coalesce(begun, '[]') || ']';
END $$;

CREATE OR REPLACE FUNCTION look(calls jsonb) RETURNS text LANGUAGE plpgsql STABLE
SET plan_cache_mode = force_generic_plan AS $$
-- Run all reads. A call is an array: 'load', number of a turn; 'holder', key; 'pending', key; 'waiting', per person
DECLARE
    c jsonb;
    found text;
    results text := '';
BEGIN
    FOR place IN 0 .. jsonb_array_length(calls) - 1 LOOP
        c := calls->place;
        CASE c->>0
            WHEN 'load' THEN found := describe_turn((c->>1)::bigint);
            WHEN 'holder' THEN found := (SELECT to_json(holder) FROM leases WHERE key = c->>1);
            WHEN 'pending' THEN
                found := EXISTS (SELECT 1 FROM turns WHERE key = c->>1 AND ending IS NULL AND held = 0);
            WHEN 'waiting' THEN
                found := (SELECT json_build_array(w.sessions, w.oldest_s) FROM count_waiting((c->>1)::bigint) w);
        END CASE;
        results := results || coalesce(found, 'null') || ',';
    END LOOP;
    RETURN '[' || rtrim(results, ',') || ']';
END $$;

-- migrations/0010_limits.sql

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
